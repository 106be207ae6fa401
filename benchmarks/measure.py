"""Time contenders in interleaved rounds and format the figures as Markdown tables."""

import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Call = Callable[[str], Awaitable[object]]

BATCH_SECONDS = 0.03
"""Long enough for the process clock, short enough that the state of the machine does not change within a round."""


ONLY: list[str] = []
"""Parts of the names of the samples to measure; empty for all."""


def is_chosen(name: str) -> bool:
    """Return True if a sample is to be measured."""
    return all(part.casefold() in name.casefold() for part in ONLY)


@dataclass(frozen=True, slots=True)
class Contender:
    """Line of a table before the measurement; the first of a list is the floor."""

    name: str
    call: Call
    limit: float | None = None
    """Maximum ratio to the floor that the design allows."""


@dataclass(frozen=True, slots=True)
class Row:
    """Line of a table: figures by column, and the limit of the design."""

    name: str
    figures: Sequence[float | None]
    limit: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Titled table with notes on the figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default=())

    def markdown(self) -> str:
        """Return the table as Markdown; numbers have three significant digits."""
        head = ["what", *self.columns, "limit", "verdict"]
        body = [[row.name, *map(format_number, row.figures), row.limit, row.verdict] for row in self.rows]
        widths = [max(len(line[index]) for line in (head, *body)) for index in range(len(head))]
        rule = ["-" * width for width in widths]
        lines = ("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in (head, rule, *body))
        return "\n".join([f"### {self.title}", "", *lines, *(f"\n{note}" for note in self.notes)])


def verdict(value: float, limit: float | None) -> str:
    """Return "ok" or "over", or an empty string if there is no limit."""
    if limit is None:
        return ""
    return "ok" if value <= limit else "over"


def judge(bars: Mapping[str, tuple[float | None, float]]) -> str:
    """Return "ok", or the columns whose values are over their limits; a bar that is a minimum is passed negated."""
    over = [name for name, (value, limit) in bars.items() if value is not None and value > limit]
    return f"over: {'; '.join(over)}" if over else "ok"


async def race(contenders: Sequence[Contender], text: str, rounds: int, seconds: float = BATCH_SECONDS) -> list[Row]:
    """Measure all contenders in each round, and compare each with the floor of the same round.

    Everything runs in one task: anyio ends its threads with the task that started them and would create new ones
    each time.
    """
    counts = [await _count_for(contender.call, text, seconds) for contender in contenders]
    cpu: list[list[float]] = [[] for _ in contenders]
    wall: list[list[float]] = [[] for _ in contenders]
    for turn in range(rounds):
        for place in range(len(contenders)):
            # Rotate the order, so that no contender always runs after the same one.
            index = (place + turn) % len(contenders)
            used, took = await _batch(contenders[index].call, text, counts[index])
            cpu[index].append(used * 1e6)
            wall[index].append(took * 1e6)
    return [_row(contender, cpu[index], wall[index], cpu[0]) for index, contender in enumerate(contenders)]


def _row(contender: Contender, cpu: Sequence[float], wall: Sequence[float], floor: Sequence[float]) -> Row:
    ratio = statistics.median(mine / base for mine, base in zip(cpu, floor, strict=True))
    limit = "" if contender.limit is None else f"≤ {contender.limit:g} x"
    return Row(contender.name, (statistics.median(cpu), min(wall), ratio), limit, verdict(ratio, contender.limit))


async def _count_for(call: Call, text: str, seconds: float) -> int:
    await call(text)  # one-time work of the first call must not count
    count = 1
    while True:
        _, each = await _batch(call, text, count)
        if each * count >= seconds / 4:
            return max(1, int(seconds / each))
        count *= 4


async def _batch(call: Call, text: str, count: int) -> tuple[float, float]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(count):
        await call(text)
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def format_number(value: float | None) -> str:
    """Return three significant digits, or all digits before the point."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Neighbours:
    """Share of the machine that other processes have used since creation."""

    def __init__(self) -> None:
        self._start = self._read()

    def share(self) -> str:
        """Return the share of all cores that was neither idle nor used by this process."""
        before, now = self._start, self._read()
        if before is None or now is None:
            return "an unknown share"
        total, idle, own = (new - old for new, old in zip(now, before, strict=True))
        return f"{max(0.0, (total - idle - own) / total) if total else 0:.0%}"

    @staticmethod
    def _read() -> tuple[float, float, float] | None:
        try:
            first = Path("/proc/stat").read_text("utf-8").splitlines()[0]
        except OSError:
            return None
        ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in first.split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4], sum(os.times()[:4])
