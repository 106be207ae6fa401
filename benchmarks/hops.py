"""Count the frames and module hops of the main flows: a call, a call in a run, a served call, a message in a chat.

Usage: python benchmarks/hops.py [--cost]

A frame is an entered Python function of the package; a resumed coroutine is entered again. A hop is a frame in a
different module from the previous one. Both are counted in the calling thread, after the flow has run twice.
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import toolmason
from toolmason import Chat, Limits, Toolbox, ToolContext, asgi_app, model, tool

PACKAGE = str(Path(toolmason.__file__).parent)
Flow = Callable[[], Awaitable[object]]


@dataclass
class Trace:
    """Modules that a flow entered, in order, and the longest chain of coroutines above a socket."""

    modules: list[str] = field(default_factory=list)
    depth: int = 0
    flow: Any = None
    """The coroutine of the flow. Coroutines in which another task is awaited are part of the chain."""

    @property
    def frames(self) -> int:
        """Number of functions entered."""
        return len(self.modules)

    @property
    def hops(self) -> int:
        """Number of changes of module."""
        return sum(a != b for a, b in zip(self.modules, self.modules[1:], strict=False))

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Record an event; used as the `sys.setprofile` function."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.modules.append(code.co_filename)
        elif code.co_name == "handle_async_request" and "transport" in code.co_filename:
            self.depth = max(self.depth, _coroutines_above(frame) + _suspended_coroutines(self.flow))


def _coroutines_above(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        code: CodeType = frame.f_code
        count += code.co_filename.startswith(PACKAGE) and bool(
            code.co_flags & 0x280
        )  # a coroutine, or an async generator
        frame = frame.f_back
    return count


def _suspended_coroutines(flow: Any) -> int:
    """Return the number of coroutines that wait for the task which sends, if that is not the task of the flow."""
    count = 0
    while flow is not None and not getattr(flow, "cr_running", False):
        code = getattr(flow, "cr_code", None)
        count += code is not None and code.co_filename.startswith(PACKAGE)
        flow = getattr(flow, "cr_await", None)
    return count


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(lock="a")
async def add_locked(a: int, b: int) -> int:
    """Add two numbers, one call at a time for each `a`."""
    return a + b


@tool
async def add_with_context(a: int, b: int, ctx: ToolContext) -> int:
    """Add two numbers; requires the context."""
    return a + b + len(ctx)


ARGUMENTS = '{"a": 1, "b": 2}'


def plain() -> Flow:
    """Return a flow that calls an async tool."""
    box = Toolbox(add)
    return lambda: box.call("add", ARGUMENTS)


def locked() -> Flow:
    """Return a flow that calls a tool with a lock."""
    box = Toolbox(add_locked)
    return lambda: box.call("add_locked", ARGUMENTS)


def in_run() -> Flow:
    """Return a flow that calls a tool in a run, as a chat does."""
    numbers = iter(range(1_000_000))  # a repeated call would return the stored result
    run = Toolbox(add).run(Limits(calls=None, per_tool=None))
    return lambda: run.call("add", f'{{"a": 1, "b": {next(numbers)}}}')


def served() -> Flow:
    """Return a flow that sends `tools/call` over HTTP in a session, to a tool with context, without a socket."""
    app = asgi_app(Toolbox(add_with_context))
    session: list[bytes] = []
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "hops", "version": "1"}}
    numbers = iter(range(1_000_000))

    async def ask(method: str, params: Any) -> dict[bytes, bytes]:
        body = json.dumps({"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}).encode()
        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"content-length", str(len(body)).encode()),
            *[(b"mcp-session-id", value) for value in session],
        ]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
        scope |= {"path": "/mcp", "raw_path": b"/mcp", "root_path": "", "query_string": b"", "headers": headers}
        scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)}
        sent: list[dict[str, Any]] = []
        waiting = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not waiting.is_set():
                waiting.set()
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.Event().wait()
            return {}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)
        if sent[0]["status"] != 200:
            raise AssertionError(sent)
        return dict(sent[0]["headers"])

    async def call() -> object:
        if not session:
            session.append((await ask("initialize", hello))[b"mcp-session-id"])
        return await ask("tools/call", {"name": "add_with_context", "arguments": {"a": 1, "b": 2}})

    return call


class _Anthropic(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = body["messages"][-1]["content"]
        done = isinstance(last, list) and any(block["type"] == "tool_result" for block in last)
        block = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}}
        answer = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        answer |= {"content": [{"type": "text", "text": "3"} if done else block]}
        data = json.dumps(answer | {"stop_reason": "end_turn" if done else "tool_use"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def chat() -> Flow:
    """Return a flow that sends a chat message: two model turns over HTTP, one call."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Anthropic)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = model("anthropic:m", base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
    talk = Chat(made, Toolbox(add))
    return lambda: talk.send("What is 1 + 2?")


FLOWS: dict[str, Callable[[], Flow]] = {
    "call": plain,
    "call with a lock": locked,
    "call in a run": in_run,
    "tools/call in a session, tool with context": served,
    "Chat.send with one call": chat,
}


async def _trace(make: Callable[[], Flow]) -> Trace:
    flow = make()
    for _ in range(2):
        await flow()
    trace = Trace()
    sys.setprofile(trace)
    try:
        trace.flow = flow()
        await trace.flow
    finally:
        sys.setprofile(None)
    return trace


def traces() -> dict[str, Trace]:
    """Trace every flow."""
    return {name: asyncio.run(_trace(make)) for name, make in FLOWS.items()}


def costs(rounds: int = 15, calls: int = 400) -> dict[str, float]:
    """Measure the CPU time of the calls in interleaved rounds, as multiples of the plain call."""

    async def measure() -> dict[str, float]:
        flows = {name: FLOWS[name]() for name in ("call", "call with a lock", "call in a run")}
        times: dict[str, list[float]] = {name: [] for name in flows}
        for number in range(rounds + 1):
            for name, flow in flows.items():
                start = time.process_time()
                for _ in range(calls):
                    await flow()
                if number:
                    times[name].append(time.process_time() - start)
        plain = statistics.median(times["call"])
        return {name: statistics.median(found) / plain for name, found in times.items()}

    return asyncio.run(measure())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Count the frames and module hops of the main flows.")
    parser.add_argument("--cost", action="store_true", help="also measure the CPU time of calls")
    options = parser.parse_args()
    logging.getLogger("toolmason").setLevel(logging.ERROR)
    relative = costs() if options.cost else {}
    print("| flow | frames | hops | modules | coroutines to the socket | cost |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, trace in traces().items():
        cost = f"{relative[name]:.1f} x" if name in relative else ""
        print(f"| {name} | {trace.frames} | {trace.hops} | {len(set(trace.modules))} | {trace.depth or ''} | {cost} |")


if __name__ == "__main__":
    main()
