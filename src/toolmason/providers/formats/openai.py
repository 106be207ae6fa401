"""The events of an OpenAI Responses stream → our events and the whole answer.

Lives here: putting items together. Not here: what an item means (`openai`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from toolmason.providers.codec import Body, Codec, Reader, Replay, allowed, error_in, state_of
from toolmason.providers.content_parts import (
    FILLER,
    IMAGES,
    PDF,
    arguments_text,
    blob_of,
    clean,
    fields_of,
    joined,
    words_of,
)
from toolmason.providers.reply_checks import count, inner
from toolmason.providers.schema.losses import Narrowed
from toolmason.providers.schema.strict import fit_openai
from toolmason.providers.tool_set import Offer, Terms

_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.done")


class ResponsesReader(Reader):
    """One stream of the Responses API."""

    def __init__(self, names: Names, decode: Callable[[Any], ModelReply]) -> None:
        super().__init__("openai")
        self._names, self._decode = names, decode
        self._items: dict[int, dict[str, Any]] = {}
        self._ids: dict[str, int] = {}
        self._closed: set[int] = set()
        self._body: dict[str, Any] | None = None

    @override
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type", "")
        if kind == "error" or (not kind and "error" in event):
            told = event if isinstance(event.get("error"), Mapping) else {"error": dict(event)}
            raise error_in("openai", told)
        if kind in ("response.output_item.added", "response.output_item.done"):
            yield from self._item(kind, event)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            yield TextDelta(event.get("delta") or "")
        elif kind in _THOUGHTS:
            yield ThoughtDelta(event.get("delta") or "")
        elif kind == "response.function_call_arguments.delta":
            item = self._items.setdefault(self._index(event), {})
            item["arguments"] = (item.get("arguments") or "") + (event.get("delta") or "")
            yield ArgumentsDelta(str(item.get("call_id") or ""), event.get("delta") or "")
        elif kind == "response.function_call_arguments.done":
            item = self._items.setdefault(self._index(event), {})
            item["arguments"] = event.get("arguments") or item.get("arguments") or ""
        elif kind in _ENDS:
            yield from self._end(event.get("response") or {})

    def _index(self, event: Mapping[str, Any]) -> int:
        if isinstance(number := event.get("output_index"), int):
            return number
        return self._ids.get(str(event.get("item_id")), max(self._items, default=0))

    def _item(self, kind: str, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        number = self._index(event) if "output_index" in event else len(self._items)
        item = dict(event.get("item") or {})
        known = self._items.get(number, {})
        self._ids[str(item.get("id"))] = number
        if item.get("type") == "function_call":
            item["arguments"] = item.get("arguments") or known.get("arguments") or ""
            if kind.endswith("added"):
                yield CallOpened(str(item.get("call_id") or item.get("id")), self._names.name(item.get("name") or ""))
        self._items[number] = item
        if kind.endswith("done") and number not in self._closed:
            self._closed.add(number)
            yield from self._close(item)

    def _close(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if item.get("type") == "function_call":
            call_id = str(item.get("call_id") or item.get("id"))
            yield CallClosed(ToolCall(call_id, self._names.name(item.get("name") or ""), item["arguments"] or "{}"))

    def _end(self, response: Mapping[str, Any]) -> Iterator[ModelEvent]:
        for number in sorted(self._items.keys() - self._closed):
            yield from self._close(self._items[number])
        self._closed.update(self._items)
        # Not every server repeats the items at the end.
        output = response.get("output") or [self._items[number] for number in sorted(self._items)]
        self._body = {"status": "completed", **response, "output": output}

    @override
    def whole(self) -> ModelReply:
        if self._body is None:
            raise ModelError("openai", "the stream ended before the answer did", code="cut", retryable=True)
        return self._decode(self._body)


_UNTHINKING: Final = ("gpt-3", "gpt-4", "chatgpt")
"""Models without reasoning, which refuse to be asked for it."""


class ResponsesCodec(Codec):
    """OpenAI's Responses API."""

    name = "openai"
    search = {"type": "tool_search"}  # noqa: RUF012 - never changed
    terms = Terms(provider="openai", fit=fit_openai, rule=r"[A-Za-z0-9_-]{1,128}", longest=128)

    @override
    def definition(self, tool: ToolDefinition, narrowed: Narrowed, alias: str) -> Body:
        return {
            "type": "function",
            "name": alias,
            "description": tool.description,
            "parameters": narrowed.schema,
            "strict": narrowed.strict,
        }

    @override
    def result(self, result: ToolResult, names: Names | None = None) -> Body:
        blobs = any(blob_of(part) for part in result.content) and result.ok
        output: Any = [_part(part) for part in result.content] if blobs else clean(result.text)
        return {"type": "function_call_output", "call_id": wire_id(result.call_id), "output": output}

    @override
    def body(self, request: ModelRequest, offer: Offer, model: str) -> Body:
        said = [message for message in request.messages if message.role != "system"]
        first = request.messages.index(said[0]) if said else len(request.messages)
        head, rest = request.messages[:first], request.messages[first:]
        items = [item for m in rest for item in offer.written(m, partial(self._items, m, offer.names))]
        body: Body = {"model": model, "input": items}
        if head and (text := "\n\n".join(filter(None, (joined(m.content) for m in head)))):
            body["instructions"] = text
        if not body["input"]:
            body["input"] = [{"type": "message", "role": "user", "content": FILLER}]
        tools = self.tools(offer)
        if tools:
            body["tools"] = tools
            body.update(_choice(request, offer.names))
            if (parallel := request.options.get("parallel")) is not None:
                body["parallel_tool_calls"] = bool(parallel)
        known = {"max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p"}
        body.update(fields_of(request.options, known, self.name))
        # We keep the conversation ourselves; what the model thought has to come along, encrypted, to go back.
        body["store"] = False
        if not model.startswith(_UNTHINKING):
            body["include"] = ["reasoning.encrypted_content"]
        return body

    def _items(self, message: Message, names: Names) -> Iterator[Body]:
        if message.role == "assistant":
            replay = Replay(lambda item: _call_in(item, names), _text_in, lambda c: _call_to(c, names), _text_to)
            yield from replay.items(message, state_of(message, self.name), joined(message.content))
        elif message.role == "tool":
            yield from (self.result(result, names) for result in message.results)
        elif message.role == "system":
            yield {"type": "message", "role": "developer", "content": joined(message.content)}
        else:
            # What only this provider understands, such as an answer to its own question, may stand beside words.
            own = state_of(message, self.name) or []
            if message.content or not own:
                yield {"type": "message", "role": "user", "content": [_part(part) for part in message.content]}
            yield from (dict(item) for item in own if isinstance(item, Mapping))

    @override
    def streaming(self, body: Body) -> Body:
        return {**body, "stream": True}

    @override
    def reader(self, names: Names) -> ResponsesReader:
        return ResponsesReader(names, lambda body: self.decode(body, names))

    @override
    def read(self, body: Mapping[str, Any], names: Names) -> ModelReply:
        if body.get("status") == "failed":
            raise error_in(self.name, body if body.get("error") else {"error": "the response failed"})
        output = body["output"]
        # Citations and the like part one text into several; together they are what the model said.
        text = "".join(part for part in map(_text_in, output) if part)
        content = [Text(text)] if text else []
        calls = [call for call in (_call_in(item, names) for item in output) if call is not None]
        opaque = any(_text_in(item) is None and _call_in(item, names) is None for item in output)
        state = {"provider": self.name, "items": list(output)} if opaque else None
        message = Message("assistant", content, calls, provider_state=state)
        return ModelReply(message, calls, _finish(body, output, calls), _usage(body.get("usage")), body)


