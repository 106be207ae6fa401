"""Serve a toolbox over MCP: handlers for each method, independent of the transport."""
