"""Cache the lists of one server for one identity, and retry failed fetches in the background."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

from toolmason._core.remote.servers import CONFIRM_SECONDS
from toolmason._core.run.metrics import measure
from toolmason.errors import RemoteError
from toolmason.mcp_client.lists.fetch_lists import ServerLists
from toolmason.mcp_client.lists.trust import SeenTools
from toolmason.mcp_client.pool import (
    MAX_RETRY_DELAY,
    MAX_WAIT_ROUNDS,
    make_cancelled_error,
    start_task,
    wait_for_result,
)
from toolmason.mcp_client.remote_errors import format_reason
from toolmason.mcp_client.server_options import ServerSpec

SLOW_FAILURE_SECONDS: Final = 1.0
"""Seconds from which a failure counts as slow, so that later callers fail fast instead of waiting again."""
FIRST_RETRY_DELAY = 1.0
"""Seconds before the first retry in the background; each further delay is doubled."""


class ListCache:
    """Cached lists of a server for one identity."""

    def __init__(
        self,
        server: ServerSpec,
        fetch: Callable[[], Awaitable[ServerLists]],
        on_change: Callable[[], None],
        has_other_tools: Callable[[ServerLists], Awaitable[bool]] | None = None,
    ) -> None:
        self.server, self._fetch_lists, self._on_change = server, fetch, on_change
        self._has_other_tools = has_other_tools
        self.calls = 0
        """Number of calls that may have changed the tools without an announcement so far."""
        self._confirmed_calls = 0
        """Number of these calls after which the tools were listed."""
        self.lists = ServerLists()
        self.seen = SeenTools()
        """Definitions of the tools so far. Closing does not discard them."""
        self._in_flight: concurrent.futures.Future[ServerLists] | None = None
        """Fetch in progress, which callers on any event loop wait for."""
        self._lock = threading.Lock()
        self._close_count = 0
        """Number of times the cache was closed: a fetch that started before must not change the state after."""
        self._slow_error: RemoteError | None = None
        """Error of the last fetch, if it failed slowly."""
        self._has_failed = False
        self._wake = asyncio.Event()
        self._retry_task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    @property
    def healthy(self) -> bool:
        """True if the lists are fresh and the last fetch succeeded."""
        return self.lists.is_fresh and not self._has_failed

    @property
    def is_unconfirmed(self) -> bool:
        """True if a call may have changed the tools since they were listed."""
        return self._confirmed_calls < self.calls

    async def get_lists(self, *, revalidate: bool = False) -> ServerLists:
        """Return the lists. Refetch missing or stale ones, unless a slow fetch has just failed.

        After a call that may have changed the tools, one request shows whether they are the same.
        With `revalidate`, also refetch lists whose TTL is 0. A server that fails fast is asked on every use. A slow
        one is retried in the background until it responds.

        Raises:
            RemoteError: the lists cannot be fetched.
        """
        if self.is_unconfirmed and self.lists.is_fresh:
            await self._confirm(self.lists)
        cached, error = self.lists, self._slow_error
        if cached.is_fresh and (cached.has_ttl or not revalidate):
            measure("toolmason.cache.hits", 1, {"toolmason.cache": "list"})
            return cached
        if error is not None and self._is_retrying():
            reason = f"{error.reason}; retrying in the background"
            raise RemoteError(error.server, error.phase, reason, stderr=error.stderr, retryable=error.retryable)
        return await self.fetch()

    async def _confirm(self, lists: ServerLists) -> None:
        """Let the lists expire if the server has other tools now. They stay if it does not answer soon."""
        calls = self.calls
        with contextlib.suppress(RemoteError, TimeoutError):
            async with asyncio.timeout(CONFIRM_SECONDS):
                if self._has_other_tools is not None and await self._has_other_tools(lists):
                    lists.expires_at = 0.0
        self._confirmed_calls = max(calls, self._confirmed_calls)

    def refresh_in_background(self) -> None:
        """Refetch expired lists without waiting for them."""
        if not self.lists.is_fresh and self._in_flight is None and not self._is_retrying():
            start_task(self.get_lists())

    async def fetch(self, *, retry_in_background: bool = True) -> ServerLists:
        """Fetch the lists. Concurrent callers share one fetch. With `retry_in_background`, retry a failed fetch.

        Raises:
            RemoteError: the lists cannot be fetched.
        """
        close_count = self._close_count
        for _ in range(MAX_WAIT_ROUNDS):
            with self._lock:
                future = self._in_flight
                is_first = future is None
                if future is None:
                    future = self._in_flight = concurrent.futures.Future()
            if is_first:
                start_task(self._run_fetch(future))
            try:
                fetched = await wait_for_result(future)
            except RemoteError as error:
                # Waiting does not fix credentials, so authorization errors are not retried; the next caller may have
                # valid ones.
                may_retry = retry_in_background and close_count == self._close_count
                if may_retry and (error.phase != "authorize" or self._slow_error is not None):
                    self._start_retrying()
                raise
            if fetched is not None:
                return fetched
        raise make_cancelled_error(self.server.name, "list")

    async def _run_fetch(self, future: concurrent.futures.Future[ServerLists]) -> None:
        started = time.monotonic()
        close_count, calls = self._close_count, self.calls
        try:
            lists = await self._fetch_lists()
        except Exception as error:  # noqa: BLE001 - waiting callers must get the error, whatever it is
            remote_error = (
                error if isinstance(error, RemoteError) else RemoteError(self.server.name, "list", format_reason(error))
            )
            self._clear_in_flight()
            self._has_failed = True
            slow_seconds = min(SLOW_FAILURE_SECONDS, self.server.list_seconds)
            was_slow = time.monotonic() - started >= 0.9 * slow_seconds
            self._slow_error = remote_error if was_slow and close_count == self._close_count else None
            if not self.server.serve_stale:
                self.clear()
            future.set_exception(remote_error)
        except BaseException:
            self._clear_in_flight()
            future.cancel()
            raise
        else:
            self._clear_in_flight()
            self.lists = lists
            self._confirmed_calls = max(calls, self._confirmed_calls)
            self._slow_error = None
            self._has_failed = False
            self._on_change()
            future.set_result(lists)

    def _clear_in_flight(self) -> None:
        with self._lock:
            self._in_flight = None

    def clear(self) -> None:
        """Clear the lists. The next use fetches them."""
        self.lists = ServerLists()
        self._on_change()

    def retry_now(self) -> None:
        """Fetch again at once, also in the background: the server has responded to another request."""
        self._slow_error = None
        if self._retry_task is not None and self._is_retrying():
            self._retry_task[0].call_soon_threadsafe(self._wake.set)

    def _is_retrying(self) -> bool:
        """Return True if a background retry is active. Its loop may have stopped, and its task with it."""
        return self._retry_task is not None and not self._retry_task[1].done() and self._retry_task[0].is_running()

    def _start_retrying(self) -> None:
        """Retry in the background until the server responds or the toolbox is closed."""
        if self._is_retrying():
            return

        wake = self._wake = asyncio.Event()

        async def retry() -> None:
            delay = FIRST_RETRY_DELAY
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), delay)
                wake.clear()
                if self.lists.is_fresh:
                    return
                with contextlib.suppress(RemoteError):
                    await self.fetch(retry_in_background=False)
                    return
                delay = min(delay * 2, MAX_RETRY_DELAY)

        loop = asyncio.get_running_loop()
        self._retry_task = (loop, loop.create_task(retry(), context=Context()))

    def close(self) -> None:
        """Clear the lists and stop retrying."""
        self._close_count += 1
        if self._retry_task is not None:
            loop, task = self._retry_task
            self._retry_task = None
            if loop.is_running():
                loop.call_soon_threadsafe(task.cancel)
        self._slow_error = None
        self.clear()
