"""The lists of one server, for one identity: fetched when they are needed, once for all who ask at the same time.

Lives here: who fetches and who waits, how long a list is good, what becomes of a failure and when it is tried again.
Not here: connections (`pool`), or what is in the lists (`listing`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

from toolmason.errors import RemoteError
from toolmason.mcp_client.lists.fetch_lists import ServerLists
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
"""From here on a failure is one that whoever needs the lists need not wait for again."""
FIRST_RETRY_DELAY = 1.0
"""Seconds until the first try in the background; each pause is twice the one before."""


class ListCache:
    """What a server is known to offer to one identity."""

    def __init__(
        self, server: ServerSpec, fetch: Callable[[], Awaitable[ServerLists]], on_change: Callable[[], None]
    ) -> None:
        self.server, self._fetch_lists, self._on_change = server, fetch, on_change
        self.lists = ServerLists()
        self._in_flight: concurrent.futures.Future[ServerLists] | None = None
        self._lock = threading.Lock()
        self._close_count = 0
        self._slow_error: RemoteError | None = None
        self._has_failed = False
        self._retry_task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    @property
    def healthy(self) -> bool:
        """Whether the lists are fresh, and the last try to have them did not fail."""
        return self.lists.is_fresh and not self._has_failed

    async def get_lists(self, *, revalidate: bool = False) -> ServerLists:
        """Return the lists, fetching them where they are missing or stale; not where that took long in vain.

        Where they are in doubt, because something is not in them, they are fetched unless the server vouches for them.
        A server that refuses at once is asked at each need. One that let us wait is asked beside, until it is there.

        Raises:
            RemoteError: they cannot be had.
        """
        cached, error = self.lists, self._slow_error
        if cached.is_fresh and (cached.has_ttl or not revalidate):
            return cached
        if error is not None and self._is_retrying():
            reason = f"{error.reason}; it is tried again in the background"
            raise RemoteError(error.server, error.phase, reason, stderr=error.stderr, retryable=error.retryable)
        return await self.fetch()

    async def fetch(self, *, retry_in_background: bool = True) -> ServerLists:
        """Fetch the lists; who comes meanwhile waits for the same. Where it fails, try again `later`.

        Raises:
            RemoteError: they cannot be had.
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
                # Who we are does not change by waiting; whoever knows it asks with the next need.
                may_retry = retry_in_background and close_count == self._close_count
                if may_retry and (error.phase != "authorize" or self._slow_error is not None):
                    self._start_retrying()
                raise
            if fetched is not None:
                return fetched
        raise make_cancelled_error(self.server.name, "list")

    async def _run_fetch(self, future: concurrent.futures.Future[ServerLists]) -> None:
        started, close_count = time.monotonic(), self._close_count
        try:
            lists = await self._fetch_lists()
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            remote_error = (
                error if isinstance(error, RemoteError) else RemoteError(self.server.name, "list", format_reason(error))
            )
            self._clear_in_flight()
            self._has_failed = True
            was_slow = time.monotonic() - started >= self._get_slow_threshold()
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
            self.lists, self._slow_error, self._has_failed = lists, None, False
            self._on_change()
            future.set_result(lists)

    def _clear_in_flight(self) -> None:
        with self._lock:
            self._in_flight = None

    def clear(self) -> None:
        """Forget the lists; the next need fetches them."""
        self.lists = ServerLists()
        self._on_change()

    def retry_now(self) -> None:
        """Have the next need ask again: the server has answered something else."""
        self._slow_error = None

    def _get_slow_threshold(self) -> float:
        """Return from how many seconds on a failure has kept its callers waiting."""
        return 0.9 * min(SLOW_FAILURE_SECONDS, self.server.connect_timeout, self.server.timeout or SLOW_FAILURE_SECONDS)

    def _is_retrying(self) -> bool:
        """Tell whether somebody tries in the background: a loop may have ended, and its tasks with it."""
        return self._retry_task is not None and not self._retry_task[1].done() and self._retry_task[0].is_running()

    def _start_retrying(self) -> None:
        """Try again in the background, until the server is there or the toolbox is closed."""
        if self._is_retrying():
            return

        async def retry() -> None:
            delay = FIRST_RETRY_DELAY
            while not self.lists.is_fresh:
                await asyncio.sleep(delay)
                with contextlib.suppress(RemoteError):
                    await self.fetch(retry_in_background=False)
                    return
                delay = min(delay * 2, MAX_RETRY_DELAY)

        loop = asyncio.get_running_loop()
        self._retry_task = (loop, loop.create_task(retry(), context=Context()))

    def close(self) -> None:
        """Forget the lists, and stop trying."""
        self._close_count += 1
        if self._retry_task is not None:
            loop, task = self._retry_task
            self._retry_task = None
            if loop.is_running():
                loop.call_soon_threadsafe(task.cancel)
        self._slow_error = None
        self.clear()
