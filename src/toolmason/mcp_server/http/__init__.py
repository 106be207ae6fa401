"""Serve MCP over HTTP as an ASGI application: guard, identity, quotas, replay, and a fast path for plain calls."""
