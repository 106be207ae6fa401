"""OpenAI Chat Completions: the format that OpenAI, Azure and every compatible server speak.

Lives here: the format, plain and streaming. Not here: Responses (`openai`), or servers without tools (`json_mode`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from typing_extensions import override

from toolmason._core.toolbox.exchange import (
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    Finish,
    ModelEvent,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    Usage,
)
from toolmason._core.values.content import Content, Text
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ModelError
from toolmason.providers.aliases import Names, wire_id
from toolmason.providers.codec import Body, Codec, Reader, allowed, error_in, state_of
from toolmason.providers.content_parts import (
    FILLER,
    IMAGES,
    PDF,
    arguments_text,
    blob_of,
    clean,
    fields_of,
    joined,
    new_id,
    words_of,
)
from toolmason.providers.reply_checks import count, inner
from toolmason.providers.schema.losses import Narrowed
from toolmason.providers.schema.strict import fit_openai
from toolmason.providers.tool_set import Offer, Terms

_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_KEPT: Final = ("reasoning_content", "reasoning_details", "extra_content")
"""What compatible servers put into a message, and want to see again: DeepSeek, OpenRouter, Google."""
_OPENAI_MODEL: Final = re.compile(r"(gpt-|chatgpt|o\d)")
_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filter",
}


class ChatCodec(Codec):
    """OpenAI's Chat Completions API."""

    name = "openai-chat"
    terms = Terms(provider="openai-chat", fit=fit_openai, rule=r"[A-Za-z0-9_-]{1,64}", longest=64)

    @override
    def definition(self, tool: ToolDefinition, narrowed: Narrowed, alias: str) -> Body:
        function = {"name": alias, "description": tool.description, "parameters": narrowed.schema}
        return {"type": "function", "function": {**function, "strict": narrowed.strict}}

    @override
    def result(self, result: ToolResult, names: Names | None = None) -> Body:
        return {"role": "tool", "tool_call_id": wire_id(result.call_id), "content": clean(result.text)}

    @override
    def body(self, request: ModelRequest, offer: Offer, model: str) -> Body:
        body: Body = {
            "model": model,
            "messages": [
                item
                for said in request.messages
                for item in offer.written(said, partial(self._written, said, offer.names, model))
            ],
        }
        if not body["messages"]:
            body["messages"] = [{"role": "user", "content": FILLER}]
        tools = self.tools(offer)
        if tools:
            body["tools"] = tools
            body.update(_choice(request, offer.names))
            if (parallel := request.options.get("parallel")) is not None:
                body["parallel_tool_calls"] = bool(parallel)
        # Newer models of OpenAI refuse the old name, and most compatible servers know only that.
        most = "max_completion_tokens" if _OPENAI_MODEL.match(model) else "max_tokens"
        known = {"max_tokens": most, "temperature": "temperature", "top_p": "top_p", "stop": "stop"}
        body.update(fields_of(request.options, known, self.name))
        return body

    def _written(self, message: Message, names: Names, model: str) -> Iterator[Body]:
        own = state_of(message, self.name) if message.role == "assistant" else None
        state = own[0] if own and isinstance(own[0], Mapping) else {}
        # Many servers speak this format, and one refuses what another wants: only the same model gets it back.
        if not _same_model(str(state.get("model") or ""), model):
            state = {}
        for item in self.messages(message, names):
            yield _with_kept(item, state) if state else item

    def messages(self, message: Message, names: Names) -> Iterator[Body]:
        """Yield one message as the API has it; a result with an image needs one more of the user."""
        if message.role == "assistant":
            said: Body = {"role": "assistant", "content": joined(message.content) or None}
            if message.calls:
                said["tool_calls"] = [_call_to(call, names) for call in message.calls]
            elif said["content"] is None:
                said["content"] = ""
            yield said
        elif message.role == "tool":
            yield from (self.result(result, names) for result in message.results)
            if parts := list(_attached(message)):
                yield {"role": "user", "content": parts}
        elif message.role == "system":
            yield {"role": "system", "content": joined(message.content)}
        else:
            plain = all(blob_of(part) is None for part in message.content)
            content: Any = joined(message.content) if plain else [_part(part) for part in message.content]
            yield {"role": "user", "content": content}

    @override
    def streaming(self, body: Body) -> Body:
        return {**body, "stream": True, "stream_options": {"include_usage": True}}

    @override
    def reader(self, names: Names) -> Reader:
        return ChatReader(self, names)

    @override
    def read(self, body: Mapping[str, Any], names: Names) -> ModelReply:
        choice = body["choices"][0]
        said = choice["message"]
        text, refusal = said.get("content"), said.get("refusal")
        if isinstance(text, list):
            text = "".join(part.get("text") or "" for part in text)
        content: list[Content] = [Text(part) for part in (text, refusal) if part]
        calls = [_call_in(call, names) for call in said.get("tool_calls") or () if call.get("function")]
        finish = _FINISHES.get(choice.get("finish_reason") or "stop", "other")
        if calls and finish == "stop":
            finish = "calls"
        message = Message("assistant", content, calls, provider_state=self._state(said, body.get("model")))
        return ModelReply(
            message, calls, "refusal" if refusal and not calls else finish, _usage(body.get("usage")), body
        )

    def _state(self, said: Mapping[str, Any], model: Any) -> dict[str, Any] | None:
        kept: dict[str, Any] = {key: said[key] for key in _KEPT if said.get(key)}
        listed = [call for call in said.get("tool_calls") or () if call.get("function")]
        if any(call.get("extra_content") for call in listed):
            kept["tool_calls"] = [_extra(call) for call in listed]
        return {"provider": self.name, "items": [{"model": model, **kept}]} if kept else None


