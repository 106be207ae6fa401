"""Measure the cost of one request to a server (Toolmason, MCP SDK, FastMCP) over HTTP, stdio and without a socket."""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from measure import Row, Table, verdict

HERE = Path(__file__).resolve().parent
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
PARAMS = {"name": "echo_0", "arguments": {"text": "hello"}, "_meta": META}
OWN = ("bare handler", "toolmason", "mcp low-level")
TOOLS = (1, 100, 500)
CONNECTIONS = 64
SECONDS = 0.5
# 100 µs on a machine where the bare handler takes 40; a ratio, because machines differ by more than the figure.
LIMIT, TAIL_LIMIT = 2.5, 3.0
TICK = os.sysconf("SC_CLK_TCK")
COLUMNS = ("cpu µs", "x toolmason", "x bare", "requests/s", "p50 ms", "p99 / p50")


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure every server: over HTTP with few and many tools, the application alone, and over stdio."""
    kinds = (*OWN, "fastmcp") if with_peers else OWN
    found = [_compared("http", kinds, tools, rounds) for tools in TOOLS]
    found += [_compared("alone", kinds, tools, rounds) for tools in TOOLS]
    streams = [kind for kind in kinds if kind != "bare handler"]
    return [*found, _compared("stdio", streams, 1, rounds)]


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
        before, started = self._cpu(), time.perf_counter()
        times = asyncio.run(self._load(seconds)) if self.way == "http" else self._talk(seconds)
        self.rates.append(len(times) / (time.perf_counter() - started))
        self.costs.append((self._cpu() - before) / len(times) * 1e6)
        times.sort()
        # Percentiles per round: over all rounds, the tail would be the machine's slowest round.
        self.middles.append(times[len(times) // 2] * 1e3)
        self.tails.append(times[int(len(times) * 0.99)] / times[len(times) // 2])

    def _cpu(self) -> float:
        """Return the CPU seconds that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    async def _load(self, seconds: float) -> list[float]:
        times: list[float] = []
        ends = time.perf_counter() + seconds

        async def client() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            while True:
                started = time.perf_counter()
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                if b" 200 " not in head[:20]:
                    raise SystemExit(f"{self.kind}: {head!r}")
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(size)
                times.append(time.perf_counter() - started)
                if time.perf_counter() > ends:
                    break
            writer.close()

        await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
        return times

    def _talk(self, seconds: float) -> list[float]:
        times: list[float] = []
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            started = time.perf_counter()
            if b"hello" not in self._said(message(len(times) + 1) + b"\n"):
                raise SystemExit(f"{self.kind} does not answer over stdio")
            times.append(time.perf_counter() - started)
        return times

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
            servers[-1].round(SECONDS / 2)
            for figures in (servers[-1].costs, servers[-1].rates, servers[-1].middles, servers[-1].tails):
                figures.clear()
        for turn in range(rounds):
            for server in servers[turn % len(servers) :] + servers[: turn % len(servers)]:
                server.round(SECONDS)
    finally:
        for server in servers:
            server.stop()
    ours = next(server for server in servers if server.kind == "toolmason")
    bare = next((server for server in servers if server.kind == "bare handler"), None)
    rows = [_row(server, ours, bare) for server in servers]
    titles = {
        "http": f"MCP server over HTTP, {CONNECTIONS} connections, {tools} tools",
        "alone": f"MCP server, application without a socket, {tools} tools",
        "stdio": "MCP server over stdio, sequential calls",
    }
    return Table(titles[way], COLUMNS[:2] if way == "alone" else COLUMNS, rows)


def _row(server: Server, ours: Server, bare: Server | None) -> Row:
    cost, against, floor = statistics.median(server.costs), _ratio(server, ours), _ratio(server, bare)
    if server.way == "alone":
        return Row(server.kind, (cost, against))
    tail = statistics.median(server.tails)
    figures = (cost, against, floor, statistics.median(server.rates), statistics.median(server.middles), tail)
    if server is not ours or server.way != "http":
        return Row(server.kind, figures)
    worst = max((floor or 0) / LIMIT, tail / TAIL_LIMIT)
    return Row(server.kind, figures, f"≤ {LIMIT:g} x bare, p99 ≤ {TAIL_LIMIT:g} x p50", verdict(worst, 1.0))


def _ratio(server: Server, base: Server | None) -> float | None:
    if base is None:
        return None
    return statistics.median(mine / theirs for mine, theirs in zip(server.costs, base.costs, strict=True))
