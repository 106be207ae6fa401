"""What a run came to: the answer, the calls and results on the way, and whatever it waits for.

Lives here: `Reply`, and how a run that waits is saved. Not here: going on with it (`chat`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from toolmason._core.call.approval import ApprovalRequest
from toolmason._core.toolbox.exchange import Usage
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ConfigError

RunFinish: TypeAlias = Literal["stop", "direct", "calls", "pending", "limit", "cancelled"]
"""Why a run ended: answered, results go to the caller, calls are yours, waits for approval, limit, called off."""

FORMAT: Final = "toolmason-run"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the model, for the timeline."""

    number: int
    text: str
    calls: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """What a run came to."""

    messages: tuple[Message, ...]
    """The conversation as it stands, valid to send again to any provider."""
    finish: RunFinish = "stop"
    calls: tuple[ToolCall, ...] = ()
    """Every call of the run; with `finish="calls"`, also those that wait for you at the end."""
    results: tuple[ToolResult, ...] = ()
    """Every result of the run, in call order."""
    usage: Usage = Usage()  # noqa: RUF009 - frozen, so one default serves all
    pending: tuple[ApprovalRequest, ...] = ()
    """What a human has to decide before the run can go on."""
    conversation: str | None = None
    run: str = ""
    steps: tuple[Step, ...] = ()
    history_length: int = 0
    """How many of the messages were there before the run."""
    turns: int = 0
    """How many turns the model has taken in this run."""

    def __repr__(self) -> str:
        # Short: Python 3.11 makes one of whatever `asyncio.run` returns, and a conversation may be long.
        text = self.text
        preview = f"{text[:60]}…" if len(text) > 60 else text  # noqa: PLR2004 - a line
        return f"<Reply {self.finish}: {preview!r}, {len(self.messages)} messages>"

    @property
    def text(self) -> str:
        """The answer; with `finish="direct"`, the results as they are."""
        if self.finish == "direct":
            last = self.messages[-1].results if self.messages else ()
            return "\n".join(result.text for result in last)
        answers: list[str] = []
        for message in reversed(self.messages[self.history_length :]):
            if message.role == "assistant":
                answers.insert(0, message.text)  # several in a row: the provider paused in between
            elif answers:
                break
        return "".join(answers)

    @property
    def new(self) -> tuple[Message, ...]:
        """What the run added to the conversation."""
        return self.messages[self.history_length :]

    def extended(self, results: Iterable[ToolResult]) -> tuple[Message, ...]:
        """Return the conversation with the results of calls that you ran yourself: what to send next."""
        return (*self.messages, Message("tool", results=tuple(results)))

    def timeline(self) -> str:
        """Return what happened, a line for each turn of the model."""
        return "\n".join(
            f"{step.number}. {step.seconds * 1000:.0f} ms  {', '.join(step.calls) or step.text[:60]!r}"
            for step in self.steps
        )

    def save(self) -> dict[str, Any]:
        """Return the run as plain JSON data, to go on with it later, in another process."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "run": self.run,
            "conversation": self.conversation,
            "finish": self.finish,
            "said": self.history_length,
            "turns": self.turns,
            "messages": [message.to_dict() for message in self.messages],
            "pending": [request.to_dict() for request in self.pending],
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> Reply:
        """Read back what `save` wrote.

        Raises:
            ConfigError: it is not that, or of another version.
        """
        if saved.get("format") != FORMAT or saved.get("version") != VERSION:
            raise ConfigError(
                f"This is not a saved run: format {saved.get('format')!r}, version {saved.get('version')!r}. "
                "Give what `reply.save()` returned."
            )
        try:
            messages = tuple(Message.from_dict(message) for message in saved["messages"])
            pending = tuple(ApprovalRequest.from_dict(request) for request in saved["pending"])
            return cls(
                messages,
                saved["finish"],
                pending=pending,
                conversation=saved["conversation"],
                run=saved["run"],
                history_length=int(saved["said"]),
                turns=int(saved["turns"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"This saved run is damaged: {type(error).__name__}: {error}. Save it again.") from error
