"""Messages of a conversation, and their JSON form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json, to_jsonable_python

from toolmason._core.values.content import Content, Text, describe_part, dump_part, load_part
from toolmason._core.values.provider_tools import find_provider_origins
from toolmason._core.values.results import OWN, ResultFields, ToolCall, ToolResult, make_result
from toolmason._explain import explain_arguments
from toolmason._text import safe_str
from toolmason._value import Value
from toolmason._wire import replace_long_integers
from toolmason.errors import ToolCallError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class _RestoredCallError(ToolCallError):
    """A tool call error restored from JSON; `code` and the message identify the original."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        super().__init__(
            str(payload.get("message", "")), tool=str(payload.get("tool", "")), retryable=bool(payload.get("retryable"))
        )
        self.payload = dict(payload)
        self.__dict__["code"] = str(payload.get("code", "tool_call_error"))

    def to_model(self) -> dict[str, Any]:
        return {"error": self.payload}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Summary(Value):
    """Origin of a message that a model wrote in place of the first messages of a conversation."""

    messages: int
    """Number of messages that it stands for, including those of an earlier summary."""
    model: str
    made: str
    """Time in ISO 8601, in UTC."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Citation(Value):
    """Source that a provider names for a part of an answer."""

    url: str = ""
    title: str = ""
    quote: str = ""
    """Text of the source that supports the answer, if the provider quotes it."""
    source: str = ""
    """ID of a file, or number of a document, if it has no URL."""
    start: int = 0
    """Position in the text of the message at which the supported part begins."""
    end: int = 0
    """Position after the supported part; 0 if the provider names none."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `content` accepts a string; it is stored as a tuple of parts."""

    role: Role
    content: tuple[Content, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """Tool calls that the model requested in this message."""
    results: tuple[ToolResult, ...] = ()
    """Results of the calls in the previous message."""
    provider_state: Mapping[str, Any] | None = None
    """Opaque items to send back to the provider that produced them, and to no other."""
    summary: Summary | None = None
    """Origin of a summary of earlier messages; None for all other messages."""
    citations: tuple[Citation, ...] = ()
    """Sources that the provider names for the text."""

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each field
        self,
        role: Role,
        content: str | Content | Iterable[str | Content] = (),
        calls: Iterable[ToolCall] = (),
        results: Iterable[ToolResult] = (),
        provider_state: Mapping[str, Any] | None = None,
        summary: Summary | None = None,
        *,
        citations: Iterable[Citation] = (),
    ) -> None:
        parts = (content,) if isinstance(content, str) or not isinstance(content, Iterable) else content
        if isinstance(parts, Mapping | bytes):
            raise TypeError("content must be text or parts")
        set_field = object.__setattr__
        set_field(self, "role", role)
        set_field(self, "content", tuple([Text(part) if isinstance(part, str) else part for part in parts]))
        set_field(self, "calls", tuple(calls))
        set_field(self, "results", tuple(results))
        set_field(self, "provider_state", provider_state)
        set_field(self, "summary", summary)
        set_field(self, "citations", tuple(citations))

    @property
    def text(self) -> str:
        """The content as text. Other parts appear as descriptions in brackets."""
        return "\n".join(map(describe_part, self.content))

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the results, and of what tools that the provider runs have found."""
        found = [result.origin for result in self.results]
        return frozenset(
            found if self.provider_state is None else [*found, *find_provider_origins(self.provider_state)]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON data."""
        data: dict[str, Any] = {"role": self.role, "content": [dump_part(part) for part in self.content]}
        if self.calls:
            data["calls"] = [dump_call(call) for call in self.calls]
        if self.results:
            data["results"] = [dump_result(result) for result in self.results]
        if self.provider_state is not None:
            data["provider_state"] = dict(self.provider_state)
        if self.summary is not None:
            data["summary"] = asdict(self.summary)
        if self.citations:
            data["citations"] = [asdict(citation) for citation in self.citations]
        return data

    @classmethod
    @explain_arguments
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Return the message that `to_dict` serialized."""
        return cls(
            data["role"],
            [load_part(part) for part in data.get("content", ())],
            [ToolCall(**call) for call in data.get("calls", ())],
            [load_result(result) for result in data.get("results", ())],
            data.get("provider_state"),
            Summary(**data["summary"]) if "summary" in data else None,
            citations=[Citation(**citation) for citation in data.get("citations", ())],
        )


def dump_call(call: ToolCall) -> dict[str, Any]:
    """Return a call as JSON data."""
    return {"id": call.id, "name": call.name, "arguments": dump_arguments(call.raw)}


def dump_arguments(arguments: Any) -> Any:
    """Return the arguments of a call as JSON data. What has no JSON form becomes text, which the call refuses."""
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, bytes | bytearray | memoryview):
        return str(arguments, "utf-8", "backslashreplace")
    with suppress(ValueError, TypeError, RecursionError):
        return replace_long_integers(to_jsonable_python(arguments))
    with suppress(ValueError, TypeError, RecursionError):
        return json.dumps(arguments, default=safe_str)
    return f"<{type(arguments).__name__}>"  # a reference to itself, or a key that is not a string


def dump_result(result: ToolResult) -> dict[str, Any]:
    """Return a result as JSON data, limited to the fields that a model and a conversation need."""
    data: dict[str, Any] = {"call_id": result.call_id, "name": result.name}
    if result.error is not None:
        data["error"] = _dump_error(result, result.error)
    data["content"] = [dump_part(part) for part in result.content]
    if result.structured is not None:
        data["structured"] = result.structured
        if (result.structured_from or "").startswith("wrapped"):
            data["wrapped"] = True
    if result.return_direct:
        data["return_direct"] = True
    if result.origin != OWN:
        data["origin"] = result.origin
    return data


def _dump_error(result: ToolResult, error: ToolCallError) -> dict[str, Any]:
    # Store only what the model saw, so that a redacted error stays redacted in the history.
    try:
        payload = from_json(result.text)["error"]
    except (ValueError, KeyError, TypeError):
        payload = {"code": error.code, "message": result.text, "tool": error.tool, "retryable": error.retryable}
    return dict(payload)


def load_result(data: Mapping[str, Any]) -> ToolResult:
    """Return the result that `dump_result` serialized."""
    fields: ResultFields = {"content": tuple(load_part(part) for part in data["content"])}
    fields["text"] = "\n".join(map(describe_part, fields["content"]))
    if "error" in data:
        fields["error"] = _RestoredCallError(data["error"])
    if "structured" in data:
        fields["structured"] = data["structured"]
        fields["value"] = data["structured"]["result"] if data.get("wrapped") else data["structured"]
        fields["structured_from"] = "wrapped json" if data.get("wrapped") else None
    else:
        fields["value"] = fields["text"]
    fields |= {"call_id": data["call_id"], "name": data["name"], "return_direct": data.get("return_direct", False)}
    if "origin" in data:
        fields["origin"] = str(data["origin"])
    return make_result(fields)
