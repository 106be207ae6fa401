"""Anthropic Messages: tools, conversations and answers as `POST /v1/messages` has them.

Lives here: the format, plain and streaming. Not here: sending.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from pydantic_core import from_json
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
from toolmason.providers.codec import Body, Codec, Reader, Replay, error_in, state_of
from toolmason.providers.content_parts import (
    FILLER,
    IMAGES,
    PDF,
    arguments_object,
    blob_of,
    clean,
    fields_of,
    joined,
    new_id,
    words_of,
)
from toolmason.providers.native_tools import anthropic_servers
from toolmason.providers.reply_checks import count, inner
from toolmason.providers.schema.losses import Narrowed
from toolmason.providers.schema.strict import fit_anthropic
from toolmason.providers.tool_set import Offer, Terms

_MOST_TOKENS: Final = 8192
"""The API wants a limit; this one is within what every current model takes."""
_FINISHES: Final[Mapping[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_MODES: Final = {"auto": "auto", "required": "any", "none": "none"}


class MessagesCodec(Codec):
    """Anthropic's Messages API."""

    name = "anthropic"
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}  # noqa: RUF012 - never changed
    terms = Terms(provider="anthropic", fit=fit_anthropic, rule=r"[A-Za-z0-9_-]{1,64}", longest=64)

    @override
    def definition(self, tool: ToolDefinition, narrowed: Narrowed, alias: str) -> Body:
        made: Body = {"name": alias, "description": tool.description, "input_schema": narrowed.schema}
        return {**made, "strict": True} if narrowed.strict else made

    @override
    def result(self, result: ToolResult, names: Names | None = None) -> Body:
        made: Body = {"type": "tool_result", "tool_use_id": wire_id(result.call_id)}
        if result.ok and any(blob_of(part) for part in result.content):
            made["content"] = [part for part in map(_part, result.content) if part is not None]
        else:
            made["content"] = clean(result.text)
        return made if result.ok else {**made, "is_error": True}

    @override
    def body(self, request: ModelRequest, offer: Offer, model: str) -> Body:
        body: Body = {"model": model, "max_tokens": _MOST_TOKENS, "messages": self._messages(request, offer)}
        system = [joined(message.content) for message in request.messages if message.role == "system"]
        if text := "\n\n".join(filter(None, system)):
            body["system"] = text
        choice = request.tool_choice
        # There is no list of allowed tools in this API: only those are offered.
        picked = offer.only(choice.names) if choice is not None and choice.names else offer
        if tools := self.tools(picked):
            body["tools"] = tools
            body.update(_choice(request, offer.names))
        if servers := anthropic_servers(offer.native):
            body["mcp_servers"] = servers
        body.update(fields_of(request.options, {"max_tokens": "max_tokens", "stop": "stop_sequences"}, self.name))
        return body

    def _messages(self, request: ModelRequest, offer: Offer) -> list[Body]:
        turns: list[Body] = []
        for message in request.messages:
            blocks = list(offer.written(message, partial(self._blocks, message, offer.names)))
            role = "assistant" if message.role == "assistant" else "user"
            if not blocks:
                continue
            # Results have to stand first in the one message after their calls, so the user's words join them.
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"].extend(blocks)
            else:
                turns.append({"role": role, "content": blocks})
        if not turns or turns[0]["role"] == "assistant":
            turns.insert(0, {"role": "user", "content": [{"type": "text", "text": FILLER}]})
        return turns

    def _blocks(self, message: Message, names: Names) -> Iterator[Body]:
        if message.role == "assistant":
            replay = Replay(lambda item: _call_in(item, names), _text_in, lambda c: _call_to(c, names), _text_to)
            blocks = replay.items(message, state_of(message, self.name), joined(message.content))
            yield from (block for block in blocks if block.get("type") != "text" or block.get("text"))
        elif message.role == "tool":
            yield from (self.result(result, names) for result in message.results)
        elif message.role == "user":
            yield from (part for part in map(_part, message.content) if part is not None)

    @override
    def streaming(self, body: Body) -> Body:
        return {**body, "stream": True}

    @override
    def reader(self, names: Names) -> Reader:
        return MessagesReader(self, names)

    @override
    def read(self, body: Mapping[str, Any], names: Names) -> ModelReply:
        blocks = body["content"]
        # Citations and the like part one text into several; together they are what the model said.
        text = "".join(part for part in map(_text_in, blocks) if part)
        content = [Text(text)] if text else []
        calls = [call for call in (_call_in(block, names) for block in blocks) if call is not None]
        opaque = any(_text_in(block) is None and _call_in(block, names) is None for block in blocks)
        state = {"provider": self.name, "items": list(blocks)} if opaque else None
        finish: Finish = _FINISHES.get(body.get("stop_reason") or ("tool_use" if calls else "end_turn"), "other")
        message = Message("assistant", content, calls, provider_state=state)
        return ModelReply(message, message.calls, finish, _usage(body.get("usage")), body)


