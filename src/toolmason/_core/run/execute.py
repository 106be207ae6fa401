"""Run a tool on the loop, in a thread or in a process, until its deadline.

The caller gets a result at the deadline even if the tool ignores cancellation.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from toolmason._core.define.context import ToolContext
from toolmason._core.define.invocation import get_function_kind
from toolmason._core.define.tool import CompiledTool
from toolmason._core.run import eager_task
from toolmason._core.run.metrics import measure
from toolmason._core.run.processes import CallNotStarted, Worker, WorkerDied, get_process_pool, pickle_call
from toolmason._core.run.threads import Job, ThreadPurpose, get_thread_pool
from toolmason._core.run.tracing import inject_context, open_span
from toolmason._core.values.call_state import CallState
from toolmason._core.values.definition import ToolOptions
from toolmason._core.values.policy import EngineSettings, RunsOn
from toolmason._core.values.remote_executor import RemoteCall, RemoteExecutor, ToolResources

_log = logging.getLogger("toolmason")


class DeadlinePassed(Exception):
    """The deadline passed before the tool finished."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True, eq=False, repr=False)
class AbandonedTasks:
    """Tasks still running after their call timed out. Holding them prevents garbage collection."""

    tasks: set[asyncio.Future[Any]] = field(default_factory=set)
    late_results: int = 0
    """Number of results that arrived after the deadline."""

    def add(self, task: asyncio.Future[Any], name: str) -> None:
        """Hold a task until it finishes."""

        def on_done(finished: asyncio.Future[Any]) -> None:
            self.tasks.discard(finished)
            self.late_results += 1
            _log.warning("%s finished after its deadline; its result was dropped (%d so far)", name, self.late_results)
            if not finished.cancelled():
                finished.exception()

        self.tasks.add(task)
        task.add_done_callback(on_done)


ABANDONED_TASKS: Final = AbandonedTasks()


@dataclass(slots=True, eq=False, repr=False)
class Cancellation:
    """Ends every wait of a run at once. Thread-safe."""

    cancelled: bool = False
    waits: dict[asyncio.Future[Any], asyncio.AbstractEventLoop] = field(default_factory=dict)
    """Futures that the calls of the run wait for."""

    def cancel(self) -> None:
        """Cancel running calls and refuse new ones."""
        self.cancelled = True
        for future, loop in list(self.waits.items()):
            loop.call_soon_threadsafe(future.cancel)


NEVER_CANCELLED: Final = Cancellation()
"""For calls outside of a run. Nothing is registered with it."""


@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """One attempt of a call: tool, arguments, context, executor and time limit."""

    name: str
    tool: CompiledTool
    values: dict[str, Any]
    context: ToolContext[Any]
    state: CallState
    settings: EngineSettings
    seconds: float | None
    runs_on: RunsOn
    options: ToolOptions
    cancellation: Cancellation = NEVER_CANCELLED


async def run_attempt(attempt: Attempt, *, in_span: bool = False) -> Any:
    """Run a tool and return its value. An attempt after the first has a span.

    Raises:
        DeadlinePassed: the tool did not finish in time.
        BaseException: any exception of the tool, or the caller's own cancellation.
    """
    if (number := attempt.state.attempt) > 1 and not in_span:
        tool = {"gen_ai.tool.name": attempt.name}
        measure("toolmason.tool.retries", 1, tool)
        with open_span(f"retry {attempt.name}", {**tool, "toolmason.attempt": number}):
            return await run_attempt(attempt, in_span=True)
    loop = asyncio.get_running_loop()
    if attempt.runs_on == "process":
        return await _run_in_process(attempt, loop)
    if attempt.runs_on != "loop":
        if isinstance(attempt.runs_on, RemoteExecutor):
            return await _run_remotely(attempt, attempt.runs_on)
        started = loop.time()
        value = await (_run_in_thread if attempt.runs_on == "thread" else _run_in_executor)(attempt, loop)
        if not inspect.isawaitable(value):
            return value
        if attempt.seconds is not None:
            attempt.seconds = max(0.0, attempt.seconds - (loop.time() - started))
        return await _await_on_loop(value, attempt)
    value = attempt.tool.call(attempt.values, attempt.context)
    if attempt.tool.kind == "sync" and not inspect.isawaitable(value):
        return value
    return await _await_on_loop(value, attempt)


