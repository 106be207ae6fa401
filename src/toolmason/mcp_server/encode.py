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

_HINTS: Final = (
    ("read_only", "readOnlyHint"),
    ("destructive", "destructiveHint"),
    ("idempotent", "idempotentHint"),
    ("open_world", "openWorldHint"),
)
_OF_THE_HOP: Final = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})


def mcp_of(tool: Tool) -> Mapping[str, Any]:
    """Return what a tool says for MCP alone: `meta={"mcp": {"icons": [...], "_meta": {...}, "task": "optional"}}`."""
    own = tool.options.meta.get("mcp")
    if remote_name_of(tool) is not None and own == tool.root.options.meta.get("mcp"):
        return {}  # what a server behind us wrote: it does not say how we serve
    return own if isinstance(own, Mapping) else {}


def remote_name_of(tool: Tool) -> str | None:
    """Return what a tool is called on the server that runs it; `None` for one of our own."""
    found: str | None = getattr(tool.root, "remote_name", None)
    return found


def tool_entry(tool: Tool) -> dict[str, Any]:
    """Return a tool as a list has it."""
    given: Mapping[str, Any] | None = getattr(tool.root, "entry", None)
    if given is not None:
        return _passed_on(tool, given)
    definition, own = tool.definition, mcp_of(tool)
    entry: dict[str, Any] = {"name": tool.name}
    if definition.title is not None:
        entry["title"] = definition.title
    entry["description"] = definition.description
    entry["inputSchema"] = {"type": "object", **definition.input_schema}
    if definition.output_schema is not None and definition.output_schema.get("type") == "object":
        entry["outputSchema"] = definition.output_schema
    if hints := _hints_of(tool):
        entry["annotations"] = hints
    if "icons" in own:
        entry["icons"] = list(own["icons"])
    if meta := own.get("_meta"):
        entry["_meta"] = dict(meta)
    return entry


def _hints_of(tool: Tool) -> dict[str, Any]:
    return {word: getattr(tool.options, name) for name, word in _HINTS if getattr(tool.options, name) is not None}


def _passed_on(tool: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a server behind us, as it came but for what the application has changed."""
    mine, theirs = tool.definition, tool.root.definition
    entry = {**given, "name": tool.name, "inputSchema": {"type": "object", **given.get("inputSchema", {})}}
    if mine.description != theirs.description:
        entry["description"] = mine.description
    if mine.title != theirs.title:
        entry["title"] = mine.title
    if mine.input_schema != theirs.input_schema:
        entry["inputSchema"] = {"type": "object", **mine.input_schema}
    if _hints_of(tool) != _hints_of(tool.root):
        entry["annotations"] = {**(given.get("annotations") or {}), **_hints_of(tool)}
    return entry


def prompt_entry(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as a list has it."""
    given: Mapping[str, Any] | None = getattr(prompt, "entry", None)
    if given is not None:
        return {**given, "name": prompt.name}
    required = prompt.input_schema.get("required", ())
    arguments = [
        {"name": name, "required": name in required}
        | ({"description": part["description"]} if part.get("description") else {})
        for name, part in prompt.input_schema.get("properties", {}).items()
    ]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


def link_entry(link: ResourceLink) -> dict[str, Any]:
    """Return a resource as a list has it."""
    entry = {"uri": link.uri, "name": link.name or link.uri}
    return entry | _said(description=link.description, mimeType=link.mime_type)


def template_entry(item: Resource) -> dict[str, Any]:
    """Return a template as a list has it."""
    entry = {"uriTemplate": item.uri, "name": item.name}
    return entry | _said(description=item.description, mimeType=item.mime_type, title=item.title)


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def block(part: Content) -> dict[str, Any]:
    """Return a content part as a content block."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data, mime_type):
            return {"type": "image", "data": _base64(data), "mimeType": mime_type}
        case Audio(data, mime_type):
            return {"type": "audio", "data": _base64(data), "mimeType": mime_type}
        case ResourceLink(uri, name, mime_type, description):
            named = {"type": "resource_link", "uri": uri, "name": name or uri}
            return named | _said(mimeType=mime_type, description=description)
        case EmbeddedResource():
            return {"type": "resource", "resource": contents(part)}


def contents(part: EmbeddedResource) -> dict[str, Any]:
    """Return the contents of a resource."""
    body = {"text": part.text} if part.text is not None else {"blob": _base64(part.data or b"")}
    return {"uri": part.uri, **_said(mimeType=part.mime_type), **body}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def call_result(result: ToolResult, *, structured: bool) -> dict[str, Any]:
    """Return a result of a call; `structured` tells whether the tool has promised structured content."""
    if result.error is not None:
        return {"content": [{"type": "text", "text": result.text}], "isError": True}
    parts = result.__dict__.get("content")
    # A result of text alone has no parts until somebody asks for them, and needs none here.
    blocks = [{"type": "text", "text": result.text}] if parts is None else list(map(block, parts))
    found: dict[str, Any] = {"content": blocks}
    if structured and (value := result.structured) is not None:
        found["structuredContent"] = value
    found["isError"] = False
    return found


def as_given(found: dict[str, Any], given: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    """Return a result with all that its server said of it, where nothing of it was cut or changed on the way."""
    blocks, mine = given.get("content"), found["content"]
    same = isinstance(blocks, list) and len(blocks) == len(mine) and all(map(_within, mine, blocks))
    if not (same or (found["isError"] and _text_of(blocks) in (mine[0].get("text"), *_words_of(result)))):
        return found
    whole = {**found, "content": blocks}
    if "structuredContent" in given and (found["isError"] or given["structuredContent"] == result.structured):
        whole["structuredContent"] = given["structuredContent"]
    if meta := bare(given).get("_meta"):
        whole["_meta"] = meta
    return whole


def _words_of(result: ToolResult) -> tuple[str, ...]:
    """Return the words of a failure, and those it came in: one more wrapping would make a server's unreadable."""
    if not isinstance(result.error, ToolError):
        return ()
    message, came_in = str(result.error.to_model()["error"]["message"]), result.error.data
    return (message, came_in) if isinstance(came_in, str) else (message,)


def bare(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer without what is about the hop it came over: its era, its caching, its server."""
    found = {key: value for key, value in given.items() if key not in _OF_THE_HOP}
    meta = {key: value for key, value in (given.get("_meta") or {}).items() if key != SERVER_INFO_META_KEY}
    return {**found, "_meta": meta} if meta else found


def _within(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return all(key in theirs and _within(value, theirs[key]) for key, value in mine.items())
    return bool(mine == theirs)


def _text_of(blocks: Any) -> str | None:
    """Return the text of an error; `None` where it is more than text."""
    if not isinstance(blocks, list) or not all(isinstance(part, Mapping) and "text" in part for part in blocks):
        return None
    return "\n".join(part["text"] for part in blocks)


def failure(text: str) -> dict[str, Any]:
    """Return the result of a call that failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def is_writable(value: Any) -> bool:
    """Tell whether data can be written as JSON at all; half a surrogate pair cannot."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def messages(found: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the messages of a prompt; the wire has one part in each, and knows users and assistants."""
    return [
        {"role": "assistant" if message.role == "assistant" else "user", "content": block(part)}
        for message in found
        for part in message.content
    ]
