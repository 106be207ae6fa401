"""Start a coroutine now, in a task of its own, without a turn of the event loop.

Lives here: one function. A tool that finishes without waiting costs no turn of the loop; one that waits has
its own task from its first step on, so that `asyncio.timeout`, task groups and cancel scopes inside it see
the right task. Python 3.12 has eager tasks; for 3.11 this module carries the part of a task that it lacks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any

if sys.version_info >= (3, 12):

    def start(coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Run a coroutine up to its first wait; return its task, done or not."""
        return asyncio.Task(coro, loop=loop, eager_start=True)

else:
    # Asyncio documents these for tasks that are not its own, underscores and all.
    _enter: Any = asyncio._enter_task  # noqa: SLF001 - see above
    _leave: Any = asyncio._leave_task  # noqa: SLF001 - see above
    _register: Any = asyncio._register_task  # noqa: SLF001 - see above

    def start(coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Run a coroutine up to its first wait; return its task, done or not."""
        task = _EagerTask(coro, loop)
        outer = asyncio.current_task(loop)
        if outer is not None:
            _leave(loop, outer)
        try:
            task.get_context().run(task.step)
        finally:
            if outer is not None:
                _enter(loop, outer)
        if not task.done():
            _register(task)
        return task

    class _EagerTask(asyncio.Future[Any]):
        """What asyncio asks of a task that is not its own ("Extending", in its documentation)."""

        _must_cancel = False
        _fut_waiter: asyncio.Future[Any] | None = None
        _requests = 0

        def __init__(self, coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(loop=loop)
            self._coro = coro
            self._context = copy_context()

        def get_coro(self) -> Coroutine[Any, Any, Any]:
            return self._coro

        def get_context(self) -> Context:
            return self._context

        def get_name(self) -> str:
            return f"toolwright-{id(self):x}"

        def get_stack(self, *, limit: int | None = None) -> list[Any]:
            del limit
            frame = getattr(self._coro, "cr_frame", None)
            return [] if frame is None else [frame]

        def cancelling(self) -> int:
            return self._requests

        def uncancel(self) -> int:
            self._requests = max(0, self._requests - 1)
            return self._requests

        def cancel(self, msg: Any = None) -> bool:
            if self.done():
                return False
            self._requests += 1
            if self._fut_waiter is not None and self._fut_waiter.cancel(msg=msg):
                return True
            self._must_cancel = True
            return True

        def step(self, error: BaseException | None = None) -> None:
            if self._must_cancel:
                error, self._must_cancel = asyncio.CancelledError(), False
            self._fut_waiter = None
            loop = self.get_loop()
            _enter(loop, self)
            try:
                waits_for = self._coro.send(None) if error is None else self._coro.throw(error)
            except StopIteration as end:
                self.set_result(end.value)
            except asyncio.CancelledError:
                super().cancel()
            except (KeyboardInterrupt, SystemExit) as stop:
                self.set_exception(stop)
                raise
            except BaseException as failure:  # noqa: BLE001 - a task keeps whatever its coroutine raised
                self.set_exception(failure)
            else:
                self._wait_for(waits_for, loop)
            finally:
                _leave(loop, self)

        def _wait_for(self, awaited: Any, loop: asyncio.AbstractEventLoop) -> None:
            if awaited is None:
                loop.call_soon(self.step, context=self._context)
            elif getattr(awaited, "_asyncio_future_blocking", None):
                awaited._asyncio_future_blocking = False  # noqa: SLF001 - how a future is told that it is awaited
                awaited.add_done_callback(self._wake, context=self._context)
                self._fut_waiter = awaited
                if self._must_cancel and awaited.cancel():
                    self._must_cancel = False
            else:
                error = RuntimeError(f"a tool awaited {awaited!r}, which is not an asyncio future")
                loop.call_soon(self.step, error, context=self._context)

        def _wake(self, awaited: asyncio.Future[Any]) -> None:
            error: BaseException | None
            try:
                error = awaited.exception()
            except asyncio.CancelledError as cancelled:
                error = cancelled
            self.step(error)