async def _await_on_loop(awaitable: Awaitable[Any], attempt: Attempt) -> Any:
    try:
        grace = attempt.settings.cancel_grace
        return await await_with_timeout(awaitable, attempt.seconds, attempt.name, grace, attempt.cancellation)
    except (DeadlinePassed, asyncio.CancelledError):
        attempt.state.cancelled = True
        raise


async def await_with_timeout(
    awaitable: Awaitable[Any],
    seconds: float | None,
    name: str,
    grace: float,
    cancellation: Cancellation = NEVER_CANCELLED,
) -> Any:
    """Await an object in its own task, until its deadline or the end of the run. Raises as `await_task` does."""
    task, value, error = eager_task.start(awaitable)
    if task is not None:
        return await await_task(task, seconds, name, grace, cancellation)
    if error is not None:
        raise error
    return value


async def await_task(
    task: eager_task.EagerTask,
    seconds: float | None,
    name: str,
    grace: float,
    cancellation: Cancellation = NEVER_CANCELLED,
) -> Any:
    """Wait for a task until its deadline. If it then ignores cancellation, wait for the grace period only.

    Raises:
        DeadlinePassed: the task did not finish in time.
        CancelledError: the run or the caller was cancelled.
    """
    waiter = eager_task.watch_completion(task)
    loop = task.get_loop()
    timer = None if seconds is None else loop.call_later(seconds, eager_task.wake_waiter, waiter)
    if cancellation is not NEVER_CANCELLED:
        cancellation.waits[waiter] = loop
        if cancellation.cancelled:
            waiter.cancel()
    try:
        await waiter
    except asyncio.CancelledError:
        await _cancel_task(task, name, grace)
        raise
    finally:
        if timer is not None:
            timer.cancel()
        if cancellation is not NEVER_CANCELLED:
            del cancellation.waits[waiter]
    if not task.done():
        await _cancel_task(task, name, grace)
        raise DeadlinePassed(seconds or 0.0)
    value, error = task.result()
    if error is not None:
        raise error
    return value


async def call_user_function(function: Callable[..., Any], *arguments: Any, settings: EngineSettings) -> Any:
    """Call a function of the application, sync or async, without blocking the loop.

    A sync function runs in a thread, and is abandoned if the caller is cancelled. An awaitable that it returns is
    awaited here.
    """
    if get_function_kind(function) == "async":
        return await function(*arguments)
    try:
        work = partial(function, *arguments)
        value = await run_in_thread(work, None, settings, asyncio.get_running_loop(), purpose="application")
    except RaisedInThread as raised:
        # On the loop, the exception itself would look like a cancellation of the caller.
        raise RuntimeError(type(raised.error).__name__) from raised.error
    return await value if inspect.isawaitable(value) else value


async def call_with_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], context: ToolContext[Any], settings: EngineSettings
) -> Any:
    """Call a function of the application that takes the arguments of a call, or the arguments and the context."""
    parameters = inspect.signature(function).parameters.values()
    given = (arguments, context)[: sum(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)]
    return await call_user_function(function, *given, settings=settings)


async def _cancel_task(task: asyncio.Future[Any], name: str, grace: float) -> None:
    """Cancel a task and wait for its clean-up. Abandon it if that exceeds the grace period."""
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=grace)
    finally:
        if not task.done():
            ABANDONED_TASKS.add(task, name)


