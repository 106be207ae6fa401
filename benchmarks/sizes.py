"""Measure calls with arguments and results from 1 KB to 10 MB."""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping

import floors
import ours
import peers
import samples
from measure import Call, Row, Table
from samples import Sample

SIZES = {"1 KB": 10**3, "10 KB": 10**4, "100 KB": 10**5, "1 MB": 10**6, "10 MB": 10**7}
LARGEST_FOR_PEERS = 10**6
COLUMNS = (*(f"cpu ms, {size}" for size in SIZES), *(f"x floor, {size}" for size in SIZES))
SECONDS = 0.03


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure one long string, many models, and many rows in the result."""
    row = {"id": 4711, "name": "a name of some length", "price": 9.5, "tags": ["red", "green"]}
    for size in SIZES.values():
        samples.ROWS[size] = [row] * max(1, size // len(json.dumps(row)))
    shapes: dict[str, Callable[[int], Sample]] = {
        "string in, int out": lambda size: Sample(
            "", samples.measure_text, json.dumps({"text": "lorem " * (size // 6)})
        ),
        "models in, int out": lambda size: Sample("", samples.count_models, samples.records(size)),
        "dicts out": lambda size: Sample("", samples.make_rows, f'{{"size": {size}}}'),
    }
    return [
        asyncio.run(_table(title, {name: make(size) for name, size in SIZES.items()}, rounds, with_peers=with_peers))
        for title, make in shapes.items()
    ]


async def _table(title: str, by_size: Mapping[str, Sample], rounds: int, *, with_peers: bool) -> Table:
    taken: dict[str, dict[str, list[float]]] = {}
    notes: dict[str, str] = {}
    for size, sample in by_size.items():
        makers: dict[str, Callable[[Sample], Call]] = {
            "floor: pydantic-core": floors.on_loop,
            "toolmason, all defaults": ours.on_loop,
        }
        if with_peers and SIZES[size] <= LARGEST_FOR_PEERS:
            makers |= {
                name: lambda sample, name=name: peers.for_loop(name, sample.plain, sample.on_loop)
                for name in peers.PEERS
            }
        calls: dict[str, Call] = {}
        for name, make in makers.items():
            try:
                calls[name] = make(sample)
                await calls[name](sample.text)
            except Exception as error:  # noqa: BLE001 - the report lists peers that fail
                calls.pop(name, None)
                notes[name] = f"Not measured: {name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        for _ in range(rounds):
            for name, call in calls.items():
                taken.setdefault(name, {}).setdefault(size, []).append(await _cost(call, sample.text))
    rows = [_row(name, taken) for name in taken]
    limits = "The engine's limits on sizes are raised. Peers are measured up to 1 MB."
    return Table(f"Sizes: {title}", COLUMNS, rows, [limits, *notes.values()])


async def _cost(call: Call, text: str) -> float:
    """Return the CPU milliseconds of a call, as the mean over 30 ms or at least one call."""
    gc.collect()
    count, start = 0, time.process_time()
    while (used := time.process_time() - start) < SECONDS:
        await call(text)
        count += 1
    return used / count * 1e3


def _row(name: str, taken: Mapping[str, Mapping[str, list[float]]]) -> Row:
    mine, floor = taken[name], taken["floor: pydantic-core"]
    costs = [statistics.median(mine[size]) if size in mine else None for size in SIZES]
    ratios = [
        statistics.median(a / b for a, b in zip(mine[size], floor[size], strict=True)) if size in mine else None
        for size in SIZES
    ]
    return Row(name, [*costs, *ratios])
