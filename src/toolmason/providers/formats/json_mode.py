"""Emulate tool calls on servers without tool support: the reply is JSON constrained by a schema of the possible calls.

It uses Chat Completions with `response_format`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, TextDelta, iter_reply_events
from toolmason._core.values.content import Text
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason._wire import parse_json
from toolmason.errors import DefinitionError
from toolmason.providers.aliases import ToolNames
from toolmason.providers.codec import Body
from toolmason.providers.content_parts import (
    get_arguments_object,
    join_parts,
    make_call_id,
    read_arguments,
    replace_surrogates,
)
from toolmason.providers.formats.openai_chat import OpenAiChatCodec, OpenAiChatReader
from toolmason.providers.tool_set import ToolSet

_INSTRUCTIONS: Final = (
    "You can call tools. Answer with one JSON object: "
    '{"calls": [{"name": "...", "arguments": {...}}]} to call, or {"answer": "..."} to answer the user. '
    "The tools:"
)


class _JsonModeReader(OpenAiChatReader):
    """Reader of one stream. The text is incomplete JSON until the end, so no text event is emitted earlier."""

    @override
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        yield from (inner for inner in super().read_event(event) if not isinstance(inner, TextDelta))

    @override
    def get_final_events(self, reply: ModelReply) -> Iterable[ModelEvent]:
        return iter_reply_events(reply)


class JsonModeCodec(OpenAiChatCodec):
    """Codec for Chat Completions servers without tool support."""

    _reader_class = _JsonModeReader
    rules = replace(OpenAiChatCodec.rules, has_tools=False)

    @override
    def offer_tools(self, request: ModelRequest, tool_set: ToolSet) -> Body:
        if tool_set.native:
            raise DefinitionError(f"{tool_set.native[0]!r} needs a server with tool support. Remove it.")
        choice = request.tool_choice
        if choice is not None and choice.names:
            tool_set = tool_set.only(choice.names)
        mode = "auto" if choice is None else choice.mode
        if mode == "none" or not tool_set.tools:
            return {} if request.answer is None else _format_schema(request.answer.schema)
        tools = [
            to_json(
                {"name": tool_set.names.get_alias(tool.name), "description": tool.description, "arguments": fit.schema}
            )
            for tool, fit in tool_set.tools
        ]
        instructions = "\n".join([_INSTRUCTIONS, *(tool.decode() for tool in tools)])
        answer = {"type": "string"} if request.answer is None else request.answer.schema
        schema = _make_reply_schema(
            tool_set,
            allows_many=request.options.get("parallel") is not False,
            answer=None if mode == "required" else answer,
        )
        return {"messages": [{"role": "system", "content": instructions}], **_format_schema(schema)}

    @override
    def add_tools(self, body: Body, offer: Body) -> Body:
        if "messages" not in offer:
            return {**body, **offer}
        [instructions], messages = offer["messages"], body["messages"]
        if messages[0]["role"] == "system":
            content = f"{messages[0]['content']}\n\n{instructions['content']}"
            instructions, messages = {"role": "system", "content": content}, messages[1:]
        return {**body, **offer, "messages": [instructions, *messages]}

    @override
    def format_plain_message(self, message: Message, names: ToolNames) -> list[Body]:
        if message.role == "tool":
            lines = [
                f"Result of {names.get_alias(r.name)} ({r.call_id}): {replace_surrogates(r.text)}"
                for r in message.results
            ]
            return [{"role": "user", "content": "\n".join(lines)}]
        if message.role != "assistant":
            return super().format_plain_message(message, names)
        calls = [
            {"name": names.get_alias(call.name), "arguments": get_arguments_object(call)} for call in message.calls
        ]
        turn = {"calls": calls} if calls else {"answer": join_parts(message.content)}
        return [{"role": "assistant", "content": to_json(turn).decode()}]

    @override
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        reply = super().parse_reply(body, names)
        text = reply.text
        try:
            answer = parse_json(text)
        except ValueError:
            return reply  # plain text or truncated JSON: return it as the model wrote it
        if not isinstance(answer, dict) or not answer.keys() & {"calls", "answer"}:
            return reply
        calls = [
            ToolCall(
                make_call_id(), names.get_name(str(call.get("name") or "")), read_arguments(call.get("arguments")) or {}
            )
            for call in answer.get("calls") or ()
        ]
        given = answer.get("answer")
        is_typed = isinstance(given, dict | list)
        content = [] if calls or given is None else [Text(to_json(given).decode() if is_typed else str(given))]
        return replace(reply, message=Message("assistant", content, calls))


def _format_schema(schema: Mapping[str, Any]) -> Body:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "turn", "schema": schema}}}


def _make_reply_schema(tool_set: ToolSet, *, allows_many: bool, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    call_schemas: list[dict[str, Any]] = []
    defs: dict[str, Any] = {}

    def join(schema: Mapping[str, Any], number: int) -> dict[str, Any]:
        renamed: dict[str, Any] = _rename_refs(schema, f"#/$defs/t{number}")
        parts = {**(renamed.pop("definitions", None) or {}), **(renamed.pop("$defs", None) or {})}
        if not parts and renamed == schema:
            return renamed
        defs.update({f"t{number}": renamed, **{f"t{number}_{key}": part for key, part in parts.items()}})
        return {"$ref": f"#/$defs/t{number}"}

    for number, (tool, fit) in enumerate(tool_set.tools):
        arguments = join(fit.schema, number)
        name = {"const": tool_set.names.get_alias(tool.name)}
        call_schemas.append(_make_object(name=name, arguments=arguments))
    calls: dict[str, Any] = {"type": "array", "items": {"anyOf": call_schemas}, "minItems": 1}
    if not allows_many:
        calls["maxItems"] = 1
    reply_schema = _make_object(calls=calls)
    if answer is not None:
        reply_schema = {"anyOf": [reply_schema, _make_object(answer=join(answer, len(tool_set.tools)))]}
    return {**reply_schema, "$defs": defs} if defs else reply_schema


def _make_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rename_refs(node: Any, root: str) -> Any:
    """Return a tool's schema with references as they are if it stands at `root`, and its definitions beside it."""
    if isinstance(node, list):
        return [_rename_refs(item, root) for item in node]
    if not isinstance(node, Mapping):
        return node
    renamed = {key: _rename_refs(value, root) for key, value in node.items()}
    ref = renamed.get("$ref")
    if isinstance(ref, str) and ref.startswith("#"):
        renamed["$ref"] = root + re.sub(r"^/(\$defs|definitions)/", "_", ref[1:])
    return renamed
