"""Measure a whole run: a model that asks for one call per step and answers after N steps.

The loops run over an in-memory model and over HTTP on this machine, to find the cost of a step and its growth.
"""

import asyncio
import gc
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import loop_peers
import loop_wire
from measure import Row, Table, judge, verdict
from pydantic import TypeAdapter
from pydantic_core import to_json
from samples import TWO_INTS
from typing_extensions import TypedDict

from toolmason import Chat, Limits, Message, Toolbox, ToolCall, tool
from toolmason.models import ModelReply, ModelRequest

STEPS = (50, 200, 800, 3200)
WIRE_STEPS = STEPS[:3]
"""Over HTTP the server reads the whole conversation in each step; 3,200 steps would take minutes."""
GROWTH = 1.2
"""Maximum ratio of the cost of a step in the longest run to one in the shortest, in memory."""
TIMES_FLOOR = 2.0
"""Maximum ratio of the cost of a step to the hand-written loop's, over HTTP, in the longest run."""
TIMES_LLM = 1.0
"""Maximum ratio of the cost of a step to that of `llm`, in memory, for each length."""
TIMES_UNTYPED = 1.1
"""Maximum ratio of the cost of a further step in a run with a typed answer to one without."""
SLOW_SECONDS = 1.0
"""A contender whose run takes longer is not measured with more steps."""
LLM = "llm, chain"
NO_LIMITS = Limits(steps=None, calls=None, per_tool=None)
TEXT = '{"a": 1, "b": 2}'
add = TWO_INTS.on_loop

