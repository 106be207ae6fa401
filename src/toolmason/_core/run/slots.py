"""Limit concurrency with semaphores and keyed locks that work across event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable

from toolmason._core.run.eager_task import wake_waiter


class Semaphore:
    """At most `limit` holders at once, across all loops and threads of the process. Waiters are served in order."""

    def __init__(self, limit: int) -> None:
        # deque.pop and append are atomic, so that the fast path needs no lock.
        self._free = deque(range(limit))
        self._lock = threading.Lock()
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def try_acquire(self) -> bool:
        """Acquire a slot if one is free and no other caller is waiting."""
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
        self._wake_next()  # a slot may have been released before the waiter was queued
        try:
            await waiter
        except asyncio.CancelledError:
            with self._lock:
                granted = (loop, waiter) not in self._waiters
                if not granted:
                    self._waiters.remove((loop, waiter))
            if granted:
                self.release()  # the slot was granted just as the wait was cancelled
            raise

    def release(self) -> None:
        """Release the slot to the longest waiter."""
        self._free.append(0)
        if self._waiters:
            self._wake_next()

    def _wake_next(self) -> None:
        with self._lock:
            while self._waiters and self._free:
                try:
                    self._free.pop()
                except IndexError:
                    return  # another thread acquired it, and will wake the next waiter on release
                loop, waiter = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(wake_waiter, waiter)
                except RuntimeError:
                    self._free.append(0)  # the loop is closed, and its waiter with it


class KeyedLocks:
    """One lock per key. Unused keys take no memory."""

    def __init__(self) -> None:
        self._users: dict[Hashable, tuple[Semaphore, int]] = {}
        """Lock and number of users by key."""
        self._lock = threading.Lock()

    def try_acquire(self, key: Hashable) -> bool:
        """Acquire a lock if no other caller uses it."""
        with self._lock:
            if key in self._users:
                return False
            semaphore = Semaphore(1)
            semaphore.try_acquire()
            self._users[key] = (semaphore, 1)
            return True

    def add_user(self, key: Hashable) -> Semaphore:
        """Register a user of a key and return its semaphore."""
        with self._lock:
            semaphore, users = self._users.get(key) or (Semaphore(1), 0)
            self._users[key] = (semaphore, users + 1)
            return semaphore

    def release(self, key: Hashable, *, is_held: bool = True) -> None:
        """Unregister a user of a key, and release the lock if the user holds it."""
        with self._lock:
            semaphore, users = self._users[key]
            if users == 1:
                del self._users[key]
                return
            self._users[key] = (semaphore, users - 1)
        if is_held:
            semaphore.release()


class KeyedLock:
    """Lock for one key of `KeyedLocks`."""

    __slots__ = ("_key", "_locks")

    def __init__(self, locks: KeyedLocks, key: Hashable) -> None:
        self._locks, self._key = locks, key

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free."""
        return self._locks.try_acquire(self._key)

    async def acquire(self) -> None:
        """Wait for the lock."""
        semaphore = self._locks.add_user(self._key)
        try:
            await semaphore.acquire()
        except BaseException:
            self._locks.release(self._key, is_held=False)
            raise

    def release(self) -> None:
        """Release the lock."""
        self._locks.release(self._key)
