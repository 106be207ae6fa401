"""Encode tools, prompts, resources and results as MCP data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic_core import from_json, to_json, to_jsonable_python

from toolmason._core.call.render import VOID_TEXT, to_text
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.tool import LazyTool, Tool, compile_tool, get_root
from toolmason._core.load.json_forms import wraps_result
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.content import CONTENT_TYPES, ResourceLink, encode_part
from toolmason._core.values.results import ToolResult
from toolmason.errors import ResultError, ToolCallError, ToolError
from toolmason.mcp_client.calls.result_marks import (
    ERROR_META_KEY,
    NO_MARKS,
    RESULT_META_KEY,
    UNTRUSTED_META_KEY,
    WRAPPED_META_KEY,
    ResultMarks,
    looks_wrapped,
    make_error_data,
)
from toolmason.mcp_client.specification import HINT_KEYS, SERVER_INFO_META_KEY

_HOP_FIELDS: Final = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""Fields that a server sets for its own client, and that a gateway does not forward."""
MAX_STRUCTURED_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of the data sent with truncated text."""
_UNTYPED_SCHEMAS: Final[tuple[dict[str, Any], ...]] = ({}, {"type": "array", "items": {}})
"""Schemas of `result` that any description of content parts matches."""


def get_mcp_options(tool: Tool) -> Mapping[str, Any]:
    """Return the MCP options of a tool: `meta={"mcp": {"icons": [...], "_meta": {...}, "task": "optional"}}`."""
    options = tool.options.meta.get("mcp")
    if get_remote_name(tool) is not None and options == get_root(tool).options.meta.get("mcp"):
        return {}  # set by the upstream server, which does not control how the tool is served here
    return options if isinstance(options, Mapping) else {}


def get_remote_name(tool: Tool) -> str | None:
    """Return the name of a tool on its upstream server, or None if the tool runs locally."""
    name: str | None = getattr(_get_listed_root(tool), "remote_name", None)
    return name


def _get_listed_root(tool: Tool) -> Tool:
    # The tool of a manifest is local. It is not loaded to list it, because that could fail.
    return tool if isinstance(tool, LazyTool) else get_root(tool)


def make_tool_entry(tool: Tool, *, is_untrusted: bool = False) -> dict[str, Any]:
    """Return the list entry of a tool, with a mark if this process does not trust its server."""
    upstream_entry: Mapping[str, Any] | None = getattr(_get_listed_root(tool), "entry", None)
    if upstream_entry is not None:
        return _make_upstream_entry(tool, upstream_entry, is_untrusted=is_untrusted)
    definition, options = tool.definition, get_mcp_options(tool)
    entry: dict[str, Any] = {"name": tool.name}
    if definition.title is not None:
        entry["title"] = definition.title
    entry["description"] = definition.description
    entry["inputSchema"] = {"type": "object", **definition.input_schema}
    if definition.output_schema is not None and definition.output_schema.get("type") == "object":
        entry["outputSchema"] = definition.output_schema
    if hints := _make_hints(tool):
        entry["annotations"] = hints
    if "icons" in options:
        entry["icons"] = list(options["icons"])
    meta = dict(options.get("_meta") or {})
    if looks_wrapped(entry.get("outputSchema")) and not wraps_result(tool):
        meta[WRAPPED_META_KEY] = False
    if meta:
        entry["_meta"] = meta
    return entry


def _make_hints(tool: Tool) -> dict[str, Any]:
    return {
        key: getattr(tool.options, name) for name, key in HINT_KEYS.items() if getattr(tool.options, name) is not None
    }


def _make_upstream_entry(tool: Tool, upstream_entry: Mapping[str, Any], *, is_untrusted: bool) -> dict[str, Any]:
    """Return the definition that an upstream server sent, with the changes of the application."""
    definition, upstream = tool.definition, get_root(tool).definition
    entry = {
        **upstream_entry,
        "name": tool.name,
        "inputSchema": {"type": "object", **upstream_entry.get("inputSchema", {})},
    }
    if definition.description != upstream.description:
        entry["description"] = definition.description
    if definition.title != upstream.title:
        entry["title"] = definition.title
    if definition.input_schema != upstream.input_schema:
        entry["inputSchema"] = {"type": "object", **definition.input_schema}
    if _make_hints(tool) != _make_hints(get_root(tool)):
        annotations = upstream_entry.get("annotations") or {}
        others = {key: value for key, value in annotations.items() if key not in HINT_KEYS.values()}
        entry["annotations"] = {**others, **_make_hints(tool)}
    meta = upstream_entry.get("_meta") or {}
    if is_untrusted:
        entry["_meta"] = {**meta, UNTRUSTED_META_KEY: True}
    elif UNTRUSTED_META_KEY in meta:
        entry["_meta"] = {key: value for key, value in meta.items() if key != UNTRUSTED_META_KEY}
    return entry


def make_prompt_entry(prompt: Prompt) -> dict[str, Any]:
    """Return the list entry of a prompt."""
    if prompt.entry is not None:
        return {**prompt.entry, "name": prompt.name}
    required = prompt.input_schema.get("required", ())
    arguments = [
        {"name": name, "required": name in required, **_drop_none(description=parameter.get("description") or None)}
        for name, parameter in prompt.input_schema.get("properties", {}).items()
    ]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


def make_resource_entry(link: ResourceLink) -> dict[str, Any]:
    """Return the list entry of a resource."""
    entry = {"uri": link.uri, "name": link.name or link.uri}
    return entry | _drop_none(description=link.description, mimeType=link.mime_type)


def make_template_entry(item: Resource) -> dict[str, Any]:
    """Return the list entry of a resource template."""
    entry = {"uriTemplate": item.uri, "name": item.name}
    return entry | _drop_none(description=item.description, mimeType=item.mime_type, title=item.title)


def _drop_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def encode_result(result: ToolResult, box: Toolbox, *, structured: bool) -> dict[str, Any]:
    """Return a successful result; `structured` is True if the tool declares structured content."""
    parts = result.__dict__.get("content")
    # A result with only text creates its parts lazily, and they are not needed here.
    blocks = [{"type": "text", "text": result.text}] if parts is None else list(map(encode_part, parts))
    encoded: dict[str, Any] = {"content": blocks}
    value = result.structured if structured else None
    if value is not None:
        encoded["structuredContent"] = value
    encoded["isError"] = False
    is_ambiguous = value is None or (result.structured_from == "json" and "result" in value)
    if parts is None and result.attempts == 1 and not is_ambiguous:
        return encoded
    if structured and value is None and result.name in box:
        encoded = _add_structured_content(encoded, box[result.name], result)
    is_remote = result.name in box and get_remote_name(box[result.name]) is not None
    marks = _make_marks(result, encoded, is_remote=is_remote)
    return {**encoded, "_meta": {RESULT_META_KEY: marks.to_dict()}} if marks != NO_MARKS else encoded


def write_result(result: ToolResult) -> bytes | None:
    """Return the fields of a successful result as JSON text, or None if they need more than its text.

    As `encode_result` for a tool that declares structured content, without parsing the text of the result.
    """
    source = result.structured_from
    if "content" in result.__dict__ or result.attempts != 1 or result.full_text_digest is not None:
        return None
    try:
        written = to_json(text := result.text)
    except ValueError:
        return None  # a lone surrogate
    if source == "wrapped text":
        data = written
    # The text of a number that is not finite is not JSON.
    elif source == "wrapped json" and "NaN" not in text and "Infinity" not in text:
        data = text.encode()
    else:
        return None
    return b'"content":[{"type":"text","text":%b}],"structuredContent":{"result":%b},"isError":false' % (written, data)


def _make_marks(result: ToolResult, encoded: Mapping[str, Any], *, is_remote: bool) -> ResultMarks:
    """Return what a Toolmason client needs to restore a result. The marks of an upstream server are passed through."""
    digest, data, parts = result.full_text_digest, encoded.get("structuredContent"), result.__dict__.get("content")
    marks = ResultMarks(attempts=result.attempts, shows_content=digest is not None)
    if digest is not None:
        handle, size = str(result.meta.get("handle", "")), int(result.meta.get("bytes", 0))
        marks = replace(marks, digest=digest, handle=handle, size=size)
    if is_remote:
        return marks
    if isinstance(data, dict) and data.keys() == {"result"}:
        marks = replace(marks, wrapped=result.structured_from != "json")
    if parts is not None:
        if data is not None:
            marks = replace(marks, shows_content=True)
        if digest is not None or result.structured is not None:
            return marks
        return replace(marks, value="parts" if isinstance(result.value, list | tuple) else "content")
    if data is None and result.value is None and result.text == VOID_TEXT:
        return replace(marks, value="none")
    return replace(marks, value="json") if data is None and not isinstance(result.value, str) else marks


def passthrough(encoded: dict[str, Any], reply: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    """Return the upstream result with all its fields, if it was not truncated or changed on the way."""
    blocks, encoded_blocks = reply.get("content"), encoded["content"]
    is_unchanged = (
        isinstance(blocks, list) and len(blocks) == len(encoded_blocks) and all(map(_is_subset, encoded_blocks, blocks))
    )
    if not is_unchanged:
        error_texts = (encoded_blocks[0].get("text"), *_get_error_texts(result)) if encoded["isError"] else ()
        if _join_texts(blocks) not in error_texts:
            return encoded
    whole = {**encoded, "content": blocks}
    if "structuredContent" in reply and (encoded["isError"] or reply["structuredContent"] == result.structured):
        whole["structuredContent"] = reply["structuredContent"]
    if meta := without_hop_fields(reply).get("_meta"):
        own_meta = encoded.get("_meta", {})
        whole["_meta"] = {**meta, **own_meta}
        if isinstance(marks := meta.get(RESULT_META_KEY), Mapping):
            whole["_meta"][RESULT_META_KEY] = {**marks, **own_meta.get(RESULT_META_KEY, {})}
    return whole


def _get_error_texts(result: ToolResult) -> tuple[str, ...]:
    """Return the error message and its original JSON, either of which may be the upstream text."""
    if not isinstance(result.error, ToolError):
        return ()
    message = str(result.error.to_model()["error"]["message"])
    original = result.error.data
    return (message, original) if isinstance(original, str) else (message,)


def without_hop_fields(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response without the fields that belong to one hop: era, caching, server info."""
    fields = {key: value for key, value in reply.items() if key not in _HOP_FIELDS}
    meta = {key: value for key, value in (reply.get("_meta") or {}).items() if key != SERVER_INFO_META_KEY}
    return {**fields, "_meta": meta} if meta else fields


