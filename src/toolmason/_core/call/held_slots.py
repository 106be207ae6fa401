"""The turns of a call: what it has to hold while it runs, and how long it may wait for it.

Lives here: slots and locks of one call, taken in order, given back in the end, not taken twice by a call inside a
call. Not here: what a slot is (`limits`), or the call itself (`govern`).
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

_held: ContextVar[frozenset[Hashable]] = ContextVar("toolmason_turns_held", default=frozenset())


get_held = _held.get
"""What the caller holds already."""
set_held, reset_held = _held.set, _held.reset


class Stop(Exception):
    """The call ends with an error of ours, which must not be taken for the tool's own."""

    def __init__(self, error: ToolCallError) -> None:
        super().__init__()
        self.error = error


class HeldSlots:
    """The turns of one call, while it runs."""

    def __init__(
        self,
        route: Route,
        shared: SharedCallState,
        values: Mapping[str, Any],
        call_options: CallOptions,
        seconds: float | None,
    ) -> None:
        self.route, self.shared, self.values, self.call_options, self.seconds = (
            route,
            shared,
            values,
            call_options,
            seconds,
        )
        self.acquired: list[Semaphore | KeyedLock] = []
        self.token: Token[frozenset[Hashable]] | None = None

    async def __aenter__(self) -> None:
        already_held = _held.get()
        keys: set[Hashable] = set()
        try:
            for key, slot in self._iterate_slots():
                # A tool that calls another holds its turn already; waiting for it would be for ever.
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
        """Wait for a turn, no longer than the call may take."""
        call_options, seconds = self.call_options, self.seconds
        remaining = None if call_options.batch_deadline is None else max(0.0, call_options.batch_deadline - monotonic())
        timeout = seconds if remaining is None else remaining if seconds is None else min(seconds, remaining)
        try:
            async with asyncio.timeout(timeout):
                await slot.acquire()
        except TimeoutError:
            name = self.route.name
            if call_options.batch_deadline is not None and monotonic() >= call_options.batch_deadline - CLOCK_SLACK:
                raise Stop(ToolTimeout(name, call_options.batch_timeout, limit=call_options.limit_name)) from None
            timeout_error = ToolTimeout(name, seconds or 0.0, limit="timeout, waiting for its turn", retryable=True)
            raise Stop(timeout_error) from None

    def _iterate_slots(self) -> Iterator[tuple[Hashable, Semaphore | KeyedLock]]:
        """Yield what a call has to hold while it runs, each under a name of its own."""
        options, tool_key = self.route.tool.options, id(self.route.tool.root)
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
