"""Measure the cost of turning functions into tools: 1,000 of them, and the first one in a process.

Each figure comes from a fresh process, which runs this file as a script.
"""

import asyncio
import inspect
import json
import linecache
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import peers
from measure import Row, Table, verdict

COUNT = 1000
COLUMNS = ("first tool, cold, ms", "first tool, ms", "ms per tool", "wall ms per tool (best)", "x floor")
RATIO_LIMIT, FIRST_LIMIT_MS = 1.3, 5.0

SOURCE = '''
async def tool_{number}(
    city: str, days: int = 3, ratio: float = 0.5, exact: bool = False, tags: list[str] | None = None
) -> str:
    """Forecast the weather, variant {number}.

    Args:
        city: The city, optionally with its country.
        days: The number of days ahead.
        ratio: The minimum confidence.
        exact: True to reject cities with a similar name.
        tags: The parts to report.
    """
    return city
'''
TEXT = '{"city": "Prague", "days": 2, "tags": ["wind"]}'

Function = Callable[..., Any]
Figures = dict[str, float]


def functions(count: int) -> Iterator[Function]:
    """Make distinct functions; `inspect` can read their source like that of functions in a file."""
    for number in range(count):
        source, name = SOURCE.format(number=number), f"<tool {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "tools"}
        exec(compile(source, name, "exec"), space)  # noqa: S102 - the source is above
        yield space[f"tool_{number}"]


def _floor(function: Function) -> object:
    from pydantic import TypeAdapter

    return TypeAdapter(function).json_schema()


async def _floor_called(function: Function) -> object:
    from pydantic import TypeAdapter

    adapter = TypeAdapter(function)
    return adapter.json_schema(), await adapter.validate_json(TEXT)


def _ours(function: Function) -> object:
    from toolmason import Toolbox, tool

    (made,) = Toolbox(tool(function)).tools
    return made.definition.input_schema


async def _ours_called(function: Function) -> object:
    from toolmason import Toolbox, tool

    box = Toolbox(tool(function))
    (made,) = box.tools
    return made.definition.input_schema, (await box.call(function.__name__, TEXT)).unwrap()


OWN: dict[str, Callable[[Function], object]] = {
    "floor: TypeAdapter(fn)": _floor,
    "toolmason": _ours,
    "TypeAdapter(fn), called once": _floor_called,
    "toolmason, called once": _ours_called,
}
"""The second pair shows the work that the first pair defers to the first call."""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure every contender in two fresh processes per round."""
    taken: dict[str, list[Figures]] = {name: [] for name in (*OWN, *(peers.DEFINE if with_peers else ()))}
    notes = ["Cold: the first use of pydantic in the process, which then imports the rest of pydantic."]
    for _ in range(rounds):
        for name in list(taken):
            try:
                taken[name].append(_fresh(name, "cold") | _fresh(name, "warm"))
            except subprocess.CalledProcessError as failed:
                del taken[name]
                notes.append(f"Not measured: {name}: {failed.stderr.strip().splitlines()[-1]}")
    return [Table(f"Define {COUNT:,} tools, cpu", COLUMNS, [_row(name, taken) for name in taken], notes)]


def _fresh(name: str, state: str) -> Figures:
    command = [sys.executable, __file__, name, state]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _row(name: str, taken: dict[str, list[Figures]]) -> Row:
    mine = taken[name]
    floor = taken["TypeAdapter(fn), called once" if name.endswith("called once") else "floor: TypeAdapter(fn)"]
    cold, first, each = (statistics.median(one[key] for one in mine) for key in ("cold", "first", "each"))
    ratio = statistics.median(a["each"] / b["each"] for a, b in zip(mine, floor, strict=True))
    figures = (cold, first, each, min(one["wall"] for one in mine), ratio)
    if not name.startswith("toolmason"):
        return Row(name, figures)
    kept = {verdict(ratio, RATIO_LIMIT), verdict(first, FIRST_LIMIT_MS)}
    limit = f"≤ {RATIO_LIMIT:g} x, first ≤ {FIRST_LIMIT_MS:g} ms"
    return Row(name, figures, limit, "over" if "over" in kept else "ok")


async def _measure(name: str, state: str) -> Figures:
    """Measure one contender in this process; importing it is not part of the figures."""
    define = {**OWN, **peers.DEFINE}[name]
    default = (
        "from toolmason import Toolbox, tool"
        if name.startswith("toolmason")
        else "from pydantic import TypeAdapter, BaseModel"
    )
    exec(peers.IMPORT.get(name, default), {})  # noqa: S102 - the statements are constants
    first, spare, *others = functions(COUNT + 2)
    if state == "cold":
        return {"cold": (await _timed(define, [first]))[0]}
    _floor(spare)
    started, _ = await _timed(define, [first])
    cpu, wall = await _timed(define, others)
    return {"first": started, "each": cpu / COUNT, "wall": wall / COUNT}


async def _timed(define: Callable[[Function], object], some: Sequence[Function]) -> tuple[float, float]:
    kept = []  # keep the results, so that nothing is freed during the measurement
    cpu, wall = time.process_time(), time.perf_counter()
    for function in some:
        made = define(function)
        kept.append(await made if inspect.iscoroutine(made) else made)
    return (time.process_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(*sys.argv[1:]))))
