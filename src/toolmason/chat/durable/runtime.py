"""Whether an effect has to run: a runtime looks in its journal first.

Lives here: what the loop asks of a runtime, and the one that keeps nothing. Not here: the one that keeps a journal on
disk (`journal`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from toolmason.chat.durable.effects import Ask, Effect, Work

Facts: TypeAlias = Callable[[], Mapping[str, Any]]
"""What is known of a run, as JSON data; made only where somebody keeps it."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the outcome of an effect is written down and read back."""

    dump: Callable[[Any], Any]
    """Returns JSON data, or `None` for an outcome that is none yet: nothing was done, and it is asked for again."""
    load: Callable[[Any], Any]


class Driven(Protocol):
    """One run, while it is driven."""

    keeps: bool
    """Whether what is done is written down, and the run may be driven again."""

    async def begin(self, facts: Facts) -> Mapping[str, Any] | None:
        """Write down what a run is asked; return what was written down before, where it was begun before."""
        ...

    async def perform(self, effect: Effect, work: Work, form: Form, ask: Ask | None = None) -> Any:
        """Return what came of an effect: from the journal, or by doing it now.

        `ask` finds out what became of one that was interrupted.

        Raises:
            UnknownOutcome: it was begun before, nobody knows whether it was done, and it must not be done twice.
        """
        ...

    async def end(self, finish: str, facts: Facts) -> None:
        """Write down how a run ended."""
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
        yield _AT_ONCE


class _AtOnce:
    keeps = False

    async def begin(self, facts: Facts) -> Mapping[str, Any] | None:
        del facts
        return None

    async def perform(self, effect: Effect, work: Work, form: Form, ask: Ask | None = None) -> Any:
        del effect, form, ask
        return await work()

    async def end(self, finish: str, facts: Facts) -> None:
        del finish, facts


_AT_ONCE = NOT_DRIVEN = _AtOnce()