Run = Callable[[int], Awaitable[object]]
Judge = Callable[[Sequence[float | None]], tuple[str, str]]
Taken = dict[str, dict[int, list[float]]]
"""Microseconds per step by contender and length, one for each round."""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure loops in memory and over HTTP."""
    runs: dict[str, Run] = {"floor: hand-written loop, pydantic-core": floor, "toolmason": ours}
    notes: list[str] = []
    if with_peers:
        for name, make in loop_peers.PEERS.items():
            try:
                runs[name] = make()
                asyncio.run(_once(runs[name], 2))
            except Exception as error:  # noqa: BLE001 - the report lists peers that fail
                runs.pop(name, None)
                notes.append(f"Not measured: {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    taken = _taken(runs, rounds, STEPS)
    memory = Table("Run in memory", _columns(STEPS), _rows(taken, STEPS, _constant), notes)
    return [memory, _against_llm(taken), _with_answers(rounds), _over_the_wire(rounds)]


def _with_answers(rounds: int) -> Table:
    """Compare a run with a typed answer with one whose answer is text."""
    models = {name: StepModel(0, TEXT) for name in ("typed", "text")}
    outputs = {"typed": _Arguments, "text": None}
    chats = {name: Chat(model, Toolbox(_ADD), limits=NO_LIMITS, output=outputs[name]) for name, model in models.items()}

    async def send(name: str, steps: int) -> None:
        models[name].left = steps
        await chats[name].send("go")

    # The first round compiles the type, which a program does once for each chat.
    taken = _taken({name: partial(send, name) for name in chats}, rounds, WIRE_STEPS)
    # Of the fastest rounds: the difference is smaller than that between two rounds.
    best = {name: {steps: min(mine[steps]) for steps in WIRE_STEPS} for name, mine in taken.items()}
    rows = [Row(f"whole run, N={steps}", [best["typed"][steps] / best["text"][steps]]) for steps in WIRE_STEPS]
    first, last = WIRE_STEPS[0], WIRE_STEPS[-1]
    typed, text = ((mine[last] * last - mine[first] * first) / (last - first) for mine in best.values())
    limit, ratio = f"≤ {TIMES_UNTYPED:g} x", typed / text
    rows.append(Row("each further step", [ratio], limit, verdict(ratio, TIMES_UNTYPED)))
    once = (best["typed"][first] - best["text"][first] - typed + text) * first
    note = f"Reading and validating the answer takes {once:.0f} µs, once for each run."
    return Table("Run in memory with a typed answer", ("x text",), rows, [note])


def _over_the_wire(rounds: int) -> Table:
    with multiprocessing.get_context("spawn").Manager() as manager:
        found = manager.Queue()
        process = multiprocessing.get_context("spawn").Process(target=loop_wire.serve, args=(found,), daemon=True)
        process.start()
        try:
            taken = _taken(loop_wire.runs(found.get(timeout=30)), rounds, WIRE_STEPS)
        finally:
            process.kill()
            process.join()
    rows = _rows(taken, WIRE_STEPS, _near_the_floor)
    return Table("Run over HTTP, Chat Completions", _columns(WIRE_STEPS), rows)


def _against_llm(taken: Taken) -> Table:
    """Compare with the leanest peer, for each length."""
    theirs = taken.get(LLM, {})
    limit = f"≤ {TIMES_LLM:g} x"
    rows = []
    for steps in STEPS:
        ratio = _ratio(taken["toolmason"][steps], theirs[steps]) if steps in theirs else None
        rows.append(
            Row(f"toolmason, N={steps}", [ratio], limit, verdict(ratio, TIMES_LLM) if ratio else "not measured")
        )
    notes = [] if theirs else ["Not measured: `llm` is a peer. Run with `--peers`."]
    return Table("Run in memory against llm", ("x llm",), rows, notes)


def _columns(lengths: Sequence[int]) -> tuple[str, ...]:
    return (
        *(f"cpu µs per step, N={steps}" for steps in lengths),
        "growth",
        *(f"x floor, N={steps}" for steps in lengths),
    )


def _constant(figures: Sequence[float | None]) -> tuple[str, str]:
    return f"growth ≤ {GROWTH:g}", judge({"growth": (figures[len(STEPS)], GROWTH)})


def _near_the_floor(figures: Sequence[float | None]) -> tuple[str, str]:
    return f"≤ {TIMES_FLOOR:g} x, N={WIRE_STEPS[-1]}", judge(
        {f"x floor, N={WIRE_STEPS[-1]}": (figures[-1], TIMES_FLOOR)}
    )


def _taken(runs: Mapping[str, Run], rounds: int, lengths: Sequence[int]) -> Taken:
    taken: Taken = {name: {} for name in runs}
    slow: set[str] = set()
    for turn in range(rounds + 1):
        for steps in lengths:
            for name, run in runs.items():
                if name in slow and steps not in taken[name]:
                    continue
                used = asyncio.run(_once(run, steps))
                taken[name].setdefault(steps, [])
                if turn:  # the first round loads and compiles deferred parts
                    taken[name][steps].append(used / steps * 1e6)
                elif used > SLOW_SECONDS and not name.startswith(("floor", "toolmason")):
                    slow.add(name)
    return taken


async def _once(run: Run, steps: int) -> float:
    gc.collect()
    start = time.process_time()
    await run(steps)
    return time.process_time() - start


def _rows(taken: Taken, lengths: Sequence[int], judged: Judge) -> list[Row]:
    # Ratios are computed within one round, so that load on the machine affects both sides.
    floor = taken[next(iter(taken))]
    rows = []
    for name, mine in taken.items():
        figures: list[float | None] = [statistics.median(mine[steps]) if steps in mine else None for steps in lengths]
        figures.append(_ratio(mine[max(mine)], mine[min(mine)]))
        figures += [_ratio(mine[steps], floor[steps]) if steps in mine else None for steps in lengths]
        rows.append(Row(name, figures, *(judged(figures) if name == "toolmason" else ("", ""))))
    return rows


def _ratio(these: Sequence[float], those: Sequence[float]) -> float:
    return statistics.median(this / that for this, that in zip(these, those, strict=True))


# --- in memory ---------------------------------------------------------------------------------------


async def floor(steps: int) -> object:
    """Ask, validate the arguments, call and serialize the result, repeatedly: the lower bound for any library."""
    validate = _VALIDATE
    history: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for step in range(steps):
        history.append({"role": "assistant", "id": f"c{step}", "arguments": TEXT})
        values = validate(TEXT)
        history.append({"role": "tool", "id": f"c{step}", "content": to_json(await add(**values)).decode()})
    return history


class _Arguments(TypedDict):
    a: int
    b: int


_VALIDATE = TypeAdapter(_Arguments).validator.validate_json


class StepModel:
    """Model that asks for a call until it has seen enough results."""

    name = "steps"

    def __init__(self, steps: int, answer: str = "done") -> None:
        self.left, self.answer = steps, answer

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Ask for one call, or answer."""
        del request
        if not self.left:
            return ModelReply(Message("assistant", self.answer))
        self.left -= 1
        return ModelReply(Message("assistant", (), [ToolCall(f"c{self.left}", "add", TEXT)]), finish="calls")

    def stream(self, request: ModelRequest) -> Any:
        """Not used: a run without a listener does not stream."""
        raise NotImplementedError


_ADD = tool(read_only=True, repeats="allow")(add)


async def ours(steps: int) -> object:
    """Run a chat."""
    reply = await Chat(StepModel(steps), Toolbox(_ADD), limits=NO_LIMITS).send("go")
    assert len(reply.results) == steps  # noqa: S101 - a run that ends early would look fast
    return reply
