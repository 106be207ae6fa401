"""Start an awaitable immediately in its own task, without waiting for the next loop iteration.

A tool that never waits costs no loop iteration. One that waits has its own task from its first step on, so
`asyncio.timeout`, task groups and cancel scopes inside it see the right task. Python 3.12 has eager tasks; for 3.11
this module implements the missing parts. Exceptions are returned as values: asyncio would let a SystemExit stop the
loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from dis import opmap
from inspect import CO_COROUTINE
from types import CodeType, CoroutineType, coroutine
from typing import Any, Final, TypeAlias

_YIELD: Final = opmap["YIELD_VALUE"]

TaskOutcome: TypeAlias = tuple[Any, BaseException | None]
"""Return value, or the exception that was raised."""

StartResult: TypeAlias = "tuple[EagerTask | None, Any, BaseException | None]"
"""Task that is still running, or `None` and its outcome."""


def watch_completion(task: EagerTask) -> asyncio.Future[None]:
    """Return a future that completes with the task. A done callback would run one loop iteration later."""
    task.waiter = waiter = task.get_loop().create_future()
    if task.done():
        waiter.set_result(None)
    return waiter


def wake_waiter(waiter: asyncio.Future[None] | None) -> None:
    """Complete a waiter, unless it is already done."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _must_propagate(error: BaseException) -> bool:
    """Return True for Ctrl-C, which does not come from the tool. A GeneratorExit here comes from the tool."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


@coroutine
def _drive(outcome: list[Any]) -> Generator[Any, Any, None]:
    """Run coroutines one after another: take one, yield what it waits for, and yield `outcome` with its value.

    A coroutine that is run by `send` raises StopIteration at its end, which takes a third of the time of a start.
    """
    while True:
        outcome.append((yield from (yield outcome)))


class Driver:
    """A generator that runs one coroutine at a time, and is used again after one that did not wait."""

    __slots__ = ("generator", "outcome", "send")

    def __init__(self) -> None:
        self.outcome: list[Any] = []
        generator: Any = _drive(self.outcome)  # typed as an awaitable, because it may await
        self.generator: Generator[Any, Any, None] = generator
        self.send: Callable[[Any], Any] = self.generator.send
        self.send(None)


_idle_drivers: list[Driver] = []
_MAX_IDLE: Final = 100
"""Maximum number of drivers that wait for a coroutine; each takes about 400 bytes."""


def choose_start(function: Any) -> Callable[[Awaitable[Any]], StartResult]:
    """Return `start`, or a shorter way for the coroutines of an async function that never waits.

    Those need no task, and no deadline could end them. They get a context of their own all the same.
    """
    if (code := _find_code_without_await(function)) is None:
        return start

    def start_without_task(awaitable: Awaitable[Any]) -> StartResult:
        if type(awaitable) is not CoroutineType or awaitable.cr_code is not code:
            return start(awaitable)
        try:
            driver = _idle_drivers.pop()
        except IndexError:
            driver = Driver()
        try:
            outcome = copy_context().run(driver.send, awaitable)
        except BaseException as error:
            if _must_propagate(error):
                raise
            return None, None, error
        _idle_drivers.append(driver)
        return None, outcome.pop(), None

    return start_without_task


def _find_code_without_await(function: Any) -> CodeType | None:
    """Return the code of an async function that never waits, or None if it may wait or asks for its task."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or not code.co_flags & CO_COROUTINE:
        return None
    may_wait = _YIELD in code.co_code[::2]  # each instruction is two bytes; `await` yields what it waits for
    return None if may_wait or "current_task" in code.co_names else code


if sys.version_info >= (3, 12):

    class EagerTask(asyncio.Task[TaskOutcome]):
        """Task that wakes its waiter as soon as it completes."""

        waiter: asyncio.Future[None] | None = None

    def start(awaitable: Awaitable[Any]) -> StartResult:
        """Run an awaitable until its first suspension."""
        task = EagerTask(_capture_outcome(awaitable), loop=get_running_loop(), eager_start=True)
        return (None, *task.result()) if task.done() else (task, None, None)

    async def _capture_outcome(awaitable: Awaitable[Any]) -> TaskOutcome:
        try:
            return await awaitable, None
        except BaseException as error:
            if _must_propagate(error):
                raise
            return None, error
        finally:
            # The task completes before the waiter is scheduled.
            wake_waiter(getattr(asyncio.current_task(), "waiter", None))

