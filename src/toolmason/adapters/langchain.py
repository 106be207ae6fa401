"""Use LangChain tools in a toolbox, and the tools of a toolbox in LangChain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from typing_extensions import override

from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.content import Content, Image, Text
from toolmason._core.values.results import ToolResult
from toolmason.errors import ToolError

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
except ImportError as missing:  # pragma: no cover - the test suite has it
    raise ImportError("The LangChain adapter needs langchain-core: pip install 'toolmason[langchain]'") from missing


class LangChainTool(BaseTool):
    """A tool of a toolbox, for LangChain. `artifact` of its message is the `ToolResult`."""

    toolbox: Any
    """The toolbox that runs its calls."""
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"

    @override
    def _run(self, **arguments: Any) -> tuple[str, ToolResult]:
        result: ToolResult = self.toolbox.call_sync(self.name, arguments)
        return result.text, result

    @override
    async def _arun(self, **arguments: Any) -> tuple[str, ToolResult]:
        result: ToolResult = await self.toolbox.call(self.name, arguments)
        return result.text, result

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run a call; a failed result becomes a message with the status `error`."""
        return _mark_failure(super().invoke(input, config, **kwargs))

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run a call; a failed result becomes a message with the status `error`."""
        return _mark_failure(await super().ainvoke(input, config, **kwargs))


def _mark_failure(message: Any) -> Any:
    if isinstance(message, ToolMessage) and isinstance(message.artifact, ToolResult) and not message.artifact.ok:
        message.status = "error"
    return message


def to_langchain(box: Toolbox) -> list[BaseTool]:
    """Return the tools of a toolbox as LangChain tools. Their calls run under the policy of the toolbox."""
    return [
        LangChainTool(
            name=tool.name,
            description=tool.description,
            args_schema={"properties": {}, **tool.definition.input_schema},
            return_direct=tool.options.return_direct,
            tags=sorted(tool.options.tags),
            toolbox=box,
        )
        for tool in box.tools
    ]


def from_langchain(*tools: BaseTool | Iterable[BaseTool]) -> list[Tool]:
    """Return LangChain tools as tools for a toolbox: `Toolbox(from_langchain(search))`."""
    flat = [tool for item in tools for tool in ([item] if isinstance(item, BaseTool) else item)]
    return [_make_tool(tool) for tool in flat]


def _make_tool(tool: BaseTool) -> Tool:
    schema: Any = tool.tool_call_schema
    if not isinstance(schema, Mapping):
        schema = schema.model_json_schema()

    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        entry = {"type": "tool_call", "id": context.call_id, "name": tool.name, "args": arguments}
        message = await tool.ainvoke(entry)
        if not isinstance(message, ToolMessage):  # a command of LangGraph, for example
            return str(message)
        if message.status == "error":
            raise ToolError(message.text, data=message.artifact)
        return message.content if isinstance(message.content, str) else [_to_part(part) for part in message.content]

    described = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return Tool.from_schema(
        tool.name,
        tool.description,
        described,
        call,
        return_direct=tool.return_direct,
        tags=frozenset(tool.tags or ()),
    )


def _to_part(block: str | dict[Any, Any]) -> Content:
    if isinstance(block, str):
        return Text(block)
    if block.get("type") == "image" and isinstance(block.get("base64"), str):
        return Image(block["base64"], block.get("mime_type"))
    return Text(str(block.get("text", block)))
