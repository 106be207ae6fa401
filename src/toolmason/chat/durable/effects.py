"""The effects of a run as data: one model turn or one tool call, its outcome as JSON, and its reconciliation."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import to_json

from toolmason._core.call.admission import parse_arguments
from toolmason._core.define.context import ToolContext
from toolmason._core.toolbox.exchange import ModelReply
from toolmason._core.values.definition import ToolOptions
from toolmason._core.values.messages import dump_result, load_result
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ApprovalRequired

_log = logging.getLogger("toolmason")


@dataclass(frozen=True, slots=True)
class RunEffect:
    """One thing that a run does."""

    run: str
    """The run that it belongs to."""
    key: str
    """What it is called within the run; the same when the run is driven again."""
    kind: Literal["model", "tool"]
    name: str
    """The model, or the tool."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """JSON data."""
    repeatable: bool = True
    """Whether an attempt that was interrupted may be made again."""
    timeout: float | None = None
    attempt: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the effect as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__} | {"arguments": dict(self.arguments)}


Work: TypeAlias = Callable[[], Awaitable[Any]]
"""Does what an effect says, here and now."""


@dataclass(frozen=True, slots=True)
class Completed:
    """An interrupted call was done, and this is what it gave."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """An interrupted call was not done: it may be made again."""


ReconciledOutcome: TypeAlias = Completed | NotExecuted
Reconciler: TypeAlias = Callable[[], Awaitable[ReconciledOutcome | None]]
"""Finds out what became of an interrupted call; `None` where that cannot be known."""


@dataclass(frozen=True, slots=True)
class OutcomeSerializer:
    """How the outcome of an effect is written down and read back."""

    dump: Callable[[Any], Any]
    """Returns JSON data, or `None` for an outcome that is none yet: nothing was done, and it is asked for again."""
    load: Callable[[Any], Any]


def make_result(name: str, value: Any, call_id: str = "") -> ToolResult:
    """Return the result of a call that was done elsewhere, or before."""
    text = value if isinstance(value, str) else to_json(value, fallback=repr).decode()
    return ToolResult(call_id, name, value=value, text=text)


def _dump_result(result: ToolResult) -> dict[str, Any] | None:
    # A call that waits for a human was not made. It is asked about again, with a request that this process signs.
    return None if isinstance(result.error, ApprovalRequired) else dump_result(result)


REPLY_SERIALIZER: Final = OutcomeSerializer(ModelReply.to_dict, ModelReply.from_dict)
RESULT_SERIALIZER: Final = OutcomeSerializer(_dump_result, load_result)


def make_reconciler(call: ToolCall, options: ToolOptions | None, context: ToolContext[Any] | None) -> Reconciler | None:
    """Return what finds out about a call, where its tool has a way to."""
    reconcile = None if options is None else options.reconcile
    if reconcile is None:
        return None

    async def reconcile_call() -> ReconciledOutcome | None:
        try:
            arguments = (parse_arguments(call), context or ToolContext[Any]())
            answer = reconcile(*arguments[: len(inspect.signature(reconcile).parameters)])
            answer = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - foreign code; what it cannot tell is not known
            _log.warning("reconcile= of %s failed: %s", call.name, type(error).__name__)
            return None
        if isinstance(answer, Completed):
            return Completed(make_result(call.name, answer.value, call.id))
        return answer if isinstance(answer, NotExecuted) else None

    return reconcile_call
