"""Acquire the slots and locks of a call, and hold them while it runs.

They are acquired in a fixed order. A nested call does not acquire what its caller already holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar, Token
from time import monotonic
from typing import Any

from toolmason._core.call.limits import fingerprint
from toolmason._core.call.pipeline import CLOCK_SLACK, CallOptions
from toolmason._core.call.route import Route
from toolmason._core.call.shared_state import SharedCallState
from toolmason._core.run.slots import KeyedLock, Semaphore
from toolmason.errors import ToolCallError, ToolTimeout

_held: ContextVar[frozenset[Hashable]] = ContextVar("toolmason_held_slots", default=frozenset())

get_held = _held.get
"""Return the slots and locks that the caller already holds."""
set_held, reset_held = _held.set, _held.reset


class Stop(Exception):
    """The engine ends a call with an error, as opposed to an exception of the tool."""

    def __init__(self, error: ToolCallError) -> None:
        super().__init__()
        self.error = error


class HeldSlots:
    """Slots and locks of one call, held while it runs."""

    def __init__(
        self,
        route: Route,
        shared: SharedCallState,
        values: Mapping[str, Any],
        call_options: CallOptions,
        seconds: float | None,
    ) -> None:
        self.route = route
        self.shared = shared
        self.values = values
        self.call_options = call_options
        self.seconds = seconds
        self.acquired: list[Semaphore | KeyedLock] = []
        self.token: Token[frozenset[Hashable]] | None = None

    async def __aenter__(self) -> None:
        already_held = _held.get()
        keys: set[Hashable] = set()
        try:
            for key, slot in self._iterate_slots():
                # A nested call inherits its caller's slots; waiting for them would deadlock.
                if key in already_held:
                    continue
                if not slot.try_acquire():
                    await self._acquire_in_time(slot)
                self.acquired.append(slot)
                keys.add(key)
        except BaseException:
            self._release_all()
            raise
        if keys:
            self.token = _held.set(already_held | keys)

    async def __aexit__(self, *exception: object) -> None:
        if self.token is not None:
            _held.reset(self.token)
        self._release_all()

    def _release_all(self) -> None:
        for slot in reversed(self.acquired):
            slot.release()

    async def _acquire_in_time(self, slot: Semaphore | KeyedLock) -> None:
        """Wait for a slot, within the timeout of the call."""
        call_options = self.call_options
        deadline = call_options.batch_deadline
        timeout = self.seconds
        if deadline is not None:
            remaining = max(0.0, deadline - monotonic())
            timeout = remaining if timeout is None else min(timeout, remaining)
        try:
            async with asyncio.timeout(timeout):
                await slot.acquire()
        except TimeoutError:
            name = self.route.name
            if deadline is not None and monotonic() >= deadline - CLOCK_SLACK:
                raise Stop(ToolTimeout(name, call_options.batch_timeout, limit=call_options.limit_name)) from None
            limit = "timeout, waiting for a slot"
            raise Stop(ToolTimeout(name, self.seconds or 0.0, limit=limit, retryable=True)) from None

    def _iterate_slots(self) -> Iterator[tuple[Hashable, Semaphore | KeyedLock]]:
        """Yield each slot or lock of the call, with its key."""
        options = self.route.tool.options
        tool_key = id(self.route.tool.root)
        if options.lock is not None:
            value = self.route.tool.get_argument(options.lock, self.values)
            key = (id(self.shared), tool_key, fingerprint("lock", value))
            if key not in _held.get():
                yield key, self.shared.locks.lock_for(key)
        if options.max_concurrency is not None:
            semaphore = self.shared.get_semaphore(tool_key, options.max_concurrency)
            yield semaphore, semaphore
        if self.shared.max_concurrency is not None:
            semaphore = self.shared.get_semaphore(0, self.shared.max_concurrency)
            yield semaphore, semaphore
