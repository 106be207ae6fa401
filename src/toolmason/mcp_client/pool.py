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
from toolmason.mcp_client.remote_errors import reason_of
from toolmason.mcp_client.session import Link

_T = TypeVar("_T")

QUICK_FAILURES: Final = 3
"""After this many failures in a row we wait before the next try."""
IDENTITIES: Final = 64
"""How many identities have a connection of their own at once; beyond it, the one least used goes."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
ROUNDS: Final = 3
"""How often we wait anew for work that was called off before it was done."""


class Pool:
    """The connections to one server; `begin` makes a new one for some headers, `begun` is done with each first."""

    def __init__(
        self, name: str, begin: Callable[[Mapping[str, str]], Link], begun: Callable[[Link], Awaitable[None]]
    ) -> None:
        self.name, self._begin, self._begun = name, begin, begun
        self.links: dict[str, Link] = {}
        self.since = time.time()
        """When the server became as it is."""
        self._well: bool | None = None
        self._opening: dict[str, concurrent.futures.Future[Link]] = {}
        self._lock = threading.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._trouble: RemoteError | None = None
        self._closings = 0
        self._loose: set[Link] = set()
        """Those that are being opened or closed."""

    async def link(self, key: str, headers: Mapping[str, str]) -> Link:
        """Return a usable connection; who comes while one is opened waits for that.

        Raises:
            RemoteError: there is none to be had.
        """
        for _ in range(ROUNDS):
            with self._lock:
                link = self.links.get(key)
                if link is not None and link.usable:
                    if len(self.links) > 1:
                        self.links[key] = self.links.pop(key)  # the last one used is the last one to go
                    return link
                opening = self._opening.get(key)
                mine = opening is None
                if opening is None:
                    self._look_before_leaping()
                    opening = self._opening[key] = concurrent.futures.Future()
                    self.links.pop(key, None)
            if mine:
                aside(self._open(key, headers, link, opening))
            found = await outcome(opening)
            if found is not None:
                return found
        raise called_off(self.name, "connect")

    def _look_before_leaping(self) -> None:
        left = self._not_before - time.monotonic()
        if left > 0 and self._trouble is not None:
            trouble = self._trouble
            reason = f"{trouble.reason}; it is tried again in {left:.1f} s"
            raise RemoteError(self.name, trouble.phase, reason, stderr=trouble.stderr, retryable=True)

    async def _open(
        self, key: str, headers: Mapping[str, str], old: Link | None, opening: concurrent.futures.Future[Link]
    ) -> None:
        if old is not None:
            self._end(old)
        link, closings = self._begin(headers), self._closings
        with self._lock:
            self._loose.add(link)
        try:
            await link.open()
            await self._begun(link)
            if closings != self._closings:
                raise ConnectionAbortedError  # noqa: TRY301 - as below
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            self._end(link)
            if closings != self._closings:
                self._opened(key, opening, error=RemoteError(self.name, "connect", "the toolbox was closed meanwhile"))
                return
            own = error if isinstance(error, RemoteError) else RemoteError(self.name, "connect", reason_of(error))
            self._failed(own)
            self._opened(key, opening, error=own)
        except BaseException:
            link.abandon()
            with self._lock:
                self._opening.pop(key, None)
            opening.cancel()
            raise
        else:
            self._failures, self._not_before = 0, 0.0
            self.note(ok=True)
            self._opened(key, opening, link=link)
            for gone in self._left_alone():
                self.evict(gone)

    def _opened(
        self,
        key: str,
        opening: concurrent.futures.Future[Link],
        *,
        link: Link | None = None,
        error: RemoteError | None = None,
    ) -> None:
        with self._lock:
            self._opening.pop(key, None)
            if link is not None:
                self.links[key] = link
                self._loose.discard(link)
        if link is not None:
            opening.set_result(link)
        else:
            opening.set_exception(error)

    def _left_alone(self) -> list[str]:
        """Return whose connections go: tokens change, and each would keep its connection for ever."""
        with self._lock:
            idle = [key for key, link in self.links.items() if not link.busy]
            return idle[: max(0, len(self.links) - IDENTITIES)]

    def _failed(self, error: RemoteError) -> None:
        if error.phase == "authorize":
            return  # it is there, and others it may know
        self._trouble = error
        self._failures += 1
        self.note(ok=False)
        if self._failures >= QUICK_FAILURES:
            pause = min(FIRST_PAUSE * 2 ** (self._failures - QUICK_FAILURES), LONGEST_PAUSE)
            self._not_before = time.monotonic() + pause

    def note(self, *, ok: bool) -> None:
        """Take note of how the server is."""
        if ok is not self._well:
            self._well, self.since = ok, time.time()

    def evict(self, key: str, link: Link | None = None) -> None:
        """Let go of the connection of an identity; only of this one, where one is given."""
        with self._lock:
            known = self.links.get(key)
            if known is None or (link is not None and known is not link):
                return
            del self.links[key]
        self._end(known)

    def _end(self, link: Link) -> None:
        """Close a connection beside what goes on: a server may take seconds to end, and nobody has to wait for that."""
        with self._lock:
            self._loose.add(link)

        async def ending() -> None:
            try:
                await link.close()
            finally:
                with self._lock:
                    self._loose.discard(link)

        aside(ending())

    async def aclose(self) -> None:
        """Close every connection; the next need opens one again."""
        with self._lock:
            links, self.links = [*self.links.values(), *self._loose], {}
            self._closings += 1
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        self._failures, self._not_before = 0, 0.0


def aside(work: Any) -> asyncio.Task[Any]:
    """Do work in a task of its own: whoever asked first may go away, and the others still wait for it."""
    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_looked_at)
    return task


def called_off(server: str, phase: str) -> RemoteError:
    """Return the error for work that was called off again and again."""
    return RemoteError(server, phase, "the work was called off before it was done", retryable=True)


async def outcome(future: concurrent.futures.Future[_T]) -> _T | None:
    """Wait for what another task does, on whatever loop; `None` where it was called off, and we were not."""
    waiting = asyncio.wrap_future(future)
    waiting.add_done_callback(_looked_at)
    await asyncio.wait((waiting,))
    return None if waiting.cancelled() else waiting.result()


def _looked_at(done: asyncio.Future[Any]) -> None:
    """Look at an error that nobody else may be left to look at."""
    if not done.cancelled():
        done.exception()
