"""MCP servers as sources of tools: connections, sessions, pools and OAuth.

The protocol has two eras. A server of the session era (versions before 2026-07-28, `era="legacy"`) is opened with a
handshake and may send requests to its client. A server of the stateless era gets the client's version and capabilities
with every request, and asks questions in its responses. A probe (`server/discover`) finds the era of a server.

A toolbox that uses servers and is itself served is a gateway: `UpstreamCaller` is its client, for which it forwards
requests to upstream servers.
"""
