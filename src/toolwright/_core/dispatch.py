"""Calls in, results out: the steps of a call in order, and batches of calls.

parse and validate (`arguments`) → fill in (`tool`) → run with deadline and retry (`execute`) → convert (`result`).
Lives here: that order, attempts, and the width and order of a batch. Every call gets exactly one result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from logging import DEBUG
from time import monotonic, perf_counter
from typing import Any, TypeAlias

from toolwright._core import eager
from toolwright._core.context import CallState, ToolContext
from toolwright._core.execute import Attempt, DeadlinePassed, outcome_of, run
from toolwright._core.policy import INHERIT, Inherit, Retry, Timeout
from toolwright._core.result import named, shown
from toolwright._core.route import Route, capped
from toolwright._core.values import Arguments, ToolCall, ToolResult, result_of
from toolwright.errors import Abort, ToolCallError, ToolCancelled, ToolError, ToolTimeout

_log = logging.getLogger("toolwright")

Context: TypeAlias = ToolContext[Any] | None


async def perform(
    route: Route, call_id: str, raw: Arguments, context: Context, timeout: Timeout, retry: Retry | Inherit | None
) -> ToolResult:
    """Run one call through every step. Raises only what passes through, and for `on_error="raise"`."""
    started = perf_counter()
    repairs: Any = ()
    state: CallState | None = None
    try:
        values, repairs = route.bind(raw)
        seconds = (
            route.timeout if timeout is INHERIT else None if timeout is None else capped(timeout, route.box.settings)
        )
        policy = route.retry if retry is INHERIT else retry
        if route.direct is None or route.in_thread or policy is not None:
            state = CallState(ToolCall(call_id, route.name, raw))
            value, values = await _attempts(route, values, context, state, seconds, policy)
        else:
            value = route.direct(**values)
            if route.is_async or hasattr(value, "__await__"):
                value = await value if seconds is None else await _in_time(value, seconds, route)
        fields = route.render(value, values)
    except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and a result must come of it
        fields = _failed(route, error)
    else:
        if route.return_direct:
            fields["return_direct"] = True
    if repairs:
        fields["repairs"] = repairs
    if state is not None:
        fields["attempts"] = state.attempt
    fields["duration"] = perf_counter() - started
    if _log.isEnabledFor(DEBUG):
        _note(route, call_id, fields)
    fields["call_id"], fields["name"] = call_id, route.name
    return result_of(fields)


def _in_time(awaitable: Awaitable[Any], seconds: float, route: Route) -> Awaitable[Any]:
    """Start an awaitable under a deadline; one that is done at once costs neither a task nor a coroutine."""
    task, value, error = eager.start(awaitable, asyncio.get_running_loop())
    if error is not None:
        raise error
    if task is None:
        return eager.Ready(value)
    return outcome_of(task, seconds, route.name, route.box.settings.cancel_grace)


def _note(route: Route, call_id: str, fields: dict[str, Any]) -> None:
    outcome = "ok" if fields.get("error") is None else fields["error"].code
    _log.debug("%s [%s] %s in %.1f ms", route.name, call_id, outcome, fields["duration"] * 1000)


async def _attempts(
    route: Route, values: dict[str, Any], context: Context, state: CallState, seconds: float | None, retry: Retry | None
) -> tuple[Any, dict[str, Any]]:
    """Run a tool until it succeeds or no attempt is left; return its value and what it was called with."""
    tool = route.tool
    known = route.box.context.merged(context)
    settings = route.box.settings
    while True:
        state.deadline = None if seconds is None else monotonic() + seconds
        mine = known.for_call(replace(state) if state.attempt > 1 else state)
        complete = tool.complete(dict(values), mine)
        try:
            value = await run(Attempt(tool, complete, mine, state, settings, seconds, route.in_thread))
        except BaseException as error:  # noqa: BLE001 - raised again unless another attempt is worth it
            failure = _timed_out(route, error.seconds) if isinstance(error, DeadlinePassed) else error
            if retry is None or state.attempt >= retry.attempts or not _worth_another(failure, retry):
                raise failure from None if failure is not error else error.__cause__
            _log.debug(
                "%s [%s] attempt %d failed: %s",
                route.name,
                state.call and state.call.id,
                state.attempt,
                type(failure).__name__,
            )
            await asyncio.sleep(retry.wait(state.attempt))
            state.attempt += 1
            state.cancelled = False
        else:
            return value, complete


def _timed_out(route: Route, seconds: float) -> ToolTimeout:
    return ToolTimeout(route.name, seconds, retryable=route.tool.options.repeatable)


def _worth_another(error: BaseException, retry: Retry) -> bool:
    if isinstance(error, ToolTimeout):
        return any(issubclass(TimeoutError, kind) for kind in retry.on)
    if isinstance(error, ToolError):
        return error.retryable
    return isinstance(error, retry.on) and not isinstance(error, asyncio.CancelledError | Abort)


def _failed(route: Route, error: BaseException) -> dict[str, Any]:
    """Return the fields of the result that a failure comes to, or let it pass through."""
    if _passes_through(error, route):
        raise error
    if isinstance(error, DeadlinePassed):
        error = _timed_out(route, error.seconds)
    failure = named(route.name, error)
    if not isinstance(error, ToolCallError):
        _log.info(
            "%s failed: %s", route.name, type(error).__name__, exc_info=error if _log.isEnabledFor(DEBUG) else None
        )
    return shown(failure, route.on_error)


def _passes_through(error: BaseException, route: Route) -> bool:
    if isinstance(error, Abort | KeyboardInterrupt | GeneratorExit):
        return True
    if isinstance(error, asyncio.CancelledError):
        # A tool that raises CancelledError by itself has failed; a task that was cancelled must end.
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, route.box.rethrow)


# --- batches -----------------------------------------------------------------------------------

RunOne: TypeAlias = Callable[[ToolCall, float | None], Coroutine[Any, Any, ToolResult]]
"""Runs one call of a batch; the number is what is left of the batch's time, or `None`."""


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
        ends = None if self.seconds is None else loop.time() + self.seconds
        try:
            for index, call in enumerate(self.calls):
                await self._room(0 if barriers[index] else self.width - 1)
                left = None if ends is None else ends - loop.time()
                if left is not None and left <= 0:
                    self._done[index] = self._expired(call)
                    continue
                self._begin(index, eager.start(run_one(call, left), loop))
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

    def _begin(self, index: int, started: eager.Started) -> None:
        task, result, error = started
        if task is None:
            self._end(index, result, error)
            self._check()
        else:
            self._running[task] = index
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[eager.Outcome]) -> None:
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
