"""Content parts of results and messages, and their JSON form."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeAlias

from pydantic_core import from_json

EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text in a result or message."""

    text: str


class _FromFile:
    __slots__ = ()

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file. The MIME type is derived from the suffix."""
        import mimetypes  # noqa: PLC0415 - 2 ms at start-up, needed only to read files

        data = Path(path).read_bytes()
        mime_type = mimetypes.guess_type(str(path))[0]
        return cls(**{"data": data} if mime_type is None else {"data": data, "mime_type": mime_type})


@dataclass(frozen=True, slots=True)
class Image(_FromFile):
    """An image in a result or message."""

    data: bytes = field(repr=False)
    mime_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Audio(_FromFile):
    """An audio clip in a result or message."""

    data: bytes = field(repr=False)
    mime_type: str = "audio/wav"


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A link to a resource that the reader can fetch."""

    uri: str
    name: str = ""
    mime_type: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """A resource with its contents, as text or bytes."""

    uri: str
    text: str | None = None
    data: bytes | None = field(default=None, repr=False)
    mime_type: str | None = None


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
    if structured in (text, {"result": text}):
        return True
    try:
        parsed = from_json(text)
    except ValueError:
        return False
    return structured in (parsed, {"result": parsed})


def dump_part(part: Content) -> dict[str, Any]:
    """Return a content part as JSON data. Bytes are base64-encoded."""
    fields = {name: getattr(part, name) for name in part.__slots__}
    if isinstance(fields.get("data"), bytes):
        fields["data"] = base64.b64encode(fields["data"]).decode("ascii")
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