else:
    # asyncio documents these for third-party task implementations, underscores included.
    _enter: Any = asyncio._enter_task  # noqa: SLF001 - see above
    _leave: Any = asyncio._leave_task  # noqa: SLF001 - see above
    _register: Any = asyncio._register_task  # noqa: SLF001 - see above
    # Read by `current_task()`, written by `_enter` and `_leave`.
    _current: Any = vars(asyncio.tasks)["_current_tasks"]

    def start(awaitable: Awaitable[Any]) -> StartResult:
        """Run an awaitable until its first suspension."""
        loop = get_running_loop()
        task = EagerTask(loop=loop)
        coro: Coroutine[Any, Any, Any]
        task.coro = coro = awaitable if type(awaitable) is CoroutineType else _await_value(awaitable)
        task.context = context = copy_context()
        try:
            driver = _idle_drivers.pop()
        except IndexError:
            driver = Driver()
        outer = _current.get(loop)
        _current[loop] = task
        try:
            awaited = context.run(driver.send, coro)
        except BaseException as error:
            if _must_propagate(error):
                raise
            return None, None, error
        finally:
            if outer is None:
                del _current[loop]
            else:
                _current[loop] = outer
        if awaited is driver.outcome:
            _idle_drivers.append(driver)
            return None, awaited.pop(), None
        task.driver = driver
        _register(task)
        context.run(task.wait_for, awaited)
        return task, None, None

    async def _await_value(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    class EagerTask(asyncio.Future[TaskOutcome]):
        """Third-party task, as described under "Extending" in the asyncio documentation."""

        __slots__ = ("context", "coro")  # a task that never waits sets nothing else, and needs no `__dict__`
        coro: Coroutine[Any, Any, Any]
        context: Context
        driver: Driver
        _must_cancel = False
        _fut_waiter: asyncio.Future[Any] | None = None
        _cancel_requests = 0
        _name: str | None = None
        waiter: asyncio.Future[None] | None = None

        def get_coro(self) -> Coroutine[Any, Any, Any]:
            return self.coro

        def get_context(self) -> Context:
            return self.context

        def get_name(self) -> str:
            return self._name or f"toolmason-{id(self):x}"

        def set_name(self, value: object) -> None:
            self._name = str(value)

        def get_stack(self, *, limit: int | None = None) -> list[Any]:
            del limit
            frame = getattr(self.coro, "cr_frame", None)
            return [] if frame is None else [frame]

        def cancelling(self) -> int:
            return self._cancel_requests

        def uncancel(self) -> int:
            self._cancel_requests = max(0, self._cancel_requests - 1)
            return self._cancel_requests

        def cancel(self, msg: Any = None) -> bool:
            if self.done():
                return False
            self._cancel_requests += 1
            if self._fut_waiter is None or not self._fut_waiter.cancel(msg=msg):
                self._must_cancel = True
            return True

        def step(self, error: BaseException | None = None) -> None:
            if self._must_cancel:
                error = asyncio.CancelledError()
                self._must_cancel = False
            self._fut_waiter = None
            loop, driver = self.get_loop(), self.driver
            _enter(loop, self)
            try:
                awaited = driver.send(None) if error is None else driver.generator.throw(error)
            except BaseException as failure:
                if _must_propagate(failure):
                    self.set_exception(failure)
                    wake_waiter(self.waiter)
                    raise
                self._finish((None, failure))
            else:
                if awaited is driver.outcome:
                    self._finish((awaited.pop(), None))
                    if len(_idle_drivers) < _MAX_IDLE:
                        _idle_drivers.append(driver)
                else:
                    self.wait_for(awaited)
            finally:
                _leave(loop, self)

        def _finish(self, outcome: TaskOutcome) -> None:
            self.set_result(outcome)
            wake_waiter(self.waiter)

        def wait_for(self, awaited: Any) -> None:
            if awaited is None:
                self.get_loop().call_soon(self.step, context=self.context)
            elif getattr(awaited, "_asyncio_future_blocking", None) and awaited.get_loop() is self.get_loop():
                awaited._asyncio_future_blocking = False  # noqa: SLF001 - the protocol by which a future learns that it is awaited
                awaited.add_done_callback(self._wake, context=self.context)
                self._fut_waiter = awaited
                if self._must_cancel and awaited.cancel():
                    self._must_cancel = False
            else:
                error = RuntimeError(f"a tool awaited {awaited!r}, which is not an asyncio future of its event loop")
                self.get_loop().call_soon(self.step, error, context=self.context)

        def _wake(self, awaited: asyncio.Future[Any]) -> None:
            error: BaseException | None
            try:
                error = awaited.exception()
            except asyncio.CancelledError as cancelled:
                error = cancelled
            self.step(error)
