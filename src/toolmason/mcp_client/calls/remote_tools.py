"""Convert a server's definitions to tools and prompts, and its results to tool results."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from mcp_types import CallToolResult, ToolAnnotations
from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.arguments.bind import bind_once
from toolmason._core.call.render import NO_OUTPUT
from toolmason._core.catalog.catalog import READ_RESULT
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import CLIENT_CALL_KEYS, ToolContext
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.tool import CompiledTool, Tool
from toolmason._core.values.content import (
    Audio,
    Content,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    describe_part,
    matches_structured,
)
from toolmason._core.values.definition import JsonSchema, ToolDefinition, ToolOptions, name_to_words
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import Arguments, ResultFields, StructuredFrom, ToolResult, make_result
from toolmason._wire import parse_json
from toolmason.errors import ToolError
from toolmason.mcp_client.calls.input_checks import copy_mapping, make_remote_inputs, parse_object
from toolmason.mcp_client.calls.output_checks import OutputChecker
from toolmason.mcp_client.calls.result_marks import (
    ERROR_META_KEY,
    ResultMarks,
    ServerFailure,
    drop_protocol_keys,
    marks_wrapped_result,
    read_result_marks,
    restore_error,
    wraps_result,
)

FetchPrompt = Callable[[str, dict[str, str], ToolContext[Any]], Awaitable[Any]]
"""Function of a prompt name, its arguments and the context that returns the server's response."""
CallTool = Callable[["RemoteTool", dict[str, Any], ToolContext[Any]], Awaitable[CallToolResult]]
_NO_OPTIONS: Final = ToolOptions()


