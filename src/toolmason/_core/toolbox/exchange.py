"""What goes to a model and comes back: requests, replies, and the events of a reply that is on its way.

Lives here: frozen values that no provider's format shows in. Not here: the formats (`toolmason.providers`), or
who answers (`toolmason.models`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import to_json

from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.provider_tools import NATIVE_TOOL_TYPES, AnyNativeTool
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError

FinishReason: TypeAlias = Literal["stop", "calls", "length", "refusal", "filter", "pause", "other"]
"""Why a model stopped: done, wants calls, out of tokens, will not, was not let, wants to go on, something else."""
ToolChoiceMode: TypeAlias = Literal["auto", "none", "required"]
_MODES: Final = ("auto", "none", "required")

OPTIONS: Final[Mapping[str, str]] = {
    "max_tokens": "how long the answer may be",
    "temperature": "how much chance there is in it",
    "top_p": "from how much of the likely words it is chosen",
    "stop": "texts that end it",
    "parallel": "whether the model may ask for several calls at once",
    "strict": 'True, False or "auto": see `Toolbox.definitions`',
    "lossy": "whether a tool may change its meaning on the way",
    "defer": "names of tools that the provider loads only when its own search finds them",
    "body": "fields of the provider's own, put into the request as they are",
}
"""What `ModelRequest.options` may hold."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, must or must not call, and which tools alone it may call."""

    mode: ToolChoiceMode = "auto"
    names: tuple[str, ...] = ()
    """The tools that it may call; empty: any."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ConfigError(f'tool_choice={self.mode!r}: give "auto", "none", "required", or the name of a tool.')
        given: Any = self.names
        object.__setattr__(self, "names", (given,) if isinstance(given, str) else tuple(given))

    @classmethod
    def parse(cls, choice: ToolChoice | str | None) -> ToolChoice | None:
        """Read a choice: one of the three words, or the name of the tool that must be called."""
        if choice is None or isinstance(choice, ToolChoice):
            return choice
        given: Any = choice
        if not isinstance(given, str):
            raise ConfigError(f'tool_choice={given!r}: give "auto", "none", "required", or the name of a tool.')
        return cls(choice) if choice in _MODES else cls("required", (choice,))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One turn to ask of a model. `tools` takes a toolbox, or anything that a toolbox takes."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    native: tuple[AnyNativeTool, ...] = ()
    """Tools that the provider runs."""

    def __init__(
        self,
        messages: str | Message | Iterable[Message],
        tools: Any = (),  # a toolbox or whatever gives tools
        tool_choice: ToolChoice | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        raw_options: Any = options or {}
        if not isinstance(raw_options, Mapping):
            raise ConfigError(f"options={options!r:.60}: give a mapping, such as {{'max_tokens': 100}}.")
        given = dict(options or {})
        if unknown := given.keys() - OPTIONS.keys():
            raise ConfigError(
                f"There is no model option {min(unknown)!r}. There are: {', '.join(OPTIONS)}. "
                'What only one provider knows goes into options={"body": {...}}.'
            )
        if not isinstance(given.get("body", {}), Mapping):
            raise ConfigError(f'options={{"body": {given["body"]!r:.60}}}: give a mapping of fields.')
        definitions, native = _split_tools(tools)
        for name, value in {
            "messages": _to_messages(messages),
            "tools": definitions,
            "tool_choice": ToolChoice.parse(tool_choice),
            "options": given,
            "native": native,
        }.items():
            object.__setattr__(self, name, value)


def _to_messages(given: Any) -> tuple[Message, ...]:
    if isinstance(given, str):
        return (Message("user", given),)
    is_iterable = isinstance(given, Iterable) and not isinstance(given, Mapping)
    messages: tuple[Any, ...] = tuple(given) if is_iterable else (given,)
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"{message!r:.60} is no message. Give a text, or Message('user', ...).")
    return messages


def _split_tools(tools: Any) -> tuple[tuple[ToolDefinition, ...], tuple[AnyNativeTool, ...]]:
    definitions: dict[str, ToolDefinition] = {}
    native: list[AnyNativeTool] = []
    # A toolbox gives its tools itself, so that those of servers and `read_result` are among them.
    own_tools = getattr(tools, "tools", None)
    sources = [*own_tools, *getattr(tools, "native", ())] if isinstance(own_tools, list) else _to_list(tools)
    for source in sources:
        for item in [source] if isinstance(source, ToolDefinition) else _read_source(source):
            if isinstance(item, NATIVE_TOOL_TYPES):
                native.append(item)
            elif isinstance(item, ToolDefinition):
                definitions.setdefault(item.name, item)
    return tuple(definitions[name] for name in sorted(definitions)), tuple(native)


def _read_source(source: Any) -> list[Any]:
    # Whoever builds a model has no tools yet, and need not wait for what reads them: half the cost of a first model.
    from toolmason._core.catalog.catalog import iter_source_items  # noqa: PLC0415
    from toolmason._core.define.tool import Tool  # noqa: PLC0415

    return [item.definition if isinstance(item, Tool) else item for item in iter_source_items(source, None, ())]


def _to_list(tools: Any) -> list[Any]:
    if tools is None:
        return []
    return list(tools) if isinstance(tools, list | tuple | set | frozenset) else [tools]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, counted alike for every provider: `input_tokens` includes those that came from a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input, read from a cache."""
    cache_write_tokens: int = 0
    """Of the input, written to a cache."""
    reasoning_tokens: int = 0
    """Of the output, thought and not said."""

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered."""

    message: Message
    """To put into the history as it is."""
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    raw: Any = field(default=None, repr=False)
    """The provider's answer as it came."""

    def __init__(
        self,
        message: Message,
        calls: Iterable[ToolCall] = (),  # for a message that has none; they are kept there, and nowhere else
        finish: FinishReason = "stop",
        usage: Usage = Usage(),  # noqa: B008 - frozen, so one default serves all
        raw: Any = None,
    ) -> None:
        if not message.calls and (given := tuple(calls)):
            message = Message(message.role, message.content, given, message.results, message.provider_state)
        for name, value in {"message": message, "finish": finish, "usage": usage, "raw": raw}.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the reply as JSON data, without `raw`."""
        usage = {name: getattr(self.usage, name) for name in Usage.__slots__}
        return {"message": self.message.to_dict(), "finish": self.finish, "usage": usage}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelReply:
        """Read a reply from the JSON data of `to_dict`."""
        return cls(Message.from_dict(data["message"]), (), data["finish"], Usage(**data["usage"]))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """What the model wants called."""
        return self.message.calls

    @property
    def text(self) -> str:
        """What the model said."""
        return self.message.text


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of what the model thinks, where the provider shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    """The model begins a call; its arguments follow."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of the arguments of a call."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    """A call is complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is complete; always the last event."""

    reply: ModelReply


ModelEvent: TypeAlias = TextDelta | ThoughtDelta | CallOpened | ArgumentsDelta | CallClosed | Finished


def iter_reply_events(reply: ModelReply) -> Iterator[ModelEvent]:
    """Yield a complete reply as the events of a stream: its text word by word, its calls, and `Finished`."""
    yield from map(TextDelta, re.findall(r"\S+\s*|\s+", reply.text))
    for call in reply.calls:
        yield CallOpened(call.id, call.name)
        yield ArgumentsDelta(call.id, _arguments_text(call))
        yield CallClosed(call)
    yield Finished(reply)


def _arguments_text(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, str | bytes):
        return arguments if isinstance(arguments, str) else arguments.decode("utf-8", "replace")
    return to_json(arguments or {}).decode()
