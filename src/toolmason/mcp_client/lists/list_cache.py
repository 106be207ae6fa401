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
from toolmason.mcp_client.lists.fetch_lists import Lists
from toolmason.mcp_client.pool import LONGEST_PAUSE, ROUNDS, aside, called_off, outcome
from toolmason.mcp_client.remote_errors import reason_of
from toolmason.mcp_client.server_options import Server

LONG_SECONDS: Final = 1.0
"""From here on a failure is one that whoever needs the lists need not wait for again."""
FIRST_RETRY = 1.0
"""Seconds until the first try in the background; each pause is twice the one before."""


class Offer:
    """What a server is known to offer to one identity."""

    def __init__(self, server: Server, fetch: Callable[[], Awaitable[Lists]], changed: Callable[[], None]) -> None:
        self.server, self._get, self._changed = server, fetch, changed
        self.lists = Lists()
        self._listing: concurrent.futures.Future[Lists] | None = None
        self._lock = threading.Lock()
        self._closings = 0
        self._down: RemoteError | None = None
        self._failed = False
        self._retry: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    @property
    def sound(self) -> bool:
        """Whether the lists are fresh, and the last try to have them did not fail."""
        return self.lists.fresh and not self._failed

    async def ready(self, *, doubtful: bool = False) -> Lists:
        """Return the lists, fetching them where they are missing or stale; not where that took long in vain.

        Where they are in doubt, because something is not in them, they are fetched unless the server vouches for them.
        A server that refuses at once is asked at each need. One that let us wait is asked beside, until it is there.

        Raises:
            RemoteError: they cannot be had.
        """
        known, down = self.lists, self._down
        if known.fresh and (known.vouched or not doubtful):
            return known
        if down is not None and self._is_tried():
            reason = f"{down.reason}; it is tried again in the background"
            raise RemoteError(down.server, down.phase, reason, stderr=down.stderr, retryable=down.retryable)
        return await self.fetch()

    async def fetch(self, *, later: bool = True) -> Lists:
        """Fetch the lists; who comes meanwhile waits for the same. Where it fails, try again `later`.

        Raises:
            RemoteError: they cannot be had.
        """
        closings = self._closings
        for _ in range(ROUNDS):
            with self._lock:
                listing = self._listing
                mine = listing is None
                if listing is None:
                    listing = self._listing = concurrent.futures.Future()
            if mine:
                aside(self._fetching(listing))
            try:
                found = await outcome(listing)
            except RemoteError as error:
                # Who we are does not change by waiting; whoever knows it asks with the next need.
                wanted = later and closings == self._closings
                if wanted and (error.phase != "authorize" or self._down is not None):
                    self._try_later()
                raise
            if found is not None:
                return found
        raise called_off(self.server.name, "list")

    async def _fetching(self, listing: concurrent.futures.Future[Lists]) -> None:
        started, closings = time.monotonic(), self._closings
        try:
            lists = await self._get()
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            own = error if isinstance(error, RemoteError) else RemoteError(self.server.name, "list", reason_of(error))
            self._over()
            self._failed = True
            slow = time.monotonic() - started >= self._long()
            self._down = own if slow and closings == self._closings else None
            if not self.server.serve_stale:
                self.forget()
            listing.set_exception(own)
        except BaseException:
            self._over()
            listing.cancel()
            raise
        else:
            self._over()
            self.lists, self._down, self._failed = lists, None, False
            self._changed()
            listing.set_result(lists)

    def _over(self) -> None:
        with self._lock:
            self._listing = None

    def forget(self) -> None:
        """Forget the lists; the next need fetches them."""
        self.lists = Lists()
        self._changed()

    def wake(self) -> None:
        """Have the next need ask again: the server has answered something else."""
        self._down = None

    def _long(self) -> float:
        """Return from how many seconds on a failure has kept its callers waiting."""
        return 0.9 * min(LONG_SECONDS, self.server.connect_timeout, self.server.timeout or LONG_SECONDS)

    def _is_tried(self) -> bool:
        """Tell whether somebody tries in the background: a loop may have ended, and its tasks with it."""
        return self._retry is not None and not self._retry[1].done() and self._retry[0].is_running()

    def _try_later(self) -> None:
        """Try again in the background, until the server is there or the toolbox is closed."""
        if self._is_tried():
            return

        async def again() -> None:
            pause = FIRST_RETRY
            while not self.lists.fresh:
                await asyncio.sleep(pause)
                with contextlib.suppress(RemoteError):
                    await self.fetch(later=False)
                    return
                pause = min(pause * 2, LONGEST_PAUSE)

        loop = asyncio.get_running_loop()
        self._retry = (loop, loop.create_task(again(), context=Context()))

    def close(self) -> None:
        """Forget the lists, and stop trying."""
        self._closings += 1
        if self._retry is not None:
            loop, task = self._retry
            self._retry = None
            if loop.is_running():
                loop.call_soon_threadsafe(task.cancel)
        self._down = None
        self.forget()
