"""MCP: tools as `tools/list` gives them, results as `tools/call` answers them.

Lives here: the format of protocol 2025-06-18 and later. Not here: connections (`toolmason.mcp`).
"""

from __future__ import annotations

import base64
from typing import Any, Final

from typing_extensions import override

from toolmason._core.values.content import Audio, Content, EmbeddedResource, Image, ResourceLink
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.results import ToolResult
from toolmason.providers.aliases import Names
from toolmason.providers.codec import Body, Format
from toolmason.providers.content_parts import words_of
from toolmason.providers.schema.losses import Narrowed
from toolmason.providers.schema.strict import fit_mcp
from toolmason.providers.tool_set import Offer, Terms


class McpFormat(Format):
    """Model Context Protocol."""

    name = "mcp"
    terms = Terms(provider="mcp", fit=fit_mcp, rule=r"[\x21-\x7e]{1,128}", longest=128)

    @override
    def definition(self, tool: ToolDefinition, narrowed: Narrowed, alias: str) -> Body:
        made: Body = {"name": alias, "description": tool.description, "inputSchema": narrowed.schema}
        if tool.title is not None:
            made["title"] = tool.title
        if tool.output_schema is not None:
            made["outputSchema"] = tool.output_schema
        return made

    @override
    def native_tools(self, offer: Offer) -> list[Body]:
        return []

    @override
    def result(self, result: ToolResult, names: Names | None = None) -> Body:
        made: Body = {"content": [_part(part) for part in result.content], "isError": not result.ok}
        if isinstance(result.structured, dict):
            made["structuredContent"] = result.structured
        return made


def _part(part: Content) -> Body:
    match part:
        case Image(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode("ascii"), "mimeType": mime_type}
        case Audio(data, mime_type):
            return {"type": "audio", "data": base64.b64encode(data).decode("ascii"), "mimeType": mime_type}
        case ResourceLink(uri, name, mime_type, description):
            told = {"mimeType": mime_type, "description": description}
            return {"type": "resource_link", "uri": uri, "name": name or uri, **_said(told)}
        case EmbeddedResource(uri, text, data, mime_type):
            held = {"text": text} if data is None else {"blob": base64.b64encode(data).decode("ascii")}
            return {"type": "resource", "resource": {"uri": uri, **held, **_said({"mimeType": mime_type})}}
        case _:
            return {"type": "text", "text": words_of(part)}


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


FORMAT: Final = McpFormat()
