"""Other libraries as contenders, each called as its own documentation or its own loop calls a tool.

Each turns a function into its tool; a call takes JSON text and returns the text or value for the model.
"""

import inspect
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from measure import Call
from pydantic_core import to_json

Function = Callable[..., Any]


def fastmcp_server(function: Function) -> Call:
    """FastMCP, through the server's public call method."""
    from fastmcp import FastMCP

    server, name = FastMCP("bench"), function.__name__
    server.tool(function)

    async def call(text: str) -> str:
        return (await server.call_tool(name, json.loads(text))).content[0].text

    return call


def fastmcp_tool(function: Function) -> Call:
    """FastMCP, the tool without a server."""
    from fastmcp.tools import Tool

    tool = Tool.from_function(function)

    async def call(text: str) -> str:
        return (await tool.run(json.loads(text))).content[0].text

    return call


def mcp_server(function: Function) -> Call:
    """MCP SDK, through the public call method of its high-level server."""
    from mcp.server import MCPServer

    server, name = MCPServer("bench"), function.__name__
    server.add_tool(function)

    async def call(text: str) -> str:
        return (await server.call_tool(name, json.loads(text))).content[0].text

    return call


def pydantic_ai(function: Function) -> Call:
    """Pydantic AI, through the tool manager that its agent uses in each step."""
    from pydantic_ai import FunctionToolset, RunContext
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tool_manager import ToolManager
    from pydantic_ai.usage import RunUsage

    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), run_step=1)
    managers: list[ToolManager[None]] = []
    name = function.__name__

    async def call(text: str) -> bytes:
        if not managers:
            toolset = FunctionToolset[None]([function], max_retries=9)
            managers.append(await ToolManager(toolset).for_run_step(context))
        return to_json(await managers[0].handle_call(ToolCallPart(name, text, "1")))

    return call


def langchain(function: Function) -> Call:
    """LangChain, through `ainvoke` with a tool call, as its agents do."""
    from langchain_core.tools import StructuredTool

    on_loop = inspect.iscoroutinefunction(function)
    tool = StructuredTool.from_function(**{"coroutine" if on_loop else "func": function})
    name = function.__name__

    async def call(text: str) -> object:
        asked = {"type": "tool_call", "id": "1", "name": name, "args": json.loads(text)}
        return (await tool.ainvoke(asked)).content

    return call


def openai_agents(function: Function) -> Call:
    """OpenAI Agents SDK, through the method that its runner invokes."""
    from agents import function_tool
    from agents.tool_context import ToolContext

    tool, name = function_tool(function), function.__name__

    async def call(text: str) -> str:
        context: ToolContext[None] = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=text)
        return str(await tool.on_invoke_tool(context, text))

    return call


def anthropic(function: Function) -> Call:
    """Anthropic SDK, through its tool helper."""
    from anthropic import beta_async_tool, beta_tool

    if inspect.iscoroutinefunction(function):
        on_loop = beta_async_tool(function)

        async def call(text: str) -> bytes:
            return to_json(await on_loop.call(json.loads(text)))

        return call
    plain = beta_tool(function)

    async def call_plain(text: str) -> bytes:
        return to_json(plain.call(json.loads(text)))

    return call_plain


def llm(function: Function) -> Call:
    """The llm library, through the step that its chain runs."""
    from llm import AsyncModel, Tool, ToolCall
    from llm.models import AsyncResponse, Prompt

    class Silent(AsyncModel):
        model_id, supports_tools = "silent", True

        async def execute(self, *_: Any, **__: Any) -> AsyncIterator[str]:
            yield ""

    model, name = Silent(), function.__name__
    response = AsyncResponse(Prompt("", model, tools=[Tool.function(function)]), model, stream=False)

    async def call(text: str) -> str:
        asked = ToolCall(name=name, arguments=json.loads(text), tool_call_id="1")
        return (await response.execute_tool_calls(tool_calls_list=[asked]))[0].output

    return call


def smolagents(function: Function) -> Call:
    """Smolagents, through its agent's step; it supports only sync functions."""
    from smolagents import Model, ToolCallingAgent, tool
    from smolagents.monitoring import LogLevel

    agent = ToolCallingAgent([tool(function)], Model(), verbosity_level=LogLevel.OFF)
    name = function.__name__

    async def call(text: str) -> str:
        return str(agent.execute_tool_call(name, json.loads(text)))

    return call


PEERS: dict[str, Callable[[Function], Call]] = {
    "fastmcp, server.call_tool": fastmcp_server,
    "fastmcp, Tool.run": fastmcp_tool,
    "mcp, MCPServer.call_tool": mcp_server,
    "pydantic-ai, ToolManager": pydantic_ai,
    "langchain-core, ainvoke": langchain,
    "openai-agents, on_invoke_tool": openai_agents,
    "anthropic, beta_tool": anthropic,
    "llm, execute_tool_calls": llm,
    "smolagents, execute_tool_call": smolagents,
}

IN_THREAD = [name for name in PEERS if not name.startswith(("anthropic", "llm", "smolagents"))]
"""Peers that run a sync function in a thread; the others run it on the event loop."""


def for_loop(name: str, plain: Function, on_loop: Function) -> Call:
    """Make a peer's call of the async form, or of the sync form if the peer supports no other."""
    return PEERS[name](plain if name.startswith("smolagents") else on_loop)


def forgiving(call: Call) -> Call:
    """Return exceptions as answers, because most peers raise on invalid arguments."""

    async def forgive(text: str) -> object:
        try:
            return await call(text)
        except Exception as error:  # noqa: BLE001 - each peer raises its own error
            return error

    return forgive


# --- definitions ---------------------------------------------------------------------------------


def _fastmcp(function: Function) -> object:
    from fastmcp.tools import Tool

    made = Tool.from_function(function)
    return made, made.parameters


def _mcp(function: Function) -> object:
    from mcp.server.mcpserver.tools import Tool

    made = Tool.from_function(function)
    return made, made.parameters


def _pydantic_ai(function: Function) -> object:
    from pydantic_ai import Tool

    made = Tool(function)
    return made, made.tool_def.parameters_json_schema


def _langchain(function: Function) -> object:
    from langchain_core.tools import StructuredTool

    made = StructuredTool.from_function(coroutine=function)
    return made, made.tool_call_schema.model_json_schema()


def _openai_agents(function: Function) -> object:
    from agents import function_tool

    made = function_tool(function)
    return made, made.params_json_schema


def _anthropic(function: Function) -> object:
    from anthropic import beta_async_tool

    made = beta_async_tool(function)
    return made, made.to_dict()


def _llm(function: Function) -> object:
    from llm import Tool

    made = Tool.function(function)
    return made, made.input_schema


DEFINE: dict[str, Callable[[Function], object]] = {
    "fastmcp": _fastmcp,
    "mcp": _mcp,
    "pydantic-ai": _pydantic_ai,
    "langchain-core": _langchain,
    "openai-agents": _openai_agents,
    "anthropic": _anthropic,
    "llm": _llm,
}

IMPORT = {
    "fastmcp": "from fastmcp import FastMCP",
    "mcp": "from mcp.server import MCPServer",
    "pydantic-ai": "from pydantic_ai import Agent",
    "langchain-core": "from langchain_core.tools import tool",
    "openai-agents": "from agents import function_tool",
    "anthropic": "from anthropic import beta_tool",
    "llm": "from llm import Tool",
    "smolagents": "from smolagents import tool",
}
