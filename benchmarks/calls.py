"""Measure one call, from JSON text to the text of its result: alone, under policy, and in a run."""

import asyncio
import gc
import sys
from collections.abc import Callable, Mapping, Sequence

import floors
import ours
import peers
import samples
from measure import Call, Contender, Table, is_chosen, race
from samples import Sample

from toolmason import Limits

COLUMNS = ("cpu µs", "wall µs (best)", "x floor")
RUN_LIMIT = 1.6
"""Maximum ratio of a call in a run to the plain call."""


def on_loop(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure calls that stay on the event loop."""
    tables = []
    for sample in filter(lambda sample: is_chosen(sample.name), samples.SAMPLES):
        bare, usual = sample.limits
        contenders = [
            *floor_of(sample),
            Contender("toolmason, timeout=None", ours.on_loop(sample, timeout=None), bare),
            Contender("toolmason, all defaults", ours.on_loop(sample), usual),
            Contender("toolmason, all defaults, with an await", ours.on_loop_awaiting(sample), usual),
            Contender("toolmason, timeout=None for the call", ours.on_loop_with(sample, timeout=None)),
            Contender('toolmason, runs_on="loop", timeout=None', ours.plain_on_loop(sample, timeout=None), bare),
            Contender('toolmason, runs_on="loop"', ours.plain_on_loop(sample), usual),
        ]
        # A peer passes its own kind of context, to a function with another signature.
        names = peers.PEERS if with_peers and not sample.given else ()
        makers = {
            name: lambda name=name, sample=sample: peers.for_loop(name, sample.plain, sample.on_loop) for name in names
        }
        tables.append(asyncio.run(compare(f"Call: {sample.name}", sample, contenders, makers, rounds)))
    return tables


def floor_of(sample: Sample) -> list[Contender]:
    """Return the floor of a sample, and the harder floor if it has one."""
    if sample.is_wrong:
        return [Contender("floor: pydantic-core", floors.refused(sample))]
    return [
        Contender("floor: pydantic-core", floors.on_loop(sample)),
        Contender("the same without look-up and text", floors.least(sample)),
    ]


def under_policy(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure the cost of a timeout, limits and middleware; no peer has all of them."""
    del with_peers
    sample, limits = samples.FIVE, {"timeout": 30.0, "max_calls": 10**9, "max_concurrency": 8}
    contenders = [
        Contender("floor: pydantic-core", floors.on_loop(sample)),
        Contender("toolmason, all defaults", ours.on_loop(sample), 3.0),
        Contender("with timeout and limits", ours.governed(sample, **limits)),
        Contender("with middleware", ours.governed(sample, hooked=True)),
        Contender("with timeout, limits and middleware", ours.governed(sample, hooked=True, **limits), 4.0),
        Contender('the same, runs_on="loop"', ours.governed(sample, hooked=True, on_loop=True, **limits), 4.0),
    ]
    return [asyncio.run(compare(f"Call under policy: {sample.name}", sample, contenders, {}, rounds))]


def in_run(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure calls in a run against plain calls, with other arguments each time; peers have no such calls."""
    del with_peers
    free = Limits(calls=None, per_tool=None)
    counted = Limits(calls=10**9, per_tool=10**9)
    tables = []
    for sample in filter(lambda sample: is_chosen(sample.name), (samples.TWO_INTS, samples.PEERS)):
        contenders = [
            Contender("toolmason, plain call", ours.distinct(sample)),
            Contender("in a run without limits", ours.distinct(sample, limits=free, in_run=True), RUN_LIMIT),
            Contender("in a run with limits", ours.distinct(sample, limits=counted, in_run=True)),
            Contender("plain call, timeout=None", ours.distinct(sample, timeout=None)),
            Contender(
                "in a run without limits, timeout=None",
                ours.distinct(sample, limits=free, in_run=True, timeout=None),
            ),
        ]
        rows = asyncio.run(race(contenders, sample.text, rounds))
        columns = ("cpu µs", "wall µs (best)", "x plain call")
        tables.append(Table(f"Call in a run: {sample.name}", columns, rows))
    return tables


async def compare(
    title: str,
    sample: Sample,
    contenders: Sequence[Contender],
    makers: Mapping[str, Callable[[], Call]],
    rounds: int,
) -> Table:
    """Measure contenders that give the same answer, and the peers that `makers` make."""
    await _agree(sample, contenders)
    others, problems = [], []
    for name, make in makers.items():
        try:
            call = peers.forgiving(make()) if sample.is_wrong else make()
            await call(sample.text)
        except Exception as error:  # noqa: BLE001 - the report lists peers that fail
            problems.append(f"Not measured: {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        else:
            others.append(Contender(name, call))
    gc.collect()
    gc.freeze()  # a collection must not cost more because a peer has many modules
    rows = await race([*contenders, *others], sample.text, rounds)
    return Table(title, COLUMNS, rows, problems)


async def _agree(sample: Sample, contenders: Sequence[Contender]) -> None:
    """Exit if Toolmason's answer differs from the floor's, because an error may be faster than the work."""
    answers = [await contender.call(sample.text) for contender in contenders]
    texts = [answer.decode() if isinstance(answer, bytes) else str(answer) for answer in answers]
    for contender, text in zip(contenders, texts, strict=True):
        same = "error" in text if sample.is_wrong else text.strip('"') == texts[0].strip('"')
        if not same and contender is not contenders[0]:
            sys.exit(
                f"{contender.name} returned {text[:200]!r} for {sample.name}; the floor returned {texts[0][:200]!r}."
            )
