"""Define the events that `Chat.stream` yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolmason._core.run.progress import ProgressReport
from toolmason._core.toolbox.exchange import (
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    ModelReply,
    StreamEvent,
    TextDelta,
    ThoughtDelta,
)
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.reply import Reply


@dataclass(frozen=True, slots=True)
class CallStarted(StreamEvent):
    """Start of a tool call."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallProgress(StreamEvent):
    """Progress report of a tool."""

    progress: ProgressReport


@dataclass(frozen=True, slots=True)
class CallFinished(StreamEvent):
    """End of a tool call, with its result."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class StepFinished(StreamEvent):
    """End of a model turn, including its calls."""

    number: int
    reply: ModelReply
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Done(StreamEvent):
    """End of the run. Always the last event."""

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
