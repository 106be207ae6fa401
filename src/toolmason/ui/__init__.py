"""Serve the page of a toolbox on loopback: its tools, calls, chats, runs and servers; the front end is in `web/`."""
