"""Content parts of results and messages, and their JSON form."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from toolmason._explain import explain_arguments
from toolmason._value import Value
from toolmason._wire import parse_json

if TYPE_CHECKING:  # 3 ms at start-up
    from importlib.resources.abc import Traversable

EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text in a result or message."""

    text: str


class _BinaryPart:
    __slots__ = ()
    _default_type: ClassVar[str]

    def __init__(self, data: bytes | str | Path, mime_type: str | None = None) -> None:
        decoded, found_type = _read_data(type(self), self._default_type, data)
        object.__setattr__(self, "data", decoded)
        given_type = mime_type or found_type or self._default_type
        object.__setattr__(self, "mime_type", _MIME_ALIASES.get(given_type, given_type))

    @classmethod
    def from_file(cls, path: str | Path | Traversable, mime_type: str | None = None) -> Self:
        """Read a file, or a resource of a package: `files("package") / "logo.png"`. The suffix says the MIME type.

        Raises:
            ValueError: the suffix says no MIME type of this kind, and `mime_type` is not set.
        """
        file = Path(path) if isinstance(path, str) else path
        return cls(file.read_bytes(), mime_type or _guess_type(cls, cls._default_type, file.name))


def _guess_type(kind: type, default_type: str, name: str) -> str:
    found = guess_mime_type(name) or ""
    main_type = default_type.partition("/")[0]
    if not found.startswith(f"{main_type}/"):
        raise ValueError(
            f"{kind.__name__}: the suffix of {name!r} does not say an {main_type} type. Pass `mime_type=`, such as "
            f"{default_type!r}."
        )
    return found


def _read_data(kind: type, default_type: str, data: Any) -> tuple[bytes, str | None]:
    """Return the bytes that a part is made of, and their MIME type if it is known."""
    if isinstance(data, bytes):
        return data, None
    if isinstance(data, bytearray | memoryview):
        return bytes(data), None
    if isinstance(data, Path):
        return data.read_bytes(), _guess_type(kind, default_type, data.name)
    if not isinstance(data, str):
        raise TypeError(f"{kind.__name__}: the data is {type(data).__name__}. Pass bytes, base64 text or a Path.")
    head, _, body = data.partition(",") if data.startswith("data:") else ("", "", data)
    try:
        # Not a path and not an address: text may come from outside, and must not read files.
        return base64.b64decode("".join(body.split()), validate=True), head[5:].partition(";")[0] or None
    except ValueError:
        raise ValueError(
            f"{kind.__name__}: the data {data[:40]!r} is text that is not base64. Pass the bytes, "
            f"`{kind.__name__}.from_file(path)` for a file, or `ResourceLink(uri)` for an address."
        ) from None


_MIME_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg"}
"""Names in use for MIME types that providers know by another name."""


@dataclass(frozen=True, slots=True, init=False)
class Image(_BinaryPart):
    """An image in a result or message. The data is bytes, base64 text, a `data:` URL, or a `Path` to read."""

    data: bytes = field(repr=False)
    mime_type: str = "image/png"
    _default_type: ClassVar[str] = "image/png"


@dataclass(frozen=True, slots=True, init=False)
class Audio(_BinaryPart):
    """An audio clip in a result or message. The data is as for `Image`."""

    data: bytes = field(repr=False)
    mime_type: str = "audio/wav"
    _default_type: ClassVar[str] = "audio/wav"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResourceLink(Value):
    """A link to a resource that the reader can fetch."""

    uri: str
    name: str = ""
    mime_type: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmbeddedResource(Value):
    """A resource with its contents, as text or bytes."""

    uri: str
    text: str | None = None
    data: bytes | None = field(default=None, repr=False)
    mime_type: str | None = None

    @classmethod
    @explain_arguments
    def from_file(cls, path: str | Path, mime_type: str | None = None) -> EmbeddedResource:
        """Read a file, as text if its MIME type says so. The suffix says the MIME type unless it is given."""
        file = Path(path)
        found = mime_type or guess_mime_type(file.name)
        if found is not None and (found.startswith("text/") or found == "application/json"):
            return cls(file.name, file.read_text("utf-8"), mime_type=found)
        return cls(file.name, data=file.read_bytes(), mime_type=found)


