"""Measure sync tools in worker threads: one call against anyio's hop, and many concurrent sleeps."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import floors
import ours
import peers
import samples
from calls import compare
from measure import Call, Contender, Row, Table, verdict
from samples import Sample

HOP_LIMIT = 0.6
NAPS, NAPS_LIMIT_MS = 100, 22.0

Batch = Callable[[], Awaitable[object]]


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure one call, and many at once."""
    tables = []
    for sample in (samples.TWO_INTS, samples.PEERS):
        contenders = [
            Contender("floor: anyio.to_thread", floors.hop_by_anyio(sample)),
            Contender("asyncio.to_thread", floors.hop_by_asyncio(sample)),
            Contender("a queue and a thread, without policy", floors.hop_alone(sample)),
            Contender("toolmason, timeout=None", ours.in_thread(sample, timeout=None), HOP_LIMIT),
            Contender("toolmason, all defaults", ours.in_thread(sample), HOP_LIMIT),
        ]
        makers = {name: lambda name=name, sample=sample: peers.PEERS[name](sample.plain) for name in peers.IN_THREAD}
        title = f"Sync tool in a thread: {sample.name}"
        tables.append(asyncio.run(compare(title, sample, contenders, makers if with_peers else {}, rounds)))
    return [*tables, asyncio.run(_naps(rounds, with_peers=with_peers))]


async def _naps(rounds: int, *, with_peers: bool) -> Table:
    texts = [f'{{"number": {number}}}' for number in range(NAPS)]
    sample = Sample("nap", samples.nap, texts[0])
    batches: dict[str, Batch] = {
        "anyio.to_thread (gather)": _gathered(floors.hop_by_anyio(sample), texts),
        "toolmason, call_all": ours.batch(samples.nap, texts),
        "toolmason (gather)": ours.gathered(samples.nap, texts),
    }
    if with_peers:
        batches |= {f"{name} (gather)": _gathered(peers.PEERS[name](samples.nap), texts) for name in peers.IN_THREAD}
    walls: dict[str, list[float]] = {name: [] for name in batches}
    for turn in range(rounds + 1):
        for name, batch in batches.items():
            start = time.perf_counter()
            await batch()
            if turn:  # the first round creates the threads
                walls[name].append((time.perf_counter() - start) * 1000)
    rows = [_nap_row(name, taken) for name, taken in walls.items()]
    title = f"{NAPS} concurrent sleeps of 10 ms (`time.sleep`)"
    return Table(title, ("wall ms (best)", "wall ms (median)"), rows)


def _nap_row(name: str, walls: Sequence[float]) -> Row:
    limit = NAPS_LIMIT_MS if name.startswith("toolmason") else None
    best = min(walls)
    return Row(name, (best, statistics.median(walls)), f"≤ {limit:g} ms" if limit else "", verdict(best, limit))


def _gathered(call: Call, texts: Sequence[str]) -> Batch:
    async def batch() -> object:
        return await asyncio.gather(*map(call, texts))

    return batch
