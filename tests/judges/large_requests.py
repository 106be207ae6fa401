"""Compare requests of 4 MiB with the MCP SDK: `python tests/judges/large_requests.py [WORD ...]`.

Prints for each shape of arguments the CPU time of a call on our server and on the SDK's, and how long our event loop
was held. Fails over 3 times the SDK's time, and over 100 ms. Both figures are CPU time of the serving process, so
other programs on the machine do not count. With words, only the shapes that contain one of them are measured;
with `--progress`, the requests ask for progress, so that a stream answers them.
"""

import asyncio
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel
from server import free_port

BODY_BYTES = 4 * 1024 * 1024 - 1024
MOST_RATIO, MOST_HOLD_MS = 3.0, 100.0
ROUNDS, MOST_REPEATED_MS = 5, 2000.0
TICK_SECONDS = 0.002
MOST_PARTS, MOST_KEYS = 655_000, 149_000
"""A little less than the brackets and colons, and the keys of one object, that our server reads in a message."""
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "judge", "version": "1"},
}

# --- the shapes --------------------------------------------------------------------------------


def array(item: str, count: int = 1 << 30) -> str:
    """Return a list of an item, as often as fits."""
    return "[" + ",".join([item] * min(count, (BODY_BYTES - 1024) // (len(item) + 1))) + "]"


def nested(depth: int) -> str:
    """Return a list of lists, each so deep."""
    return array("[" * depth + "]" * depth, MOST_PARTS // depth // 2)


def keyed(pattern: str, count: int) -> str:
    """Return an object with so many keys; `#` in the pattern is a number."""
    return "{" + ",".join(pattern.replace("#", f"{number:x}") for number in range(count)) + "}"


def text(part: str) -> str:
    """Return a string of a part, as often as fits."""
    return '"' + part * ((BODY_BYTES - 1024) // len(part)) + '"'


PERSON = '{"name":"Ada","age":36,"tags":["a","b"],"home":{"city":"Oslo","zip":"0150"}}'
SHAPES: dict[str, tuple[str, Callable[[], str]]] = {
    "one long string": ("take_text", lambda: text("x")),
    "escapes": ("take_text", lambda: text("\\n")),
    "unicode escapes": ("take_text", lambda: text("\\u00e9")),
    "string for a list": ("take_numbers", lambda: text("x")),
    "numbers": ("take_numbers", lambda: array("123456")),
    "digits": ("take_numbers", lambda: array("1")),
    "600,000 wrong values": ("take_numbers", lambda: array('"xyz"', 600_000)),
    "empty strings for numbers": ("take_numbers", lambda: array('""')),
    "nulls for numbers": ("take_numbers", lambda: array("null")),
    "numbers in strings": ("take_numbers", lambda: array('"1"')),
    "last number wrong": ("take_numbers", lambda: array("123456")[:-1] + ',"x"]'),
    "long numbers": ("take_numbers", lambda: array("1" * 4000)),
    "nested lists": ("take_anything", lambda: nested(8)),
    "deep lists": ("take_anything", lambda: nested(100)),
    "flat lists": ("take_anything", lambda: array("[1]", MOST_PARTS // 2)),
    "lists for numbers": ("take_numbers", lambda: nested(8)),
    "objects": ("take_anything", lambda: array(PERSON)),
    "models": ("take_people", lambda: array(PERSON)),
    "models with a wrong field": ("take_people", lambda: array(PERSON.replace("36", '""'))),
    "small models": ("take_points", lambda: array('{"x":1}', MOST_PARTS // 3)),
    "models without fields": ("take_points", lambda: array("{}", MOST_PARTS // 2)),
    "numbers for models": ("take_points", lambda: array("1")),
    "unions": ("take_unions", lambda: array("1.5")),
    "no member of a union": ("take_unions", lambda: array("[]", MOST_PARTS // 2)),
    "pairs": ("take_pairs", lambda: array("[1,2]", MOST_PARTS // 2)),
    "wrong pairs": ("take_pairs", lambda: array('["",2,3]', MOST_PARTS // 2)),
    "set of numbers": ("take_set", lambda: "[" + ",".join(map(str, range(550_000))) + "]"),
    "texts for a set": ("take_set", lambda: array('"x"')),
    "100,000 keys": ("take_mapping", lambda: keyed('"some key number #":12345', 100_000)),
    "most keys": ("take_mapping", lambda: keyed('"#":1', MOST_KEYS)),
    "wrong values of keys": ("take_mapping", lambda: keyed('"#":""', MOST_KEYS)),
    "escaped keys": ("take_mapping", lambda: keyed('"\\n#":1', MOST_KEYS)),
    "keys of an untyped object": ("take_anything", lambda: keyed('"\\n#":1', MOST_KEYS)),
    "unknown arguments": ("take_text", lambda: '"",' + keyed('"#":1', MOST_KEYS)[1:-1]),
    "unknown keys of a model": ("take_settings", lambda: keyed('"#":1', MOST_KEYS)),
    "keys in many objects": ("take_anything", lambda: "[" + keyed('{"#":1}', MOST_PARTS // 3)[1:-1] + "]"),
    "returned text": ("return_text", lambda: text("x")),
    "returned numbers": ("return_numbers", lambda: array("123456")),
}


def make_body(tool: str, value: str, *, wants_progress: bool = False) -> bytes:
    """Return a request whose argument `value` is this JSON text."""
    meta = {**META, "progressToken": "p"} if wants_progress else META
    params = f'{{"name":"{tool}","_meta":{json.dumps(meta)},"arguments":{{"value":{value}}}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()


# --- the servers -------------------------------------------------------------------------------


class Home(BaseModel):
    """Part of a person."""

    city: str
    zip: str


class Person(BaseModel):
    """Model with some fields."""

    name: str
    age: int
    tags: list[str]
    home: Home


class Point(BaseModel):
    """Model with one field."""

    x: int


class Settings(BaseModel, extra="forbid"):
    """Model that refuses other fields."""

    x: int = 0


async def take_text(value: str) -> int:
    return len(value)


async def take_numbers(value: list[int]) -> int:
    return len(value)


async def take_anything(value: Any) -> int:
    return len(value)


async def take_people(value: list[Person]) -> int:
    return len(value)


async def take_points(value: list[Point]) -> int:
    return len(value)


async def take_unions(value: list[int | float | str | Point]) -> int:
    return len(value)


async def take_pairs(value: list[tuple[int, int]]) -> int:
    return len(value)


async def take_set(value: set[int]) -> int:
    return len(value)


async def take_settings(value: Settings) -> int:
    return value.x


async def take_mapping(value: dict[str, int]) -> int:
    return len(value)


async def return_text(value: str) -> str:
    return value


async def return_numbers(value: list[int]) -> list[int]:
    return value


class Ticker:
    """Clock of the event loop: the most CPU time of the process between two turns of the loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last: float | None = None

    def tick(self) -> None:
        """Note one turn, and ask for the next."""
        now = time.process_time()
        self.longest = max(self.longest, now - (self._last or now))
        self._last = now
        asyncio.get_running_loop().call_later(TICK_SECONDS, self.tick)

    async def usage(self) -> dict[str, float]:
        """Return the CPU time of the process so far, and the longest hold since the last request for it."""
        if self._last is None:
            self.tick()
        longest, self.longest = self.longest, 0.0
        return {"cpu": time.process_time(), "hold": longest}


FUNCTIONS = (
    take_text,
    take_numbers,
    take_anything,
    take_people,
    take_points,
    take_unions,
    take_pairs,
    take_set,
    take_mapping,
    take_settings,
    return_text,
    return_numbers,
    Ticker().usage,
)


def serve_tools(kind: str, port: int) -> None:
    """Serve the functions on a port, until the process is ended."""
    if kind == "ours":
        from toolmason import Toolbox, serve

        serve(Toolbox(*FUNCTIONS), "http", port=port)
        return
    import uvicorn
    from mcp.server import MCPServer

    server = MCPServer("sdk", log_level="CRITICAL")  # it logs each wrong value
    for function in FUNCTIONS:
        server.add_tool(function)
    app = server.streamable_http_app(json_response=True, max_request_body_size=BODY_BYTES + 65_536)
    uvicorn.run(app, port=port, http="httptools", loop="uvloop", log_level="error", access_log=False)


# --- the measurement ---------------------------------------------------------------------------


class Server:
    """Connection to a server process."""

    def __init__(self, port: int) -> None:
        self.port = port

    def call(self, tool: str, body: bytes) -> Any:
        """Return the answer to a call."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        connection.request("POST", "/mcp", body, headers)
        answer = connection.getresponse().read()
        connection.close()
        # A stream has the answer in its last event.
        return json.loads(answer if answer.startswith(b"{") else answer.rpartition(b"data: ")[2])

    def usage(self) -> dict[str, float]:
        """Return the CPU time of the process, and the longest hold of its loop since the last request for it."""
        found = self.call("usage", make_body("usage", "null").replace(b'"value":null', b""))
        usage: dict[str, float] = found["result"]["structuredContent"]
        return usage.get("result", usage)  # type: ignore[return-value]

    def measure(self, tool: str, body: bytes) -> tuple[float, float, bool]:
        """Return the CPU milliseconds of a call, those of the longest hold of the loop, and whether it was refused."""
        before = self.usage()
        answer = self.call(tool, body)
        after = self.usage()
        is_refused = "error" in answer or answer["result"].get("isError", False)
        return (after["cpu"] - before["cpu"]) * 1e3, after["hold"] * 1e3, is_refused


@contextmanager
def running(kind: str) -> Iterator[Server]:
    """Run a server in a process of its own."""
    server = Server(free_port())
    process = subprocess.Popen([sys.executable, __file__, "--serve", kind, str(server.port)])
    try:
        for _ in range(600):
            try:
                server.usage()
                break
            except OSError:
                time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait(20)


def repeat(server: Server, tool: str, body: bytes) -> list[tuple[float, float, bool]]:
    """Measure a call some times, or once if it takes long: the SDK needs a minute for many wrong values."""
    found = [server.measure(tool, body)]
    if found[0][0] < MOST_REPEATED_MS:
        found += [server.measure(tool, body) for _ in range(ROUNDS - 1)]
    return found


def main() -> int:
    """Measure the shapes, and print a table."""
    wants_progress = "--progress" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--progress"]
    shapes = {name: shape for name, shape in SHAPES.items() if not words or any(word in name for word in words)}
    failed = []
    print(f"{'shape':28}{'ours, ms':>10}{'SDK, ms':>10}{'ratio':>8}{'hold, ms':>10}")
    with running("ours") as ours, running("sdk") as sdk:
        for name, (tool, make) in shapes.items():
            body = make_body(tool, make(), wants_progress=wants_progress)
            own, others = repeat(ours, tool, body), repeat(sdk, tool, body)
            cost, other, hold = min(own)[0], min(others)[0], min(found[1] for found in own)
            is_over = cost > MOST_RATIO * other or hold > MOST_HOLD_MS
            failed += [name] if is_over else []
            note = (" refused" if own[0][2] else "") + (" OVER" if is_over else "")
            print(f"{name:28}{cost:10.0f}{other:10.0f}{cost / other:8.2f}{hold:10.0f}{note}", flush=True)
    print(f"{len(shapes)} shapes of {BODY_BYTES / 2**20:.1f} MiB, {len(failed)} over the limits")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_tools(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
