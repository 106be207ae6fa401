"""Use Pydantic AI tools in a toolbox, and the tools of a toolbox in Pydantic AI."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.content import Image
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import ToolCall
from toolmason.errors import ToolError

try:
    from pydantic_ai import BinaryContent, ModelRetry, RunContext
    from pydantic_ai import Tool as PydanticTool
    from pydantic_ai import ToolReturn as PydanticReturn
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage
except ImportError as missing:  # pragma: no cover - the test suite has it
    raise ImportError("The Pydantic AI adapter needs its library: pip install 'toolmason[pydantic-ai]'") from missing


def to_pydantic_ai(box: Toolbox) -> list[PydanticTool[Any]]:
    """Return the tools of a toolbox as Pydantic AI tools. Their calls run under the policy of the toolbox.

    A failed call returns its error to the model, and the `ToolResult` is the `metadata` of the part.
    """
    return [_export(box, tool) for tool in box.tools]


def _export(box: Toolbox, tool: Tool) -> PydanticTool[Any]:
    async def call(ctx: RunContext[Any], **arguments: Any) -> PydanticReturn[Any]:
        result = await box.call(ToolCall(ctx.tool_call_id or "", tool.name, arguments))
        images = [BinaryContent(part.data, media_type=part.mime_type) for part in result.content if type(part) is Image]
        return PydanticReturn(return_value=result.text, content=images or None, metadata=result)

    return PydanticTool.from_schema(
        call,
        tool.name,
        tool.description,
        tool.definition.input_schema,
        takes_ctx=True,
        sequential=tool.options.runs_alone,
    )


def from_pydantic_ai(
    *tools: PydanticTool[Any] | FunctionToolset[Any] | Callable[..., Any] | Iterable[PydanticTool[Any]],
    deps: Any = None,
) -> list[Tool]:
    """Return tools of Pydantic AI for a toolbox: `Toolbox(from_pydantic_ai(search, deps=database))`.

    Without `deps`, a tool with a `RunContext` gets the `deps` of the toolbox's context. `requires_approval` and
    `timeout` of a tool hold.
    """
    found: list[PydanticTool[Any]] = []
    for item in tools:
        if isinstance(item, FunctionToolset):
            found += item.tools.values()
        elif isinstance(item, PydanticTool):
            found.append(item)
        elif isinstance(item, Iterable):
            found += item
        else:
            found.append(PydanticTool(item))
    return [_import(tool, deps) for tool in found]


def _import(tool: PydanticTool[Any], deps: Any) -> Tool:
    function = tool.function_schema

    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        run = RunContext[Any](
            deps=context.deps if deps is None else deps,
            model=TestModel(),
            usage=RunUsage(),
            tool_call_id=context.call_id,
            tool_name=tool.name,
        )
        try:
            value = await function.call(function.validator.validate_python(arguments), run)
        except ModelRetry as error:
            raise ToolError(error.message, retryable=True) from error
        return value.return_value if isinstance(value, PydanticReturn) else value

    return Tool.from_schema(
        tool.name,
        tool.description or "",
        function.json_schema,
        call,
        approval=tool.requires_approval,
        sequential=True if tool.sequential else None,
        timeout=INHERIT if tool.timeout is None else tool.timeout,
    )
