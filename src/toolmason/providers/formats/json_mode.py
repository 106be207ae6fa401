"""Emulate tool calls on servers without tool support: the reply is JSON constrained by a schema of the possible calls.

It uses Chat Completions with `response_format`.
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
from toolmason.providers.aliases import ToolNames
from toolmason.providers.codec import Body, ReplyReader
from toolmason.providers.content_parts import get_arguments_object, join_parts, make_call_id, replace_surrogates
from toolmason.providers.formats.openai_chat import OpenAiChatCodec
from toolmason.providers.tool_set import ToolSet

_INSTRUCTIONS: Final = (
    "You can call tools. Answer with one JSON object: "
    '{"calls": [{"name": "...", "arguments": {...}}]} to call, or {"answer": "..."} to answer the user. '
    "The tools:"
)


class JsonModeCodec(OpenAiChatCodec):
    """Codec for Chat Completions servers without tool support."""

    @override
    def build_body(self, request: ModelRequest, tool_set: ToolSet, model: str) -> Body:
        if tool_set.native:
            raise DefinitionError(f"{tool_set.native[0]!r} needs a server with tool support. Remove it.")
        choice = request.tool_choice
        if choice is not None and choice.names:
            tool_set = tool_set.only(choice.names)
        empty_tool_set = ToolSet((), tool_set.names)
        plain_request = ModelRequest(request.messages, (), None, request.options)
        body = super().build_body(plain_request, empty_tool_set, model)
        mode = "auto" if choice is None else choice.mode
        if mode == "none" or not tool_set.tools:
            return body
        tools = [
            to_json(
                {"name": tool_set.names.get_alias(tool.name), "description": tool.description, "arguments": fit.schema}
            )
            for tool, fit in tool_set.tools
        ]
        instructions = "\n".join([_INSTRUCTIONS, *(tool.decode() for tool in tools)])
        first = body["messages"][:1]
        if first and first[0]["role"] == "system":
            body["messages"][0] = {"role": "system", "content": f"{first[0]['content']}\n\n{instructions}"}
        else:
            body["messages"].insert(0, {"role": "system", "content": instructions})
        schema = _make_reply_schema(
            tool_set, allows_many=request.options.get("parallel") is not False, allows_answer=mode != "required"
        )
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "turn", "schema": schema}}
        return body

    @override
    def format_message(self, message: Message, names: ToolNames) -> Iterator[Body]:
        if message.role == "tool":
            lines = [
                f"Result of {names.get_alias(r.name)} ({r.call_id}): {replace_surrogates(r.text)}"
                for r in message.results
            ]
            yield {"role": "user", "content": "\n".join(lines)}
        elif message.calls:
            calls = [
                {"name": names.get_alias(call.name), "arguments": get_arguments_object(call)} for call in message.calls
            ]
            yield {"role": "assistant", "content": to_json({"calls": calls}).decode()}
        elif message.role == "assistant":
            yield {"role": "assistant", "content": to_json({"answer": join_parts(message.content)}).decode()}
        else:
            yield from super().format_message(message, names)

    @override
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        reply = super().parse_reply(body, names)
        text = reply.text
        try:
            answer = from_json(text)
        except ValueError:
            return reply  # plain text or truncated JSON: return it as the model wrote it
        if not isinstance(answer, dict) or not answer.keys() & {"calls", "answer"}:
            return reply
        calls = [
            ToolCall(make_call_id(), names.get_name(str(call["name"])), call.get("arguments") or {})
            for call in answer.get("calls") or ()
        ]
        content = [] if calls or answer.get("answer") is None else [Text(str(answer["answer"]))]
        finish = "calls" if calls and reply.finish == "stop" else reply.finish
        return ModelReply(Message("assistant", content, calls), calls, finish, reply.usage, reply.raw)

    @override
    def reader(self, names: ToolNames) -> ReplyReader:
        return _JsonModeReader(super().reader(names))


class _JsonModeReader(ReplyReader):
    """Reader of one stream. The text is incomplete JSON until the end, so no text event is emitted earlier."""

    def __init__(self, inner: ReplyReader) -> None:
        super().__init__(inner.provider)
        self._inner = inner

    @override
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        for inner_event in self._inner.feed(event):
            if not isinstance(inner_event, TextDelta):
                yield inner_event

    @override
    def build_reply(self) -> ModelReply:
        return self._inner.end()

    @override
    def iter_late_events(self, reply: ModelReply) -> Iterator[ModelEvent]:
        if reply.text:
            yield TextDelta(reply.text)
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            yield CallClosed(call)


def _make_reply_schema(tool_set: ToolSet, *, allows_many: bool, allows_answer: bool) -> dict[str, Any]:
    call_schemas = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool_set.names.get_alias(tool.name)},
                "arguments": _inline_schema(fit.schema, n),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for n, (tool, fit) in enumerate(tool_set.tools)
    ]
    calls: dict[str, Any] = {"type": "array", "items": {"anyOf": call_schemas}, "minItems": 1}
    if not allows_many:
        calls["maxItems"] = 1
    reply_schema = {
        "type": "object",
        "properties": {"calls": calls},
        "required": ["calls"],
        "additionalProperties": False,
    }
    defs = {
        f"t{n}_{key}": part
        for n, (_, fit) in enumerate(tool_set.tools)
        for key, part in _rename_definitions(fit.schema, n).items()
    }
    if allows_answer:
        answer_schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        reply_schema = {
            "anyOf": [reply_schema, {**answer_schema, "required": ["answer"], "additionalProperties": False}]
        }
    return {**reply_schema, "$defs": defs} if defs else reply_schema


def _inline_schema(schema: Mapping[str, Any], number: int) -> Any:
    """Return a tool's schema for embedding, with references renamed to avoid collisions."""
    without_definitions = {key: value for key, value in schema.items() if key != "$defs"}
    return _rename_refs(without_definitions, number)


def _rename_definitions(schema: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {key: _rename_refs(part, number) for key, part in (schema.get("$defs") or {}).items()}


def _rename_refs(node: Any, number: int) -> Any:
    if isinstance(node, list):
        return [_rename_refs(item, number) for item in node]
    if not isinstance(node, Mapping):
        return node
    renamed = {key: _rename_refs(value, number) for key, value in node.items()}
    ref = renamed.get("$ref")
    if isinstance(ref, str):
        renamed["$ref"] = ref.replace("#/$defs/", f"#/$defs/t{number}_", 1)
    return renamed


CODEC: Final = JsonModeCodec()
