"""Measure the cost of turning functions into tools: 1,000 of them, and the first one in a process.

Each figure comes from a fresh process, which runs this file as a script.
"""

import asyncio
import inspect
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import peers
from fresh import explain, run_python
from measure import Row, Table, is_chosen, judge
from sources import ALONE, FLAT, NESTED, Function, Source, functions

COUNT = 1000
COLUMNS = ("first tool, cold, ms", "first tool, ms", "ms per tool", "wall ms per tool (best)", "x floor", "KB per tool")
RATIO_LIMIT, FIRST_LIMIT_MS, MEMORY_LIMIT_KB = 1.3, 5.0, 15.0

KINDS = {source.name: source for source in (FLAT, NESTED, ALONE)}

Figures = dict[str, float]
Definer = Callable[[Function], object]


def _floor(function: Function) -> object:
    from pydantic import TypeAdapter

    adapter = TypeAdapter(function)
    return adapter, adapter.json_schema()


async def _floor_called(function: Function, text: str) -> object:
    from pydantic import TypeAdapter

    adapter = TypeAdapter(function)
    return adapter, adapter.json_schema(), await adapter.validate_json(text)


def _ours(function: Function) -> object:
    from toolmason import Toolbox, tool

    (made,) = Toolbox(tool(function)).tools
    return made, made.definition.input_schema


async def _ours_called(function: Function, text: str) -> object:
    from toolmason import Toolbox, tool

    box = Toolbox(tool(function))
    (made,) = box.tools
    return made, made.definition.input_schema, (await box.call(function.__name__, text)).unwrap()


OWN: dict[str, Definer] = {"floor: TypeAdapter(fn)": _floor, "toolmason": _ours}
CALLED = {"TypeAdapter(fn), called once": _floor_called, "toolmason, called once": _ours_called}
"""Definitions with a first call, to which some work is deferred."""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure every contender in two fresh processes per round, with each kind of functions."""
    chosen = [source for source in KINDS.values() if is_chosen(source.name)]
    return [_table(min(rounds, 5), source, with_peers=with_peers) for source in chosen]


def _table(rounds: int, source: Source, *, with_peers: bool) -> Table:
    names = (*OWN, *CALLED, *(peers.DEFINE if with_peers else ()))
    taken: dict[str, list[Figures]] = {name: [] for name in names}
    notes = ["Cold: the first use of pydantic in the process, which then imports the rest of pydantic."]
    for turn in range(rounds + 1):
        for name in list(taken):
            try:
                figures = _fresh(name, source, "cold")
                if turn:  # the first turn writes the compiled files
                    taken[name].append(figures | _fresh(name, source, "warm"))
            except subprocess.CalledProcessError as failed:
                del taken[name]
                notes.append(explain(failed, name))
    title = f"Define {COUNT:,} tools, cpu: {source.name}"
    return Table(title, COLUMNS, [_row(name, taken) for name in taken], notes)


def _fresh(name: str, source: Source, state: str) -> Figures:
    figures: Figures = run_python(__file__, name, source.name, state)
    return figures


def _row(name: str, taken: dict[str, list[Figures]]) -> Row:
    mine = taken[name]
    floor = taken["TypeAdapter(fn), called once" if name.endswith("called once") else "floor: TypeAdapter(fn)"]
    cold, first, each, memory = (
        statistics.median(one[key] for one in mine) for key in ("cold", "first", "each", "memory")
    )
    ratio = statistics.median(a["each"] / b["each"] for a, b in zip(mine, floor, strict=True))
    figures = (cold, first, each, min(one["wall"] for one in mine), ratio, memory)
    if not name.startswith("toolmason"):
        return Row(name, figures)
    bars = {
        "x floor": (ratio, RATIO_LIMIT),
        "first tool, ms": (first, FIRST_LIMIT_MS),
        "KB per tool": (memory, MEMORY_LIMIT_KB),
    }
    limit = f"≤ {RATIO_LIMIT:g} x, first ≤ {FIRST_LIMIT_MS:g} ms, ≤ {MEMORY_LIMIT_KB:g} KB"
    return Row(name, figures, limit, judge(bars))


async def _measure(name: str, source: Source, state: str) -> Figures:
    """Measure one contender in this process; importing it is not part of the figures."""
    default = (
        "from toolmason import Toolbox, tool"
        if name.startswith("toolmason")
        else "from pydantic import TypeAdapter, BaseModel"
    )
    exec(peers.IMPORT.get(name, default), {})  # noqa: S102 - the statements are constants
    define = _definer(name, source)
    first, spare, *others = functions(COUNT + 2, source)
    if state == "cold":
        return {"cold": (await _timed(define, [first]))[0]}
    _floor(spare)
    started, _, kept = await _timed(define, [first])
    before = resident_kb()
    cpu, wall, many = await _timed(define, others)
    memory = (resident_kb() - before) / COUNT
    del kept, many
    return {"first": started, "each": cpu / COUNT, "wall": wall / COUNT, "memory": memory}


def _definer(name: str, source: Source) -> Definer:
    if name not in CALLED:
        return {**OWN, **peers.DEFINE}[name]
    called = CALLED[name]
    return lambda function: called(function, source.text)


def resident_kb() -> float:
    """Return the resident memory of this process, or 0 if the system does not report it."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return 0.0
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def _timed(define: Definer, some: Sequence[Function]) -> tuple[float, float, list[object]]:
    kept: list[object] = []  # keep the results, so that nothing is freed during the measurement
    cpu, wall = time.process_time(), time.perf_counter()
    for function in some:
        made = define(function)
        kept.append(await made if inspect.iscoroutine(made) else made)
    return (time.process_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000, kept


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(sys.argv[1], KINDS[sys.argv[2]], sys.argv[3]))))