class MessagesReader(Reader):
    """One stream of the Messages API."""

    def __init__(self, codec: MessagesCodec, names: Names) -> None:
        super().__init__(codec.name)
        self._codec, self._names = codec, names
        self._body: dict[str, Any] = {"content": [], "usage": {}}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._json: dict[int, str] = {}
        self._ended = False

    @override
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type")
        if kind == "error" or (kind is None and "error" in event):
            raise error_in(self._codec.name, event)
        if kind == "message_start":
            self._body.update(event.get("message") or {})
            self._body["usage"] = dict(self._body.get("usage") or {})
        elif kind == "content_block_start":
            yield from self._start(int(event.get("index") or 0), dict(event.get("content_block") or {}))
        elif kind == "content_block_delta":
            yield from self._delta(int(event.get("index") or 0), event.get("delta") or {})
        elif kind == "content_block_stop":
            yield from self._stop(int(event.get("index") or 0))
        elif kind == "message_delta":
            self._body.update({k: v for k, v in (event.get("delta") or {}).items() if v is not None})
            self._body["usage"].update({k: v for k, v in (event.get("usage") or {}).items() if v is not None})
        elif kind == "message_stop":
            self._ended = True

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[ModelEvent]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            block["id"] = block.get("id") or new_id("toolu")
            yield CallOpened(block["id"], self._names.name(block.get("name") or ""))
        elif block.get("type") == "text" and block.get("text"):
            yield TextDelta(block["text"])

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        kind = delta.get("type")
        if kind == "text_delta":
            block["text"] = (block.get("text") or "") + delta["text"]
            yield TextDelta(delta["text"])
        elif kind == "thinking_delta":
            block["thinking"] = (block.get("thinking") or "") + delta["thinking"]
            yield ThoughtDelta(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = (block.get("signature") or "") + delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif kind == "input_json_delta":
            self._json[index] = self._json.get(index, "") + delta["partial_json"]
            if block.get("type") == "tool_use" and delta["partial_json"]:
                yield ArgumentsDelta(block["id"], delta["partial_json"])

    def _stop(self, index: int) -> Iterator[ModelEvent]:
        block = self._blocks.get(index, {})
        if index in self._json:
            try:
                block["input"] = from_json(self._json[index] or "{}")
            except ValueError:
                # Cut by the token limit: the text itself tells what is wrong with it when it is bound.
                block["input"] = self._json[index]
        call = _call_in(block, self._names)
        if call is not None:
            yield CallClosed(call)

    @override
    def whole(self) -> ModelReply:
        if not self._ended:
            raise ModelError(self._codec.name, "the stream ended before the answer did", code="cut", retryable=True)
        content = [self._blocks[index] for index in sorted(self._blocks)]
        return self._codec.decode({**self._body, "content": content}, self._names)


def _part(part: Content) -> Body | None:
    blob = blob_of(part)
    if blob is not None and blob.mime_type in IMAGES:
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": blob.mime_type, "data": blob.base64},
        }
    if blob is not None and blob.mime_type == PDF:
        source = {"type": "base64", "media_type": PDF, "data": blob.base64}
        return {"type": "document", "source": source, "title": blob.name}
    text = words_of(part)
    return {"type": "text", "text": text} if text.strip() else None


def _choice(request: ModelRequest, names: Names) -> Body:
    choice, parallel = request.tool_choice, request.options.get("parallel")
    if choice is None and parallel is None:
        return {}
    made: Body = {"type": _MODES[choice.mode] if choice is not None else "auto"}
    if choice is not None and choice.mode == "required" and len(choice.names) == 1:
        made = {"type": "tool", "name": names.alias(choice.names[0])}
    if parallel is False and made["type"] != "none":
        made["disable_parallel_tool_use"] = True
    return {"tool_choice": made}


def _call_in(block: Mapping[str, Any], names: Names) -> ToolCall | None:
    if block.get("type") != "tool_use":
        return None
    given, name = block.get("input"), names.name(block["name"])
    arguments = {} if given is None else names.own_keys(name, given)
    return ToolCall(str(block.get("id") or new_id("toolu")), name, arguments)


def _call_to(call: ToolCall, names: Names) -> Body:
    return {
        "type": "tool_use",
        "id": wire_id(call.id),
        "name": names.alias(call.name),
        "input": names.sent_keys(call.name, arguments_object(call)),
    }


def _text_in(block: Mapping[str, Any]) -> str | None:
    return str(block.get("text") or "") if block.get("type") == "text" else None


def _text_to(text: str) -> Body:
    return {"type": "text", "text": text}


def _usage(told: Any) -> Usage:
    if not isinstance(told, Mapping):
        return Usage()
    read, written = count(told, "cache_read_input_tokens"), count(told, "cache_creation_input_tokens")
    thought = count(inner(told, "output_tokens_details"), "thinking_tokens")
    return Usage(count(told, "input_tokens") + read + written, count(told, "output_tokens"), read, written, thought)


CODEC: Final = MessagesCodec()
