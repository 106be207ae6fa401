"""Define model requests, replies and stream events, independent of any provider's format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from operator import add, attrgetter
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic_core import to_json

from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message, dump_call, dump_result, load_result
from toolmason._core.values.provider_tools import NATIVE_TOOL_TYPES, AnyNativeTool
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError

FinishReason: TypeAlias = Literal["stop", "calls", "length", "refusal", "filter", "pause", "error"]
"""Reason a model stopped: finished, tool calls, token limit, refusal, content filter, paused turn, or a failure."""
ToolChoiceMode: TypeAlias = Literal["auto", "none", "required"]
_MODES: Final = ("auto", "none", "required")

OPTIONS: Final[Mapping[str, str]] = {
    "max_tokens": "maximum number of output tokens",
    "temperature": "sampling temperature",
    "top_p": "nucleus sampling threshold",
    "top_k": "number of tokens to sample from",
    "stop": "sequences that end the answer",
    "seed": "seed of the sampling",
    "reasoning": '"low", "medium", "high", a number of tokens, or 0 for none',
    "service_tier": "the provider's name of a tier of service",
    "logprobs": "True, or the number of likely tokens, for log probabilities in `ModelReply.raw`",
    "cache": 'True, "5m" or "1h" to mark the prompt for a cache; providers without marks cache it anyway',
    "parallel": "True to allow several tool calls in one turn",
    "strict": 'True, False or "auto": see `Toolbox.definitions`',
    "lossy": "True to allow schemas that lose meaning in the provider's format",
    "defer": "names of tools that the provider loads only if its tool search finds them",
    "answer": '"native", "tool" or "json": how a typed answer is requested',
    "body": "provider-specific fields, merged into the request",
}
"""Keys of `ModelRequest.options`."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Constraint on tool calls: whether the model may, must or must not call tools, and which ones."""

    mode: ToolChoiceMode = "auto"
    names: tuple[str, ...] = ()
    """Names of the allowed tools. Empty allows all."""

    @explain_arguments
    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ConfigError(f'tool_choice={self.mode!r}: must be "auto", "none", "required" or the name of a tool.')
        given: Any = self.names
        object.__setattr__(self, "names", (given,) if isinstance(given, str) else tuple(given))

    @classmethod
    def parse(cls, choice: ToolChoice | str | None) -> ToolChoice | None:
        """Parse a choice: a mode, or the name of a tool that the model must call."""
        if choice is None or isinstance(choice, ToolChoice):
            return choice
        given: Any = choice
        if not isinstance(given, str):
            raise ConfigError(f'tool_choice={given!r}: must be "auto", "none", "required" or the name of a tool.')
        return cls(choice) if choice in _MODES else cls("required", (choice,))  # type: ignore[arg-type]


