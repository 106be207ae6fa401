"""Serve MCP over HTTP as an ASGI application: guard, identity, sessions, and replay."""
