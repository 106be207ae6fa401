"""A tool and its values → what came of it: where it runs, and until when.

Lives here: loop and thread, deadline, cancellation, tasks that overstay. A result is given at the deadline also
when the tool swallows its cancellation. Not here: retries and policy (`dispatch`), wording (`result`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final

from toolmason._core.define.context import CallState, ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.run import eager_task
from toolmason._core.run.processes import NotStarted, WorkerDied, packed, processes
from toolmason._core.run.threads import Job, workers
from toolmason._core.values.policy import RunsOn, Settings

_log = logging.getLogger("toolmason")


class DeadlinePassed(Exception):
    """The deadline passed before the tool was done."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True, eq=False, repr=False)
class Late:
    """Tasks whose caller was answered at the deadline and that run on; kept so that they are not lost."""

    tasks: set[asyncio.Future[Any]] = field(default_factory=set)
    dropped: int = 0
    """How many of their values came too late."""

    def keep(self, task: asyncio.Future[Any], name: str) -> None:
        """Hold on to a task until it ends."""

        def ended(finished: asyncio.Future[Any]) -> None:
            self.tasks.discard(finished)
            self.dropped += 1
            _log.warning("%s finished after its deadline; its result was dropped (%d so far)", name, self.dropped)
            if not finished.cancelled():
                finished.exception()

        self.tasks.add(task)
        task.add_done_callback(ended)


LATE: Final = Late()


@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """One attempt of one call: what to run, with what, where, and how long it may take."""

    tool: Tool
    values: dict[str, Any]
    context: ToolContext[Any]
    state: CallState
    settings: Settings
    seconds: float | None
    where: RunsOn


async def run(attempt: Attempt) -> Any:
    """Run a tool and return its value.

    Raises:
        DeadlinePassed: the time was not enough.
        BaseException: whatever the tool raised, and our own cancellation.
    """
    loop = asyncio.get_running_loop()
    if attempt.where == "process":
        return await _in_process(attempt, loop)
    if attempt.where == "thread":
        started = loop.time()
        value = await _in_thread(attempt, loop)
        if not inspect.isawaitable(value):
            return value
        if attempt.seconds is not None:
            attempt.seconds = max(0.0, attempt.seconds - (loop.time() - started))
        return await _on_loop(value, attempt)
    value = attempt.tool.start(attempt.values, attempt.context)
    if attempt.tool.kind == "sync" and not inspect.isawaitable(value):
        return value
    return await _on_loop(value, attempt)


async def _on_loop(awaitable: Awaitable[Any], attempt: Attempt) -> Any:
    try:
        return await within(awaitable, attempt.seconds, attempt.tool.name, attempt.settings.cancel_grace)
    except (DeadlinePassed, asyncio.CancelledError):
        attempt.state.cancelled = True
        raise


async def within(awaitable: Awaitable[Any], seconds: float | None, name: str, grace: float) -> Any:
    """Await something in a task of its own, until its deadline.

    Raises:
        DeadlinePassed: the time was not enough.
    """
    task, value, error = eager_task.start(awaitable, asyncio.get_running_loop())
    if task is not None:
        return await outcome_of(task, seconds, name, grace)
    if error is not None:
        raise error
    return value


async def outcome_of(task: eager_task.EagerTask, seconds: float | None, name: str, grace: float) -> Any:
    """Wait for a task until its deadline, and not a moment longer than the grace.

    Raises:
        DeadlinePassed: the time was not enough.
    """
    waiter = eager_task.end_of(task)
    timer = None if seconds is None else task.get_loop().call_later(seconds, eager_task.let_go, waiter)
    try:
        await waiter
    except asyncio.CancelledError:
        await _call_off(task, name, grace)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not task.done():
        await _call_off(task, name, grace)
        raise DeadlinePassed(seconds or 0.0)
    value, error = task.result()
    if error is not None:
        raise error
    return value


async def _call_off(task: asyncio.Future[Any], name: str, grace: float) -> None:
    """Cancel a task, give it a moment to clean up, and let it go on alone where that is not enough."""
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=grace)
    finally:
        if not task.done():
            LATE.keep(task, name)


async def _in_thread(attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    try:
        return await in_thread(
            lambda: attempt.tool.start(attempt.values, attempt.context), attempt.seconds, attempt.settings, loop
        )
    except ThreadGivenUp as given_up:
        attempt.state.cancelled = True
        raise given_up.reason from None


class ThreadGivenUp(Exception):
    """Nobody waits for the thread any more: the deadline passed, or the caller was cancelled."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


async def in_thread(
    work: Callable[[], Any], seconds: float | None, settings: Settings, loop: asyncio.AbstractEventLoop
) -> Any:
    """Run work in a thread until its deadline.

    Raises:
        ThreadGivenUp: it was not done in time, or nobody waits for it any more; the reason is inside.
        BaseException: whatever the work raised.
    """
    pool = workers(settings.threads)
    job = Job(work, copy_context(), loop)
    timer = None if seconds is None else loop.call_later(seconds, _wake, job.future, seconds)
    # Last, so that this thread has nothing left to do when the other one wants to begin.
    pool.submit(job)
    try:
        value, error = await job.future
    except asyncio.CancelledError as cancelled:
        pool.give_up(job)
        raise ThreadGivenUp(cancelled) from None
    finally:
        if timer is not None:
            timer.cancel()
    if error is None:
        return value
    if isinstance(error, DeadlinePassed):
        pool.give_up(job)
        raise ThreadGivenUp(error)
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
        # Raised in a thread these are the tool's own doing, and here they would look like ours.
        raise RaisedInThread(error)
    raise error


class RaisedInThread(Exception):
    """A tool raised in its thread what would mean something else here."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def _in_process(attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    """Run a tool in a process that is killed at the deadline; one that died while idle is replaced."""
    payload = packed(*attempt.tool.crossing(attempt.values, attempt.context))
    try:
        return await _in_one_process(payload, attempt, loop)
    except NotStarted:
        return await _in_one_process(payload, attempt, loop)


async def _in_one_process(payload: bytes, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    pool, report = processes(attempt.settings.processes), attempt.state.report
    try:
        worker, left = await pool.take(attempt.seconds)
    except TimeoutError:
        raise DeadlinePassed(attempt.seconds or 0.0) from None
    usable = False
    try:
        job = Job(lambda: worker.run(payload, report), copy_context(), loop)
        workers(attempt.settings.threads).submit(job)
        timer = None if left is None else loop.call_later(left, _wake, job.future, attempt.seconds or left)
        try:
            value, error = await job.future
        finally:
            if timer is not None:
                timer.cancel()
        usable = not isinstance(error, WorkerDied | DeadlinePassed)
    finally:
        pool.give(worker, usable=usable)
    if error is None:
        return value
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
        raise RaisedInThread(error)
    raise error


def _wake(future: asyncio.Future[tuple[Any, BaseException | None]], seconds: float) -> None:
    if not future.done():
        future.set_result((None, DeadlinePassed(seconds)))
