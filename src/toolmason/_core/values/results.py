"""Tool calls and their results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeAlias, TypeVar, cast, overload

from pydantic_core import from_json, to_json
from typing_extensions import Self, TypedDict, Unpack  # noqa: UP035 - ty and pyright need this import on 3.11

from toolmason._core.values.content import EMPTY_MAPPING, Content, Text, describe_part
from toolmason._value import Value
from toolmason._wire import parse_json, parse_long_integers

if TYPE_CHECKING:
    from toolmason.errors import ToolCallError


_new, _set_attribute = object.__new__, object.__setattr__
Arguments: TypeAlias = str | bytes | Mapping[str, Any] | None
"""Arguments of a call: JSON text from a model, or a mapping."""


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class ToolCall:
    """A model's request to call a tool: `ToolCall("call_1", "get_weather", {"city": "Oslo"})`."""

    id: str
    name: str
    raw: Arguments
    """Arguments as the model sent them: JSON text, which may be invalid, or a mapping."""
    __match_args__ = ("id", "name", "arguments")

    def __init__(self, id: str, name: str, arguments: Arguments = None, *, raw: Arguments = None) -> None:  # noqa: A002 - the name of the field
        _set_attribute(self, "id", id)
        _set_attribute(self, "name", name)
        _set_attribute(self, "raw", raw if arguments is None else arguments)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments as a mapping, for every model. Empty if `raw` is not a JSON object; the result of the call says so.

        Text is parsed at each access.
        """
        return _parse_arguments(self.raw) or {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall) or (self.id, self.name) != (other.id, other.name):
            return False
        if self.raw == other.raw:
            return True
        own = _parse_arguments(self.raw)
        return own is not None and own == _parse_arguments(other.raw)

    def __hash__(self) -> int:
        return hash((self.id, self.name))

    def __repr__(self) -> str:
        return f"ToolCall(id={self.id!r}, name={self.name!r}, arguments={self.raw!r})"


def _parse_arguments(raw: Any) -> Mapping[str, Any] | None:
    """Return arguments as a mapping, or None if they are not a JSON object."""
    if raw is None or isinstance(raw, Mapping):
        return raw or {}
    if not isinstance(raw, str | bytes | bytearray):
        return None
    try:
        parsed = parse_json(raw or b"{}")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Repair(Value):
    """One argument that was converted to its evident meaning."""

    path: str
    """JSON path of the argument: `$.items[2]`."""
    rule: str
    """Rule that applied, e.g. `numeric text`."""
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ToolReturn(Value):
    """Return value of a tool that passes data to the application without showing it to the model."""

    value: Any = None
    """The value, as if the tool had returned it directly."""
    content: str | Content | Sequence[str | Content] | None = None
    """Content for the model, if it differs from the value."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Data for the application only; available as `result.meta`."""


OWN: Final = "own"
"""Origin of the results of the application's own tools."""
WEB: Final = "web"
"""Origin of the results of tools that reach the open world."""
StructuredFrom: TypeAlias = Literal["json", "wrapped json", "wrapped text"] | None
_T = TypeVar("_T")


class lazy(Generic[_T]):  # noqa: N801 - used as a decorator, like `property`
    """An attribute computed on first access. `functools.cached_property` takes a lock in Python 3.11."""

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: type) -> _T: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        return owner.__dict__.setdefault(self.name, self.make(owner))  # the same value for every thread


