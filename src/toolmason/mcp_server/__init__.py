"""A toolbox served over MCP: handlers for each method, independent of the transport."""
