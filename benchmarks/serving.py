"""Measure the cost of one request to a server (Toolmason, MCP SDK, FastMCP) over HTTP, stdio and without a socket."""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import wrk
from fresh import cpu_seconds
from measure import Row, Table, judge

HERE = Path(__file__).resolve().parent
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
PARAMS = {"name": "echo_0", "arguments": {"text": "hello"}, "_meta": META}
OWN = ("bare handler", "toolmason", "toolmason, serve()", "mcp low-level", "mcp MCPServer")
PLAIN = ("bare handler", "toolmason", "mcp low-level")
TOOLS = (1, 100, 500)
CONNECTIONS = 64
SECONDS = {"http": 6.0, "alone": 0.5, "stdio": 0.5}
"""Seconds of a round. Over HTTP, the tail of a shorter round is that of its start."""
HTTP_ROUNDS = 5
# The design's bar for an application under uvicorn: 100 µs on a machine where the bare handler takes 40.
APP_LIMIT, SERVE_LIMIT, TAIL_LIMIT, SDK_LIMIT = 2.5, 1.0, 3.0, 6.0
COLUMNS = ("cpu µs", "x toolmason", "x bare", "requests/s", "p50 ms", "p99 / p50")
SDK_COLUMN = "x faster than the SDK's best"


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure every server: over HTTP, the application alone with few and many tools, and over stdio."""
    others = ("fastmcp",) if with_peers else ()
    if wrk.is_installed():
        found = [_compared("http", (*OWN, *others), 1, min(rounds, HTTP_ROUNDS))]
    else:
        found = [Table(_title("http", 1), COLUMNS, [], [wrk.HINT])]
    found += [_compared("alone", (*PLAIN, *others), tools, rounds) for tools in TOOLS]
    return [*found, _compared("stdio", ("toolmason", "mcp low-level", *others), 1, rounds)]


def message(number: int) -> bytes:
    """Return one `tools/call` request."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": PARAMS}).encode()


REQUEST = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
    b"mcp-method: tools/call\r\nmcp-name: echo_0\r\ncontent-length: %d\r\n\r\n%s" % (len(message(1)), message(1))
)


class Server:
    """Server process that is put under load in rounds."""

    def __init__(self, kind: str, way: str, tools: int) -> None:
        self.kind, self.way = kind, way
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, str(HERE / "servers.py"), kind, way, str(self.port), str(tools)]
        streams = {} if way == "http" else {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **streams)  # type: ignore[call-overload]
        self.costs: list[float] = []
        self.rates: list[float] = []
        self.middles: list[float] = []
        self.tails: list[float] = []
        if way == "http":
            self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit(f"{self.kind} did not start")

    def round(self, seconds: float) -> None:
        """Put the server under load, and record the cost of a request."""
        if self.way == "alone":
            self.costs.append(float(self._said(f"{seconds}\n".encode())))
            return
        before = cpu_seconds(self.process.pid)
        done = wrk.load(self.port, REQUEST, CONNECTIONS, seconds) if self.way == "http" else self._talk(seconds)
        self.costs.append((cpu_seconds(self.process.pid) - before) / done.count * 1e6)
        # Percentiles per round: over all rounds, the tail would be the machine's slowest round.
        self.rates.append(done.rate)
        self.middles.append(done.p50)
        self.tails.append(done.p99 / done.p50)

    def _talk(self, seconds: float) -> wrk.Load:
        times: list[float] = []
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            started = time.perf_counter()
            if b"hello" not in self._said(message(len(times) + 1) + b"\n"):
                raise SystemExit(f"{self.kind} does not answer over stdio")
            times.append(time.perf_counter() - started)
        count, rate = len(times), len(times) / (time.perf_counter() - begun)
        times.sort()
        return wrk.Load(count, rate, times[count // 2] * 1e3, times[int(count * 0.99)] * 1e3)

    def _said(self, line: bytes) -> bytes:
        inlet: IO[bytes] | None = self.process.stdin
        outlet: IO[bytes] | None = self.process.stdout
        if inlet is None or outlet is None:
            raise SystemExit(f"{self.kind} has no stdio pipes")
        inlet.write(line)
        inlet.flush()
        return outlet.readline()

    def stop(self) -> None:
        """Stop the process."""
        self.process.terminate()
        self.process.wait(20)


def _compared(way: str, kinds: Sequence[str], tools: int, rounds: int) -> Table:
    """Measure every kind in interleaved rounds."""
    servers: list[Server] = []
    try:
        for kind in kinds:
            servers.append(Server(kind, way, tools))
            servers[-1].round(SECONDS[way] / 4)
            for figures in (servers[-1].costs, servers[-1].rates, servers[-1].middles, servers[-1].tails):
                figures.clear()
        for turn in range(rounds):
            for server in servers[turn % len(servers) :] + servers[: turn % len(servers)]:
                server.round(SECONDS[way])
    finally:
        for server in servers:
            server.stop()
    ours = next(server for server in servers if server.kind == "toolmason")
    bare = next((server for server in servers if server.kind == "bare handler"), None)
    rows = [_row(server, ours, bare) for server in servers]
    notes = []
    if way == "http":
        best = min((server for server in servers if server.kind.startswith("mcp")), key=_cost)
        rows = [_judged(row, server, best) for row, server in zip(rows, servers, strict=True)]
        notes.append(f"Load by `wrk` for {SECONDS[way]:g} s per round. The SDK's best is {best.kind}.")
    columns = {"http": (*COLUMNS, SDK_COLUMN), "alone": COLUMNS[:2], "stdio": COLUMNS}
    return Table(_title(way, tools), columns[way], rows, notes)


def _title(way: str, tools: int) -> str:
    titles = {
        "http": f"MCP server over HTTP, {CONNECTIONS} connections",
        "alone": f"MCP server, application without a socket, {tools} tools",
        "stdio": "MCP server over stdio, sequential calls",
    }
    return titles[way]


def _cost(server: Server) -> float:
    return statistics.median(server.costs)


def _row(server: Server, ours: Server, bare: Server | None) -> Row:
    cost, against = _cost(server), _ratio(server, ours)
    if server.way == "alone":
        return Row(server.kind, (cost, against))
    figures = (statistics.median(found) for found in (server.rates, server.middles, server.tails))
    return Row(server.kind, (cost, against, _ratio(server, bare), *figures))


def _judged(row: Row, server: Server, best: Server) -> Row:
    """Add the limits of Toolmason's two servers; only `serve()` can be faster than uvicorn."""
    faster = _ratio(best, server)
    figures = (*row.figures, faster)
    if not server.kind.startswith("toolmason"):
        return Row(row.name, figures)
    limit = SERVE_LIMIT if server.kind.endswith("serve()") else APP_LIMIT
    bars = {"x bare": (row.figures[2], limit), "p99 / p50": (row.figures[5], TAIL_LIMIT)}
    text = f"≤ {limit:g} x bare, p99 ≤ {TAIL_LIMIT:g} x p50"
    if limit == SERVE_LIMIT:
        bars[SDK_COLUMN] = (-(faster or 0.0), -SDK_LIMIT)
        text += f", ≥ {SDK_LIMIT:g} x faster than the SDK's best"
    return Row(row.name, figures, text, judge(bars))


def _ratio(server: Server, base: Server | None) -> float | None:
    if base is None:
        return None
    return statistics.median(mine / theirs for mine, theirs in zip(server.costs, base.costs, strict=True))
