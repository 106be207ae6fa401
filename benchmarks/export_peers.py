"""Exports of other libraries: each turns functions into its tools, and lists them in the format of a provider."""

from collections.abc import Callable, Sequence
from typing import Any

from sources import Function

Export = Callable[[], list[Any]]


def llm(functions: Sequence[Function]) -> Export:
    """`llm`: as its OpenAI plugin writes the tools of a prompt."""
    from llm import Tool

    tools = [Tool.function(function) for function in functions]
    return lambda: [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description or None, "parameters": tool.input_schema},
        }
        for tool in tools
    ]


def anthropic(functions: Sequence[Function]) -> Export:
    """Anthropic SDK: the dicts that its tool runner sends."""
    from anthropic import beta_async_tool

    tools = [beta_async_tool(function) for function in functions]
    return lambda: [tool.to_dict() for tool in tools]


def openai_agents(functions: Sequence[Function]) -> Export:
    """OpenAI Agents SDK: its converter for Chat Completions."""
    from agents import function_tool
    from agents.models.chatcmpl_converter import Converter

    tools = [function_tool(function) for function in functions]
    return lambda: [Converter.tool_to_openai(tool) for tool in tools]


def langchain(functions: Sequence[Function]) -> Export:
    """LangChain: its converter for OpenAI."""
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool

    tools = [StructuredTool.from_function(coroutine=function) for function in functions]
    return lambda: [convert_to_openai_tool(tool) for tool in tools]


def pydantic_ai(functions: Sequence[Function]) -> Export:
    """Pydantic AI: the steps of its OpenAI model before a request."""
    from pydantic_ai import Tool
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    tools = [Tool(function) for function in functions]
    model = OpenAIChatModel("m", provider=OpenAIProvider(api_key="none"))

    def export() -> list[Any]:
        asked = ModelRequestParameters(function_tools=[tool.tool_def for tool in tools])
        asked = model.customize_request_parameters(asked)
        return [model._map_tool_definition(tool, {}) for tool in asked.function_tools]  # noqa: SLF001 - no public name

    return export


def fastmcp(functions: Sequence[Function]) -> Export:
    """FastMCP: the entries of `tools/list`."""
    from fastmcp.tools import Tool

    tools = [Tool.from_function(function) for function in functions]
    return lambda: [tool.to_mcp_tool().model_dump(by_alias=True, exclude_none=True) for tool in tools]


PEERS: dict[str, Callable[[Sequence[Function]], Export]] = {
    "llm, OpenAI plugin": llm,
    "anthropic, to_dict": anthropic,
    "openai-agents, Converter": openai_agents,
    "langchain-core, convert_to_openai_tool": langchain,
    "pydantic-ai, OpenAIChatModel": pydantic_ai,
    "fastmcp, to_mcp_tool": fastmcp,
}