class ToolResult:
    """The outcome of one call. Frozen; `text`, `content` and `structured` are computed on first access."""

    name: str
    value: Any = None
    """The tool's return value, unchanged."""
    error: ToolCallError | None = None
    repairs: tuple[Repair, ...] = ()
    """Arguments that were repaired before the call."""
    attempts: int = 1
    duration: float = 0.0
    """Seconds, including retries."""
    return_direct: bool = False
    meta: Mapping[str, Any] = EMPTY_MAPPING
    """Data from the tool for the application, hidden from the model."""
    full_text_digest: str | None = None
    """SHA-256 of the full text, if the result was truncated."""
    origin: str = OWN
    """Source of the data: `own`, `web` (a tool with `open_world=True`) or `server:NAME`."""
    structured_from: StructuredFrom = None
    """How to derive `structured` from `text`: `"json"`, `"wrapped json"`, `"wrapped text"`, or None."""

    def __init__(  # noqa: PLR0913 - one parameter for each field
        self,
        call_id: str,
        name: str,
        *,
        value: Any = None,
        text: str | None = None,
        content: Sequence[Content] | None = None,
        structured: Any = None,
        error: ToolCallError | None = None,
        repairs: tuple[Repair, ...] = (),
        attempts: int = 1,
        duration: float = 0.0,
        return_direct: bool = False,
        meta: Mapping[str, Any] = EMPTY_MAPPING,
        origin: str = OWN,
    ) -> None:
        fields: dict[str, Any] = {"call_id": call_id, "name": name, "value": value, "error": error}
        fields |= {"repairs": repairs, "attempts": attempts, "duration": duration}
        fields |= {"return_direct": return_direct, "meta": meta, "structured": structured}
        if text is not None:
            fields["text"] = text
        if content is not None:
            fields["content"] = tuple(content)
        if origin != OWN:
            fields["origin"] = origin
        _set_attribute(self, "__dict__", fields)

    @lazy
    def call_id(self) -> str:
        """The ID of the call. A call by name gets one on first access."""
        return make_call_id()

    @property
    def ok(self) -> bool:
        """True if the tool ran and its result is usable."""
        return self.error is None

    @lazy
    def text(self) -> str:
        """The result as the text that the model reads."""
        if self.error is not None:
            return to_json(self.error.to_model()).decode()
        if "content" in self.__dict__:
            return "\n".join(map(describe_part, self.content))
        return self.value if isinstance(self.value, str) else to_json(self.value, fallback=repr).decode()

    @lazy
    def content(self) -> tuple[Content, ...]:
        """The content parts of the result, in order."""
        return (Text(self.text),)

    @lazy
    def structured(self) -> Any:
        """The value as JSON data if the tool declares an output schema, else `None`."""
        if self.structured_from is None or self.error is not None:
            return None
        try:
            value = self.text if self.structured_from == "wrapped text" else from_json(self.text)
        except ValueError:
            value = self.value  # a hook may have replaced the text
            with suppress(ValueError):
                value = parse_long_integers(self.text)
        return value if self.structured_from == "json" else {"result": value}

    def unwrap(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            self.error.is_of_call = True
            raise self.error
        return self.value

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"call_id": self.call_id}

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}: a ToolResult is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}: a ToolResult is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolResult) and self._comparison_key() == other._comparison_key()

    def __hash__(self) -> int:
        return hash((self.call_id, self.name))

    def _comparison_key(self) -> tuple[Any, ...]:
        return (self.call_id, self.name, self.text, self.error and self.error.code, self.content)

    def __repr__(self) -> str:
        outcome = f"text={self.text[:80]!r}" if self.error is None else f"error={self.error.code!r}"
        return f"ToolResult(call_id={self.call_id!r}, name={self.name!r}, ok={self.ok}, {outcome})"


class OpenResult:
    """A result before its class is set: setting the fields of a frozen class takes twice as long."""


_call_numbers: Final = itertools.count(1)


def make_call_id() -> str:
    """Return an ID for a call that has none."""
    return f"call_{next(_call_numbers)}"


class _OpenCall:
    """A call before its class is set, as above."""

    __slots__ = ("id", "name", "raw")


def make_call(call_id: str | None, name: str, arguments: Arguments) -> ToolCall:
    """Create a `ToolCall` at a third of the cost of its constructor, which is that of a frozen class."""
    call: Any = _OpenCall()
    call.id = f"call_{next(_call_numbers)}" if call_id is None else call_id
    call.name = name
    call.raw = arguments
    call.__class__ = ToolCall
    return cast("ToolCall", call)


class ResultFields(TypedDict, total=False):
    """Fields of a result. Missing fields have the defaults of `ToolResult`."""

    call_id: str
    name: str
    value: Any
    text: str
    content: tuple[Content, ...]
    structured: Any
    structured_from: StructuredFrom
    error: ToolCallError | None
    repairs: tuple[Repair, ...]
    attempts: int
    duration: float
    return_direct: bool
    meta: Mapping[str, Any]
    full_text_digest: str | None
    origin: str


_set_fields: Callable[[ToolResult, ResultFields], None] = vars(ToolResult)["__dict__"].__set__


def make_result(fields: ResultFields) -> ToolResult:
    """Return a result with these fields, without a copy. The pipeline adds the call's id, name and duration."""
    result = _new(ToolResult)
    _set_fields(result, fields)
    return result


def replace_result(result: ToolResult, **changes: Unpack[ResultFields]) -> ToolResult:
    """Return a copy of a result with other fields."""
    fields = cast("ResultFields", {**vars(result), "call_id": result.call_id, **changes})
    return make_result(fields)