AnswerMode: TypeAlias = Literal["native", "tool", "json"]
"""Way to request a typed answer: the provider enforces the schema, a tool takes it, or the model is asked for JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerFormat:
    """Typed answer that a request asks for."""

    definition: ToolDefinition
    """Name and schema of the answer, in the form of a tool. In mode `tool`, the request offers that tool as well."""
    mode: AnswerMode = "tool"
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Schema in the form that the provider accepts; empty in mode `tool`."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Request for one model turn. `tools` accepts a toolbox, or any source that a toolbox accepts."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    native: tuple[AnyNativeTool, ...] = ()
    """Tools that the provider runs."""
    answer: AnswerFormat | None = None
    """Typed answer that the model should give at the end."""

    def __init__(
        self,
        messages: str | Message | Iterable[Message],
        tools: Any = (),  # a toolbox, or any source of tools
        tool_choice: ToolChoice | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        raw_options: Any = options or {}
        if not isinstance(raw_options, Mapping):
            raise ConfigError(f"options={options!r:.60}: must be a mapping, such as {{'max_tokens': 100}}.")
        given = dict(options or {})
        if unknown := given.keys() - OPTIONS.keys():
            raise ConfigError(
                f"Unknown model option {min(unknown)!r}. Options: {', '.join(OPTIONS)}. "
                'Put provider-specific fields into options={"body": {...}}.'
            )
        if not isinstance(given.get("body", {}), Mapping):
            raise ConfigError(f'options={{"body": {given["body"]!r:.60}}}: must be a mapping of fields.')
        definitions, native = _split_tools(tools)
        for name, value in {
            "messages": _to_messages(messages),
            "tools": definitions,
            "tool_choice": ToolChoice.parse(tool_choice),
            "options": given,
            "native": native,
            "answer": None,
        }.items():
            object.__setattr__(self, name, value)

    def with_messages(self, messages: Iterable[Message], **changes: Any) -> ModelRequest:
        """Return a request with other messages and `changes`. All other fields are the same objects.

        Unlike `dataclasses.replace`, it does not validate and convert the fields again.
        """
        copied = object.__new__(ModelRequest)
        get_change = changes.get
        # Spelled out instead of looping: every step of a run makes a copy or two.
        _set_messages(copied, tuple(messages))
        _set_tools(copied, get_change("tools", self.tools))
        _set_tool_choice(copied, get_change("tool_choice", self.tool_choice))
        _set_options(copied, get_change("options", self.options))
        _set_native(copied, get_change("native", self.native))
        _set_answer(copied, get_change("answer", self.answer))
        return copied


_set_messages, _set_tools, _set_tool_choice, _set_options, _set_native, _set_answer = (
    vars(ModelRequest)[name].__set__ for name in ModelRequest.__slots__
)


def check_tool_choice(request: ModelRequest) -> None:
    """Check that a request offers the tools of its `tool_choice`.

    Raises:
        ConfigError: `tool_choice` names a tool that is not offered, or requires a tool but none is offered.
    """
    if (choice := request.tool_choice) is None:
        return
    known = {tool.name for tool in request.tools}
    if missing := [name for name in choice.names if name not in known]:
        raise ConfigError(f"tool_choice names {missing[0]!r}, which is not offered. Available: {sorted(known)}.")
    if choice.mode == "required" and not known and not request.native:
        raise ConfigError('tool_choice="required" needs at least one tool. Offer tools, or omit it.')


def add_answer(
    request: ModelRequest,
    messages: tuple[Message, ...],
    tools: tuple[ToolDefinition, ...],
    choice: ToolChoice | None,
    answer: AnswerFormat,
) -> ModelRequest:
    """Return a request that asks for a typed answer. As `with_messages`, but without keywords: once in each step."""
    copied = object.__new__(ModelRequest)
    _set_messages(copied, messages)
    _set_tools(copied, tools)
    _set_tool_choice(copied, choice)
    _set_options(copied, request.options)
    _set_native(copied, request.native)
    _set_answer(copied, answer)
    return copied


def _to_messages(given: Any) -> tuple[Message, ...]:
    if isinstance(given, str):
        return (Message("user", given),)
    is_iterable = isinstance(given, Iterable) and not isinstance(given, Mapping)
    messages: tuple[Any, ...] = tuple(given) if is_iterable else (given,)
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"{message!r:.60} is not a message. Pass a string or Message('user', ...).")
    return messages


def _split_tools(tools: Any) -> tuple[tuple[ToolDefinition, ...], tuple[AnyNativeTool, ...]]:
    definitions: dict[str, ToolDefinition] = {}
    native: list[AnyNativeTool] = []
    # Ask a toolbox for its tools, so that server tools and `read_result` are included.
    own_tools = getattr(tools, "tools", None)
    if isinstance(own_tools, list):
        sources = [*[getattr(tool, "definition", tool) for tool in own_tools], *getattr(tools, "native", ())]
    else:
        sources = _to_list(tools)
    for source in sources:
        for item in [source] if isinstance(source, ToolDefinition) else _read_source(source):
            if isinstance(item, NATIVE_TOOL_TYPES):
                native.append(item)
            elif isinstance(item, ToolDefinition):
                definitions.setdefault(item.name, item)
    return tuple(map(definitions.__getitem__, sorted(definitions))), tuple(native)


def _read_source(source: Any) -> list[Any]:
    # Deferred: a model is built before it has tools, and these imports are half its cost.
    from toolmason._core.catalog.catalog import iter_source_items  # noqa: PLC0415
    from toolmason._core.define.tool import Tool  # noqa: PLC0415

    return [item.definition if isinstance(item, Tool) else item for item in iter_source_items(source, None, ())]


def _to_list(tools: Any) -> list[Any]:
    if tools is None:
        return []
    return list(tools) if isinstance(tools, list | tuple | set | frozenset) else [tools]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts, with the same meaning for every provider: `input_tokens` includes cached tokens."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Sum of input and output tokens."""
        return self.input_tokens + self.output_tokens

    cached_tokens: int = 0
    """Input tokens read from a cache."""
    cache_write_tokens: int = 0
    """Input tokens written to a cache."""
    reasoning_tokens: int = 0
    """Output tokens spent on reasoning."""
    tool_tokens: int = 0
    """Input tokens of the results of tools that the provider ran, if it counts them."""
    tool_uses: int = 0
    """Uses of tools that the provider ran and bills, such as web searches, if it counts them."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _get_counts(self), _get_counts(other)))


_get_counts: Final = attrgetter(*Usage.__slots__)
NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class ModelReply:
    """Reply of a model."""

    message: Message
    """Message to append to the history unchanged."""
    finish: FinishReason = "stop"
    usage: Usage = NO_USAGE
    raw: Any = field(default=None, repr=False)
    """Raw response of the provider."""
    finish_reason: str = ""
    """The provider's own word for why the model stopped, such as `max_output_tokens`."""
    model: str = ""
    """Name of the model that answered, if the request was sent to several; else empty."""
    notes: tuple[str, ...] = ()
    """Sentences about how the reply came about, such as the failure of another model."""

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each field
        self,
        message: Message,
        calls: Iterable[ToolCall] = (),  # for a message without calls; stored in the message only
        finish: FinishReason = "stop",
        usage: Usage = NO_USAGE,
        raw: Any = None,
        finish_reason: str = "",
        *,
        model: str = "",
        notes: Iterable[str] = (),
    ) -> None:
        if not message.calls and (given := tuple(calls)):
            message = replace(message, calls=given)
        own = {"message": message, "finish": finish, "usage": usage, "raw": raw, "finish_reason": finish_reason}
        for name, value in {**own, "model": model, "notes": tuple(notes)}.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the reply as JSON data, without `raw`."""
        usage = {name: getattr(self.usage, name) for name in Usage.__slots__}
        data = {"message": self.message.to_dict(), "finish": self.finish, "usage": usage}
        optional = {"finish_reason": self.finish_reason, "model": self.model, "notes": [*self.notes]}
        return {**data, **{name: value for name, value in optional.items() if value}}

    @classmethod
    @explain_arguments
    def from_dict(cls, data: Mapping[str, Any]) -> ModelReply:
        """Restore a reply from the data of `to_dict`."""
        optional = {name: data[name] for name in ("finish_reason", "model", "notes") if name in data}
        return cls(Message.from_dict(data["message"]), (), data["finish"], Usage(**data["usage"]), **optional)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Tool calls that the model requests."""
        return self.message.calls

    @property
    def text(self) -> str:
        """Text of the reply."""
        return self.message.text


