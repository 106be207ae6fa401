"""Run sync tools in a bounded pool of daemon threads.

A thread whose caller timed out is replaced at once; its late value is dropped and counted. Transports never use this
pool, and process exit never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal, TypeAlias

_log = logging.getLogger("toolmason")
_IDLE_SECONDS: Final = 10.0
"""Seconds without a job after which a thread ends."""
_thread_local = threading.local()
ThreadPurpose: TypeAlias = Literal["tools", "application"]
"""Code that a thread runs: tools, or other functions of the application."""


@contextmanager
def release_worker_slot() -> Generator[None]:
    """Let another thread work while this one waits for a call. No effect outside a pool thread."""
    pool: ThreadPool | None = getattr(_thread_local, "pool", None)
    if pool is None:
        yield
        return
    pool.release_current_thread()
    try:
        yield
    finally:
        pool.reclaim_current_thread()


class Job:
    """One call in the pool. `future` receives (value, error)."""

    __slots__ = ("context", "future", "loop", "state", "work")

    def __init__(self, work: Callable[[], Any], context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.context = context
        self.loop = loop
        self.future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        self.state: Literal["queued", "running", "late", "dropped", "done"] = "queued"


class ThreadPool:
    """At most `limit` threads. Further jobs are queued."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.late_results = 0
        """Number of values that arrived after the caller timed out."""
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Job] = SimpleQueue()
        self.threads = 0
        """Number of threads, not counting abandoned ones."""
        self._idle = self._queued_jobs = 0
        self._pid = os.getpid()

    def submit(self, job: Job) -> None:
        """Run a job in a thread. Await its future."""
        if self._pid != os.getpid():
            self._reset()  # threads do not survive a fork
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self.threads < self.limit:
                self._spawn()
            else:
                self._queued_jobs += 1
        self._queue.put(job)

    def abandon(self, job: Job) -> None:
        """Stop waiting for a job. A queued job is dropped; the thread of a running one is replaced."""
        with self._lock:
            if job.state == "queued":
                job.state = "dropped"
            elif job.state == "running":
                job.state = "late"
                self._stop_counting_thread()

    def release_current_thread(self) -> None:
        """Stop counting the calling thread while it waits for another call, so that the other call gets a thread."""
        with self._lock:
            self._stop_counting_thread()

    def _stop_counting_thread(self) -> None:
        self.threads -= 1
        if self._queued_jobs:
            self._queued_jobs -= 1
            self._spawn()

    def reclaim_current_thread(self) -> None:
        """Count the calling thread again."""
        with self._lock:
            self.threads += 1

    def _spawn(self) -> None:
        self.threads += 1
        threading.Thread(target=self._run_worker, name="toolmason-tool", daemon=True).start()

    def _run_worker(self) -> None:
        _thread_local.pool = self
        while True:
            try:
                job = self._queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if not self._idle:
                        continue  # a job was assigned to this thread just as its wait timed out
                    self._idle -= 1
                    self.threads -= 1
                return
            if not self._run(job):
                return
            del job

    def _mark_idle(self) -> None:
        """Count this thread as idle, or as taken by the next queued job. Call with the lock held."""
        if self._queued_jobs:
            self._queued_jobs -= 1
        else:
            self._idle += 1

    def _is_late(self, job: Job) -> bool:
        # A method, because type checkers do not know that `abandon` changes the state while the job runs.
        return job.state == "late"

    def _run(self, job: Job) -> bool:
        """Run one job. Return False if this thread was abandoned and replaced."""
        with self._lock:
            if job.state == "dropped":
                self._mark_idle()
                return True
            job.state = "running"
        value: Any = None
        error: BaseException | None = None
        try:
            value = job.context.run(job.work)
        except BaseException as failure:  # noqa: BLE001 - SystemExit too: a tool must not end its thread silently
            error = failure
        with self._lock:
            is_late = self._is_late(job)
            job.state = "done"
            self.late_results += is_late
            if not is_late:
                # Before the value is delivered: its receiver may submit the next job at once.
                self._mark_idle()
        if is_late:
            _log.warning("a tool finished after its timeout; its result was dropped (%d so far)", self.late_results)
            _discard(value)
            return False
        try:
            job.loop.call_soon_threadsafe(_deliver, job.future, value, error)
        except RuntimeError:
            _log.warning("a tool finished after its event loop was closed; its result was dropped")
            _discard(value)
        return True


def _deliver(future: asyncio.Future[tuple[Any, BaseException | None]], value: Any, error: BaseException | None) -> None:
    if future.done():
        _discard(value)
    else:
        future.set_result((value, error))


def _discard(value: Any) -> None:
    # Python warns of a coroutine that is never awaited; a sync hook returns one.
    if asyncio.iscoroutine(value):
        value.close()


@lru_cache(maxsize=16)
def get_thread_pool(limit: int, purpose: ThreadPurpose) -> ThreadPool:
    """Return the process-wide pool of this size. Code that waits for a person must not use up the threads of tools."""
    del purpose
    return ThreadPool(limit)
