"""Define the interface of a runtime, and a runtime without a journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias

from toolmason.chat.durable.effects import OutcomeSerializer, Reconciler, RunEffect, Work

FactsProvider: TypeAlias = Callable[[], Mapping[str, Any]]
"""Returns facts about a run as JSON data. Called only if a journal stores them."""


class RunExecution(Protocol):
    """One execution of a run."""

    is_durable: bool
    """True if effects are recorded and the run can be executed again."""

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        """Record the facts of a new run. Return the recorded facts if the run was started before."""
        ...

    def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Awaitable[Any]:
        """Return the outcome of an effect, from the journal or by performing it.

        `reconciler` determines the outcome of an interrupted attempt.

        Raises:
            UnknownOutcome: the effect was started before, its outcome is unknown, and it must not be repeated.
        """
        ...

    async def end(self, finish: str, facts: FactsProvider) -> None:
        """Record the end of a run."""
        ...


class Runtime(Protocol):
    """Decides whether the effects of a run are performed, or read from a journal."""

    def execute(self, run: str) -> AbstractAsyncContextManager[RunExecution]:
        """Acquire a run for exclusive execution."""
        ...


class MemoryRuntime:
    """Runtime without a journal. Performs every effect."""

    @asynccontextmanager
    async def execute(self, run: str) -> AsyncGenerator[RunExecution]:
        """Execute a run."""
        del run
        yield NO_JOURNAL


class _UnrecordedExecution:
    is_durable = False

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        del facts
        return None

    def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Awaitable[Any]:
        del effect, serializer, reconciler
        return work()

    async def end(self, finish: str, facts: FactsProvider) -> None:
        del finish, facts


NO_JOURNAL = _UnrecordedExecution()
"""Execution that records nothing. It has no state, so all runs share it."""