class StreamEvent:
    """Base of the events of a stream."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data; `type` is the name of its class."""
        event: Any = self
        return {"type": type(self).__name__} | {item.name: _dump(getattr(self, item.name)) for item in fields(event)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore an event from the data of `to_dict`.

        Raises:
            ConfigError: the data is not that of such an event.
        """
        kind: Any = cls
        try:
            if data["type"] != cls.__name__:
                raise ConfigError(f"This is the data of a {data['type']!r:.60}, not of a {cls.__name__}.")
            return cls(**{item.name: _load(item.type, data[item.name]) for item in fields(kind)})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"This is not the data of a {cls.__name__}: {type(error).__name__}: {error!s:.200}."
            ) from error


def _dump(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_dump(item) for item in value]
    if isinstance(value, ToolResult):
        return dump_result(value)
    if isinstance(value, ToolCall):
        return dump_call(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


LOADERS: Final[dict[str, Callable[[Any], Any]]] = {
    "ToolCall": lambda data: ToolCall(**data),
    "tuple[ToolResult, ...]": lambda data: tuple(map(load_result, data)),
    "ToolResult": load_result,
    "ModelReply": ModelReply.from_dict,
    "Any": lambda data: data,
}
"""Functions that restore the field of an event from JSON data, by its annotation."""


def _load(annotation: Any, data: Any) -> Any:
    load = LOADERS.get(annotation)
    if load is not None:
        return load(data)
    expected: Any = {"str": str, "int": int}[annotation]
    if not isinstance(data, expected):
        raise TypeError(annotation)
    return data


@dataclass(frozen=True, slots=True)
class TextDelta(StreamEvent):
    """Fragment of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta(StreamEvent):
    """Fragment of the model's reasoning, if the provider exposes it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpened(StreamEvent):
    """Start of a call. Its arguments follow."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta(StreamEvent):
    """Fragment of a call's arguments."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed(StreamEvent):
    """End of a call, with the complete call."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Finished(StreamEvent):
    """End of the stream, with the complete reply. Always the last event."""

    reply: ModelReply


ModelEvent: TypeAlias = TextDelta | ThoughtDelta | CallOpened | ArgumentsDelta | CallClosed | Finished


def iter_reply_events(reply: ModelReply) -> Iterator[ModelEvent]:
    """Yield a complete reply as stream events: its text word by word, its calls, and `Finished`."""
    yield from map(TextDelta, re.findall(r"\S+\s*|\s+", reply.text))
    for call in reply.calls:
        yield CallOpened(call.id, call.name)
        yield ArgumentsDelta(call.id, _arguments_text(call))
        yield CallClosed(call)
    yield Finished(reply)


def _arguments_text(call: ToolCall) -> str:
    arguments = call.raw
    if isinstance(arguments, str | bytes):
        return arguments if isinstance(arguments, str) else arguments.decode("utf-8", "replace")
    return to_json(arguments or {}).decode()
