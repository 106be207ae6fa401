"""Measure one call, from JSON text to the text of its result, and many concurrent sync calls."""

import asyncio
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import ModuleType

import floors
import peers
import samples
from measure import Call, Contender, Row, Table, race, verdict
from samples import Sample

COLUMNS = ("cpu µs", "wall µs (best)", "x floor")
NAPS, NAPS_LIMIT_MS = 100, 25.0

# For each sample: the maximum ratio with `timeout=None`, and with all defaults.
LIMITS = {
    samples.TWO_INTS: (2.0, 3.0),
    samples.FIVE: (2.0, 3.0),
    samples.LARGE_IN: (1.2, 1.2),
    samples.LARGE_BOTH: (1.2, 1.2),
    samples.WRONG: (6.0, 6.0),
}


def on_loop(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure calls that stay on the event loop."""
    ours, notes = _ours()
    tables = []
    for sample, (bare, usual) in LIMITS.items():
        floor = floors.refused if sample is samples.WRONG else floors.on_loop
        contenders = [Contender("floor: pydantic-core", floor(sample))]
        if ours:
            contenders += [
                Contender("toolmason, timeout=None", ours.on_loop(sample, timeout=None), bare),
                Contender("toolmason, all defaults", ours.on_loop(sample), usual),
                Contender('toolmason, runs_on="loop", timeout=None', ours.plain_on_loop(sample, timeout=None), bare),
                Contender('toolmason, runs_on="loop"', ours.plain_on_loop(sample), usual),
            ]
        makers = {name: lambda name=name, sample=sample: peers.for_loop(name, sample) for name in peers.PEERS}
        race_of = _race(f"Call: {sample.name}", sample, contenders, makers if with_peers else {}, rounds, notes)
        tables.append(asyncio.run(race_of))
    return tables


def under_policy(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure the cost of a timeout, limits and middleware; no peer has all of them."""
    del with_peers
    ours, notes = _ours()
    sample, limits = samples.FIVE, {"timeout": 30.0, "max_calls": 10**9, "max_concurrency": 8}
    contenders = [Contender("floor: pydantic-core", floors.on_loop(sample))]
    if ours:
        contenders += [
            Contender("toolmason, all defaults", ours.on_loop(sample), 3.0),
            Contender("with timeout and limits", ours.governed(sample, **limits)),
            Contender("with middleware", ours.governed(sample, hooked=True)),
            Contender("with timeout, limits and middleware", ours.governed(sample, hooked=True, **limits), 4.0),
            Contender('the same, runs_on="loop"', ours.governed(sample, hooked=True, on_loop=True, **limits), 4.0),
        ]
    title = f"Call under policy: {sample.name}"
    return [asyncio.run(_race(title, sample, contenders, {}, rounds, notes))]


def in_thread(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure sync tools that run in a thread."""
    ours, notes = _ours()
    tables = []
    for sample in (samples.TWO_INTS, samples.FIVE):
        contenders = [
            Contender("floor: anyio.to_thread", floors.hop_by_anyio(sample)),
            Contender("asyncio.to_thread", floors.hop_by_asyncio(sample)),
        ]
        if ours:
            contenders += [
                Contender("toolmason, timeout=None", ours.in_thread(sample, timeout=None), 0.6),
                Contender("toolmason, all defaults", ours.in_thread(sample), 0.6),
            ]
        makers = {name: lambda name=name, sample=sample: peers.PEERS[name](sample.plain) for name in peers.IN_THREAD}
        title = f"Sync tool in a thread: {sample.name}"
        tables.append(asyncio.run(_race(title, sample, contenders, makers if with_peers else {}, rounds, notes)))
    return [*tables, asyncio.run(_naps(ours, notes, rounds, with_peers=with_peers))]


def _ours() -> tuple[ModuleType | None, list[str]]:
    try:
        return importlib.import_module("ours"), []
    except ImportError as missing:
        return None, [f"Toolmason is not measured: {missing}."]


async def _race(
    title: str,
    sample: Sample,
    contenders: Sequence[Contender],
    makers: Mapping[str, Callable[[], Call]],
    rounds: int,
    notes: Iterable[str],
) -> Table:
    await _agree(sample, contenders)
    others, problems = [], []
    for name, make in makers.items():
        try:
            call = peers.forgiving(make()) if sample is samples.WRONG else make()
            await call(sample.text)
        except Exception as error:  # noqa: BLE001 - the report lists peers that fail
            problems.append(f"Not measured: {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        else:
            others.append(Contender(name, call))
    gc.collect()
    gc.freeze()  # a collection must not cost more because a peer has many modules
    rows = await race([*contenders, *others], sample.text, rounds)
    return Table(title, COLUMNS, rows, [*notes, *problems])


async def _agree(sample: Sample, contenders: Sequence[Contender]) -> None:
    """Exit if Toolmason's answer differs from the floor's, because an error may be faster than the work."""
    answers = [await contender.call(sample.text) for contender in contenders]
    texts = [answer.decode() if isinstance(answer, bytes) else str(answer) for answer in answers]
    for contender, text in zip(contenders, texts, strict=True):
        same = "error" in text if sample is samples.WRONG else text.strip('"') == texts[0].strip('"')
        if not same and contender is not contenders[0]:
            sys.exit(
                f"{contender.name} returned {text[:200]!r} for {sample.name}; the floor returned {texts[0][:200]!r}."
            )


# --- many at once --------------------------------------------------------------------------------

Batch = Callable[[], Awaitable[object]]


async def _naps(ours: ModuleType | None, notes: Sequence[str], rounds: int, *, with_peers: bool) -> Table:
    texts = [f'{{"number": {number}}}' for number in range(NAPS)]
    sample = Sample("nap", samples.nap, samples.nap, texts[0])
    batches: dict[str, Batch] = {"anyio.to_thread (gather)": _gathered(floors.hop_by_anyio(sample), texts)}
    if ours:
        batches["toolmason, call_all"] = ours.batch(samples.nap, texts)
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
    return Table(title, ("wall ms (best)", "wall ms (median)"), rows, notes)


def _nap_row(name: str, walls: Sequence[float]) -> Row:
    limit = NAPS_LIMIT_MS if name.startswith("toolmason") else None
    best = min(walls)
    return Row(name, (best, statistics.median(walls)), f"≤ {limit:g} ms" if limit else "", verdict(best, limit))


def _gathered(call: Call, texts: Sequence[str]) -> Batch:
    async def batch() -> object:
        return await asyncio.gather(*map(call, texts))

    return batch
