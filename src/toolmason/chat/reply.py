"""Hold the outcome of a run, and save one that is waiting for approval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Generic, Literal, TypeAlias, cast

from toolmason._core.call.approval import ApprovalRequest
from toolmason._core.call.gates import is_own
from toolmason._core.call.limits import END_ADVICE
from toolmason._core.toolbox.exchange import ModelReply, Usage
from toolmason._core.values.content import Text
from toolmason._core.values.messages import Citation, Message, dump_call
from toolmason._core.values.policy import Limits
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._explain import explain_arguments
from toolmason._text import pluralize
from toolmason.chat.answers import Answer, OutputT
from toolmason.errors import (
    AnswerError,
    ConfigError,
    LimitExceeded,
    ToolCallError,
    ToolCancelled,
    ToolmasonError,
    clip,
)
from toolmason.observe.tree import draw_length, format_milliseconds

RunFinish: TypeAlias = Literal[
    "stop", "length", "refusal", "filter", "calls", "direct", "pending", "limit", "cancelled", "error"
]
"""Reason a run ended.

`stop`: the model answered. `length`: the answer is cut at the token limit. `refusal`: the model refused to answer.
`filter`: a filter of the provider removed the answer. `error`: the model failed, or its answer is empty.
`direct`: the results are the answer. `calls`: the caller must run the last calls. `pending`: calls wait for approval,
or for the application to run them. `limit`: a limit was reached. `cancelled`: the run was cancelled.
"""
_PROBLEMS: Final[Mapping[str, str]] = {
    "length": "The answer is cut at the token limit{}. Raise `max_tokens`, or pass `on_length='continue'`.",
    "refusal": "The model refused to answer{}.",
    "filter": "A filter of the provider removed the answer{}.",
    "error": "The model ended without an answer{}.",
    "limit": "The run reached its limits before the model answered: {}.",
    "cancelled": "The run was cancelled.",
}
CONTINUE_TEXT: Final = "Your answer was cut off. Continue exactly where it stopped, without repeating anything."
"""Message that asks for the rest of an answer that the token limit cut off."""

FORMAT: Final = "toolmason-run"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One model turn in the timeline."""

    number: int
    text: str
    calls: tuple[str, ...]
    seconds: float
    model: str = ""
    """Name of the model."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """Run of a chat that a run called as a tool, with what it used, including the runs that it called itself."""

    name: str
    """Name of the tool."""
    call_id: str
    run: str
    """ID of the run."""
    finish: RunFinish
    usage: Usage
    cost: float | None
    steps: int
    calls: int
    delegations: tuple[Delegation, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON data."""
        return asdict(self) | {"delegations": [each.to_dict() for each in self.delegations]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Delegation:
        """Restore a run from the data of `to_dict`.

        Raises:
            ConfigError: the data is not that of such a run.
        """
        try:
            fields = dict(data)
            fields["usage"] = Usage(**fields["usage"])
            fields["delegations"] = tuple(map(cls.from_dict, fields["delegations"]))
            return cls(**fields)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ConfigError(
                f"This is not the data of a Delegation: {type(error).__name__}: {error!s:.200}."
            ) from error


@dataclass(frozen=True, slots=True, repr=False)
class Reply(Generic[OutputT]):
    """Outcome of a run. A `Reply[Invoice]` has an `output` of type `Invoice`."""

    messages: tuple[Message, ...]
    """Whole conversation, valid to send again to any provider."""
    finish: RunFinish = "stop"
    """Why the run ended; `finish_reason` is the provider's own word."""
    calls: tuple[ToolCall, ...] = ()
    """All calls of the run. With `finish="calls"`, only those that have not been run."""
    results: tuple[ToolResult, ...] = ()
    """All results of the run, in call order."""
    usage: Usage = Usage()  # noqa: RUF009 - frozen, so one default serves all
    pending: tuple[ApprovalRequest, ...] = ()
    """Approval requests that need a decision before the run can continue."""
    conversation: str | None = None
    run: str = ""
    steps: tuple[Step, ...] = ()
    history_length: int = 0
    """Number of messages from before the run."""
    turns: int = 0
    """Number of model turns in this run."""
    answer: Answer[OutputT] | None = None
    """How the run came to its typed answer, or None if it has no `output=`."""
    cost: float | None = None
    """Cost of the usage, or None if no chat has a `price=`."""
    limit: str = ""
    """Limit that ended the run, such as `limit of 25 steps`; empty if none did."""
    delegations: tuple[Delegation, ...] = ()
    """Runs of chats that the run called as tools. `usage` and `cost` include them."""
    waiting: Mapping[str, Reply[Any]] = field(default_factory=dict)
    """Replies of such chats that wait for approval, by the ID of the call. `pending` includes their requests."""
    external: tuple[ToolCall, ...] = ()
    """Calls that the application has to run, with valid arguments, before the run can continue."""
    compacted: tuple[int, int] = (0, 0)
    """Number of messages of the run, and of calls in them, that a summary replaced."""
    tickets: tuple[str, ...] = ()
    """Tickets of the conversation whose work goes on, or whose results the next `send` delivers."""
    trace: str = ""
    """W3C trace header of the run's span, whose second part is the trace ID; empty if the program does not trace."""
    finish_reason: str = ""
    """The provider's own word for why the last turn ended; empty if it has none."""
    model: str = ""
    """Name of the model that answered last."""
    notes: tuple[str, ...] = ()
    """Sentences about how the run came about, such as the failure of a model in place of which another one answered."""

    @property
    def problem(self) -> str:
        """Sentence that says why the run has no complete answer; empty if it has one, or waits."""
        if self.finish == "limit":
            return _PROBLEMS["limit"].format(self.limit)
        reason = f" (the provider said {self.finish_reason!r})" if self.finish_reason else ""
        return _PROBLEMS.get(self.finish, "").format(reason)

    def __repr__(self) -> str:
        # Short: Python 3.11 builds the repr of the value that `asyncio.run` returns, and a conversation may be long.
        text = self.text
        preview = f"{text[:60]}…" if len(text) > 60 else text  # noqa: PLR2004 - a line
        return f"<Reply {self.finish}: {preview!r}, {len(self.messages)} messages>"

    @property
    def output(self) -> OutputT:
        """Answer of the model, of the type that `output=` names.

        Raises:
            AnswerError: the run ended without one.
        """
        answer = self.answer
        if answer is None and self.finish == "stop":
            raise AnswerError("the run has no `output=`. Pass a type to `Chat` or to `send`.")
        if answer is None or answer.problem:
            cause = None if answer is None else answer.cause
            problem = f"the run ended with finish={self.finish!r}" if answer is None else answer.problem
            raise AnswerError(problem) from (cause and (cause.__cause__ or cause))
        return cast("OutputT", answer.value)

    @property
    def text(self) -> str:
        """Answer of the model: with `output=` its JSON, with `finish="direct"` the text of the results."""
        if self.answer is not None and self.answer.text:
            return self.answer.text
        if self.finish == "direct":
            last = self.messages[-1].results if self.messages else ()
            return "\n".join(result.text for result in last)
        return "".join([message.text for message in self._get_answers()])

    def _get_answers(self) -> list[Message]:
        """Return the messages with the answer: several if the provider paused, or the model was asked for the rest."""
        answers: list[Message] = []
        for message in reversed(self.messages[self.history_length :]):
            if message.role == "assistant":
                answers.insert(0, message)
            elif answers and message.text != CONTINUE_TEXT:
                break
        return answers

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Sources that the provider names for the answer; their positions are those in `text`."""
        found: list[Citation] = []
        offset = 0
        for message in self._get_answers():
            found += [
                replace(each, start=each.start + offset, end=each.end and each.end + offset)
                for each in message.citations
            ]
            offset += len(message.text)
        return tuple(found)

    @property
    def new(self) -> tuple[Message, ...]:
        """Messages that the run added."""
        return self.messages[self.history_length :]

    def extended(self, results: Iterable[ToolResult]) -> tuple[Message, ...]:
        """Return the conversation with the results of calls that you ran, to send next."""
        return (*self.messages, Message("tool", results=tuple(results)))

    def timeline(self) -> str:
        """Return a line of text for each model turn and each of its calls, with its time, and one for the total."""
        rows = [row for step, results in self._pair_steps() for row in _describe_step(step, results)]
        longest = max((seconds for _, seconds, _ in rows), default=0.0)
        width = max((len(name) for name, _, _ in rows), default=0)
        lines = [
            f"{name:<{width}} {format_milliseconds(seconds * 1000):>9} {draw_length(seconds, longest)} {note}".rstrip()
            for name, seconds, note in rows
        ]
        counts = f"{pluralize(self.turns, 'turn')}, {pluralize(len(self.results), 'call')}"
        tokens = f", {self.usage.total_tokens:,} tokens" if self.usage.total_tokens else ""
        cost = "" if self.cost is None else f", cost {self.cost:.6g}"
        return "\n".join([*lines, f"{counts}{tokens}{cost}, {self.finish}"])

    def _pair_steps(self) -> list[tuple[Step, list[ToolResult]]]:
        """Return each turn with the results of its calls. A resumed run has messages of turns that are not its own."""
        results = {result.call_id: result for result in self.results}
        messages = [message for message in self.new if message.role == "assistant"]
        pairs: list[tuple[Step, list[ToolResult]]] = []
        for step in reversed(self.steps):
            while messages and tuple(call.name for call in messages[-1].calls) != step.calls:
                messages.pop()  # such as the results of tickets, which no model asked for
            calls = messages.pop().calls if messages else ()
            pairs.append((step, [results[call.id] for call in calls if call.id in results]))
        return pairs[::-1]

    def to_dict(self) -> dict[str, Any]:
        """Return the reply as JSON data: the text, and what `save` returns."""
        return {"text": self.text, **self.save()}

    def save(self) -> dict[str, Any]:
        """Return the run as plain JSON data, to resume it later in another process."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "run": self.run,
            "conversation": self.conversation,
            "finish": self.finish,
            "said": self.history_length,
            "turns": self.turns,
            "answers": 0 if self.answer is None else self.answer.attempts,
            "messages": [message.to_dict() for message in self.messages],
            "pending": [request.to_dict() for request in self.pending],
            "usage": asdict(self.usage),
            "cost": self.cost,
            "limit": self.limit,
            "finish_reason": self.finish_reason,
            "model": self.model,
            "notes": [*self.notes],
            "delegations": [each.to_dict() for each in self.delegations],
            "waiting": {call_id: reply.save() for call_id, reply in self.waiting.items()},
            "external": [dump_call(call) for call in self.external],
            "compacted": [*self.compacted],
            "trace": self.trace,
        }

    @classmethod
    @explain_arguments
    def load(cls, saved: Mapping[str, Any]) -> Reply[Any]:
        """Restore a reply from the data of `save`.

        Raises:
            ConfigError: the data is not a saved run, or has another version.
        """
        given: Any = saved
        found = [given.get(name) for name in ("format", "version")] if isinstance(given, Mapping) else [None, None]
        if found != [FORMAT, VERSION]:
            raise ConfigError(
                f"This is not a saved run: format {found[0]!r}, version {found[1]!r}. "
                "Pass the data of `reply.save()` as `saved=`."
            )
        try:
            messages = tuple(Message.from_dict(message) for message in saved["messages"])
            pending = tuple(ApprovalRequest.from_dict(request) for request in saved["pending"])
            # Runs that an older version saved have fewer keys.
            attempts = int(saved.get("answers", 0))
            return cls(
                messages,
                saved["finish"],
                pending=pending,
                conversation=saved["conversation"],
                run=saved["run"],
                history_length=int(saved["said"]),
                turns=int(saved["turns"]),
                answer=Answer("tool", attempts, "the run was saved without its answer") if attempts else None,
                usage=Usage(**saved.get("usage", {})),
                cost=saved.get("cost"),
                limit=saved.get("limit", ""),
                delegations=tuple(map(Delegation.from_dict, saved.get("delegations", ()))),
                waiting={call_id: cls.load(reply) for call_id, reply in saved.get("waiting", {}).items()},
                external=tuple(ToolCall(**call) for call in saved.get("external", ())),
                compacted=_load_compacted(saved.get("compacted", (0, 0))),
                trace=str(saved.get("trace", "")),
                finish_reason=saved.get("finish_reason", ""),
                model=saved.get("model", ""),
                notes=tuple(saved.get("notes", ())),
            )
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError, ToolmasonError) as error:
            raise ConfigError(f"This saved run is damaged: {type(error).__name__}: {error}. Save it again.") from error