async def _run_in_thread(attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    try:
        return await run_in_thread(
            lambda: attempt.tool.call(attempt.values, attempt.context),
            attempt.seconds,
            attempt.settings,
            loop,
            attempt.cancellation,
        )
    except (DeadlinePassed, asyncio.CancelledError):
        attempt.state.cancelled = True
        raise


async def _run_in_executor(attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    """Run a tool in an executor of the application. At the deadline its result is dropped, as that of a thread is."""

    def work() -> tuple[Any, BaseException | None]:
        try:
            return attempt.tool.call(attempt.values, attempt.context), None
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises becomes a result
            return None, error

    executor = cast("Executor", attempt.runs_on)
    value, error = await _await_on_loop(loop.run_in_executor(executor, copy_context().run, work), attempt)
    return _return_or_raise(value, error)


def _return_or_raise(value: Any, error: BaseException | None) -> Any:
    if error is None:
        return value
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
        # In a thread these come from the tool; here they would look like a cancellation of the caller.
        raise RaisedInThread(error)
    raise error


async def run_in_thread(
    work: Callable[[], Any],
    seconds: float | None,
    settings: EngineSettings,
    loop: asyncio.AbstractEventLoop,
    cancellation: Cancellation = NEVER_CANCELLED,
    *,
    purpose: ThreadPurpose = "tools",
) -> Any:
    """Run a callable in a thread until its deadline or the end of the run. Then the thread is abandoned.

    Raises:
        DeadlinePassed: the callable did not finish in time.
        CancelledError: the run or the caller was cancelled.
        RaisedInThread: the callable raised an exception that would look like a cancellation.
        BaseException: any other exception of the callable.
    """
    pool = get_thread_pool(settings.threads, purpose)
    job = Job(work, copy_context(), loop)
    timer = None if seconds is None else loop.call_later(seconds, _expire, job.future, seconds)
    # Submit last, so that this thread is idle when the worker thread wants to start.
    pool.submit(job)
    try:
        value, error = await _await_job(job, cancellation)
    except asyncio.CancelledError:
        pool.abandon(job)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if isinstance(error, DeadlinePassed):
        pool.abandon(job)
    return value if error is None else _return_or_raise(value, error)


async def _await_job(job: Job, cancellation: Cancellation) -> tuple[Any, BaseException | None]:
    if cancellation is NEVER_CANCELLED:
        return await job.future
    cancellation.waits[job.future] = job.loop
    if cancellation.cancelled:
        job.future.cancel()
    try:
        return await job.future
    finally:
        del cancellation.waits[job.future]


class RaisedInThread(Exception):
    """Exception of a tool's thread that would have another meaning on the event loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def _run_remotely(attempt: Attempt, executor: RemoteExecutor) -> Any:
    """Run a tool on an executor, which ends the work if the deadline passes."""
    with open_span(f"run_on_{executor.kind or 'executor'} {attempt.name}", {"gen_ai.tool.name": attempt.name}):
        return await _await_on_loop(executor.run(_make_remote_call(attempt)), attempt)


def _make_remote_call(attempt: Attempt) -> RemoteCall:
    options = attempt.options
    return RemoteCall(
        name=attempt.name,
        payload=pickle_call(*attempt.tool.make_picklable_call(attempt.values, attempt.context)),
        repeatable=options.repeatable,
        resources=ToolResources(cpus=options.cpus, gpus=options.gpus, memory=options.memory),
        carrier=inject_context({}),
        report=attempt.state.report,
    )


async def _run_in_process(attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    """Run a tool in a process that is killed at the deadline. Retry once if the worker died while idle."""
    payload = pickle_call(*attempt.tool.make_picklable_call(attempt.values, attempt.context))
    try:
        return await _run_in_worker(payload, attempt, loop)
    except CallNotStarted:
        return await _run_in_worker(payload, attempt, loop)


async def _run_in_worker(payload: bytes, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
    pool = get_process_pool(attempt.settings.processes)
    tool = {"gen_ai.tool.name": attempt.name}
    measure("toolmason.queue.depth", 1, tool)
    try:
        with open_span(f"wait_for_process {attempt.name}", tool):
            worker, remaining = await pool.acquire(attempt.seconds)
    except TimeoutError:
        raise DeadlinePassed(attempt.seconds or 0.0) from None
    finally:
        measure("toolmason.queue.depth", -1, tool)
    with open_span(f"run_in_process {attempt.name}", {**tool, "process.pid": worker.process.pid}):
        return await _run_job(worker, remaining, payload, attempt, loop)


async def _run_job(
    worker: Worker, remaining: float | None, payload: bytes, attempt: Attempt, loop: asyncio.AbstractEventLoop
) -> Any:
    """Run a call in a worker process until its deadline."""
    pool, report = get_process_pool(attempt.settings.processes), attempt.state.report
    carrier, is_reusable = inject_context({}), False
    try:
        job = Job(lambda: worker.run(payload, report, carrier), copy_context(), loop)
        get_thread_pool(attempt.settings.threads, "tools").submit(job)
        timer = None
        if remaining is not None:
            timer = loop.call_later(remaining, _expire, job.future, attempt.seconds or remaining)
        try:
            value, error = await _await_job(job, attempt.cancellation)
        finally:
            if timer is not None:
                timer.cancel()
        is_reusable = not isinstance(error, WorkerDied | DeadlinePassed)
    finally:
        pool.release(worker, usable=is_reusable)
    return _return_or_raise(value, error)


def _expire(future: asyncio.Future[tuple[Any, BaseException | None]], seconds: float) -> None:
    if not future.done():
        future.set_result((None, DeadlinePassed(seconds)))
