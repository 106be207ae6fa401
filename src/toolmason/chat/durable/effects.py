"""Represent the effects of a run as data, and define the interface of a runtime that records them.

An effect is one model turn or one tool call; it has an outcome, and a reconciliation if it was interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from pydantic_core import to_json

from toolmason._core.call.gates import parse_arguments
from toolmason._core.define.context import ToolContext
from toolmason._core.run.execute import await_with_timeout, call_with_arguments
from toolmason._core.toolbox.exchange import ModelReply
from toolmason._core.values.messages import dump_arguments
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.providers.content_parts import replace_surrogates

_log = logging.getLogger("toolmason")


@dataclass(frozen=True, slots=True)
class RunEffect:
    """One effect of a run: a model turn or a tool call."""

    run: str
    """ID of the run."""
    key: str
    """Key of the effect within the run. The same each time the run is executed."""
    kind: Literal["model", "tool"]
    name: str
    """Name of the model or tool."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """JSON data."""
    repeatable: bool = True
    """True if an interrupted attempt may be repeated."""

    def __post_init__(self) -> None:
        # A model may name a tool that does not exist with a lone surrogate, which no store accepts.
        for name in ("key", "name"):
            object.__setattr__(self, name, replace_surrogates(getattr(self, name)))


def get_recorded_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call for the journal; text that is not a JSON object stays text."""
    raw = dump_arguments(call.raw)  # as a resumed run gets them
    arguments = ToolCall(call.id, call.name, raw).arguments
    return dict(arguments) if arguments or not raw else {"text": str(raw)}


Work: TypeAlias = Callable[[], Awaitable[Any]]
"""Function that performs an effect and returns its outcome."""


@dataclass(frozen=True, slots=True)
class Completed:
    """Outcome of an interrupted call that did complete, with its return value."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """Outcome of an interrupted call that did not run, and may be repeated."""


ReconciledOutcome: TypeAlias = Completed | NotExecuted
Reconciler: TypeAlias = Callable[[], Awaitable[ReconciledOutcome | None]]
"""Function that returns the outcome of an interrupted call, or None if it is unknown."""


@dataclass(frozen=True, slots=True)
class OutcomeSerializer:
    """Pair of functions that convert the outcome of an effect to JSON data and back."""

    dump: Callable[[Any], Any]
    """Returns JSON data, or None if the effect is still pending and must be performed again."""
    load: Callable[[Any], Any]


def make_result(name: str, value: Any, call_id: str = "") -> ToolResult:
    """Return the result of a call that completed elsewhere or earlier."""
    text = value if isinstance(value, str) else to_json(value, fallback=repr).decode()
    return ToolResult(call_id, name, value=value, text=text)


REPLY_SERIALIZER: Final = OutcomeSerializer(ModelReply.to_dict, ModelReply.from_dict)


def make_reconciler(call: ToolCall, reconcile: Callable[..., Any], context: ToolContext[Any]) -> Reconciler:
    """Return a reconciler for a call, from the `reconcile` function of its tool."""

    async def reconcile_call() -> ReconciledOutcome | None:
        try:
            settings = EngineSettings()
            work = call_with_arguments(reconcile, parse_arguments(call), context, settings)
            answer = await await_with_timeout(work, settings.call_timeout, call.name, settings.cancel_grace)
        except Exception as error:  # noqa: BLE001 - user code; if it fails, the outcome is unknown
            _log.warning("reconcile= of %s failed: %s", call.name, type(error).__name__)
            return None
        if isinstance(answer, Completed):
            return Completed(make_result(call.name, answer.value, call.id))
        return answer if isinstance(answer, NotExecuted) else None

    return reconcile_call


FactsProvider: TypeAlias = Callable[[], Mapping[str, Any]]
"""Returns facts about a run as JSON data."""


class RunExecution(Protocol):
    """One execution of a run, whose effects are recorded so that it can be executed again."""

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
    """Journal that decides whether the effects of a run are performed, or read from it."""

    def execute(self, run: str) -> AbstractAsyncContextManager[RunExecution]:
        """Acquire a run for exclusive execution."""
        ...
