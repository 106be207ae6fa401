"""Deliver progress reports from any thread to a callback on the caller's loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolmason._value import Value

_log = logging.getLogger("toolmason")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProgressReport(Value):
    """Progress of a call."""

    call_id: str
    tool: str
    done: float
    total: float | None = None
    message: str | None = None


OnProgress: TypeAlias = Callable[[ProgressReport], Any]


class Reporter:
    """Bounded queue of progress reports. Never blocks the tool; if full, it drops the oldest report."""

    def __init__(self, callback: OnProgress, call_id: str, tool: str, max_queued: int) -> None:
        self.dropped = 0
        """Number of reports dropped because the callback was too slow."""
        self._callback = callback
        self._call_id = call_id
        self._tool = tool
        self._queue: deque[ProgressReport] = deque()
        self._max_queued = max_queued
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._running_callback: asyncio.Future[Any] | None = None

    def __call__(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Queue a report."""
        if self._closed:
            return
        report = ProgressReport(self._call_id, self._tool, done, total, message)
        with self._lock:
            was_queued = bool(self._queue)
            self._queue.append(report)
            if len(self._queue) > self._max_queued:
                self._queue.popleft()
                self.dropped += 1
        if not was_queued:
            try:
                self._loop.call_soon_threadsafe(self.flush)
            except RuntimeError:
                _log.debug("%s reported progress after its event loop was closed", self._tool)

    def close(self) -> None:
        """Deliver the queued reports and ignore later ones."""
        self.flush()
        self._closed = True

    def flush(self) -> None:
        """Deliver the queued reports. While an async callback runs, the rest stay queued."""
        while not self._running_callback:
            with self._lock:
                if not self._queue:
                    return
                report = self._queue.popleft()
            try:
                outcome = self._callback(report)
            except Exception:  # noqa: BLE001 - the callback's errors must not stop the tool
                _log.exception("a progress callback failed")
                continue
            if inspect.isawaitable(outcome):
                self._running_callback = asyncio.ensure_future(self._await_callback(outcome), loop=self._loop)

    async def _await_callback(self, awaitable: Any) -> None:
        try:
            await awaitable
        except Exception:  # noqa: BLE001 - the callback's errors must not stop the tool
            _log.exception("a progress callback failed")
        finally:
            self._running_callback = None
        self.flush()
