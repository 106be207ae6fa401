"""A page with tools of every kind, and a client of it."""

import asyncio
from typing import Annotated, Any

from chat.asgi_client import Streamed, request
from toolmason import Image, Toolbox, ToolContext, ToolError, tool
from toolmason.ui.page import Page, PageOptions
from toolmason.ui.page_app import PageApp

TOKEN = "a-token-of-24-characters"  # noqa: S105 - of a test
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool(read_only=True, tags={"math"})
async def add(a: Annotated[int, "First number"], b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def count(steps: int, ctx: ToolContext) -> str:
    """Count with progress."""
    for number in range(steps):
        await ctx.progress(number + 1, steps, f"step {number + 1}")
    return "counted"


@tool(destructive=True, approval=True, preview=lambda arguments: f"Delete {arguments['path']}")
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
def draw() -> Image:
    """Draw a pixel."""
    return Image(PIXEL)


@tool
def fail() -> None:
    """Fail on purpose."""
    raise ToolError("this \u202etool fails")


def make_app(*sources: Any, **options: Any) -> PageApp:
    """Return the application of a page, with the offline model."""
    box = Toolbox(*(sources or (add, count, delete, draw, fail)))
    return PageApp(Page(box, PageOptions("app.py:box", {"offline": "words"}, **options)), TOKEN)


async def ask(app: PageApp, path: str, body: Any = None, method: str | None = None, **options: Any) -> Streamed:
    """Send a request with the token."""
    query = options.pop("query", b"")
    headers = {"authorization": f"Bearer {TOKEN}", **options}
    return await request(
        app, body, method or ("GET" if body is None else "POST"), query=query, path=f"/api/{path}", **headers
    )


class Gate:
    """A tool that waits, and reports that it was cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def wait(self, ctx: ToolContext) -> str:
        """Wait for ever."""
        await ctx.progress(1, 2, "waiting")
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ""
