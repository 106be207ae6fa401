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
from toolmason._core.call.pipeline import CLOCK_SLACK, Ask
from toolmason._core.call.route import Route
from toolmason._core.call.shared_state import Office
from toolmason._core.run.slots import Slots, Turn
from toolmason.errors import ToolCallError, ToolTimeout

_held: ContextVar[frozenset[Hashable]] = ContextVar("toolmason_turns_held", default=frozenset())


held = _held.get
"""What the caller holds already."""
hold, let_go = _held.set, _held.reset


class Refused(Exception):
    """The call ends with an error of ours, which must not be taken for the tool's own."""

    def __init__(self, error: ToolCallError) -> None:
        super().__init__()
        self.error = error


class Held:
    """The turns of one call, while it runs."""

    def __init__(
        self, route: Route, office: Office, values: Mapping[str, Any], ask: Ask, seconds: float | None
    ) -> None:
        self.route, self.office, self.values, self.ask, self.seconds = route, office, values, ask, seconds
        self.taken: list[Slots | Turn] = []
        self.token: Token[frozenset[Hashable]] | None = None

    async def __aenter__(self) -> None:
        already = _held.get()
        keys: set[Hashable] = set()
        try:
            for key, turn in self._turns():
                # A tool that calls another holds its turn already; waiting for it would be for ever.
                if key in already:
                    continue
                if not turn.try_take():
                    await self._wait(turn)
                self.taken.append(turn)
                keys.add(key)
        except BaseException:
            self._give_all()
            raise
        if keys:
            self.token = _held.set(already | keys)

    async def __aexit__(self, *exception: object) -> None:
        if self.token is not None:
            _held.reset(self.token)
        self._give_all()

    def _give_all(self) -> None:
        for turn in reversed(self.taken):
            turn.give()

    async def _wait(self, turn: Slots | Turn) -> None:
        """Wait for a turn, no longer than the call may take."""
        ask, seconds = self.ask, self.seconds
        left = None if ask.ends is None else max(0.0, ask.ends - monotonic())
        patience = seconds if left is None else left if seconds is None else min(seconds, left)
        try:
            async with asyncio.timeout(patience):
                await turn.take()
        except TimeoutError:
            name = self.route.name
            if ask.ends is not None and monotonic() >= ask.ends - CLOCK_SLACK:
                raise Refused(ToolTimeout(name, ask.span, limit=ask.limit)) from None
            late = ToolTimeout(name, seconds or 0.0, limit="timeout, waiting for its turn", retryable=True)
            raise Refused(late) from None

    def _turns(self) -> Iterator[tuple[Hashable, Slots | Turn]]:
        """Yield what a call has to hold while it runs, each under a name of its own."""
        options, tool = self.route.tool.options, id(self.route.tool.root)
        if options.lock is not None:
            value = self.route.tool.value_of(options.lock, self.values)
            key = (id(self.office), tool, fingerprint("lock", value))
            if key not in _held.get():
                yield key, self.office.locks.turn(key)
        if options.max_concurrency is not None:
            slots = self.office.slots_for(tool, options.max_concurrency)
            yield slots, slots
        if self.office.most is not None:
            slots = self.office.slots_for(0, self.office.most)
            yield slots, slots
