"""Measure what it costs to turn functions into tools: 1,000 of them, and the first of a process.

Lives here: the functions, and the fresh process that each figure comes from (this file, run as a script).
Not here: calls of the tools.
"""

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
COLUMNS = ("first tool, ms", "ms per tool", "wall ms per tool (best)", "× floor")
RATIO_LIMIT, FIRST_LIMIT_MS = 1.3, 5.0

SOURCE = '''
async def tool_{number}(city: str, days: int = 3, ratio: float = 0.5, exact: bool = False, tags: list[str] | None = None) -> str:
    """Forecast the weather, variant {number}.

    Args:
        city: Where, for example a city and its country.
        days: How many days to look ahead.
        ratio: How sure it must be.
        exact: Whether to refuse a city of a similar name.
        tags: Which parts to report.
    """
    return city
'''
TEXT = '{"city": "Prague", "days": 2, "tags": ["wind"]}'

Function = Callable[..., Any]


def functions(count: int) -> Iterator[Function]:
    """Make distinct functions; their source can be read, as that of any function in a file."""
    for number in range(count):
        source, name = SOURCE.format(number=number), f"<tool {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "tools"}
        exec(compile(source, name, "exec"), space)  # noqa: S102 - written above
        yield space[f"tool_{number}"]


def _floor(function: Function) -> object:
    from pydantic import TypeAdapter

    return TypeAdapter(function).json_schema()


def _floor_called(function: Function) -> object:
    from pydantic import TypeAdapter

    adapter = TypeAdapter(function)
    schema = adapter.json_schema()
    adapter.validate_json(TEXT).close()  # what it returns is the coroutine of the function
    return schema


def _ours(function: Function) -> object:
    from toolwright import Toolbox, tool

    (made,) = Toolbox(tool(function)).tools
    return made.definition.input_schema


def _ours_called(function: Function) -> object:
    from toolwright import Toolbox, tool

    box = Toolbox(tool(function))
    (made,) = box.tools
    schema = made.definition.input_schema
    try:
        box.call(function.__name__, TEXT).send(None)  # it never waits, so it needs no loop
    except StopIteration as done:
        assert done.value.text == "Prague"  # noqa: S101 - a refused call would be cheaper
    return schema


OWN: dict[str, Callable[[Function], object]] = {
    "floor: TypeAdapter(fn)": _floor,
    "toolwright": _ours,
    "TypeAdapter(fn), called once": _floor_called,
    "toolwright, called once": _ours_called,
}
"""The second pair shows what the first leaves for the first call."""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure every contender in a fresh process in each round."""
    names = [*OWN, *(peers.DEFINE if with_peers else ())]
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    notes: list[str] = []
    for _ in range(rounds):
        for name in list(taken):
            done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                taken[name].append(json.loads(done.stdout.splitlines()[-1]))
            else:
                del taken[name]
                notes.append(f"Not measured: {name}: {done.stderr.strip().splitlines()[-1]}")
    return [Table(f"Define {COUNT:,} tools, cpu", COLUMNS, [_row(name, taken) for name in taken], notes)]


def _row(name: str, taken: dict[str, list[dict[str, float]]]) -> Row:
    mine = taken[name]
    floor = taken["TypeAdapter(fn), called once" if name.endswith("called once") else "floor: TypeAdapter(fn)"]
    first, each = _median(mine, "first"), _median(mine, "each")
    ratio = statistics.median(a["each"] / b["each"] for a, b in zip(mine, floor, strict=True))
    wall = min(figures["wall"] for figures in mine)
    if not name.startswith("toolwright"):
        return Row(name, (first, each, wall, ratio))
    kept = {verdict(ratio, RATIO_LIMIT), verdict(first, FIRST_LIMIT_MS)}
    limit = f"≤ {RATIO_LIMIT:g} ×, first ≤ {FIRST_LIMIT_MS:g} ms"
    return Row(name, (first, each, wall, ratio), limit, "over" if "over" in kept else "ok")


def _median(figures: Sequence[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in figures)


def _measure(name: str) -> dict[str, float]:
    """Measure one contender, in this process; importing it is not part of the figures."""
    define = {**OWN, **peers.DEFINE}[name]
    if name.startswith("toolwright"):
        import toolwright  # noqa: F401
    else:
        exec(peers.IMPORT.get(name, "from pydantic import TypeAdapter, BaseModel"), {})  # noqa: S102 - written there
    first, *others = functions(COUNT + 1)
    start = time.process_time()
    kept = [define(first)]
    after = time.process_time()
    wall = time.perf_counter()
    kept += [define(function) for function in others]
    cpu, wall = time.process_time() - after, time.perf_counter() - wall
    assert len(kept) == COUNT + 1  # noqa: S101 - and so nothing was freed meanwhile
    return {"first": (after - start) * 1000, "each": cpu * 1000 / COUNT, "wall": wall * 1000 / COUNT}


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
