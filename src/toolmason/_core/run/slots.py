"""How many, how often, and one at a time: slots, locks, rates, and the counters of a run.

Lives here: waiting for a turn across loops and threads, counting, and noticing repeats. What is used up is told
to the model as a result. Not here: which tool has which limit (`definition`), or what a run is for (`toolbox`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable


class Slots:
    """At most `limit` holders at once, over every loop and thread of the process; the others wait in order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # Taking from a deque and putting back is one step each, so that the usual way needs no lock.
        self._free = deque(range(limit))
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def try_take(self) -> bool:
        """Take a slot if one is free, and nobody waits for it."""
        if self._waiting:
            return False
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    async def take(self) -> None:
        """Wait for a slot."""
        if self.try_take():
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._waiting.append((loop, turn))
        self._hand_on()  # one may have become free before we stood in line
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                given = (loop, turn) not in self._waiting
                if not given:
                    self._waiting.remove((loop, turn))
            if given:
                self.give()  # it was handed over just as we stopped waiting
            raise

    def give(self) -> None:
        """Hand the slot on to whoever waits longest."""
        self._free.append(0)
        if self._waiting:
            self._hand_on()

    def _hand_on(self) -> None:
        with self._lock:
            while self._waiting and self._free:
                try:
                    self._free.pop()
                except IndexError:
                    return  # somebody was quicker, and will hand it on in turn
                loop, turn = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(_wake, turn)
                except RuntimeError:
                    self._free.append(0)  # its loop is closed, and with it whoever waited there

    @property
    def idle(self) -> bool:
        """Whether nobody holds or waits for a slot."""
        return len(self._free) == self.limit and not self._waiting


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Locks:
    """One holder for each key; a key that nobody wants takes no memory."""

    def __init__(self) -> None:
        self._slots: dict[Hashable, tuple[Slots, list[None]]] = {}
        self._lock = threading.Lock()

    def turn(self, key: Hashable) -> Turn:
        """Return the turn at a key, to be taken and given like a slot."""
        return Turn(self, key)

    def join(self, key: Hashable) -> Slots:
        """Want a key; return what to wait for."""
        with self._lock:
            slots, users = self._slots.setdefault(key, (Slots(1), []))
            users.append(None)
            return slots

    def leave(self, key: Hashable) -> None:
        """Want a key no more."""
        with self._lock:
            _, users = self._slots[key]
            users.pop()
            if not users:
                del self._slots[key]


class Turn:
    """One turn at a key of `Locks`."""

    __slots__ = ("_key", "_locks", "_slots")

    def __init__(self, locks: Locks, key: Hashable) -> None:
        self._locks, self._key = locks, key
        self._slots = locks.join(key)

    def try_take(self) -> bool:
        """Take the turn if nobody has it."""
        return self._slots.try_take()

    async def take(self) -> None:
        """Wait for the turn."""
        try:
            await self._slots.take()
        except BaseException:
            self._locks.leave(self._key)
            raise

    def give(self) -> None:
        """Hand the turn on."""
        self._slots.give()
        self._locks.leave(self._key)
