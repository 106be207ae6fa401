"""Measure what one request costs a server: ours, the SDK's and FastMCP's, over HTTP and over standard streams.

Lives here: the load, and the CPU time of each server process. Not here: the servers (`servers`).
Usage: python benchmarks/serving.py [--rounds N] [--tools 1,100,500]
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
PARAMS = {"name": "echo_0", "arguments": {"text": "hello"}, "_meta": META}
KINDS = ("toolwright", "toolwright, short way off", "mcp low-level", "fastmcp")
CONNECTIONS = 16
TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def message(number: int) -> bytes:
    """Return one call."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": PARAMS}).encode()


REQUEST = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
    b"mcp-method: tools/call\r\nmcp-name: echo_0\r\ncontent-length: %d\r\n\r\n%s" % (len(message(1)), message(1))
)


class Server:
    """One server process, under load now and then."""

    def __init__(self, kind: str, way: str, tools: int) -> None:
        self.kind, self.way = kind, way
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, str(HERE / "servers.py"), kind, way, str(self.port), str(tools)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if way == "stdio" else {}
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **streams)  # type: ignore[call-overload]
        self.costs: list[float] = []
        self.times: list[float] = []
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
        """Put the server under load, and take note of what a request cost."""
        before = cpu(self.process.pid)
        times = asyncio.run(self._load(seconds)) if self.way == "http" else self._talk(seconds)
        self.costs.append((cpu(self.process.pid) - before) / len(times) * 1e6)
        self.times.extend(times)

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
        inlet, outlet = self.process.stdin, self.process.stdout
        times: list[float] = []
        ends = time.perf_counter() + seconds
        number = 0
        while time.perf_counter() < ends:
            started = time.perf_counter()
            number += 1
            inlet.write(message(number) + b"\n")
            inlet.flush()
            outlet.readline()
            times.append(time.perf_counter() - started)
        return times

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(20)


def table(way: str, tools: int, rounds: int) -> str:
    """Measure every kind in interleaved rounds."""
    kinds = [kind for kind in KINDS if kind != "fastmcp" or find_spec("fastmcp")]
    if way == "stdio":
        kinds = [kind for kind in kinds if "off" not in kind]
    servers = [Server(kind, way, tools) for kind in kinds]
    try:
        for server in servers:
            server.round(0.3)
            server.costs.clear()
            server.times.clear()
        for turn in range(rounds):
            for server in servers[turn % len(servers) :] + servers[: turn % len(servers)]:
                server.round(1.0)
    finally:
        for server in servers:
            server.stop()
    base = statistics.median(servers[0].costs)
    lines = [
        f"## {way}, {tools} tools, {rounds} rounds",
        "| server | cpu µs/request | x ours | p50 ms | p99 ms |",
        "|---|---|---|---|---|",
    ]
    for server in servers:
        cost, times = statistics.median(server.costs), sorted(server.times)
        p50, p99 = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
        lines.append(f"| {server.kind} | {cost:.0f} | {cost / base:.1f} | {p50:.2f} | {p99:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Measure what one MCP request costs a server.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tools", default="1,100,500")
    options = parser.parse_args()
    for tools in map(int, options.tools.split(",")):
        print(table("http", tools, options.rounds), end="\n\n", flush=True)
    print(table("stdio", 1, options.rounds), flush=True)


if __name__ == "__main__":
    main()
