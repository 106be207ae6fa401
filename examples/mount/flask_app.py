"""Flask with a toolbox at /mcp, under one ASGI server: `uvicorn flask_app:app`."""

from typing import Any

from a2wsgi import WSGIMiddleware
from flask import Flask, request
from tools import box

from toolmason import asgi_app

pages = Flask(__name__)


@pages.get("/")
def home() -> str:
    """Answer the page of the application itself."""
    return f"Hello from {request.path}"


mcp = asgi_app(box, path="/mcp", allowed_hosts=["tools.example.com"])
bridge: Any = WSGIMiddleware(pages)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Send requests for tools, and the start and end of the server, to the toolbox, and the others to Flask."""
    is_tools = scope["type"] == "lifespan" or scope["path"] == "/mcp"
    await (mcp if is_tools else bridge)(scope, receive, send)
