"""Use tools of the OpenAI Agents SDK in a toolbox, and the tools of a toolbox in the SDK."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.content import Content, Image, describe_part
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import ToolCall

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
    from agents.tool_context import ToolContext as AgentContext
except ImportError as missing:  # pragma: no cover - the test suite has it
    raise ImportError("The adapter needs the OpenAI Agents SDK: pip install 'toolmason[openai-agents]'") from missing


def to_openai_agents(box: Toolbox) -> list[FunctionTool]:
    """Return the tools of a toolbox for an agent of the OpenAI Agents SDK. Calls run under the policy of the toolbox.

    A failed call returns its error to the model, and the run goes on.
    """
    return [_export(box, tool) for tool in box.tools]


def _export(box: Toolbox, tool: Tool) -> FunctionTool:
    async def call(context: AgentContext[Any], arguments: str) -> Any:
        result = await box.call(ToolCall(context.tool_call_id, tool.name, arguments))
        if not any(type(part) is Image for part in result.content):
            return result.text
        return [_to_output(part) for part in result.content]

    # The toolbox validates the arguments, so the schema need not be one that strict mode accepts.
    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema={"properties": {}, **tool.definition.input_schema},
        on_invoke_tool=call,
        strict_json_schema=False,
    )


def _to_output(part: Content) -> ToolOutputText | ToolOutputImage:
    if isinstance(part, Image):
        return ToolOutputImage(image_url=f"data:{part.mime_type};base64,{b64encode(part.data).decode()}")
    return ToolOutputText(text=describe_part(part))


def from_openai_agents(*tools: FunctionTool | Iterable[FunctionTool], context: Any = None) -> list[Tool]:
    """Return function tools of the SDK for a toolbox: `Toolbox(from_openai_agents(search))`.

    Without `context`, a tool gets the `deps` of the toolbox's context. A tool that may need approval always asks.
    """
    flat = [tool for item in tools for tool in ([item] if isinstance(item, FunctionTool) else item)]
    return [_import(tool, context) for tool in flat]


def _import(tool: FunctionTool, given: Any) -> Tool:
    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        text = to_json(arguments).decode()
        agent_context = AgentContext[Any](
            context.deps if given is None else given,
            tool_name=tool.name,
            tool_call_id=context.call_id,
            tool_arguments=text,
        )
        return await tool.on_invoke_tool(agent_context, text)

    return Tool.from_schema(
        tool.name,
        tool.description,
        tool.params_json_schema,
        call,
        approval=bool(tool.needs_approval),
        timeout=INHERIT if tool.timeout_seconds is None else tool.timeout_seconds,
    )
