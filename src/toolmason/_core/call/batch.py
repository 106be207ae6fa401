"""Several calls of one turn → one result for each, in call order.

Lives here: how many run at once, barriers, the batch's deadline, and what a cancelled batch leaves behind:
no task, and a result for every call. Not here: what one call does (`dispatch`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, Final, TypeAlias

from toolmason._core.call.route import Route
from toolmason._core.run import eager_task
from toolmason._core.values.policy import Parallel, Sequential, Strategy
from toolmason._core.values.results import Arguments, ToolCall, ToolResult
from toolmason.errors import DefinitionError, ToolCallError, ToolCancelled, ToolTimeout, clip

RunOne: TypeAlias = Callable[[ToolCall, float | None], Coroutine[Any, Any, ToolResult]]
"""Runs one call of a batch; the number is when the batch is over, or `None`."""

IDS: Final = itertools.count(1)
"""Numbers for calls that came without an id."""


def as_call(call: ToolCall | tuple[str, Arguments]) -> ToolCall:
    """Return a call from what a caller gives for one.

    Raises:
        DefinitionError: it is neither a call nor a name with arguments.
    """
    if isinstance(call, ToolCall):
        return call
    given: Any = call
    if not (isinstance(given, tuple) and given and isinstance(given[0], str) and len(given) <= 2):  # noqa: PLR2004 - a pair
        raise DefinitionError(f"{clip(repr(call))} is not a call. Give a ToolCall, or a name and arguments.")
    return ToolCall(f"call_{next(IDS)}", *call)


def width_of(strategy: Strategy, most: int) -> int:
    """Return how many calls run at once.

    Raises:
        DefinitionError: it is no strategy.
    """
    given: Any = strategy
    if isinstance(given, Sequential):
        return 1
    if not isinstance(given, Parallel):
        raise DefinitionError(f"strategy={clip(repr(strategy))}: give Parallel() or Sequential().")
    return most if given.limit is None else min(given.limit, most)


def is_barrier(route: Route | ToolCallError) -> bool:
    """Tell whether a call runs alone."""
    return isinstance(route, Route) and route.tool.options.alone


class Batch:
    """The calls of one turn, their results in call order, and how many run at once."""

    def __init__(self, calls: Sequence[ToolCall], results: list[ToolResult], width: int, seconds: float | None) -> None:
        self.calls = calls
        self.results = results
        """Where the results go; complete when the batch ends, also when it was cancelled."""
        self.width = width
        self.seconds = seconds
        self._done: dict[int, ToolResult] = {}
        self._running: dict[asyncio.Future[Any], int] = {}
        self._wake: asyncio.Future[None] | None = None
        self._stop: BaseException | None = None

    async def run(self, run_one: RunOne, barriers: Sequence[bool]) -> list[ToolResult]:
        """Run every call; a barrier runs alone, after the calls before it and before those after it."""
        loop = asyncio.get_running_loop()
        ends = None if self.seconds is None else monotonic() + self.seconds
        try:
            for index, call in enumerate(self.calls):
                await self._room(0 if barriers[index] else self.width - 1)
                if ends is not None and monotonic() >= ends:
                    self._done[index] = self._expired(call)
                    continue
                self._begin(index, eager_task.start(run_one(call, ends), loop))
                if barriers[index]:
                    await self._room(0)
            await self._room(0)
        except BaseException:
            await self._call_off()
            raise
        finally:
            self.results[:] = [self._result(index) for index in range(len(self.calls))]
        return self.results

    def _expired(self, call: ToolCall) -> ToolResult:
        error = ToolTimeout(call.name, self.seconds or 0.0, limit="batch timeout")
        return ToolResult(call.id, call.name, error=error, attempts=0)

    def _begin(self, index: int, started: eager_task.Started) -> None:
        task, result, error = started
        if task is None:
            self._end(index, result, error)
            self._check()
        else:
            self._running[task] = index
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[eager_task.Outcome]) -> None:
        index = self._running.pop(task)
        if task.cancelled():
            self._end(index, None, asyncio.CancelledError())
        else:
            self._end(index, *task.result())
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _end(self, index: int, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._done[index] = result
        else:
            self._stop = self._stop or error

    def _check(self) -> None:
        if self._stop is not None:
            raise self._stop

    async def _room(self, most: int) -> None:
        """Wait until at most `most` calls are running."""
        while len(self._running) > most:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._check()

    async def _call_off(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _result(self, index: int) -> ToolResult:
        call = self.calls[index]
        found = self._done.get(index)
        return (
            found if found is not None else ToolResult(call.id, call.name, error=ToolCancelled(call.name), attempts=0)
        )
