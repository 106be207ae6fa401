"""Whether an effect has to run: a runtime looks in its journal first.

Lives here: what the loop asks of a runtime, and the one that keeps nothing. Not here: the one that keeps a journal on
disk (`journal`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from toolwright.chat.effects import Effect, Work


@dataclass(frozen=True, slots=True)
class Form:
    """How the outcome of an effect is written down and read back."""

    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


class Driven(Protocol):
    """One run, while it is driven."""

    async def perform(self, effect: Effect, work: Work, form: Form) -> Any:
        """Return what came of an effect: from the journal, or by doing it now.

        Raises:
            UnknownOutcome: it was begun before, nobody knows whether it was done, and it must not be done twice.
        """
        ...


class Runtime(Protocol):
    """Where runs are driven."""

    def drive(self, run: str) -> AbstractAsyncContextManager[Driven]:
        """Take a run; nobody else may drive it meanwhile."""
        ...


class MemoryRuntime:
    """Does every effect, and writes nothing down."""

    @asynccontextmanager
    async def drive(self, run: str) -> AsyncGenerator[Driven]:
        """Take a run."""
        del run
        yield _AtOnce()


class _AtOnce:
    async def perform(self, effect: Effect, work: Work, form: Form) -> Any:
        del effect, form
        return await work()
