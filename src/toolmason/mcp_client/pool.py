"""Keep one session per identity to a server, and open new ones as needed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import open_span
from toolmason.errors import RemoteError
from toolmason.mcp_client.remote_errors import format_reason
from toolmason.mcp_client.session import UpstreamSession

_log = logging.getLogger("toolmason.mcp")
_T = TypeVar("_T")

FAILURES_BEFORE_BACKOFF: Final = 3
"""Number of consecutive failures after which the pool waits before the next attempt."""
MAX_IDENTITIES: Final = 64
"""Maximum number of identities with an open session; beyond it, the least recently used idle one is closed."""
MAX_LATE: Final = 8
"""Maximum number of sessions that go on starting after `connect_timeout`: each may be a process that hangs."""
FIRST_RETRY_DELAY = 0.2
"""Seconds to wait before the first retry; each further delay is doubled."""
MAX_RETRY_DELAY = 30.0
MAX_WAIT_ROUNDS: Final = 3
"""Number of times a caller waits for an operation that is cancelled before it finishes."""


class SessionPool:
    """Sessions to one server, by identity.

    `on_open` runs on each new session before callers get it, and `on_late` after callers have stopped waiting for it.
    """

    def __init__(
        self,
        name: str,
        make_session: Callable[[Mapping[str, str]], UpstreamSession],
        on_open: Callable[[UpstreamSession], Awaitable[None]],
        on_late: Callable[[], None],
    ) -> None:
        self.name, self._make_session, self._on_open, self._on_late = name, make_session, on_open, on_late
        self.sessions: dict[str, UpstreamSession] = {}
        self.since = time.time()
        """Time at which the health of the server last changed."""
        self._is_healthy: bool | None = None
        self._opening: dict[str, concurrent.futures.Future[UpstreamSession]] = {}
        self._late: dict[str, UpstreamSession] = {}
        """Sessions whose server is still starting after its `connect_timeout`."""
        self._lock = threading.Lock()
        self._failures = 0
        self.hangs = 0
        """Number of sessions in a row that were closed because the server did not respond."""
        self._retry_at = 0.0
        self.last_error: RemoteError | None = None
        """Why the server last failed."""
        self.failed_at: float | None = None
        self.close_count = 0
        """Number of times the pool was closed. What began before must not open a session after."""
        self._transitioning: set[UpstreamSession] = set()
        """Sessions that are being opened or closed."""

    async def get_session(
        self, key: str, headers: Mapping[str, str], close_count: int | None = None
    ) -> UpstreamSession:
        """Return a usable session. Concurrent callers share the one being opened, each for `connect_timeout` at most.

        Raises:
            RemoteError: no session can be opened, or the pool was closed since it had this `close_count`.
        """
        for _ in range(MAX_WAIT_ROUNDS):
            with self._lock:
                if close_count not in (None, self.close_count):
                    raise self._make_closed_error()
                session = self.sessions.get(key)
                if session is not None and session.usable:
                    if len(self.sessions) > 1:
                        self.sessions[key] = self.sessions.pop(key)  # most recently used last
                    return session
                opening = self._opening.get(key)
                is_first = opening is None
                if opening is None:
                    self._check_backoff()
                    opening = self._opening[key] = concurrent.futures.Future()
                    self.sessions.pop(key, None)
                late = self._late.get(key)
            if is_first:
                start_task(self._open(key, headers, session))
            try:
                opened = await wait_for_result(opening, None if late is None else late.server.connect_timeout)
            except TimeoutError:
                assert late is not None  # noqa: S101 - otherwise there is no limit
                raise late.make_late_error() from None
            if opened is not None:
                return opened
        raise make_cancelled_error(self.name, "connect")

    def find_late_error(self) -> RemoteError | None:
        """Return the error for a server that is starting, or None if none is."""
        with self._lock:
            return next((session.make_late_error() for session in self._transitioning if session.is_opening), None)

    def _make_closed_error(self) -> RemoteError:
        return RemoteError(self.name, "connect", "the toolbox was closed while connecting")

    def _check_backoff(self) -> None:
        remaining = self._retry_at - time.monotonic()
        if remaining > 0 and self.last_error is not None:
            error = self.last_error
            reason = f"{error.reason}; next attempt in {remaining:.1f} s"
            raise RemoteError(self.name, error.phase, reason, stderr=error.stderr, retryable=True)

    async def _open(self, key: str, headers: Mapping[str, str], old: UpstreamSession | None) -> None:
        if old is not None:
            self._close_session(old)
        _log.debug("server %r: connecting", self.name)
        started = time.monotonic()
        session = self._make_session(headers)
        close_count = self.close_count
        with self._lock:
            self._transitioning.add(session)
        try:
            with open_span(f"connect {self.name}", {"toolmason.server": self.name}, "client"):
                await self._connect(key, session)
            if close_count != self.close_count:
                raise ConnectionAbortedError  # noqa: TRY301 - handled by the except below
        except Exception as error:  # noqa: BLE001 - waiting callers must get the error, whatever it is
            self._close_session(session)
            if close_count != self.close_count:
                failure = self._make_closed_error()
            elif isinstance(error, RemoteError):
                failure = error
            else:
                failure = RemoteError(self.name, "connect", format_reason(error), retryable=True)
            if close_count == self.close_count:
                self._record_failure(failure)
            _log.debug("server %r: not connected: %s", self.name, failure.reason)
            self._end_opening(key).set_exception(failure)
        except BaseException:
            session.abandon()
            self._end_opening(key).cancel()
            raise
        else:
            self._failures, self._retry_at = 0, 0.0
            self.record_health(ok=True)
            _log.debug("server %r: connected in %.0f ms", self.name, (time.monotonic() - started) * 1000)
            self._end_opening(key, session).set_result(session)
            for evicted_key in self._find_evictable():
                self.evict(evicted_key)

    async def _connect(self, key: str, session: UpstreamSession) -> None:
        """Open a session. If its server is still starting after its time, say so to those who wait, and go on."""
        try:
            await session.open()
        except RemoteError:
            if not session.is_opening or len(self._late) >= MAX_LATE:
                raise
            self.record_health(ok=False)
            with self._lock:
                opening, self._opening[key] = self._opening[key], concurrent.futures.Future()
                self._late[key] = session
            opening.set_exception(session.make_late_error())
            await session.finish_opening()
        await self._on_open(session)
        if key in self._late:
            self._on_late()

    def _end_opening(
        self, key: str, session: UpstreamSession | None = None
    ) -> concurrent.futures.Future[UpstreamSession]:
        """Add an open session, if it is one. Return the future of those who wait."""
        with self._lock:
            self._late.pop(key, None)
            if session is not None:
                self.sessions[key] = session
                self._transitioning.discard(session)
            return self._opening.pop(key)

    def _find_evictable(self) -> list[str]:
        """Return the keys of idle sessions to close: tokens rotate, and sessions of old ones would stay open."""
        with self._lock:
            idle = [key for key, session in self.sessions.items() if not session.active_requests]
            return idle[: max(0, len(self.sessions) - MAX_IDENTITIES)]

    def _record_failure(self, error: RemoteError) -> None:
        if error.phase == "authorize":
            return  # the server is up, and may accept other identities
        self.record_error(error)
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_BACKOFF:
            delay = min(FIRST_RETRY_DELAY * 2 ** (self._failures - FAILURES_BEFORE_BACKOFF), MAX_RETRY_DELAY)
            self._retry_at = time.monotonic() + delay

    def evict_hung(self, key: str, session: UpstreamSession, reason: str) -> None:
        """Close a session whose server does not respond. From the second time on, wait before the next attempt."""
        self.evict(key, session)
        self.record_error(RemoteError(self.name, "connect", reason, stderr=session.last_stderr_line, retryable=True))
        self.hangs += 1
        if self.hangs > 1:
            self._retry_at = time.monotonic() + min(FIRST_RETRY_DELAY * 2**self.hangs, MAX_RETRY_DELAY)

    def evict_lost(self) -> bool:
        """Close the sessions that have ended. Return True if there were any."""
        with self._lock:
            lost = [(key, session) for key, session in self.sessions.items() if not session.usable]
        for key, session in lost:
            self.evict(key, session)
        return bool(lost)

    def record_error(self, error: RemoteError) -> None:
        """Record why the server failed, and that it is not healthy."""
        self.last_error, self.failed_at = error, time.time()
        self.record_health(ok=False)

    def record_health(self, *, ok: bool) -> None:
        """Record whether the server is healthy."""
        if ok is not self._is_healthy:
            self._is_healthy = ok
            self.since = time.time()
        measure("toolmason.mcp.server.up", int(ok), {"toolmason.server": self.name})

    def evict(self, key: str, session: UpstreamSession | None = None) -> None:
        """Close the session of an identity. If `session` is given, close it only if it is the current one."""
        with self._lock:
            known = self.sessions.get(key)
            if known is None or (session is not None and known is not session):
                return
            del self.sessions[key]
        self._close_session(known)

    def _close_session(self, session: UpstreamSession) -> None:
        """Close a session in the background: a server may take seconds to exit."""
        with self._lock:
            self._transitioning.add(session)

        async def close_and_discard() -> None:
            try:
                await session.close()
            finally:
                with self._lock:
                    self._transitioning.discard(session)

        start_task(close_and_discard())

    async def aclose(self) -> None:
        """Close all sessions. The next request opens a new one."""
        with self._lock:
            sessions = [*self.sessions.values(), *self._transitioning]
            self.sessions = {}
            self.close_count += 1
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        self._failures, self._retry_at = 0, 0.0


def start_task(work: Any) -> asyncio.Task[Any]:
    """Run work in its own task, so that it survives the cancellation of the caller that started it."""
    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_consume_exception)
    return task


def make_cancelled_error(server: str, phase: str) -> RemoteError:
    """Return the error for an operation that was cancelled repeatedly."""
    return RemoteError(server, phase, "the operation was cancelled before it finished", retryable=True)


async def wait_for_result(future: concurrent.futures.Future[_T], seconds: float | None = None) -> _T | None:
    """Wait for a future from any loop. Return None if the future was cancelled but this task was not.

    Raises:
        TimeoutError: it takes longer than `seconds`.
    """
    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(_consume_exception)
    await asyncio.wait((wrapped,), timeout=seconds)
    if not wrapped.done():
        raise TimeoutError
    return None if wrapped.cancelled() else wrapped.result()


def _consume_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that asyncio does not log it as never retrieved."""
    if not future.cancelled():
        future.exception()
