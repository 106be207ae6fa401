"""Server of the carrier, written with the official MCP SDK: the desk does not know what a server is made of."""

from mcp.server.mcpserver import MCPServer

PARCELS = {"P-100": "lost on 12 May", "P-200": "with the customer since 3 May"}
server = MCPServer("carrier")


@server.tool(annotations={"readOnlyHint": True})
def track_parcel(parcel: str) -> str:
    """Return what the carrier knows about a parcel."""
    return PARCELS.get(parcel, "unknown")


if __name__ == "__main__":
    server.run()