class ChatReader(Reader):
    """One stream of the Chat Completions API."""

    def __init__(self, codec: ChatCodec, names: Names) -> None:
        super().__init__(codec.name)
        self._codec, self._names = codec, names
        self._texts: dict[str, str] = {}
        self._calls: dict[Any, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._id: Any = None
        self._model: Any = None
        self._own: dict[str, Any] = {}

    @override
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error"):
            raise error_in(self._codec.name, event)
        self._usage = event.get("usage") or self._usage
        self._id = event.get("id") or self._id
        self._model = event.get("model") or self._model
        for choice in event.get("choices") or ():
            if choice.get("index"):
                continue
            delta = choice.get("delta") or {}
            for key in ("content", "refusal"):
                if isinstance(piece := delta.get(key), str) and piece:
                    self._texts[key] = self._texts.get(key, "") + piece
                    yield TextDelta(piece)
            if thought := delta.get("reasoning_content") or delta.get("reasoning"):
                yield ThoughtDelta(str(thought))
            self._keep(delta)
            for piece in delta.get("tool_calls") or ():
                yield from self._piece(piece)
            if choice.get("finish_reason"):
                self._finish = choice["finish_reason"]
                yield from self._close()

    def _keep(self, delta: Mapping[str, Any]) -> None:
        for key in _KEPT:
            if not (piece := delta.get(key)):
                continue
            known = self._own.get(key)
            if isinstance(known, str) and isinstance(piece, str):
                self._own[key] = known + piece
            elif isinstance(piece, list):
                self._own[key] = joined_details([*(known or ()), *piece])
            else:
                self._own[key] = piece

    def _piece(self, piece: Mapping[str, Any]) -> Iterator[ModelEvent]:
        function = piece.get("function") or {}
        key = piece.get("index")
        if key is None:  # some servers leave it out: an id begins a call, and what has none goes on with the last
            key = piece.get("id") or next(reversed(self._calls), 0)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = {"id": piece.get("id") or new_id(), "name": "", "arguments": "", "told": False}
        call["name"] = call["name"] or function.get("name") or ""
        call["extra_content"] = piece.get("extra_content") or call.get("extra_content")
        if call["name"] and not call["told"]:
            call["told"] = True
            yield CallOpened(call["id"], self._names.name(call["name"]))
        text = function.get("arguments") or ""
        if not isinstance(text, str):  # llama.cpp and others have sent the object itself
            text = arguments_text(ToolCall("", "", text))
        if text:
            call["arguments"] += text
            yield ArgumentsDelta(call["id"], text)

    def _close(self) -> Iterator[ModelEvent]:
        for call in self._calls.values():
            if not call.get("closed"):
                call["closed"] = True
                yield CallClosed(ToolCall(call["id"], self._names.name(call["name"]), call["arguments"] or "{}"))

    @override
    def whole(self) -> ModelReply:
        if self._finish is None:
            raise ModelError(self._codec.name, "the stream ended before the answer did", code="cut", retryable=True)
        calls = [
            {
                "id": c["id"],
                "type": "function",
                "function": {"name": c["name"], "arguments": c["arguments"]},
                **_extra(c),
            }
            for c in self._calls.values()
        ]
        own = {**self._texts, **self._own}
        message = {"role": "assistant", "content": None, **own, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "finish_reason": self._finish, "message": message}
        body = {"id": self._id, "model": self._model, "choices": [choice], "usage": self._usage}
        return self._codec.decode(body, self._names)


def joined_details(pieces: Iterable[Any]) -> list[Any]:
    """Return the details of a thought with the pieces of each put together."""
    made: list[Any] = []
    for piece in pieces:
        last = made[-1] if made else None
        if not isinstance(piece, Mapping) or not isinstance(last, dict) or not _goes_on(last, piece):
            made.append(dict(piece) if isinstance(piece, Mapping) else piece)
            continue
        texts = {key: last[key] + piece[key] for key in ("text", "summary", "data") if key in last and key in piece}
        last.update({**{key: value for key, value in piece.items() if value is not None}, **texts})
    return made


def _goes_on(last: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    return piece.get("index") is not None and all(last.get(key) == piece.get(key) for key in ("index", "type"))


def _same_model(told: str, asked: str) -> bool:
    """Tell whether an answer is of the model that is asked; servers add dates and prefixes to its name."""
    one, other = told.rpartition("/")[2], asked.rpartition("/")[2]
    return not one or one.startswith(other) or other.startswith(one)


def _with_kept(item: Body, state: Mapping[str, Any]) -> Body:
    made = {**item, **{key: state[key] for key in _KEPT if key in state}}
    told, calls = state.get("tool_calls"), item.get("tool_calls")
    if not isinstance(told, list) or not calls or len(told) != len(calls):
        return made
    pairs = zip(calls, told, strict=True)
    made["tool_calls"] = [{**call, **_extra(was)} for call, was in pairs]
    return made


def _extra(call: Any) -> Body:
    extra = call.get("extra_content") if isinstance(call, Mapping) else None
    return {"extra_content": extra} if extra else {}


def _part(part: Content) -> Body:
    blob = blob_of(part)
    if blob is not None and blob.kind == "image" and blob.mime_type in IMAGES:
        return {"type": "image_url", "image_url": {"url": blob.url}}
    if blob is not None and blob.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": blob.base64, "format": _SOUNDS[blob.mime_type]}}
    if blob is not None and blob.mime_type == PDF:
        return {"type": "file", "file": {"filename": blob.name, "file_data": blob.url}}
    return {"type": "text", "text": words_of(part)}


def _attached(message: Message) -> Iterator[Body]:
    """Yield what the results of a turn hold beside text, which the API takes from the user alone."""
    for result in message.results:
        parts = [_part(part) for part in result.content if blob_of(part) is not None]
        held = [part for part in parts if part["type"] != "text"]
        if held:
            yield {"type": "text", "text": f"What the call {wire_id(result.call_id)} of {result.name} gave:"}
            yield from held


def _choice(request: ModelRequest, names: Names) -> Body:
    choice, wanted = request.tool_choice, allowed(request.tool_choice, names)
    if choice is None:
        return {}
    if not wanted or choice.mode == "none":
        return {"tool_choice": choice.mode}
    tools = [{"type": "function", "function": {"name": name}} for name in wanted]
    if choice.mode == "required" and len(wanted) == 1:
        return {"tool_choice": tools[0]}
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}}


def _call_in(item: Mapping[str, Any], names: Names) -> ToolCall:
    function = item["function"]
    given = function.get("arguments")
    return ToolCall(str(item.get("id") or new_id()), names.name(function["name"]), given or "{}")


def _call_to(call: ToolCall, names: Names) -> Body:
    function = {"name": names.alias(call.name), "arguments": arguments_text(call)}
    return {"id": wire_id(call.id), "type": "function", "function": function}


def _usage(told: Any) -> Usage:
    if not isinstance(told, Mapping):
        return Usage()
    into, out = inner(told, "prompt_tokens_details"), inner(told, "completion_tokens_details")
    return Usage(
        count(told, "prompt_tokens"),
        count(told, "completion_tokens"),
        count(into, "cached_tokens"),
        count(into, "cache_write_tokens"),
        count(out, "reasoning_tokens"),
    )


CODEC: Final = ChatCodec()
