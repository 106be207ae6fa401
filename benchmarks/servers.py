"""One echo server of one kind, for `serving.py`: `python benchmarks/servers.py KIND WAY PORT TOOLS`.

Every kind runs under the same uvicorn, with httptools and uvloop, and serves the same tools.
"""

import asyncio
import sys
from typing import Any


def ours(tools: int, *, fast: bool) -> Any:
    """Toolwright."""
    from toolwright import Tool, Toolbox

    async def echo(text: str) -> str:
        """Say it again."""
        return text

    box = Toolbox(*(Tool.from_function(echo, name=f"echo_{number}") for number in range(tools)))
    from toolwright.serving.app import asgi_app

    return box, asgi_app(box, fast=fast)


def sdk(tools: int) -> Any:
    """The SDK's low-level server."""
    import mcp_types as types
    from mcp.server import Server

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    entries = [types.Tool(name=f"echo_{n}", description="Say it again.", input_schema=schema) for n in range(tools)]

    async def list_tools(_ctx: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=entries)

    async def call_tool(_ctx: Any, params: Any) -> Any:
        text = params.arguments["text"]
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"result": text})

    server = Server("sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return server, server.streamable_http_app(json_response=True)


def fastmcp(tools: int) -> Any:
    """FastMCP."""
    from fastmcp import FastMCP
    from fastmcp.tools import Tool

    async def echo(text: str) -> str:
        """Say it again."""
        return text

    server = FastMCP("fastmcp")
    for number in range(tools):
        server.add_tool(Tool.from_function(echo, name=f"echo_{number}"))
    return server, server.http_app(json_response=True)


KINDS = {
    "toolwright": lambda tools: ours(tools, fast=True),
    "toolwright, short way off": lambda tools: ours(tools, fast=False),
    "mcp low-level": sdk,
    "fastmcp": fastmcp,
}


def main() -> None:
    """Serve one kind."""
    kind, way, port, tools = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    server, app = KINDS[kind](tools)
    if way == "http":
        import uvicorn

        uvicorn.run(app, port=port, http="httptools", loop="uvloop", log_level="warning", access_log=False)
    elif kind.startswith("toolwright"):
        from toolwright import serve

        serve(server)
    elif kind == "fastmcp":
        server.run("stdio", show_banner=False)
    else:
        asyncio.run(_stdio(server))


async def _stdio(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    main()
