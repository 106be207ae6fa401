"""Measure how the cost of a toolbox grows with the number of its tools.

Each line comes from fresh processes, which run this file as a script.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from define import resident_kb
from fresh import run_python
from measure import Row, Table, verdict
from sources import FLAT, NESTED, SOURCES, Source, functions

SIZES = {FLAT: (1, 10, 100, 1000, 10_000), NESTED: (1, 10, 100, 1000)}
COLUMNS = {
    "define": "define, µs each",
    "toolbox": "Toolbox(*tools), ms",
    "add": "add one, µs",
    "memory": "KB each",
    "list": "list(), µs",
    "cold": "openai-chat cold, ms",
    "warm": "openai-chat warm, ms",
    "first": "first call, µs",
    "call": "call, µs",
    "unknown": "unknown name, ms",
}
LIMITS = {"toolbox": (500.0, "ms"), "unknown": (2.0, "ms"), "memory": (15.0, "KB")}
"""Limits in the largest toolbox."""

Figures = dict[str, float]


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure both kinds of functions; `define` and `export` have the peers."""
    del with_peers
    rounds = min(rounds, 3)
    taken = {
        (source, size): [run_python(__file__, source.name, str(size)) for _ in range(rounds)]
        for source, sizes in SIZES.items()
        for size in sizes
    }
    tables = []
    for source, sizes in SIZES.items():
        middle = {size: _medians(taken[source, size]) for size in sizes}
        rows = [Row(f"{size:,} tools", [middle[size][key] for key in COLUMNS]) for size in sizes]
        tables.append(Table(f"Growth, cpu: {source.name}", tuple(COLUMNS.values()), rows))
        tables.append(_bars(source, sizes[-1], middle[sizes[-1]]))
    return tables


def _medians(taken: list[Figures]) -> Figures:
    return {key: statistics.median(one[key] for one in taken) for key in COLUMNS}


def _bars(source: Source, size: int, figures: Figures) -> Table:
    rows = [
        Row(f"toolmason, {COLUMNS[key]}", [figures[key]], f"≤ {limit:g} {unit}", verdict(figures[key], limit))
        for key, (limit, unit) in LIMITS.items()
    ]
    return Table(f"Toolbox of {size:,} tools: {source.name}", ("is",), rows)


# --- in the fresh process ----------------------------------------------------------------------------


async def _measure(source: Source, size: int) -> Figures:
    from toolmason import Tool, Toolbox

    warm, *spares = functions(9, source)
    small = Toolbox(Tool.from_function(warm))
    small.definitions("openai-chat")
    await small.call(warm.__name__, source.text)
    await small.call("unknown", "{}")
    found = list(functions(size, source))
    added = [Tool.from_function(spare, name=f"spare_{number}") for number, spare in enumerate(spares)]
    figures, before, start = {}, resident_kb(), time.process_time()
    tools = [Tool.from_function(function) for function in found]
    schemas = [tool.definition.input_schema for tool in tools]
    figures["define"] = (time.process_time() - start) / size * 1e6
    start = time.process_time()
    box = Toolbox(*tools)
    figures["toolbox"] = (time.process_time() - start) * 1e3
    figures["memory"] = (resident_kb() - before) / size
    figures["add"] = min(_timed(lambda tool=tool: box.add(tool)) for tool in added)
    figures["cold"] = _timed(lambda: box.definitions("openai-chat")) / 1e3
    figures["warm"] = min(_timed(lambda: box.definitions("openai-chat")) for _ in range(20)) / 1e3
    await box.list()
    figures["list"] = min([await _awaited(box.list) for _ in range(20)])
    name = found[size // 2].__name__
    figures["first"] = await _awaited(lambda: box.call(name, source.text))
    figures["call"] = min([await _awaited(lambda: box.call(name, source.text)) for _ in range(500)])
    names = [f"tooll_{number * size // 5}" for number in range(5)]
    unknown = [await _awaited(lambda wrong=wrong: box.call(wrong, "{}")) for wrong in names]
    figures["unknown"] = statistics.median(unknown) / 1e3
    del schemas
    return figures


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e6


async def _awaited(work: Callable[[], Awaitable[object]]) -> float:
    start = time.process_time()
    await work()
    return (time.process_time() - start) * 1e6


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(SOURCES[sys.argv[1]], int(sys.argv[2])))))
