"""Measure the service times of one process, a replica, two journals and Ray: `python benchmarks/service_times.py`.

A journalled call is one effect of a run: two transactions around a function that returns at once. CPU times depend less
on other programs of the machine than times by the clock, so both are printed. The figures go to `service_times.json`,
which `simulate.py` reads. PostgreSQL runs beside it, with its default settings (fsync on), from Debian's packages. The
cluster of Ray has two CPUs of this machine. `make test-scale` installs both.
"""

import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fresh import cpu_seconds
from serving import META, VERSION

from toolmason import Toolbox, tool
from toolmason.chat import PostgresStore, SqliteStore, StoreRuntime
from toolmason.chat.durable.effects import RunEffect, make_result
from toolmason.chat.run.delegation import CALL_SERIALIZER
from toolmason.scale import RayExecutor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresServer

FILE = Path(__file__).with_name("service_times.json")
CALLS, REQUESTS, RUNS = 400, 2000, 16


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


def summarize(samples: Sequence[float], cpu: float, **more: float) -> dict[str, float]:
    """Return the figures of one subject, in milliseconds for a call."""
    ordered = sorted(samples)
    return {
        "ms": statistics.median(ordered) * 1e3,
        "p90_ms": ordered[int(len(ordered) * 0.9)] * 1e3,
        "cpu_ms": cpu / len(samples) * 1e3,
        **more,
    }


async def measure_calls(box: Toolbox, calls: int) -> dict[str, float]:
    """Measure a call of this process."""
    samples = []
    await box.call("echo", {"text": "x"})
    started = time.process_time()
    for _ in range(calls):
        before = time.perf_counter()
        await box.call("echo", {"text": "x"})
        samples.append(time.perf_counter() - before)
    return summarize(samples, time.process_time() - started)


async def measure_ray() -> dict[str, float]:
    """Measure a call in an actor of Ray: the CPU time is that of this process."""
    from scale import echo_on_loop  # a worker cannot load a function of `__main__`

    executor = RayExecutor(actors=1, init={"num_cpus": 2})
    try:
        remote = tool(echo_on_loop, name="echo", description="Echo.")
        return await measure_calls(Toolbox(remote, executor=executor), CALLS)
    finally:
        await executor.aclose()


async def perform(runtime: StoreRuntime, run: str, calls: int) -> list[float]:
    """Perform calls of a run one after another; return the seconds of each."""
    samples = []

    async def work() -> Any:
        return make_result("echo", "x")

    async with runtime.execute(run) as execution:
        for number in range(calls):
            before = time.perf_counter()
            await execution.perform(RunEffect(run, f"{number}", "tool", "echo", {"text": "x"}), work, CALL_SERIALIZER)
            samples.append(time.perf_counter() - before)
    return samples


async def measure_journal(runtime: StoreRuntime, server_cpu: Callable[[], float]) -> dict[str, float]:
    """Measure journalled calls: of one run, then of many at once."""
    await perform(runtime, "warm-up", 20)
    started, before = time.process_time(), server_cpu()
    samples = await perform(runtime, "one", CALLS)
    cpu, of_server = time.process_time() - started, server_cpu() - before
    clock = time.perf_counter()
    await asyncio.gather(*(perform(runtime, f"many-{number}", CALLS // 8) for number in range(RUNS)))
    together = RUNS * (CALLS // 8) / (time.perf_counter() - clock)
    return summarize(samples, cpu, server_cpu_ms=of_server / len(samples) * 1e3, calls_per_second_of_16_runs=together)


def measure_replica(headers: Mapping[str, str], params: Mapping[str, Any]) -> dict[str, float]:
    """Measure requests to a replica over one connection: the time that a client sees, the CPU time of the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"import service_times; service_times.serve_replica({port})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            time.sleep(0.05)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        accept = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        samples = []
        for number in range(REQUESTS + 100):
            if number == 100:
                started = cpu_seconds(process.pid)
            before = time.perf_counter()
            connection.request("POST", "/mcp", body, {**accept, **headers})
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise RuntimeError(text)
            samples.append(time.perf_counter() - before)
        return summarize(samples[100:], cpu_seconds(process.pid) - started)
    finally:
        process.kill()
        process.wait()


def serve_replica(port: int) -> None:
    """Serve one tool as a replica."""
    from toolmason import serve

    serve(Toolbox(echo), "http", port=port, state_key="k" * 32, replicas=True)


def main() -> int:
    """Print a table, and write the figures."""
    found = {"call in the process": asyncio.run(measure_calls(Toolbox(echo), 20 * CALLS))}
    found["Ray, actor"] = asyncio.run(measure_ray())
    named = {"name": "echo", "arguments": {"text": "x"}}
    modern = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "echo"}
    found["replica, stateless era"] = measure_replica(modern, {**named, "_meta": META})
    found["replica, session era"] = measure_replica({"mcp-protocol-version": "2025-11-25"}, named)
    with tempfile.TemporaryDirectory() as folder:
        runtime = StoreRuntime(SqliteStore(Path(folder) / "runs.db"))
        found["journal, SQLite"] = asyncio.run(measure_journal(runtime, lambda: 0.0))
        runtime.close()
    server = PostgresServer()
    try:
        store = PostgresStore(server.url, max_connections=8)
        found["journal, PostgreSQL"] = asyncio.run(measure_journal(StoreRuntime(store), server.read_cpu_seconds))
        store.close()
    finally:
        server.close()
    load = os.getloadavg()[0]
    FILE.write_text(json.dumps({"cores": os.cpu_count(), "load": round(load, 1), "subjects": found}, indent=1) + "\n")
    print(f"{os.cpu_count()} cores, load {load:.1f}")
    for name, figures in found.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
