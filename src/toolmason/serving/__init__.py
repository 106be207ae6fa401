"""A toolbox → a server that speaks MCP, over stdio or HTTP."""
