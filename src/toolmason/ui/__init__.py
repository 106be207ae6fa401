"""Serve the page of a toolbox on loopback: its tools, calls, chats, runs and servers; the front end is in `web/`."""

from importlib.util import find_spec

# Here, because a module of the page imports others that need the same packages.
if not all(map(find_spec, ("mcp", "starlette", "uvicorn"))):
    raise ImportError("The page needs extra packages: pip install 'toolmason[cli,ui]'")
