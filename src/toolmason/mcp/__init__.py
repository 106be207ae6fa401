"""MCP: servers as sources of tools. What needs the SDK is loaded with the first connection."""
