"""The sync face: run a coroutine to its end, from code that is not async.

Lives here: one function over a background loop, in a daemon thread that starts with the first use. It works
with no loop and inside a running one (notebooks), and a tool that overstays its deadline holds up nobody.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolmason._core.run.threads import lent

_T = TypeVar("_T")
_lock = threading.Lock()
_depth: contextvars.ContextVar[int] = contextvars.ContextVar("toolmason_sync_depth", default=0)
_background: dict[tuple[int, int], asyncio.AbstractEventLoop] = {}
"""The loops, by process and depth: a forked child starts its own, and so does a sync call inside a sync call."""


def run_to_end(coro: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end and return its result, or raise what it raises."""
    # A tool that was called this way may call another: its own loop may be waiting for this very one.
    depth = _depth.get()
    loop = _background_loop(depth)
    done: concurrent.futures.Future[_T] = concurrent.futures.Future()
    tasks: list[asyncio.Task[_T]] = []

    def begin() -> None:
        task = loop.create_task(coro)
        tasks.append(task)
        task.add_done_callback(lambda finished: _hand_over(finished, done))

    context = contextvars.copy_context()
    context.run(_depth.set, depth + 1)
    loop.call_soon_threadsafe(begin, context=context)
    try:
        with lent():
            return done.result()
    except BaseException:
        if not done.done():
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        raise


def _hand_over(task: asyncio.Task[_T], done: concurrent.futures.Future[_T]) -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def _background_loop(depth: int) -> asyncio.AbstractEventLoop:
    with _lock:
        key = (os.getpid(), depth)
        loop = _background.get(key)
        if loop is None:
            loop = _background[key] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="toolmason-sync", daemon=True).start()
        return loop
