"""What happens in a run, as it happens.

Lives here: the events of a stream. The last one is `Done`. Not here: pieces of a model's answer, which pass through as
they come (`TextDelta` of `_core.exchange`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolmason._core.run.progress import ProgressReport
from toolmason._core.toolbox.exchange import ArgumentsDelta, CallClosed, CallOpened, ModelReply, TextDelta, ThoughtDelta
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.reply import Reply


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool is about to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallProgress:
    """A tool reports how far it is."""

    progress: ProgressReport


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call has its result."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The model has answered once, and what it asked for has been done."""

    number: int
    reply: ModelReply
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The run is over."""

    reply: Reply


Event: TypeAlias = (
    TextDelta
    | ThoughtDelta
    | CallOpened
    | CallClosed
    | ArgumentsDelta
    | CallStarted
    | CallProgress
    | CallFinished
    | StepFinished
    | Done
)