class RemoteTool(Tool):
    """A tool that runs on a server."""

    def __init__(self, server: str, entry: Mapping[str, Any], call: CallTool, *, logs_failures: bool = False) -> None:
        self.server, self.remote_name, self._call = server, entry["name"], call
        self.limit_key = call, self.remote_name
        self.logs_failures = logs_failures
        """True if the server is a toolbox of this process, which logs the failures itself."""
        self.entry = entry
        """The definition as the server sent it."""
        output = entry.get("outputSchema")
        self.output_schema: JsonSchema | None = dict(output) if isinstance(output, Mapping) else None
        self.definition = ToolDefinition(
            self.remote_name,
            entry.get("description") or name_to_words(self.remote_name),
            {"type": "object", "properties": {}, **entry["inputSchema"]},
            self.output_schema,
            entry.get("title"),
        )
        self._checker = (
            None if self.output_schema is None else OutputChecker(self.output_schema, f"{server}/{self.remote_name}")
        )
        self._wraps = wraps_result(self.output_schema, entry.get("_meta"))
        self.options = _make_options(entry)
        self.distrust = ""
        """Why a run must ask before a call; empty if the tool is trusted."""

    @property
    @override
    def origin(self) -> str:
        return f"server {self.server!r}"

    @override
    def _compile(self) -> CompiledTool:
        inputs = make_remote_inputs(self.definition.input_schema, f"{self.server}/{self.remote_name}")
        get_distrust = (lambda: self.distrust) if self.distrust else None
        return CompiledTool(inputs, self.invoke, renderer=self._render, accepts_extra=True, get_distrust=get_distrust)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        result = await self._call(self, arguments, context)
        if result.is_error:
            raise self._make_error(result)
        # Accept content without the structured data that the schema requires: an image may be the whole result.
        if self._checker is not None and (structured := _get_structured(result)) is not None:
            reason = await self._checker.find_misfit(structured)
            if reason is not None:
                raise ServerFailure(f"the server's result does not match its output schema: {reason}", retryable=False)
        return result

    def _make_error(self, result: CallToolResult) -> ToolError:
        error = _make_tool_error(result, self.server)
        if self.logs_failures and ERROR_META_KEY in (result.meta or {}):
            error.log_kind = "known"
        return error

    async def read_rest(self, arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        """Read part of a result that the server truncated.

        Raises:
            ToolError: the server does not have it any more.
            RemoteError: the server cannot be reached.
        """
        reader = copy(self)
        reader.remote_name, reader.options = READ_RESULT, ToolOptions(read_only=True)
        result = await self._call(reader, arguments, context)
        if result.is_error:
            raise _make_tool_error(result, self.server)
        return "\n".join(describe_part(to_content(block)) for block in result.content)

    def _render(self, result: Any) -> ToolResult:
        content = tuple(map(to_content, result.content))
        text = "\n".join(map(describe_part, content))
        structured, marks = _get_structured(result), read_result_marks(result.meta)
        wraps = marks_wrapped_result(result.meta) or (self._wraps if marks.wrapped is None else marks.wrapped)
        is_wrapped = wraps and type(structured) is dict and structured.keys() == {"result"}
        if structured is None or marks.value != "structured":
            value = _get_unstructured_value(marks, content, text)
        else:
            value = structured["result"] if is_wrapped else structured
        shape: StructuredFrom = "wrapped json" if is_wrapped else "json"
        if structured is None or (marks.shows_content and marks.digest is None):
            shape = None
        elif not content:
            text = to_json(structured).decode()
            content = (Text(text),)
        elif not marks.shows_content and not _repeats_structured(content, text, structured):
            # The model gets both if they differ.
            text, shape = f"{text}\n{to_json(structured).decode()}", None
        if is_wrapped and shape is not None and value in (text, "" if text == NO_OUTPUT else text):
            shape = "wrapped text"
        fields: ResultFields = {
            "value": value,
            "text": text or NO_OUTPUT,
            "content": content or (Text(NO_OUTPUT),),
            "structured": structured,
            "structured_from": shape,
        }
        _add_marked_fields(fields, marks, drop_protocol_keys(result.meta))
        return make_result(fields)


def _get_unstructured_value(marks: ResultMarks, content: tuple[Content, ...], text: str) -> Any:
    """Return the value of a result that is not in its structured data."""
    if marks.value == "none":
        return None
    if marks.value == "json":
        try:
            return parse_json(text)
        except ValueError:
            return text
    if all(type(part) is Text for part in content):
        return text
    if len(content) == 1 and marks.value != "parts":
        return content[0]
    return [part.text if type(part) is Text else part for part in content]


def _add_marked_fields(fields: ResultFields, marks: ResultMarks, meta: dict[str, Any]) -> None:
    if marks.attempts != 1:
        fields["attempts"] = marks.attempts
    if marks.digest is not None:
        fields["full_text_digest"] = marks.digest
        meta |= {"handle": marks.handle, "bytes": marks.size}
    if meta:
        fields["meta"] = meta


def _repeats_structured(content: tuple[Content, ...], text: str, structured: Any) -> bool:
    """Return True if the text says the same as the structured data: as a whole, or one block for each item."""
    if matches_structured(text, structured) or (text == NO_OUTPUT and structured == {"result": ""}):
        return True
    items = structured.get("result") if type(structured) is dict and len(structured) == 1 else structured
    return (
        type(items) is list
        and len(items) == len(content)
        and all(
            type(part) is Text and matches_structured(part.text, item)
            for part, item in zip(content, items, strict=True)
        )
    )


def _get_structured(result: Any) -> Any:
    return result.structured_content if "structured_content" in result.model_fields_set else None


def _make_tool_error(result: Any, server: str) -> ToolError:
    """Return the error of a failed result, with its non-text content and structured data."""
    content = tuple(map(to_content, result.content))
    text = "\n".join(map(describe_part, content))
    structured, meta = _get_structured(result), result.meta
    data = "" if structured is None else to_json(structured).decode()
    error = restore_error(text, meta, server) or ServerFailure(text or data or "the tool failed without a message")
    parts = tuple(part for part in content if not isinstance(part, Text))
    extras = {"content": parts, "structured": structured, "meta": drop_protocol_keys(meta)}
    error.result_fields |= {name: value for name, value in extras.items() if value not in ((), None, {})}
    return error


def _make_options(entry: Mapping[str, Any]) -> ToolOptions:
    if not entry.get("annotations") and not entry.get("_meta"):
        return _NO_OPTIONS
    hints = ToolAnnotations.model_validate(entry.get("annotations") or {}, by_name=False)
    read_only = hints.read_only_hint
    return ToolOptions(
        read_only=read_only,
        destructive=None if read_only else hints.destructive_hint,
        idempotent=hints.idempotent_hint,
        open_world=hints.open_world_hint,
        meta=dict(entry.get("_meta") or {}),
    )


def to_content(block: Any) -> Content:
    """Convert a content block. A block of unknown type is kept as its JSON."""
    block_type = block.type
    if block_type == "text":
        return Text(block.text)
    if block_type in ("image", "audio"):
        data = _decode_base64(block.data)
        if data is None:
            return Text(f"[{block_type}: {block.mime_type}, not valid base64]")
        return Image(data, block.mime_type) if block_type == "image" else Audio(data, block.mime_type)
    if block_type == "resource_link":
        return ResourceLink(str(block.uri), block.name or "", block.mime_type, block.description)
    if block_type == "resource":
        return to_embedded_resource(block.resource)
    return Text(block.model_dump_json(by_alias=True, exclude_none=True))


def to_embedded_resource(resource: Any) -> Content:
    """Return the contents of a resource as text or bytes."""
    text, blob = getattr(resource, "text", None), getattr(resource, "blob", None)
    data = None if blob is None else _decode_base64(blob)
    return EmbeddedResource(str(resource.uri), text, data, resource.mime_type)


def _decode_base64(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def make_remote_prompt(server: str, entry: Any, fetch: FetchPrompt) -> Prompt:
    """Return a prompt of a server."""
    arguments = entry.arguments or ()
    schema: JsonSchema = {
        "type": "object",
        "properties": {
            argument.name: {"type": "string", **({"description": text} if (text := argument.description) else {})}
            for argument in arguments
        },
        "required": [argument.name for argument in arguments if argument.required],
        "additionalProperties": False,
    }
    inputs = Inputs(schema, parse_object, copy_mapping, extra="allow")
    name = str(entry.name)

    async def render(arguments: Arguments, context: ToolContext[Any], settings: EngineSettings) -> list[Message]:
        values, _ = bind_once(inputs, arguments, name, settings)
        result = await fetch(name, {name: str(value) for name, value in values.items()}, context)
        return [Message(message.role, to_content(message.content)) for message in result.messages]

    return Prompt(
        name,
        entry.description or name_to_words(name),
        schema,
        "user",
        f"server {server!r}",
        render,
        entry.model_dump(by_alias=True, mode="json", exclude_unset=True),
    )


def select_context(context: ToolContext[Any], keys: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the context values for `keys`, or None if there are none. No other value may be sent to a server."""
    selected = {key: context[key] for key in keys if key in context}
    for key in CLIENT_CALL_KEYS:
        if key in keys and key not in selected and (value := getattr(context, key)) is not None:
            selected[key] = value
    return selected or None
