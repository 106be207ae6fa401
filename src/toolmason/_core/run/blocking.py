"""Run coroutines to completion from synchronous code.

A background loop in a daemon thread starts on first use. This also works inside a running loop (notebooks), and a
tool that ignores its deadline does not block the process exit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from toolmason._core.run.threads import release_worker_slot

_S = TypeVar("_S")
_T = TypeVar("_T")
_P = ParamSpec("_P")
_COROUTINE: Final = "Coroutine[Any, Any, "
_lock = threading.Lock()
_sync_depth: contextvars.ContextVar[int] = contextvars.ContextVar("toolmason_sync_depth", default=0)
_loops: dict[tuple[int, int], asyncio.AbstractEventLoop] = {}
"""Loops by process ID and depth: a forked child and a nested sync call each need their own loop."""


def run_blocking(coro: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to completion. Return its result, or raise its exception."""
    # A tool running on this loop may make a sync call itself; on the same loop that would deadlock.
    depth = _sync_depth.get()
    loop = _get_loop(depth)
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()
    tasks: list[asyncio.Task[_T]] = []

    def start_task() -> None:
        task = loop.create_task(coro)
        tasks.append(task)
        task.add_done_callback(lambda finished: _copy_outcome(finished, future))

    context = contextvars.copy_context()
    context.run(_sync_depth.set, depth + 1)
    loop.call_soon_threadsafe(start_task, context=context)
    try:
        with release_worker_slot():
            return future.result()
    except BaseException:
        if not future.done():
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        raise


def blocking(method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]) -> Callable[Concatenate[_S, _P], _T]:
    """Make the sync twin of an async method, with the same parameters.

    Write `call_sync = blocking(call)` in the class body.
    """
    name = method.__name__

    @wraps(method)
    def run(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        coroutine: Coroutine[Any, Any, _T] = getattr(self, name)(*args, **kwargs)  # a subclass may override it
        return run_blocking(coroutine)

    run.__name__ = f"{name}_sync"
    run.__qualname__ = f"{method.__qualname__}_sync"
    run.__doc__ = f"Run `{name}` to completion, from synchronous code."
    returns = str(method.__annotations__.get("return"))
    if returns.startswith(_COROUTINE):  # a plain function that returns a coroutine; its twin returns the result
        returns = returns.removeprefix(_COROUTINE).removesuffix("]")
        run.__annotations__ = {**method.__annotations__, "return": returns}
        vars(run)["__signature__"] = inspect.signature(method).replace(return_annotation=returns)
    return run


def _copy_outcome(task: asyncio.Task[_T], future: concurrent.futures.Future[_T]) -> None:
    if task.cancelled():
        future.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _get_loop(depth: int) -> asyncio.AbstractEventLoop:
    with _lock:
        key = (os.getpid(), depth)
        loop = _loops.get(key)
        if loop is None:
            loop = _loops[key] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="toolmason-sync", daemon=True).start()
        return loop
