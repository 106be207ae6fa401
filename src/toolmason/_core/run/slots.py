"""How many, how often, and one at a time: slots, locks, rates, and the counters of a run.

Lives here: waiting for a turn across loops and threads, counting, and noticing repeats. What is used up is told
to the model as a result. Not here: which tool has which limit (`definition`), or what a run is for (`toolbox`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable


class Semaphore:
    """At most `limit` holders at once, over every loop and thread of the process; the others wait in order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # Taking from a deque and putting back is one step each, so that the usual way needs no lock.
        self._free = deque(range(limit))
        self._lock = threading.Lock()
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def try_acquire(self) -> bool:
        """Take a slot if one is free, and nobody waits for it."""
        if self._waiters:
            return False
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    async def acquire(self) -> None:
        """Wait for a slot."""
        if self.try_acquire():
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._waiters.append((loop, waiter))
        self._wake_next()  # one may have become free before we stood in line
        try:
            await waiter
        except asyncio.CancelledError:
            with self._lock:
                granted = (loop, waiter) not in self._waiters
                if not granted:
                    self._waiters.remove((loop, waiter))
            if granted:
                self.release()  # it was handed over just as we stopped waiting
            raise

    def release(self) -> None:
        """Hand the slot on to whoever waits longest."""
        self._free.append(0)
        if self._waiters:
            self._wake_next()

    def _wake_next(self) -> None:
        with self._lock:
            while self._waiters and self._free:
                try:
                    self._free.pop()
                except IndexError:
                    return  # somebody was quicker, and will hand it on in turn
                loop, waiter = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(_wake_waiter, waiter)
                except RuntimeError:
                    self._free.append(0)  # its loop is closed, and with it whoever waited there

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds or waits for a slot."""
        return len(self._free) == self.limit and not self._waiters


def _wake_waiter(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class KeyedLocks:
    """One holder for each key; a key that nobody wants takes no memory."""

    def __init__(self) -> None:
        self._semaphores: dict[Hashable, tuple[Semaphore, list[None]]] = {}
        self._lock = threading.Lock()

    def lock_for(self, key: Hashable) -> KeyedLock:
        """Return the turn at a key, to be taken and given like a slot."""
        return KeyedLock(self, key)

    def add_user(self, key: Hashable) -> Semaphore:
        """Want a key; return what to wait for."""
        with self._lock:
            semaphore, users = self._semaphores.setdefault(key, (Semaphore(1), []))
            users.append(None)
            return semaphore

    def remove_user(self, key: Hashable) -> None:
        """Want a key no more."""
        with self._lock:
            _, users = self._semaphores[key]
            users.pop()
            if not users:
                del self._semaphores[key]


class KeyedLock:
    """One turn at a key of `Locks`."""

    __slots__ = ("_key", "_locks", "_semaphore")

    def __init__(self, locks: KeyedLocks, key: Hashable) -> None:
        self._locks, self._key = locks, key
        self._semaphore = locks.add_user(key)

    def try_acquire(self) -> bool:
        """Take the turn if nobody has it."""
        return self._semaphore.try_acquire()

    async def acquire(self) -> None:
        """Wait for the turn."""
        try:
            await self._semaphore.acquire()
        except BaseException:
            self._locks.remove_user(self._key)
            raise

    def release(self) -> None:
        """Hand the turn on."""
        self._semaphore.release()
        self._locks.remove_user(self._key)
