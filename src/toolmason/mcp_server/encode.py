"""Tools, results and contents of ours → what the wire has for them.

Lives here: pure functions from values to JSON data. Not here: which of them are listed, or when (`lists`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_types import SERVER_INFO_META_KEY
from pydantic_core import to_json

from toolmason._core.catalog.prompts import Prompt
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.tool import Tool
from toolmason._core.values.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from toolmason._core.values.results import ToolResult
from toolmason.errors import ToolError

_HINT_KEYS: Final = (
    ("read_only", "readOnlyHint"),
    ("destructive", "destructiveHint"),
    ("idempotent", "idempotentHint"),
    ("open_world", "openWorldHint"),
)
_HOP_FIELDS: Final = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})


def get_mcp_options(tool: Tool) -> Mapping[str, Any]:
    """Return what a tool says for MCP alone: `meta={"mcp": {"icons": [...], "_meta": {...}, "task": "optional"}}`."""
    options = tool.options.meta.get("mcp")
    if get_remote_name(tool) is not None and options == tool.root.options.meta.get("mcp"):
        return {}  # what a server behind us wrote: it does not say how we serve
    return options if isinstance(options, Mapping) else {}


def get_remote_name(tool: Tool) -> str | None:
    """Return what a tool is called on the server that runs it; `None` for one of our own."""
    name: str | None = getattr(tool.root, "remote_name", None)
    return name


def make_tool_entry(tool: Tool) -> dict[str, Any]:
    """Return a tool as a list has it."""
    upstream_entry: Mapping[str, Any] | None = getattr(tool.root, "entry", None)
    if upstream_entry is not None:
        return _make_upstream_entry(tool, upstream_entry)
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
    if meta := options.get("_meta"):
        entry["_meta"] = dict(meta)
    return entry


def _make_hints(tool: Tool) -> dict[str, Any]:
    return {key: getattr(tool.options, name) for name, key in _HINT_KEYS if getattr(tool.options, name) is not None}


def _make_upstream_entry(tool: Tool, upstream_entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a server behind us, as it came but for what the application has changed."""
    definition, upstream = tool.definition, tool.root.definition
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
    if _make_hints(tool) != _make_hints(tool.root):
        entry["annotations"] = {**(upstream_entry.get("annotations") or {}), **_make_hints(tool)}
    return entry


def make_prompt_entry(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as a list has it."""
    upstream_entry: Mapping[str, Any] | None = getattr(prompt, "entry", None)
    if upstream_entry is not None:
        return {**upstream_entry, "name": prompt.name}
    required = prompt.input_schema.get("required", ())
    arguments = [
        {"name": name, "required": name in required}
        | ({"description": part["description"]} if part.get("description") else {})
        for name, part in prompt.input_schema.get("properties", {}).items()
    ]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


def make_resource_entry(link: ResourceLink) -> dict[str, Any]:
    """Return a resource as a list has it."""
    entry = {"uri": link.uri, "name": link.name or link.uri}
    return entry | _drop_none(description=link.description, mimeType=link.mime_type)


def make_template_entry(item: Resource) -> dict[str, Any]:
    """Return a template as a list has it."""
    entry = {"uriTemplate": item.uri, "name": item.name}
    return entry | _drop_none(description=item.description, mimeType=item.mime_type, title=item.title)


def _drop_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def encode_part(part: Content) -> dict[str, Any]:
    """Return a content part as a content block."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data, mime_type):
            return {"type": "image", "data": _encode_base64(data), "mimeType": mime_type}
        case Audio(data, mime_type):
            return {"type": "audio", "data": _encode_base64(data), "mimeType": mime_type}
        case ResourceLink(uri, name, mime_type, description):
            link = {"type": "resource_link", "uri": uri, "name": name or uri}
            return link | _drop_none(mimeType=mime_type, description=description)
        case EmbeddedResource():
            return {"type": "resource", "resource": encode_contents(part)}


def encode_contents(part: EmbeddedResource) -> dict[str, Any]:
    """Return the contents of a resource."""
    body = {"text": part.text} if part.text is not None else {"blob": _encode_base64(part.data or b"")}
    return {"uri": part.uri, **_drop_none(mimeType=part.mime_type), **body}


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def encode_call_result(result: ToolResult, *, structured: bool) -> dict[str, Any]:
    """Return a result of a call; `structured` tells whether the tool has promised structured content."""
    if result.error is not None:
        return {"content": [{"type": "text", "text": result.text}], "isError": True}
    parts = result.__dict__.get("content")
    # A result of text alone has no parts until somebody asks for them, and needs none here.
    blocks = [{"type": "text", "text": result.text}] if parts is None else list(map(encode_part, parts))
    encoded: dict[str, Any] = {"content": blocks}
    if structured and (value := result.structured) is not None:
        encoded["structuredContent"] = value
    encoded["isError"] = False
    return encoded


def passthrough(encoded: dict[str, Any], reply: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    """Return a result with all that its server said of it, where nothing of it was cut or changed on the way."""
    blocks, encoded_blocks = reply.get("content"), encoded["content"]
    is_unchanged = (
        isinstance(blocks, list) and len(blocks) == len(encoded_blocks) and all(map(_is_subset, encoded_blocks, blocks))
    )
    if not (
        is_unchanged
        or (encoded["isError"] and _join_texts(blocks) in (encoded_blocks[0].get("text"), *_get_error_texts(result)))
    ):
        return encoded
    whole = {**encoded, "content": blocks}
    if "structuredContent" in reply and (encoded["isError"] or reply["structuredContent"] == result.structured):
        whole["structuredContent"] = reply["structuredContent"]
    if meta := without_hop_fields(reply).get("_meta"):
        whole["_meta"] = meta
    return whole


def _get_error_texts(result: ToolResult) -> tuple[str, ...]:
    """Return the words of a failure, and those it came in: one more wrapping would make a server's unreadable."""
    if not isinstance(result.error, ToolError):
        return ()
    message, original = str(result.error.to_model()["error"]["message"]), result.error.data
    return (message, original) if isinstance(original, str) else (message,)


def without_hop_fields(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer without what is about the hop it came over: its era, its caching, its server."""
    fields = {key: value for key, value in reply.items() if key not in _HOP_FIELDS}
    meta = {key: value for key, value in (reply.get("_meta") or {}).items() if key != SERVER_INFO_META_KEY}
    return {**fields, "_meta": meta} if meta else fields


def _is_subset(inner: Any, outer: Any) -> bool:
    if isinstance(inner, Mapping) and isinstance(outer, Mapping):
        return all(key in outer and _is_subset(value, outer[key]) for key, value in inner.items())
    return bool(inner == outer)


def _join_texts(blocks: Any) -> str | None:
    """Return the text of an error; `None` where it is more than text."""
    if not isinstance(blocks, list) or not all(isinstance(part, Mapping) and "text" in part for part in blocks):
        return None
    return "\n".join(part["text"] for part in blocks)


def make_error_result(text: str) -> dict[str, Any]:
    """Return the result of a call that failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def is_json_serializable(value: Any) -> bool:
    """Tell whether data can be written as JSON at all; half a surrogate pair cannot."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def encode_messages(prompt_messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the messages of a prompt; the wire has one part in each, and knows users and assistants."""
    return [
        {"role": "assistant" if message.role == "assistant" else "user", "content": encode_part(part)}
        for message in prompt_messages
        for part in message.content
    ]
