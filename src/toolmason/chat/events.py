"""Define the events that `Chat.stream` yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from toolmason._core.run.progress import ProgressReport
from toolmason._core.toolbox.exchange import (
    LOADERS,
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    ModelReply,
    StreamEvent,
    TextDelta,
    ThoughtDelta,
)
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.answers import AnswerProgress
from toolmason.chat.reply import Reply
from toolmason.errors import ConfigError


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
class Compacted(StreamEvent):
    """A summary replaced older messages of the conversation."""

    summary: Message
    messages: int
    """Number of messages that it replaced."""


@dataclass(frozen=True, slots=True)
class Done(StreamEvent):
    """End of the run. Always the last event."""

    reply: Reply[Any]


@dataclass(frozen=True, slots=True)
class Delegated(StreamEvent):
    """Event of a chat that the run called as a tool."""

    path: tuple[str, ...]
    """Names of the tools that lead to the chat, outermost first."""
    run: str
    """ID of the chat's run."""
    event: Event


LOADERS["Message"] = Message.from_dict
LOADERS["ProgressReport"] = lambda data: ProgressReport(**data)
LOADERS["Reply[Any]"] = Reply.load
LOADERS["tuple[str, ...]"] = tuple


Event: TypeAlias = (
    TextDelta
    | ThoughtDelta
    | CallOpened
    | CallClosed
    | ArgumentsDelta
    | AnswerProgress
    | CallStarted
    | CallProgress
    | CallFinished
    | StepFinished
    | Compacted
    | Delegated
    | Done
)
_KINDS: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in get_args(Event)}


def load_event(data: Mapping[str, Any]) -> Event:
    """Restore an event of any kind from the data of its `to_dict`.

    Raises:
        ConfigError: the data is not that of an event.
    """
    given: Any = data
    kind = _KINDS.get(str(given.get("type"))) if isinstance(given, Mapping) else None
    if kind is None:
        raise ConfigError(f"{data!r:.80} is not the data of an event. Pass that of `event.to_dict()`.")
    event: Event = kind.from_dict(data)
    return event


LOADERS["Event"] = load_event