def _describe_step(step: Step, results: Iterable[ToolResult]) -> Iterable[tuple[str, float, str]]:
    """Yield the rows of a turn: name, seconds, and the outcome."""
    yield f"{step.number}  {step.model or 'model'}", step.seconds, ", ".join(step.calls) or repr(clip(step.text, 60))
    for result in results:
        yield f"   └─ {result.name}", result.duration, "ok" if result.error is None else f"✗ {result.error.code}"


def _load_compacted(saved: Any) -> tuple[int, int]:
    messages, calls = saved
    return int(messages), int(calls)


def is_paused_by_provider(reply: ModelReply) -> bool:
    """Return True if the provider paused its own work and continues when it is asked again."""
    if reply.finish != "pause" or reply.calls:
        return False
    state = reply.message.provider_state
    items = state.get("items", ()) if isinstance(state, Mapping) else ()
    # An approval request of the provider waits for a person instead.
    return not any(item.get("type") == "mcp_approval_request" for item in items if isinstance(item, Mapping))


def find_finish(reply: ModelReply) -> RunFinish:
    """Return how a run ends that ends with this reply."""
    message = reply.message
    if message.calls:
        return "calls"
    if reply.finish == "pause":
        return "pending"
    # An empty answer must not look like one: providers report `stop` for it as well.
    is_empty = all(isinstance(part, Text) and not part.text.strip() for part in message.content)
    return "error" if reply.finish == "stop" and is_empty else reply.finish


def make_cancelled_result(call: ToolCall) -> ToolResult:
    """Return the result of a cancelled call."""
    return ToolResult(call.id, call.name, error=ToolCancelled(call.name), attempts=0)


def is_run_limit_error(error: ToolCallError) -> bool:
    """Return True if a call was refused because of a limit of the whole run."""
    return is_own(error, LimitExceeded) and error.message.endswith(END_ADVICE)


def find_limit(limits: Limits, reply: Reply[Any]) -> str:
    """Return the limit that ended a run."""
    errors = [result.error for result in reversed(reply.results) if result.error is not None]
    limit_error = next(filter(is_run_limit_error, errors), None)
    if limit_error is not None:
        # The text, because an error that is restored from JSON has another type.
        return limit_error.message.partition("was not run: the ")[2].partition(" has been reached")[0]
    if limits.answers is not None and reply.answer is not None and reply.answer.attempts >= limits.answers:
        return f"limit of {limits.answers} answers"
    return f"limit of {limits.seconds} seconds"


def make_limit_error(limit: str) -> LimitExceeded:
    """Return an error that names the limit that ended a run."""
    return LimitExceeded("The next turn", limit, "Raise it, or get a partial reply with on_limit='stop'.")
