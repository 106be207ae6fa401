"""MCP format of tools (`tools/list`) and results (`tools/call`), protocol 2025-06-18 and later."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from toolmason._core.values.content import Content, Text, encode_part
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.results import ToolResult
from toolmason.providers.aliases import ToolNames
from toolmason.providers.codec import Body, Format
from toolmason.providers.content_parts import part_to_text
from toolmason.providers.schema.losses import NarrowedSchema
from toolmason.providers.schema.strict import fit_mcp
from toolmason.providers.tool_set import ProviderRules, ToolSet


class McpFormat(Format):
    """Model Context Protocol format."""

    rules = ProviderRules(provider="mcp", fit_schema=fit_mcp, name_pattern=r"[\x21-\x7e]{1,128}", max_name_length=128)

    @override
    def format_definition(self, tool: ToolDefinition, narrowed: NarrowedSchema, alias: str) -> Body:
        definition: Body = {"name": alias, "description": tool.description, "inputSchema": narrowed.schema}
        if tool.title is not None:
            definition["title"] = tool.title
        if tool.output_schema is not None:
            definition["outputSchema"] = tool.output_schema
        return definition

    @override
    def format_native_tools(self, tool_set: ToolSet) -> list[Body]:
        return []

    @override
    def result(self, result: ToolResult, names: ToolNames | None = None) -> Body:
        response: Body = {"content": [_format_part(part) for part in result.content], "isError": not result.ok}
        if isinstance(result.structured, dict):
            response["structuredContent"] = result.structured
        return response


def _format_part(part: Content) -> Body:
    return {"type": "text", "text": part_to_text(part)} if isinstance(part, Text) else encode_part(part)


FORMAT: Final = McpFormat()
