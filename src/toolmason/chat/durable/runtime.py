"""Whether an effect has to run: a runtime looks in its journal first.

Lives here: what the loop asks of a runtime, and the one that keeps nothing. Not here: the one that keeps a journal on
disk (`journal`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias

from toolmason.chat.durable.effects import OutcomeSerializer, Reconciler, RunEffect, Work

FactsProvider: TypeAlias = Callable[[], Mapping[str, Any]]
"""What is known of a run, as JSON data; made only where somebody keeps it."""


class RunExecution(Protocol):
    """One run, while it is driven."""

    is_durable: bool
    """Whether what is done is written down, and the run may be driven again."""

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        """Write down what a run is asked; return what was written down before, where it was begun before."""
        ...

    async def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Any:
        """Return what came of an effect: from the journal, or by doing it now.

        `ask` finds out what became of one that was interrupted.

        Raises:
            UnknownOutcome: it was begun before, nobody knows whether it was done, and it must not be done twice.
        """
        ...

    async def end(self, finish: str, facts: FactsProvider) -> None:
        """Write down how a run ended."""
        ...


class Runtime(Protocol):
    """Where runs are driven."""

    def execute(self, run: str) -> AbstractAsyncContextManager[RunExecution]:
        """Take a run; nobody else may drive it meanwhile."""
        ...


class MemoryRuntime:
    """Does every effect, and writes nothing down."""

    @asynccontextmanager
    async def execute(self, run: str) -> AsyncGenerator[RunExecution]:
        """Take a run."""
        del run
        yield _NO_JOURNAL


class _UnrecordedExecution:
    is_durable = False

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        del facts
        return None

    async def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Any:
        del effect, serializer, reconciler
        return await work()

    async def end(self, finish: str, facts: FactsProvider) -> None:
        del finish, facts


_NO_JOURNAL = NO_JOURNAL = _UnrecordedExecution()
