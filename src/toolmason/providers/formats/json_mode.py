"""Tools for servers that have none: the model answers in JSON of a schema that holds the calls.

Lives here: the schema of such an answer, the words that explain the tools, and the way back to calls.
It speaks Chat Completions with `response_format`. Not here: the format itself (`openai_chat`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json
from typing_extensions import override

from toolmason._core.toolbox.exchange import CallClosed, CallOpened, ModelEvent, ModelReply, ModelRequest, TextDelta
from toolmason._core.values.content import Text
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason.errors import DefinitionError
from toolmason.providers.aliases import Names
from toolmason.providers.codec import Body, Reader
from toolmason.providers.content_parts import arguments_object, clean, joined, new_id
from toolmason.providers.formats.openai_chat import ChatCodec
from toolmason.providers.tool_set import Offer

_RULES: Final = (
    "You can call tools. Answer with one JSON object: "
    '{"calls": [{"name": "...", "arguments": {...}}]} to call, or {"answer": "..."} to answer the user. '
    "The tools:"
)


class JsonModeCodec(ChatCodec):
    """Chat Completions without tools of its own."""

    @override
    def body(self, request: ModelRequest, offer: Offer, model: str) -> Body:
        if offer.native:
            raise DefinitionError(f"{offer.native[0]!r} cannot be offered to a server that has no tools. Leave it out.")
        wanted = request.tool_choice
        if wanted is not None and wanted.names:
            offer = offer.only(wanted.names)
        bare = Offer((), offer.names)
        plain = ModelRequest(request.messages, (), None, request.options)
        body = super().body(plain, bare, model)
        mode = "none" if not offer.tools else wanted.mode if wanted is not None else "auto"
        if mode == "none":
            return body
        tools = [
            to_json({"name": offer.names.alias(tool.name), "description": tool.description, "arguments": fit.schema})
            for tool, fit in offer.tools
        ]
        told = "\n".join([_RULES, *(tool.decode() for tool in tools)])
        first = body["messages"][:1]
        if first and first[0]["role"] == "system":
            body["messages"][0] = {"role": "system", "content": f"{first[0]['content']}\n\n{told}"}
        else:
            body["messages"].insert(0, {"role": "system", "content": told})
        schema = _schema(offer, many=request.options.get("parallel") is not False, answer=mode != "required")
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "turn", "schema": schema}}
        return body

    @override
    def messages(self, message: Message, names: Names) -> Iterator[Body]:
        if message.role == "tool":
            lines = [f"Result of {names.alias(r.name)} ({r.call_id}): {clean(r.text)}" for r in message.results]
            yield {"role": "user", "content": "\n".join(lines)}
        elif message.calls:
            calls = [{"name": names.alias(call.name), "arguments": arguments_object(call)} for call in message.calls]
            yield {"role": "assistant", "content": to_json({"calls": calls}).decode()}
        elif message.role == "assistant":
            yield {"role": "assistant", "content": to_json({"answer": joined(message.content)}).decode()}
        else:
            yield from super().messages(message, names)

    @override
    def read(self, body: Mapping[str, Any], names: Names) -> ModelReply:
        reply = super().read(body, names)
        text = reply.text
        try:
            said = from_json(text)
        except ValueError:
            return reply  # an answer in plain words, or one that was cut: it is what the model said
        if not isinstance(said, dict) or not said.keys() & {"calls", "answer"}:
            return reply
        calls = [
            ToolCall(new_id(), names.name(str(call["name"])), call.get("arguments") or {})
            for call in said.get("calls") or ()
        ]
        content = [] if calls or said.get("answer") is None else [Text(str(said["answer"]))]
        finish = "calls" if calls and reply.finish == "stop" else reply.finish
        return ModelReply(Message("assistant", content, calls), calls, finish, reply.usage, reply.raw)

    @override
    def reader(self, names: Names) -> Reader:
        return _JsonReader(super().reader(names))


class _JsonReader(Reader):
    """One stream; the text is JSON until it is complete, so nothing of it is given before."""

    def __init__(self, inner: Reader) -> None:
        super().__init__(inner.provider)
        self._inner = inner

    @override
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        for told in self._inner.feed(event):
            if not isinstance(told, TextDelta):
                yield told

    @override
    def whole(self) -> ModelReply:
        return self._inner.end()

    @override
    def late(self, reply: ModelReply) -> Iterator[ModelEvent]:
        if reply.text:
            yield TextDelta(reply.text)
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            yield CallClosed(call)


def _schema(offer: Offer, *, many: bool, answer: bool) -> dict[str, Any]:
    one_of = [
        {
            "type": "object",
            "properties": {"name": {"const": offer.names.alias(tool.name)}, "arguments": _inline(fit.schema, n)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for n, (tool, fit) in enumerate(offer.tools)
    ]
    calls: dict[str, Any] = {"type": "array", "items": {"anyOf": one_of}, "minItems": 1}
    if not many:
        calls["maxItems"] = 1
    turn = {"type": "object", "properties": {"calls": calls}, "required": ["calls"], "additionalProperties": False}
    defs = {f"t{n}_{key}": part for n, (_, fit) in enumerate(offer.tools) for key, part in _defs(fit.schema, n).items()}
    if answer:
        said = {"type": "object", "properties": {"answer": {"type": "string"}}}
        turn = {"anyOf": [turn, {**said, "required": ["answer"], "additionalProperties": False}]}
    return {**turn, "$defs": defs} if defs else turn


def _inline(schema: Mapping[str, Any], number: int) -> Any:
    """Return a tool's schema inside of another one, where its references lead to names of their own."""
    kept = {key: value for key, value in schema.items() if key != "$defs"}
    return _moved(kept, number)


def _defs(schema: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {key: _moved(part, number) for key, part in (schema.get("$defs") or {}).items()}


def _moved(node: Any, number: int) -> Any:
    if isinstance(node, list):
        return [_moved(item, number) for item in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: _moved(value, number) for key, value in node.items()}
    ref = made.get("$ref")
    if isinstance(ref, str):
        made["$ref"] = ref.replace("#/$defs/", f"#/$defs/t{number}_", 1)
    return made


CODEC: Final = JsonModeCodec()
