"""Call a tool of a served toolbox with the client of the official MCP SDK. The client knows nothing of Toolmason."""

import asyncio
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(
    command=str(Path(sys.executable).parent / "toolmason"), args=["serve", "examples/shop.py:box"]
)


async def main() -> None:
    """Print the tools of the server, and the result of one."""
    async with Client(SERVER) as client:
        tools = await client.list_tools()
        print("tools:", ", ".join(tool.name for tool in tools.tools))
        result = await client.call_tool("quote_price", {"sku": "CUP-01", "quantity": 2})
        print("quote_price:", result.structured_content)


asyncio.run(main())
