"""A server whose tool `grow` adds another tool: ours, or one of the official SDK that announces it on the session."""

import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

from toolmason import Toolbox, serve


def late() -> str:
    """Come later."""
    return "here"


def make_own() -> Toolbox:
    """Return a toolbox that grows."""
    box = Toolbox()

    def grow() -> str:
        """Add a tool."""
        box.add(late)
        return "grown"

    box.add(grow)
    return box


def make_sdk() -> MCPServer[Any]:
    """Return a server of the SDK that grows."""
    server: MCPServer[Any] = MCPServer("sdk")

    @server.tool()
    async def grow(ctx: Context[Any]) -> str:
        """Add a tool."""
        server.add_tool(late)
        await ctx.session.send_tool_list_changed()
        return "grown"

    return server


if __name__ == "__main__":
    if sys.argv[1] == "own":
        serve(make_own())
    else:
        make_sdk().run()
