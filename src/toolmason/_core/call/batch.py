"""Run the calls of one turn concurrently and return their results in call order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, TypeAlias

from toolmason._core.call.deadlines import Deadline
from toolmason._core.call.route import Route
from toolmason._core.run import eager_task
from toolmason._core.values.policy import Parallel, Sequential, Strategy, check_kinds
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, make_call_id
from toolmason.errors import DefinitionError, ToolCallError, ToolCancelled, clip

RunOne: TypeAlias = Callable[[ToolCall, Deadline | None], Coroutine[Any, Any, ToolResult]]
"""Runs one call of a batch, until the end of the batch."""


def to_call(call: ToolCall | tuple[str, Arguments]) -> ToolCall:
    """Convert a `ToolCall`, or a name with arguments, to a `ToolCall`.

    Raises:
        DefinitionError: the value is neither.
    """
    if isinstance(call, ToolCall):
        return call
    given: Any = call
    if not (isinstance(given, tuple) and given and isinstance(given[0], str) and len(given) <= 2):  # noqa: PLR2004 - a pair
        raise DefinitionError(f"{clip(repr(call))} is not a call. Pass a ToolCall, or a name and arguments.")
    return ToolCall(make_call_id(), *call)


def to_calls(calls: Iterable[ToolCall | tuple[str, Arguments]]) -> Iterator[ToolCall]:
    """Convert the argument of `call_all`.

    Raises:
        DefinitionError: it is not a list, or an item is not a call.
    """
    check_kinds("", {"calls": calls}, {"calls": (Iterable,)})
    return map(to_call, calls)


def get_max_parallel(strategy: Strategy, limit: int) -> int:
    """Return the maximum number of concurrent calls.

    Raises:
        DefinitionError: the value is not a strategy.
    """
    given: Any = strategy
    if isinstance(given, Sequential):
        return 1
    if not isinstance(given, Parallel):
        raise DefinitionError(f"strategy={clip(repr(strategy))}: must be Parallel() or Sequential().")
    return limit if given.limit is None else min(given.limit, limit)


def is_barrier(route: Route | ToolCallError) -> bool:
    """Return True if a call must run alone."""
    return isinstance(route, Route) and route.tool.options.runs_alone


class Batch:
    """Calls of one turn, with their results in call order."""

    def __init__(
        self,
        calls: Iterable[ToolCall],
        results: list[ToolResult] | None,
        max_parallel: int,
        seconds: float | None,
        limit: str = "batch timeout",
    ) -> None:
        self.calls = tuple(calls)
        self.results = [] if results is None else results
        """List that receives the results. Complete when the batch ends, even if it was cancelled."""
        self.max_parallel = max_parallel
        self.seconds = seconds
        self.limit = limit
        self._results_by_index: dict[int, ToolResult] = {}
        self._running: dict[asyncio.Future[Any], int] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._first_error: BaseException | None = None

    async def run(self, run_one: RunOne, barriers: Sequence[bool]) -> list[ToolResult]:
        """Run every call. A barrier runs alone, after all calls before it and before all calls after it."""
        deadline = None
        if self.seconds is not None:
            deadline = Deadline(monotonic() + self.seconds, self.seconds, self.limit)
        try:
            for index, call in enumerate(self.calls):
                await self._wait_until_running(0 if barriers[index] else self.max_parallel - 1)
                if deadline is not None and monotonic() >= deadline.at:
                    error = deadline.make_error(call.name)
                    self._results_by_index[index] = ToolResult(call.id, call.name, error=error, attempts=0)
                    continue
                self._start(index, eager_task.start(run_one(call, deadline)))
                if barriers[index]:
                    await self._wait_until_running(0)
            await self._wait_until_running(0)
        except BaseException:
            await self._cancel_running()
            raise
        finally:
            self.results[:] = [self._get_result(index) for index in range(len(self.calls))]
        return self.results

    def _start(self, index: int, started: eager_task.StartResult) -> None:
        task, result, error = started
        if task is None:
            self._record(index, result, error)
            self._raise_first_error()
        else:
            self._running[task] = index
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Future[eager_task.TaskOutcome]) -> None:
        index = self._running.pop(task)
        if task.cancelled():
            self._record(index, None, asyncio.CancelledError())
        else:
            self._record(index, *task.result())
        eager_task.wake_waiter(self._waiter)

    def _record(self, index: int, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._results_by_index[index] = result
        else:
            self._first_error = self._first_error or error

    def _raise_first_error(self) -> None:
        if self._first_error is not None:
            raise self._first_error

    async def _wait_until_running(self, limit: int) -> None:
        """Wait until at most `limit` calls are running."""
        while len(self._running) > limit:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._raise_first_error()

    async def _cancel_running(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _get_result(self, index: int) -> ToolResult:
        call = self.calls[index]
        result = self._results_by_index.get(index)
        if result is None:
            result = ToolResult(call.id, call.name, error=ToolCancelled(call.name), attempts=0)
        return result
