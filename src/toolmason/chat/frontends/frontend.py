"""Define what a protocol of front ends does, what two of them share, and the protocol of our own events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from pydantic_core import to_json, to_jsonable_python

from toolmason._core.call.approval import Allow, ApprovalRequest, ApprovalVerdict, Deny, Edit
from toolmason._core.catalog.catalog import FINAL_ANSWER
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.exchange import ArgumentsDelta, CallClosed, CallOpened, TextDelta, ThoughtDelta, Usage
from toolmason._core.values.messages import Message, dump_call
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.answers import AnswerProgress
from toolmason.chat.events import (
    CallFinished,
    CallProgress,
    CallStarted,
    Compacted,
    Delegated,
    Done,
    Event,
    StepFinished,
)
from toolmason.chat.reply import Reply
from toolmason.errors import ApprovalRequired, ConfigError, ExternalCall, ToolError

Data = dict[str, Any]
TextKind = Literal["text", "reasoning"]
DataKind = Literal["progress", "answer", "delegated", "compacted"]
"""A report of a tool, a typed answer so far, an event of a chat that is a tool, or that messages were replaced."""


@dataclass(frozen=True, slots=True)
class FrontendRequest:
    """A request of a front end: messages, answers to requests for approval, or results of calls that it ran."""

    messages: tuple[Message, ...] = ()
    conversation: str | None = None
    answers: Mapping[str, ApprovalVerdict] = field(default_factory=dict)
    """Verdicts by the id of the request for approval."""
    results: Mapping[str, ToolResult] = field(default_factory=dict)
    """Results by the id of the call. Some may be of calls that no run waits for."""
    run: str | None = None
    """Run that the results are for; None for that of the conversation."""
    tools: tuple[Tool, ...] = ()
    """Tools that the front end offers, and runs itself."""
    resumes: str | None = None
    """Run of the journal that goes on with `messages`. A front end of the network must not choose it."""


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """Calls that a front end has seen before the events of a stream, and the tools that it runs."""

    shown: Collection[str] = ()
    """IDs of the calls that it has seen."""
    handed_out: Collection[str] = ()
    """IDs of those that it has to run, or has run."""
    external: Collection[str] = ()
    """Names of the tools that it runs."""


class Encoder(Protocol):
    """Encoder of the events of one run."""

    def start(self) -> Iterator[Data]:
        """Yield what begins the stream."""
        ...

    def encode(self, event: Event) -> Iterator[Data]:
        """Yield an event of the run in the form of the protocol."""
        ...

    def fail(self, code: str, message: str) -> Iterator[Data]:
        """Yield what ends the stream of a run that failed."""
        ...


class Frontend(Protocol):
    """A protocol of front ends."""

    headers: Sequence[tuple[bytes, bytes]]
    """Headers of a stream."""
    last_line: bytes
    """Line after the last event of a stream."""

    def parse(self, body: Any) -> FrontendRequest:
        """Read the body of a request.

        Raises:
            ConfigError: it does not have the form of the protocol.
        """
        ...

    def make_encoder(self, body: Any, run: str, known: KnownCalls) -> Encoder:
        """Return an encoder of a run that this body asks for."""
        ...


def get_field(body: Any, name: str, kind: type, default: Any = None) -> Any:
    """Return a field of a body, or a default if it is missing or null.

    Raises:
        ConfigError: the body is not an object, or the field has another type.
    """
    if not isinstance(body, Mapping):
        raise ConfigError("The body must be a JSON object.")
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise ConfigError(f"{name!r} must be of type {kind.__name__}, not {type(value).__name__}.")
    return value


def parse_verdict(name: str, answer: Any) -> ApprovalVerdict:
    """Return the verdict of an answer: true, false, or an object with `approved`, `reason` and `arguments`.

    Raises:
        ConfigError: it is neither of them.
    """
    if isinstance(answer, Mapping):
        approved, reason, arguments = answer.get("approved"), answer.get("reason"), answer.get("arguments")
        if approved is True and isinstance(arguments, Mapping):
            return Edit(dict(arguments))
        answer = Deny(reason) if approved is False and isinstance(reason, str) and reason else approved
    if isinstance(answer, bool):
        return Allow() if answer else Deny("the user declined")
    if isinstance(answer, Deny):
        return answer
    raise ConfigError(f"The answer to {name!r} must be true, false, or an object with `approved`.")


# --- protocols that name the start and the end of each part -------------------------------------


class PartEncoder(ABC):
    """Encoder of the events of one run, for a protocol in which text, calls and steps begin and end."""

    repeats_calls = False
    """True if a call that was shown with a request for approval is shown again when the front end has to run it."""

    def __init__(self, known: KnownCalls) -> None:
        self._known = known
        self._hidden: set[str] = set()
        """Calls of external tools that are not handed out yet: their arguments may be wrong, or need approval."""
        self._is_request = False
        """True while a call is shown with a request for approval."""
        self._calls = set(known.shown)
        """Calls that the front end knows."""
        self._unclosed: dict[str, str] = {}
        """Arguments so far of the calls that are streamed, by id."""
        self._text_kind: TextKind | None = None
        """Kind of the text that is open."""
        self._in_step = False
        self._handlers: Mapping[type, Callable[[Any], Iterator[Data]]] = {
            TextDelta: lambda event: self._add_text("text", event.text),
            ThoughtDelta: lambda event: self._add_text("reasoning", event.text),
            CallOpened: self._open_call,
            ArgumentsDelta: self._add_arguments,
            CallClosed: lambda event: self._close_call(event.call),
            CallStarted: lambda event: self._add_call(event.call),
            CallProgress: lambda event: self.make_data("progress", _describe_progress(event)),
            CallFinished: self._end_call,
            AnswerProgress: lambda event: self.make_data("answer", event.data),
            Delegated: lambda event: self.make_data("delegated", describe_event(event)),
            Compacted: lambda event: self.make_data("compacted", {"messages": event.messages}),
        }

    def encode(self, event: Event) -> Iterator[Data]:
        """Yield an event of the run in the form of the protocol."""
        if isinstance(event, Done):
            if event.reply.finish == "direct" and event.reply.text:
                yield from self._add_text("text", event.reply.text)
            for call in event.reply.external:
                yield from self._hand_out(call)
            yield from self._end_step()
            yield from self.finish(event.reply)
        elif isinstance(event, StepFinished):
            if not any(isinstance(result.error, ExternalCall) for result in event.results):
                yield from self._end_step()  # else the calls of the step follow with `Done`
        elif (handle := self._handlers.get(type(event))) is not None and not self._is_hidden(event):
            yield from self._start_step()
            yield from handle(event)

    def _start_step(self) -> Iterator[Data]:
        if not self._in_step:
            self._in_step = True
            yield from self.make_step("start")

    def _hand_out(self, call: ToolCall) -> Iterator[Data]:
        """Yield a call that the front end has to run, once its arguments are valid and it is approved."""
        if call.id not in self._known.handed_out and (self.repeats_calls or call.id not in self._calls):
            self._calls.discard(call.id)
            yield from self._start_step()
            yield from self._add_call(call)

    def _is_hidden(self, event: Event) -> bool:
        """Return True if the front end does not see an event: of a typed answer, or of a call that it may run later."""
        if _is_of_answer(event):
            return True
        external = self._known.external
        if isinstance(event, CallOpened) and event.name in external:
            self._hidden.add(event.id)
        if isinstance(event, CallOpened | ArgumentsDelta):
            return event.id in self._hidden
        if not isinstance(event, CallClosed | CallStarted | CallFinished) or event.call.name not in external:
            return False
        # A request for approval is shown, and so is the result of a call that was handed out.
        error = event.result.error if isinstance(event, CallFinished) else None
        return not isinstance(error, ApprovalRequired) and event.call.id not in self._calls

    def _add_text(self, kind: TextKind, text: str) -> Iterator[Data]:
        if self._text_kind != kind:
            yield from self._close_text()
            self._text_kind = kind
            yield from self.make_text(kind, "start", "")
        yield from self.make_text(kind, "delta", text)

    def _close_text(self) -> Iterator[Data]:
        kind, self._text_kind = self._text_kind, None
        if kind is not None:
            yield from self.make_text(kind, "end", "")

    def _open_call(self, event: CallOpened) -> Iterator[Data]:
        # A call without an id, or with that of another one, gets another id before it runs.
        if event.id and event.id not in self._calls:
            yield from self._begin_call(event.id, event.name)

    def _begin_call(self, call_id: str, name: str) -> Iterator[Data]:
        yield from self._close_text()
        self._calls.add(call_id)
        self._unclosed[call_id] = name
        yield self.make_call_start(call_id, name or "unknown")

    def _add_arguments(self, event: ArgumentsDelta) -> Iterator[Data]:
        if event.id in self._unclosed:
            yield self.make_arguments(event.id, event.text)

    def _close_call(self, call: ToolCall) -> Iterator[Data]:
        if self._unclosed.pop(call.id, None) is not None:
            yield self.make_call_end(call)

    def _add_call(self, call: ToolCall) -> Iterator[Data]:
        """Yield a call that was not streamed."""
        if call.id not in self._calls:
            yield from self._begin_call(call.id, call.name)
            yield self.make_arguments(call.id, get_arguments_text(call))
        yield from self._close_call(call)

    def _end_call(self, event: CallFinished) -> Iterator[Data]:
        self._is_request = isinstance(event.result.error, ApprovalRequired)
        yield from self._add_call(event.call)
        self._is_request = False
        yield from self.make_result(event.call, event.result)

    def _end_step(self) -> Iterator[Data]:
        yield from self._close_text()
        for call_id, name in tuple(self._unclosed.items()):
            yield from self._close_call(ToolCall(call_id, name, {}))
        if self._in_step:
            self._in_step = False
            yield from self.make_step("end")

    @abstractmethod
    def make_step(self, phase: Literal["start", "end"]) -> Iterator[Data]:
        """Yield the start or the end of a model turn with its calls."""

    @abstractmethod
    def make_text(self, kind: TextKind, phase: Literal["start", "delta", "end"], text: str) -> Iterator[Data]:
        """Yield the start, a part or the end of text."""

    @abstractmethod
    def make_call_start(self, call_id: str, name: str) -> Data:
        """Return the start of a call."""

    @abstractmethod
    def make_arguments(self, call_id: str, text: str) -> Data:
        """Return a part of the arguments of a call."""

    @abstractmethod
    def make_call_end(self, call: ToolCall) -> Data:
        """Return the end of a call: its arguments are complete."""

    @abstractmethod
    def make_result(self, call: ToolCall, result: ToolResult) -> Iterator[Data]:
        """Yield the result of a call."""

    @abstractmethod
    def make_data(self, kind: DataKind, data: Any) -> Iterator[Data]:
        """Yield data for which the protocol has no part of its own."""

    @abstractmethod
    def finish(self, reply: Reply[Any]) -> Iterator[Data]:
        """Yield the end of the run."""


def _describe_progress(event: CallProgress) -> Data:
    return {**event.to_dict()["progress"], "toolCallId": event.progress.call_id}


def _is_of_answer(event: Event) -> bool:
    """Return True if an event is about a call that is a typed answer, which the front end gets as data."""
    if isinstance(event, CallOpened):
        return event.name == FINAL_ANSWER
    return isinstance(event, CallClosed | CallStarted | CallFinished) and event.call.name == FINAL_ANSWER


def get_arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    raw = call.raw
    return raw if isinstance(raw, str) else to_json(raw or {}, fallback=str).decode()


# --- our own events ----------------------------------------------------------------------------


class EventFrontend:
    """Our own events as JSON, without what only the server may see: the conversation and the state of providers."""

    headers: Sequence[tuple[bytes, bytes]] = ()
    last_line = b""

    def parse(self, body: Any) -> FrontendRequest:
        """Read `{"prompt": "…", "conversation": "…"}`, or `{"run": "…", "answers": {…}, "results": {…}}`."""
        prompt, answers = get_field(body, "prompt", str), get_field(body, "answers", dict, {})
        results = get_field(body, "results", dict, {})
        if (prompt is None) == (not answers and not results):
            raise ConfigError("The body must have a `prompt`, `answers` or `results`.")
        messages = () if prompt is None else (Message("user", prompt),)
        verdicts = {name: parse_verdict(name, answer) for name, answer in answers.items()}
        conversation = get_field(body, "conversation", str)
        taken = {call_id: _parse_result(call_id, result) for call_id, result in results.items()}
        return FrontendRequest(messages, conversation, verdicts, taken, get_field(body, "run", str))

    def make_encoder(self, body: Any, run: str, known: KnownCalls) -> Encoder:
        """Return the encoder of a run."""
        del body, known
        return EventEncoder(run)


def _parse_result(call_id: str, data: Any) -> ToolResult:
    """Return the result of a call: an object with `value`, or with `error` and its text."""
    error = get_field(data, "error", str)
    if error is not None:
        return make_failed(call_id, error)
    if "value" not in data:
        raise ConfigError(f"The result of {call_id!r} must have a `value`, or an `error`.")
    return ToolResult(call_id, "", value=data["value"])


def make_failed(call_id: str, message: str) -> ToolResult:
    """Return the result of a call that failed in the front end."""
    return ToolResult(call_id, "", error=ToolError(message))


@dataclass(slots=True)
class EventEncoder:
    """Encoder of our own events."""

    run: str

    def start(self) -> Iterator[Data]:
        """Yield the id of the run."""
        yield {"type": "Started", "run": self.run}

    def encode(self, event: Event) -> Iterator[Data]:
        """Yield an event."""
        if isinstance(event, Done):
            yield {"type": "Done", "reply": describe_reply(event.reply)}
            return
        yield describe_event(event)

    def fail(self, code: str, message: str) -> Iterator[Data]:
        """Yield the error."""
        yield {"type": "Failed", "error": {"code": code, "message": message}}


def describe_event(event: Event) -> Data:
    """Return what a front end may know of an event."""
    data = event.to_dict()
    if isinstance(event, StepFinished):
        data["reply"]["message"].pop("provider_state", None)
    elif isinstance(event, Delegated):
        data["event"] = describe_event(event.event)
    return data


def find_call_id(reply: Reply[Any], request: ApprovalRequest) -> str:
    """Return the ID of the call of a reply that waits for a request: its own call, or that of a chat."""
    found = (call_id for call_id, waiting in reply.waiting.items() if request in waiting.pending)
    return next(found, request.call_id)


def describe_reply(reply: Reply[Any]) -> Data:
    """Return what a front end may know of a reply."""
    pending = [{name: getattr(request, name) for name in _REQUEST_FIELDS} for request in reply.pending]
    answer = reply.answer
    output = {} if answer is None or answer.problem else {"output": to_jsonable_python(answer.value, fallback=str)}
    return {
        **output,
        "text": reply.text,
        "finish": reply.finish,
        "finish_reason": reply.finish_reason,
        "problem": reply.problem,
        "run": reply.run,
        "usage": {name: getattr(reply.usage, name) for name in Usage.__slots__},
        "cost": reply.cost,
        "pending": [{**request, "arguments": dict(request["arguments"])} for request in pending],
        "external": [dump_call(call) for call in reply.external],
    }


_REQUEST_FIELDS: Final = ("id", "call_id", "tool", "path", "arguments", "preview", "effects", "expires", "reason")
