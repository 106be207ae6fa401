"""Write the values of parameters into paths, queries, headers and cookies, in the styles of OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from unicodedata import normalize
from urllib.parse import quote, unquote

from pydantic_core import to_json

from toolmason.errors import ArgumentProblem, InvalidArguments, clip

Location: TypeAlias = Literal["path", "query", "header", "cookie"]
Pair: TypeAlias = tuple[str, str]
"""A name and a value. Both are percent-encoded already."""

STYLES: Final[Mapping[Location, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each location, the default first."""
MAX_VALUE_DEPTH: Final = 8
"""Depth of an object in the style `deepObject`."""
_UNSAFE_IN_PATH: Final = re.compile(r"[/\\?#\x00-\x1f\x7f-\x9f\ufffd]")
_UNSAFE_IN_HEADER: Final = re.compile(r"[^\x20-\x7e]")
_RESERVED: Final = ":/?@!$'()*,;"
"""Characters that `allowReserved` leaves as they are, without those that end a value or a query."""
_SEPARATORS: Final = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ApiParameter:
    """A parameter of an operation."""

    name: str
    location: Location
    key: str
    """Its name in the tool's schema."""
    required: bool = False
    style: str = "simple"
    explode: bool = False
    is_json: bool = False
    """True if its value is JSON text."""
    allow_reserved: bool = False
    has_segments: bool = False
    """True if its value is several segments of the path (`x-multi-segment`)."""


def refuse(key: str, message: str, expected: str, value: Any) -> InvalidArguments:
    """Return the error about a value that cannot be sent."""
    return InvalidArguments([ArgumentProblem(f"$.{key}", message, expected, clip(repr(value), 60))])


def to_text(value: Any) -> str:
    """Return a value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()


def encode(text: str, safe: str = "") -> str:
    """Percent-encode everything but letters, digits and `-._~`. An unpaired surrogate becomes `?`."""
    return quote(text.encode("utf-8", "replace"), safe=safe)


# --- path --------------------------------------------------------------------------------------


def write_path(template: str, parameters: Mapping[str, ApiParameter], values: Mapping[str, Any]) -> str:
    """Return a path with its parameters filled in. No value can add a segment, leave its own or end the path.

    Raises:
        InvalidArguments: a value is missing, empty, or would change the path.
    """

    def fill(found: re.Match[str]) -> str:
        parameter = parameters[found[1]]
        value = values.get(parameter.key)
        if value is None or value in ("", [], {}):
            raise refuse(parameter.key, "must not be empty, because it is a part of the path", "a value", value)
        return _write_segment(parameter, value)

    path = re.sub(r"\{([^{}]+)\}", fill, template)
    for segment in path.split("/"):
        # Two values of one segment may each be harmless: `{a}{b}` with two dots.
        if unquote(segment).partition(";")[0] in (".", ".."):
            raise refuse("path", "the values make a segment that leaves the path", "other values", segment)
    return path


def _write_segment(parameter: ApiParameter, value: Any) -> str:
    if parameter.has_segments and isinstance(value, str):
        return "/".join(_encode_segment(parameter.key, part) for part in value.split("/"))

    def write(text: str) -> str:
        return _encode_segment(parameter.key, text)

    name, explode = parameter.name, parameter.explode
    if parameter.is_json:
        return write(to_text(value))
    if parameter.style == "matrix":
        if explode and isinstance(value, Mapping):
            return "".join(f";{write(str(key))}={write(to_text(item))}" for key, item in value.items())
        if explode and isinstance(value, list):
            return "".join(f";{name}={write(to_text(item))}" for item in value)
        return f";{name}={_join(value, write, explode=False)}"
    if parameter.style == "label":
        return f".{_join(value, write, explode=explode, separator='.' if explode else ',')}"
    return _join(value, write, explode=explode)


def _join(value: Any, write: Callable[[str], str], *, explode: bool, separator: str = ",") -> str:
    """Return a value, the items of a list, or the keys and values of an object, with separators between them."""
    if isinstance(value, Mapping):
        between = "=" if explode else separator
        return separator.join(f"{write(str(key))}{between}{write(to_text(item))}" for key, item in value.items())
    if isinstance(value, list):
        return separator.join(write(to_text(item)) for item in value)
    return write(to_text(value))


def _encode_segment(key: str, text: str) -> str:
    """Return a value as a part of one segment of a path.

    Raises:
        InvalidArguments: it would change the path, also after a server has decoded it more than once.
    """
    decoded = text
    for _ in range(4):
        for form in (decoded, normalize("NFKC", decoded)):
            if not form or form.partition(";")[0].strip() in (".", "..") or _UNSAFE_IN_PATH.search(form):
                expected = "text without '/', '\\', '?', '#', control characters, '.' and '..'"
                raise refuse(key, "must not change the path of the request", expected, text)
        further = unquote(decoded)
        if further == decoded:
            return encode(text)
        decoded = further
    raise refuse(key, "is percent-encoded more than once", "plain text", text)


# --- query, cookies and forms ------------------------------------------------------------------


def write_pairs(parameter: ApiParameter, value: Any) -> Iterator[Pair]:
    """Yield the names and values of a parameter of a query, a cookie or a form.

    Raises:
        InvalidArguments: an object is nested too deeply.
    """
    name, style, explode = encode(parameter.name), parameter.style, parameter.explode

    def write(text: str) -> str:
        return encode(text, _RESERVED if parameter.allow_reserved else "")

    if parameter.is_json:
        yield name, write(to_text(value) if isinstance(value, str) else to_json(value).decode())
    elif style == "deepObject" and isinstance(value, Mapping | list):
        yield from _write_deep(parameter.key, name, value, write)
    elif isinstance(value, list) and explode:
        yield from ((name, write(to_text(item))) for item in value)
    elif isinstance(value, Mapping) and explode:
        yield from ((encode(str(key)), write(to_text(item))) for key, item in value.items())
    elif not isinstance(value, Mapping | list) or value:
        yield name, _join(value, write, explode=False, separator=_SEPARATORS.get(style, ","))


def _write_deep(key: str, name: str, value: Any, write: Callable[[str], str], depth: int = 0) -> Iterator[Pair]:
    if depth > MAX_VALUE_DEPTH:
        raise refuse(key, f"must not be nested deeper than {MAX_VALUE_DEPTH}", "a flatter object", "…")
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _write_deep(key, f"{name}[{encode(str(inner))}]", item, write, depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _write_deep(key, f"{name}[{number}]", item, write, depth + 1)
    else:
        yield name, write(to_text(value))


def write_header(parameter: ApiParameter, value: Any) -> str:
    """Return the text of a header.

    Raises:
        InvalidArguments: it has a character that a header cannot carry.
    """
    text = to_text(value) if parameter.is_json else _join(value, str, explode=parameter.explode)
    if _UNSAFE_IN_HEADER.search(text):
        raise refuse(parameter.key, "must be printable ASCII, because it is sent in a header", "ASCII text", value)
    return text
