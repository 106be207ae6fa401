"""The connections to one server, by identity → a usable one: the one that is there, or a new one.

Lives here: who opens and who waits, the pause after failures in a row, which one goes, since when the server is so.
Not here: one connection (`link`), or what is tried again (`connection`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from toolmason.errors import RemoteError
from toolmason.mcp_client.remote_errors import format_reason
from toolmason.mcp_client.session import UpstreamSession

_T = TypeVar("_T")

FAILURES_BEFORE_BACKOFF: Final = 3
"""After this many failures in a row we wait before the next try."""
MAX_IDENTITIES: Final = 64
"""How many identities have a connection of their own at once; beyond it, the one least used goes."""
FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 0.2, 30.0
MAX_WAIT_ROUNDS: Final = 3
"""How often we wait anew for work that was called off before it was done."""


class SessionPool:
    """The connections to one server; `begin` makes a new one for some headers, `begun` is done with each first."""

    def __init__(
        self,
        name: str,
        make_session: Callable[[Mapping[str, str]], UpstreamSession],
        on_open: Callable[[UpstreamSession], Awaitable[None]],
    ) -> None:
        self.name, self._make_session, self._on_open = name, make_session, on_open
        self.sessions: dict[str, UpstreamSession] = {}
        self.since = time.time()
        """When the server became as it is."""
        self._is_healthy: bool | None = None
        self._opening: dict[str, concurrent.futures.Future[UpstreamSession]] = {}
        self._lock = threading.Lock()
        self._failures = 0
        self._retry_at = 0.0
        self._last_error: RemoteError | None = None
        self._close_count = 0
        self._transitioning: set[UpstreamSession] = set()
        """Those that are being opened or closed."""

    async def get_session(self, key: str, headers: Mapping[str, str]) -> UpstreamSession:
        """Return a usable connection; who comes while one is opened waits for that.

        Raises:
            RemoteError: there is none to be had.
        """
        for _ in range(MAX_WAIT_ROUNDS):
            with self._lock:
                session = self.sessions.get(key)
                if session is not None and session.usable:
                    if len(self.sessions) > 1:
                        self.sessions[key] = self.sessions.pop(key)  # the last one used is the last one to go
                    return session
                opening = self._opening.get(key)
                is_first = opening is None
                if opening is None:
                    self._check_backoff()
                    opening = self._opening[key] = concurrent.futures.Future()
                    self.sessions.pop(key, None)
            if is_first:
                start_task(self._open(key, headers, session, opening))
            opened = await wait_for_result(opening)
            if opened is not None:
                return opened
        raise make_cancelled_error(self.name, "connect")

    def _check_backoff(self) -> None:
        remaining = self._retry_at - time.monotonic()
        if remaining > 0 and self._last_error is not None:
            error = self._last_error
            reason = f"{error.reason}; it is tried again in {remaining:.1f} s"
            raise RemoteError(self.name, error.phase, reason, stderr=error.stderr, retryable=True)

    async def _open(
        self,
        key: str,
        headers: Mapping[str, str],
        old: UpstreamSession | None,
        opening: concurrent.futures.Future[UpstreamSession],
    ) -> None:
        if old is not None:
            self._close_session(old)
        session, close_count = self._make_session(headers), self._close_count
        with self._lock:
            self._transitioning.add(session)
        try:
            await session.open()
            await self._on_open(session)
            if close_count != self._close_count:
                raise ConnectionAbortedError  # noqa: TRY301 - as below
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            self._close_session(session)
            if close_count != self._close_count:
                self._finish_opening(
                    key, opening, error=RemoteError(self.name, "connect", "the toolbox was closed meanwhile")
                )
                return
            remote_error = (
                error if isinstance(error, RemoteError) else RemoteError(self.name, "connect", format_reason(error))
            )
            self._record_failure(remote_error)
            self._finish_opening(key, opening, error=remote_error)
        except BaseException:
            session.abandon()
            with self._lock:
                self._opening.pop(key, None)
            opening.cancel()
            raise
        else:
            self._failures, self._retry_at = 0, 0.0
            self.record_health(ok=True)
            self._finish_opening(key, opening, session=session)
            for evicted_key in self._find_evictable():
                self.evict(evicted_key)

    def _finish_opening(
        self,
        key: str,
        opening: concurrent.futures.Future[UpstreamSession],
        *,
        session: UpstreamSession | None = None,
        error: RemoteError | None = None,
    ) -> None:
        with self._lock:
            self._opening.pop(key, None)
            if session is not None:
                self.sessions[key] = session
                self._transitioning.discard(session)
        if session is not None:
            opening.set_result(session)
        else:
            opening.set_exception(error)

    def _find_evictable(self) -> list[str]:
        """Return whose connections go: tokens change, and each would keep its connection for ever."""
        with self._lock:
            idle = [key for key, session in self.sessions.items() if not session.active_requests]
            return idle[: max(0, len(self.sessions) - MAX_IDENTITIES)]

    def _record_failure(self, error: RemoteError) -> None:
        if error.phase == "authorize":
            return  # it is there, and others it may know
        self._last_error = error
        self._failures += 1
        self.record_health(ok=False)
        if self._failures >= FAILURES_BEFORE_BACKOFF:
            delay = min(FIRST_RETRY_DELAY * 2 ** (self._failures - FAILURES_BEFORE_BACKOFF), MAX_RETRY_DELAY)
            self._retry_at = time.monotonic() + delay

    def record_health(self, *, ok: bool) -> None:
        """Take note of how the server is."""
        if ok is not self._is_healthy:
            self._is_healthy, self.since = ok, time.time()

    def evict(self, key: str, session: UpstreamSession | None = None) -> None:
        """Let go of the connection of an identity; only of this one, where one is given."""
        with self._lock:
            known = self.sessions.get(key)
            if known is None or (session is not None and known is not session):
                return
            del self.sessions[key]
        self._close_session(known)

    def _close_session(self, session: UpstreamSession) -> None:
        """Close a connection beside what goes on: a server may take seconds to end, and nobody has to wait for that."""
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
        """Close every connection; the next need opens one again."""
        with self._lock:
            sessions, self.sessions = [*self.sessions.values(), *self._transitioning], {}
            self._close_count += 1
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        self._failures, self._retry_at = 0, 0.0


def start_task(work: Any) -> asyncio.Task[Any]:
    """Do work in a task of its own: whoever asked first may go away, and the others still wait for it."""
    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_consume_exception)
    return task


def make_cancelled_error(server: str, phase: str) -> RemoteError:
    """Return the error for work that was called off again and again."""
    return RemoteError(server, phase, "the work was called off before it was done", retryable=True)


async def wait_for_result(future: concurrent.futures.Future[_T]) -> _T | None:
    """Wait for what another task does, on whatever loop; `None` where it was called off, and we were not."""
    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(_consume_exception)
    await asyncio.wait((wrapped,))
    return None if wrapped.cancelled() else wrapped.result()


def _consume_exception(future: asyncio.Future[Any]) -> None:
    """Look at an error that nobody else may be left to look at."""
    if not future.cancelled():
        future.exception()
