"""What the tests of the gate share: tools that note down that they ran, and every way to reach a tool.

Functions at the top level, so that a worker process can import them.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolmason import Retry, Tool, Toolbox, ToolError, ToolResult
from toolmason._core.run.slots import Semaphore

AT_ONCE = Retry(attempts=3, delay=0, jitter=False)
BOUND = 5.0
"""Seconds after which a test that waits has failed."""

Reach = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]


@dataclass
class Thought:
    """What an augmented toolbox asks for with every call."""

    thought: str


def noting(ran: list[str], name: str = "delete", **options: Any) -> Tool:
    """Return a tool that notes down each path that it was run with."""

    async def note(path: str) -> str:
        ran.append(path)
        return f"{name} {path}"

    return Tool.from_function(note, name=name, description="Delete a file.", **options)


class Work:
    """A tool that takes some turns of the loop, and how many of its calls overlapped."""

    def __init__(self) -> None:
        self.running = 0
        self.peak = 0
        self.done: list[str] = []

    async def __call__(self, path: str) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1
        self.done.append(path)

    def tool(self, name: str = "work", **options: Any) -> Tool:
        async def work(path: str = "a") -> str:
            await self(path)
            return path

        return Tool.from_function(work, name=name, **options)


class Door:
    """A tool that stays inside until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.ran: list[str] = []

    def tool(self, name: str = "wait", **options: Any) -> Tool:
        async def wait(path: str = "a") -> str:
            self.ran.append(path)
            self.entered.set()
            await self.open.wait()
            return path

        return Tool.from_function(wait, name=name, **options)


async def turns(count: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


def take_free(slots: Semaphore) -> int:
    """Acquire every free slot. Return their number, which is 0 while a caller waits for one."""
    count = 0
    while slots.try_acquire():
        count += 1
    return count


# --- every way to a tool -------------------------------------------------------------------------


def _hooked(box: Toolbox, name: str, times: int = 1) -> Reach:
    async def passing(call, following):
        for _ in range(times - 1):
            await following(call)
        return await following(call)

    box.use(passing)
    return lambda arguments: box.call(name, arguments)


def _in_a_batch(box: Toolbox, name: str) -> Reach:
    async def reach(arguments):
        (result,) = await box.call_all([(name, arguments)])
        return result

    return reach


def _augmented(box: Toolbox, name: str) -> Reach:
    view = box.augmented(Thought)
    return lambda arguments: view.call(name, {**arguments, "thought": "so"})


def _augmented_and_prefixed(box: Toolbox, name: str) -> Reach:
    view = box.augmented(Thought).prefixed("x_")
    return lambda arguments: view.call(f"x_{name}", {**arguments, "thought": "so"})


def _in_a_batch_of_a_run(box: Toolbox, name: str) -> Reach:
    return _in_a_batch(box.run(), name)


def _called(view: Toolbox, name: str) -> Reach:
    return lambda arguments: view.call(name, arguments)


def _called_sync(view: Toolbox, name: str) -> Reach:
    return lambda arguments: asyncio.to_thread(view.call_sync, name, arguments)


WAYS: dict[str, Callable[[Toolbox, str], Reach]] = {
    "call": _called,
    "batch": _in_a_batch,
    "select": lambda box, name: _called(box.select(name), name),
    "exclude": lambda box, name: _called(box.exclude("no_such"), name),
    "prefixed": lambda box, name: _called(box.prefixed("x_"), f"x_{name}"),
    "renamed": lambda box, name: _called(box.renamed({name: "other"}), "other"),
    "joined": lambda box, name: _called(box | Toolbox(), name),
    "augmented": _augmented,
    "augmented and prefixed": _augmented_and_prefixed,
    "middleware": _hooked,
    "run": lambda box, name: _called(box.run(), name),
    "view of a run": lambda box, name: _called(box.run().prefixed("x_"), f"x_{name}"),
    "run of a view": lambda box, name: _called(box.prefixed("x_").run(), f"x_{name}"),
    "batch of a run": _in_a_batch_of_a_run,
    "sync": _called_sync,
}
"""A toolbox and a tool's name → a function that calls it; each way by its name."""


def hooked_twice(box: Toolbox, name: str) -> Reach:
    """Reach a tool through a middleware that goes on twice."""
    return _hooked(box, name, times=2)


# --- tools that go wrong, the same in a thread, on the loop and in a process ---------------------

NEVER = threading.Event()


def answers(path: str) -> str:
    """Answer."""
    return path


def raises(path: str) -> str:
    """Raise what it did not mean for a model."""
    raise ValueError(path)


def complains(path: str) -> str:
    """Raise words for a model."""
    raise ToolError(path)


def stays(path: str) -> str:
    """Take longer than any test allows."""
    NEVER.wait(2)
    return path


def floods(path: str) -> str:
    """Return more than a model can read."""
    return path * 1_000_000


def mumbles(path: str) -> Any:
    """Return what has no JSON form."""
    return object()


def exits(path: str) -> str:
    """Try to end the program."""
    raise SystemExit(path)


def leaves_a_file(path: str) -> str:
    """Leave a file, which shows from any process that it ran."""
    with open(path, "x", encoding="utf-8"):  # noqa: PTH123 - the shortest that shows it
        return path