def _is_subset(inner: Any, outer: Any) -> bool:
    if isinstance(inner, Mapping) and isinstance(outer, Mapping):
        return all(key in outer and _is_subset(value, outer[key]) for key, value in inner.items())
    return bool(inner == outer)


def _join_texts(blocks: Any) -> str | None:
    """Return the text of an error, or None if it has other content."""
    if not isinstance(blocks, list) or not all(isinstance(part, Mapping) and "text" in part for part in blocks):
        return None
    return "\n".join(part["text"] for part in blocks)


def make_error_result(text: str, error: ToolCallError | None = None, attempts: int = 1) -> dict[str, Any]:
    """Return the result of a failed call, with the kind of its error for a Toolmason client."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if error is not None:
        result["_meta"] = {ERROR_META_KEY: make_error_data(error, attempts)}
    return result


def encode_messages(prompt_messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the messages of a prompt. MCP has one part per message, and only user and assistant roles."""
    return [
        {"role": "assistant" if message.role == "assistant" else "user", "content": encode_part(part)}
        for message in prompt_messages
        for part in message.content
    ]


def _add_structured_content(encoded: dict[str, Any], tool: Tool, result: ToolResult) -> dict[str, Any]:
    """Return a result with the structured content that its tool declares, if available.

    Truncated text stays truncated. Other data cannot be truncated and still match its schema, so it is sent whole;
    if it is too large, the result is an error that explains how to read the rest.
    """
    data = {"result": result.text} if result.structured_from == "wrapped text" else _make_data(tool, result)
    if data is not None:
        return {**encoded, "structuredContent": data}
    return encoded if result.full_text_digest is None else {**encoded, "isError": True}


def _make_data(tool: Tool, result: ToolResult) -> Any:
    value = result.value
    is_sequence = isinstance(value, list | tuple)
    if type(value) in CONTENT_TYPES or (is_sequence and not CONTENT_TYPES.isdisjoint(map(type, value))):
        result_schema = (tool.definition.output_schema or {}).get("properties", {}).get("result")
        described = [_describe_part(item) for item in value] if is_sequence else _describe_part(value)
        return {"result": described} if result_schema in _UNTYPED_SCHEMAS else None
    try:
        if compile_tool(tool).output is not None:
            text = to_text(tool, value)
        else:  # of an upstream server, whose plain strings are no data
            text = "null" if get_remote_name(tool) is None or isinstance(value, str) else to_json(value).decode()
        data = from_json(text) if len(text) <= MAX_STRUCTURED_BYTES else None
    except (ResultError, ValueError):
        return None
    return {"result": data} if result.structured_from == "wrapped json" and data is not None else data


def _describe_part(part: Any) -> Any:
    """Return the fields of a content part without its bytes, which are in the content."""
    if type(part) not in CONTENT_TYPES:
        return to_jsonable_python(part, fallback=str)
    return {key: value for key, value in encode_part(part).items() if key not in ("data", "resource")}
