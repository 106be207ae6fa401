"""A result without the data that its tool has promised → a result with it.

Lives here: what stands in for the data of a result that was cut for a model, or that is made of parts. A client takes
a result without promised data for a fault of the server. Not here: results that have their data (`wire`).
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json, to_json, to_jsonable_python

from toolmason._core.call.render import to_text
from toolmason._core.define.tool import Tool
from toolmason._core.values.content import CONTENT_TYPES
from toolmason._core.values.results import ToolResult
from toolmason.errors import ResultError
from toolmason.mcp_server.encode import encode_part, get_remote_name

MAX_STRUCTURED_BYTES: Final = 4 * 1024 * 1024
"""The most data that is sent beside a text that was cut."""
_UNTYPED_SCHEMAS: Final[tuple[dict[str, Any], ...]] = ({}, {"type": "array", "items": {}})


def with_structured_content(encoded: dict[str, Any], tool: Tool, result: ToolResult) -> dict[str, Any]:
    """Return a result of a call with the data that its tool has promised, as far as there are any.

    A text that was cut stays cut. Other data cannot be cut and be what was promised: they are sent whole, beside what
    a model reads; where they are too much, the result is an error that says how to read on.
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
        text = to_text(tool, value) if tool.output is not None else _dump_upstream_value(tool, value)
        data = from_json(text) if len(text) <= MAX_STRUCTURED_BYTES else None
    except (ResultError, ValueError):
        return None
    return {"result": data} if result.structured_from == "wrapped json" and data is not None else data


def _dump_upstream_value(tool: Tool, value: Any) -> str:
    """Return the data that a server behind us gave; a text is what it gave without data."""
    return "null" if get_remote_name(tool) is None or isinstance(value, str) else to_json(value).decode()


def _describe_part(part: Any) -> Any:
    """Return what stands for a part among data: all but its bytes, which the content has."""
    if type(part) not in CONTENT_TYPES:
        return to_jsonable_python(part, fallback=str)
    return {key: value for key, value in encode_part(part).items() if key not in ("data", "resource")}
