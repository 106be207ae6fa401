"""FastAPI with a toolbox under /tools: `uvicorn fastapi_app:app`."""

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from tools import box

from toolmason import asgi_app

mcp = asgi_app(box, path="/mcp", allowed_hosts=["tools.example.com"])
app = FastAPI(lifespan=mcp.lifespan)
app.mount("/tools", mcp)


@app.get("/")
async def home() -> PlainTextResponse:
    """Answer the page of the application itself."""
    return PlainTextResponse("Hello from /")
