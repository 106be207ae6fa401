"""Starlette with a toolbox under /tools: `uvicorn starlette_app:app`."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from tools import box

from toolmason import asgi_app


async def home(request: Request) -> PlainTextResponse:
    """Answer the page of the application itself."""
    return PlainTextResponse(f"Hello from {request.url.path}")


mcp = asgi_app(box, path="/mcp", allowed_hosts=["tools.example.com"])
app = Starlette(routes=[Route("/", home), Mount("/tools", mcp)], lifespan=mcp.lifespan)
