"""Compare the default path of this source with that of an earlier commit: loop, threads, a run in memory.

Usage: python benchmarks/against.py COMMIT [ROUNDS]

Each round starts a process for each of the two sources, with the same dependencies and samples.
"""

import asyncio
import gc
import io
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from fresh import run_python
from measure import Row, Table, verdict
from samples import PEERS, TWO_INTS

ROOT = Path(__file__).parents[1]
LIMIT = 1.03
SECONDS = 0.3
STEPS = 50


def main() -> None:
    """Measure both sources in turn, and print the ratios."""
    commit, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
    with tempfile.TemporaryDirectory() as folder:
        command = [shutil.which("git") or "git", "archive", commit, "src"]
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        sources = {"before": Path(folder) / "src", "now": ROOT / "src"}
        taken = [{name: measure(source) for name, source in sources.items()} for _ in range(rounds + 1)][1:]
    rows = []
    for name in taken[0]["now"]:
        before = statistics.median(one["before"][name] for one in taken)
        now = statistics.median(one["now"][name] for one in taken)
        ratio = statistics.median(one["now"][name] / one["before"][name] for one in taken)
        rows.append(Row(name, (before, now, ratio), f"≤ {LIMIT:g} x", verdict(ratio, LIMIT)))
    print(Table(f"Against {commit}, {rounds} rounds", ("before, cpu µs", "now, cpu µs", "x before"), rows).markdown())


def measure(source: Path) -> dict[str, float]:
    """Measure a source in a process of its own."""
    figures: dict[str, float] = run_python(__file__, PYTHONPATH=str(source))
    return figures


async def repeat(work: Callable[[], Awaitable[object]]) -> float:
    """Return the CPU microseconds of one call."""
    await work()
    count, used = 0, 0.0
    gc.collect()
    while used < SECONDS:
        began = time.process_time()
        for _ in range(20):
            await work()
        used += time.process_time() - began
        count += 20
    return used / count * 1e6


async def measure_all() -> dict[str, float]:
    """Return the CPU microseconds of each way to make a call."""
    import ours

    from toolmason import Chat, Limits, Toolbox, tool
    from toolmason.models import ScriptedModel

    ways = {
        f"{sample.name}, {place}": (make(sample), sample.text)
        for sample in (TWO_INTS, PEERS)
        for place, make in (("on the loop", ours.on_loop), ("in a thread", ours.in_thread))
    }
    figures = {name: await repeat(lambda call=call, text=text: call(text)) for name, (call, text) in ways.items()}  # type: ignore[misc]
    box = Toolbox(tool(TWO_INTS.on_loop))
    limits = Limits(steps=None, calls=None, per_tool=None)

    async def run() -> None:
        model = ScriptedModel([*([("add", {"a": 1, "b": number})] for number in range(STEPS)), "done"])
        await Chat(model, box, limits=limits).send("x")

    figures["a step of a run in memory"] = await repeat(run) / STEPS
    return figures


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        print(json.dumps(asyncio.run(measure_all())))
