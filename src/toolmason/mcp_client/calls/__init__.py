"""Requests to and from a server: tools, tasks, callbacks, forwarding and output validation."""