def guess_mime_type(name: str) -> str | None:
    """Return the MIME type that the suffix of a file or URL says, or None."""
    import mimetypes  # noqa: PLC0415 - 2 ms at start-up, needed only for files

    return mimetypes.guess_type(name, strict=False)[0]


Content: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource
CONTENT_TYPES = frozenset({Text, Image, Audio, ResourceLink, EmbeddedResource})
_PART_TYPES: dict[str, type[Content]] = {
    "text": Text,
    "image": Image,
    "audio": Audio,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
}
_PART_TYPE_NAMES = {kind: word for word, kind in _PART_TYPES.items()}


def matches_structured(text: str, structured: Any) -> bool:
    """Return True if the structured form of a result carries the same data as its text."""
    # Servers name the text as they like, such as `content`.
    if structured == text or (type(structured) is dict and list(structured.values()) == [text]):
        return True
    try:
        parsed = parse_json(text)
    except ValueError:
        return False
    return structured in (parsed, {"result": parsed})


def dump_part(part: Content) -> dict[str, Any]:
    """Return a content part as JSON data. Bytes are base64-encoded."""
    fields = {name: getattr(part, name) for name in part.__slots__}
    if isinstance(fields.get("data"), bytes):
        fields["data"] = encode_base64(fields["data"])
    return {
        "type": _PART_TYPE_NAMES[type(part)],
        **{name: value for name, value in fields.items() if value is not None},
    }


def load_part(data: Mapping[str, Any]) -> Content:
    """Return the content part that `dump_part` serialized."""
    fields = {name: value for name, value in data.items() if name != "type"}
    if isinstance(fields.get("data"), str):
        fields["data"] = base64.b64decode(fields["data"])
    return _PART_TYPES[data["type"]](**fields)


def encode_base64(data: bytes) -> str:
    """Return bytes as base64 text of the standard alphabet."""
    return base64.b64encode(data).decode("ascii")


def encode_part(part: Content) -> dict[str, Any]:
    """Return a content part as a content block of MCP."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data, mime_type) | Audio(data, mime_type):
            return {"type": _PART_TYPE_NAMES[type(part)], "data": encode_base64(data), "mimeType": mime_type}
        case ResourceLink(uri, name, mime_type, description):
            fields = {"uri": uri, "name": name or uri, "mimeType": mime_type, "description": description}
            return {"type": "resource_link", **{key: value for key, value in fields.items() if value is not None}}
        case EmbeddedResource():
            return {"type": "resource", "resource": encode_contents(part)}


def encode_contents(part: EmbeddedResource) -> dict[str, Any]:
    """Return the contents of a resource, as MCP data."""
    body = {"text": part.text} if part.text is not None else {"blob": encode_base64(part.data or b"")}
    mime_type = {} if part.mime_type is None else {"mimeType": part.mime_type}
    return {"uri": part.uri, **mime_type, **body}


def describe_part(part: Content) -> str:
    """Return a part as text. Binary data is described, never inlined as base64."""
    match part:
        case Text(text):
            return text
        case ResourceLink(uri, name):
            return f"[resource {name or uri}: {uri}]"
        case EmbeddedResource(uri, text) if text is not None:
            return text
        case EmbeddedResource(uri, _, data, mime_type):
            return f"[resource {uri}: {mime_type or 'binary'}, {len(data or b'')} bytes]"
        case Image(data, mime_type) | Audio(data, mime_type):
            return f"[{_PART_TYPE_NAMES[type(part)]}: {mime_type}, {len(data)} bytes]"