def _part(part: Content) -> Body:
    blob = blob_of(part)
    if blob is None:
        return {"type": "input_text", "text": words_of(part)}
    if blob.kind == "image" and blob.mime_type in IMAGES:
        return {"type": "input_image", "image_url": blob.url, "detail": "auto"}
    if blob.mime_type == PDF:
        return {"type": "input_file", "filename": blob.name, "file_data": blob.url}
    return {"type": "input_text", "text": words_of(part)}


def _choice(request: ModelRequest, names: Names) -> Body:
    choice, wanted = request.tool_choice, allowed(request.tool_choice, names)
    if choice is None:
        return {}
    if not wanted or choice.mode == "none":
        return {"tool_choice": choice.mode}
    if choice.mode == "required" and len(wanted) == 1:
        return {"tool_choice": {"type": "function", "name": wanted[0]}}
    tools = [{"type": "function", "name": name} for name in wanted]
    return {"tool_choice": {"type": "allowed_tools", "mode": choice.mode, "tools": tools}}


def _call_in(item: Mapping[str, Any], names: Names) -> ToolCall | None:
    if item.get("type") != "function_call":
        return None
    return ToolCall(str(item.get("call_id") or item.get("id")), names.name(item["name"]), item.get("arguments") or "{}")


def _call_to(call: ToolCall, names: Names) -> Body:
    return {
        "type": "function_call",
        "call_id": wire_id(call.id),
        "name": names.alias(call.name),
        "arguments": arguments_text(call),
    }


def _text_in(item: Mapping[str, Any]) -> str | None:
    if item.get("type") != "message":
        return None
    return "".join(part.get("text") or part.get("refusal") or "" for part in item.get("content") or ())


def _text_to(text: str) -> Body:
    return {"type": "message", "role": "assistant", "content": text}


def _finish(body: Mapping[str, Any], output: list[Any], calls: list[ToolCall]) -> Finish:
    if body.get("status") in ("cancelled", "in_progress", "queued"):
        return "other"
    if body.get("status") == "incomplete":
        reason = (body.get("incomplete_details") or {}).get("reason")
        return "filter" if reason == "content_filter" else "length"
    if calls:
        return "calls"
    if any(item.get("type") == "mcp_approval_request" for item in output):
        return "pause"
    parts = (part for item in output if item.get("type") == "message" for part in item.get("content") or ())
    return "refusal" if any(part.get("type") == "refusal" for part in parts) else "stop"


def _usage(told: Any) -> Usage:
    if not isinstance(told, Mapping):
        return Usage()
    into, out = inner(told, "input_tokens_details"), inner(told, "output_tokens_details")
    return Usage(
        count(told, "input_tokens"),
        count(told, "output_tokens"),
        count(into, "cached_tokens"),
        count(into, "cache_write_tokens"),
        count(out, "reasoning_tokens"),
    )


CODEC: Final = ResponsesCodec()
