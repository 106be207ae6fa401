"""The lists of one server, for one identity: fetched when they are needed, once for all who ask at the same time.

Lives here: who fetches and who waits, how long a list is good, what becomes of a failure and when it is tried again.
Not here: connections (`pool`), or what is in the lists (`listing`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Awaitable, Callable

from toolwright.errors import RemoteError
from toolwright.mcp.failures import reason_of
from toolwright.mcp.listing import Lists
from toolwright.mcp.pool import LONGEST_PAUSE, ROUNDS, aside, called_off, outcome
from toolwright.mcp.servers import Server


class Offer:
    """What a server is known to offer to one identity."""

    def __init__(self, server: Server, fetch: Callable[[], Awaitable[Lists]], changed: Callable[[], None]) -> None:
        self.server, self._get, self._changed = server, fetch, changed
        self.lists = Lists()
        self._listing: concurrent.futures.Future[Lists] | None = None
        self._lock = threading.Lock()
        self._retry: asyncio.Task[None] | None = None

    async def ready(self) -> Lists:
        """Return the lists, fetching them where they are missing or stale.

        Raises:
            RemoteError: they cannot be had.
        """
        known = self.lists
        return known if known.fresh else await self.fetch()

    async def fetch(self, *, later: bool = True) -> Lists:
        """Fetch the lists; who comes meanwhile waits for the same. Where it fails, try again `later`.

        Raises:
            RemoteError: they cannot be had.
        """
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
            except RemoteError:
                if later:
                    self._try_later()
                raise
            if found is not None:
                return found
        raise called_off(self.server.name, "list")

    async def _fetching(self, listing: concurrent.futures.Future[Lists]) -> None:
        try:
            lists = await self._get()
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            own = error if isinstance(error, RemoteError) else RemoteError(self.server.name, "list", reason_of(error))
            self._over()
            if not self.server.serve_stale:
                self.forget()
            listing.set_exception(own)
        except BaseException:
            self._over()
            listing.cancel()
            raise
        else:
            self._over()
            self.lists = lists
            self._changed()
            listing.set_result(lists)

    def _over(self) -> None:
        with self._lock:
            self._listing = None

    def forget(self) -> None:
        """Forget the lists; the next need fetches them."""
        self.lists = Lists()
        self._changed()

    def _try_later(self) -> None:
        """Try again in the background, until the server is there or the toolbox is closed."""
        if self._retry is not None and not self._retry.done():
            return

        async def again() -> None:
            pause = 1.0
            while not self.lists.fresh:
                await asyncio.sleep(pause)
                with contextlib.suppress(RemoteError):
                    await self.fetch(later=False)
                pause = min(pause * 2, LONGEST_PAUSE)

        self._retry = asyncio.get_running_loop().create_task(again())

    def close(self) -> None:
        """Forget the lists, and stop trying."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.forget()
