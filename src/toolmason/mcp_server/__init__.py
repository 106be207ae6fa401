"""Serve a toolbox over MCP: handlers for each method, independent of the transport.

The protocol has two eras. In the session era (versions before 2026-07-28), a client opens a session with a handshake,
and the server may send it requests. In the stateless era (`modern=True` in this package), every request stands alone:
it carries the client's version and capabilities, and a question to the client ends the call, which the client repeats
with the answer.
"""
