"""Measure a whole run: a model that asks for one call per step and answers after N steps.

The loops run over an in-memory model and over HTTP on this machine, to find the cost of a step and its growth.
"""

import asyncio
import gc
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import loop_peers
import loop_wire
from measure import Row, Table
from pydantic import TypeAdapter
from pydantic_core import to_json
from samples import add
from typing_extensions import TypedDict

from toolmason import Chat, Limits, Message, Toolbox, ToolCall, tool
from toolmason.models import ModelReply, ModelRequest

STEPS = (50, 200, 800)
COLUMNS = (*(f"cpu µs per step, N={steps}" for steps in STEPS), "growth", *(f"x floor, N={n}" for n in STEPS[::2]))
GROWTH = 1.2
"""Maximum ratio of the cost of a step in the longest run to one in the shortest, in memory."""
TIMES_FLOOR = 2.0
"""Maximum ratio of the cost of a step to the hand-written loop's, over HTTP, in the longest run."""
TEXT = '{"a": 1, "b": 2}'

Run = Callable[[int], Awaitable[object]]
Judge = Callable[[Sequence[float]], tuple[str, str]]


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure loops in memory and over HTTP."""
    runs: dict[str, Run] = {"floor: hand-written loop, pydantic-core": floor, "toolmason": ours}
    notes: list[str] = []
    if with_peers:
        for name, make in loop_peers.PEERS.items():
            try:
                runs[name] = make()
                asyncio.run(runs[name](2))
            except Exception as error:  # noqa: BLE001 - the report lists peers that fail
                runs.pop(name, None)
                notes.append(f"Not measured: {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    memory = Table("Run in memory", COLUMNS, _rows(runs, rounds, _constant), notes)
    return [memory, _over_the_wire(rounds)]


def _over_the_wire(rounds: int) -> Table:
    with multiprocessing.get_context("spawn").Manager() as manager:
        found = manager.Queue()
        process = multiprocessing.get_context("spawn").Process(target=loop_wire.serve, args=(found,), daemon=True)
        process.start()
        try:
            rows = _rows(loop_wire.runs(found.get(timeout=30)), rounds, _near_the_floor)
        finally:
            process.kill()
            process.join()
    return Table("Run over HTTP, Chat Completions", COLUMNS, rows)


def _constant(figures: Sequence[float]) -> tuple[str, str]:
    return f"growth ≤ {GROWTH:g}", "ok" if figures[len(STEPS)] <= GROWTH else "over"


def _near_the_floor(figures: Sequence[float]) -> tuple[str, str]:
    return f"≤ {TIMES_FLOOR:g} x, N={STEPS[-1]}", "ok" if figures[-1] <= TIMES_FLOOR else "over"


def _rows(runs: Mapping[str, Run], rounds: int, judge: Judge) -> list[Row]:
    taken: dict[tuple[str, int], list[float]] = {(name, steps): [] for name in runs for steps in STEPS}
    for turn in range(rounds + 1):
        for steps in STEPS:
            for name, run in runs.items():
                used = asyncio.run(_once(run, steps))
                if turn:  # the first round loads and compiles deferred parts
                    taken[name, steps].append(used / steps * 1e6)
    floor = next(iter(runs))
    return [_row(name, taken, floor, judge) for name in runs]


async def _once(run: Run, steps: int) -> float:
    gc.collect()
    start = time.process_time()
    await run(steps)
    return time.process_time() - start


def _row(name: str, taken: Mapping[tuple[str, int], list[float]], floor: str, judge: Judge) -> Row:
    # Ratios are computed within one round, so that load on the machine affects both sides.
    figures = [statistics.median(taken[name, steps]) for steps in STEPS]
    figures.append(_ratio(taken[name, STEPS[-1]], taken[name, STEPS[0]]))
    figures += [_ratio(taken[name, steps], taken[floor, steps]) for steps in STEPS[::2]]
    return Row(name, figures, *(judge(figures) if name == "toolmason" else ("", "")))


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

    def __init__(self, steps: int) -> None:
        self.left = steps

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Ask for one call, or answer."""
        del request
        if not self.left:
            return ModelReply(Message("assistant", "done"))
        self.left -= 1
        return ModelReply(Message("assistant", (), [ToolCall(f"c{self.left}", "add", TEXT)]), finish="calls")

    def stream(self, request: ModelRequest) -> Any:
        """Not used: a run without a listener does not stream."""
        raise NotImplementedError


_ADD = tool(read_only=True, repeats="allow")(add)


async def ours(steps: int) -> object:
    """Run a chat."""
    limits = Limits(steps=None, calls=None, per_tool=None)
    reply = await Chat(StepModel(steps), Toolbox(_ADD), limits=limits).send("go")
    assert len(reply.results) == steps  # noqa: S101 - a run that ends early would look fast
    return reply
