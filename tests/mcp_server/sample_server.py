"""A toolbox to serve in tests, and a server for it in a thread of its own."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from toolmason import Audio, EmbeddedResource, Image, Param, ResourceLink, Toolbox, ToolContext, prompt, resource, tool
from toolmason.mcp_server.http.app import asgi_app
from toolmason.mcp_server.http.http_server import make_http_server

VERSION = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
ACCEPT = "application/json, text/event-stream"
CANCELLED = threading.Event()


@tool(read_only=True, title="Echo")
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def explode() -> str:
    """Fail with a secret in the words."""
    raise ValueError("password=hunter2 at /srv/app")


@tool
def everything() -> list[Any]:
    """Return a part of every kind."""
    return [
        "text",
        Image(b"png"),
        Audio(b"wav"),
        ResourceLink("a://b", "b"),
        EmbeddedResource("a://c", "inside", mime_type="text/plain"),
        EmbeddedResource("a://d", data=b"\0\1"),
    ]


@tool
async def big() -> Image:
    """Return three megabytes."""
    return Image(b"x" * 3_000_000)


@tool
async def endless() -> str:
    """Wait until called off."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        CANCELLED.set()
        raise
    return "never"


@tool
async def who(ctx: ToolContext) -> str:
    """Say for whom the call is made."""
    return str(ctx.get("user"))


@tool
async def steps(ctx: ToolContext) -> str:
    """Report progress, and log."""
    await ctx.progress(1, 2, "half")
    ctx.log.warning("be careful with %s", "this")
    return "done"


@tool
def region(place: Annotated[str, Param(schema={"type": "string", "x-mcp-header": "Place"})]) -> str:
    """Take a parameter that is mirrored in a header."""
    return place


@tool(approval=True)
def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"wiped {disk}"


@tool
def odd(kind: str) -> Any:
    """Return what JSON cannot say."""
    ring: list[Any] = []
    ring.append(ring)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    return {"nan": {"x": float("nan")}, "surrogate": "\ud800", "ring": ring, "deep": deep, "object": object()}[kind]


@tool
async def leave(kind: str) -> str:
    """Raise what ends a program."""
    kinds = {
        "exit": SystemExit,
        "interrupt": KeyboardInterrupt,
        "base": BaseException,
        "cancel": asyncio.CancelledError,
    }
    raise kinds[kind]("gone")


@tool
def leave_thread(kind: str) -> str:
    """Raise what ends a program, in a thread."""
    kinds = {"exit": SystemExit, "interrupt": KeyboardInterrupt, "base": BaseException}
    raise kinds[kind]("gone")


@prompt(role="user")
def review(language: Annotated[str, Param(schema={"enum": ["python", "perl", "rust"]})]) -> str:
    """Ask for a review."""
    return f"Review this {language}."


@resource("notes://{name}", mime_type="text/plain")
def note(name: str) -> str:
    """A note."""
    return f"note {name}"


@resource("config://app")
def config() -> dict[str, int]:
    """The configuration."""
    return {"port": 1}


TOOLS = (echo, add, explode, big, everything, endless, who, steps, region, wipe, odd, leave, leave_thread)


def shelf(**words: Any) -> Toolbox:
    """Return a toolbox with all of the above."""
    return Toolbox(*TOOLS, review, note, config, name="shelf", **words)


def eventually(holds: Callable[[], Any], seconds: float = 10.0) -> bool:
    """Wait until something holds on another thread; tell whether it does."""
    ends, tick = time.monotonic() + seconds, threading.Event()
    while not holds() and time.monotonic() < ends:
        tick.wait(0.01)
    return bool(holds())


def old(app: Any) -> Any:
    """Return an application that knows only sessions, as servers were before the stateless era."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and any(name == b"mcp-method" for name, _ in scope["headers"]):
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"Bad Request: no session"})
            return
        await app(scope, receive, send)

    return answer


class Running:
    """A server in a thread of its own."""

    def __init__(self, box: Toolbox, port: int = 0, *, legacy: bool = False, **words: Any) -> None:
        self.app = asgi_app(box, **words)
        self.server = make_http_server(old(self.app) if legacy else self.app, "127.0.0.1", port, 2)
        self.loop: Any = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def _run(self) -> None:
        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            self.server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            await self.server.serve()

        asyncio.run(main())

    def start(self) -> None:
        self.thread.start()
        assert eventually(lambda: self.server.started)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def send(self, body: bytes, headers: dict[str, str], method: str = "POST", path: str = "/mcp") -> "Answer":
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def ask(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> "Answer":
        """Send one request of the stateless era."""
        meta = {**ENVELOPE, **more.pop("meta", {})}
        given = {**(params or {}), "_meta": meta}
        body = {"jsonrpc": "2.0", "id": more.pop("id", 1), "method": method, "params": given}
        name = given.get("name") or given.get("uri") or given.get("taskId")
        headers = {
            "content-type": "application/json",
            "accept": ACCEPT,
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            **({"mcp-name": name} if name else {}),
            **more.pop("headers", {}),
        }
        return self.send(json.dumps(body).encode(), headers)

    def ask_in_session(self, method: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> "Answer":
        """Send one request of a session, or the one that opens it."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        known = {"content-type": "application/json", "accept": ACCEPT, "mcp-protocol-version": "2025-11-25"}
        return self.send(json.dumps(body).encode(), {**known, **(headers or {})})

    def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Call a tool; return the result."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments or {}}, **more)
        assert "result" in answer.json, answer
        return answer.json["result"]

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    @property
    def json(self) -> Any:
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return self.events[-1]
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = self.body.decode().splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


@contextmanager
def running(box: Toolbox | None = None, **words: Any) -> Iterator[Running]:
    """Serve a toolbox for a while."""
    server = Running(shelf() if box is None else box, **words)
    server.start()
    try:
        yield server
    finally:
        server.stop()
