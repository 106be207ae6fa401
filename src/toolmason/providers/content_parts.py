"""Parts of messages and arguments of calls → the pieces that every provider's format is made of.

Lives here: base64, what kind of bytes a part holds, texts that can be encoded. Not here: a provider's own words.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolmason._core.values.content import Audio, Content, EmbeddedResource, Image, Text, note_of
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError

Kind: TypeAlias = Literal["image", "audio", "file"]
IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider that takes images takes."""
PDF: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes in a message, and what they are."""

    kind: Kind
    mime_type: str
    data: bytes
    name: str = "file"

    @property
    def base64(self) -> str:
        """The bytes as text."""
        return base64.b64encode(self.data).decode("ascii")

    @property
    def url(self) -> str:
        """The bytes as an address that holds them."""
        return f"data:{self.mime_type};base64,{self.base64}"


def blob_of(part: Content) -> Blob | None:
    """Return the bytes of a part; nothing where it is text."""
    match part:
        case Image(data, mime_type):
            return Blob("image", mime_type, data) if data else None
        case Audio(data, mime_type):
            return Blob("audio", mime_type, data) if data else None
        case EmbeddedResource(uri, None, bytes() as data, mime_type) if data:
            mime = mime_type or "application/octet-stream"
            family = mime.partition("/")[0]
            kind: Kind = "image" if family == "image" else "audio" if family == "audio" else "file"
            return Blob(kind, mime, data, uri.rpartition("/")[2] or "file")
        case _:
            return None


def clean(text: str) -> str:
    """Return a text that can be encoded: half a surrogate pair would spoil the whole request."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def words_of(part: Content) -> str:
    """Return a part as text; what is not text is named."""
    return clean(part.text if isinstance(part, Text) else note_of(part))


def joined(parts: Iterable[Content]) -> str:
    """Return parts as one text."""
    return "\n".join(filter(None, map(words_of, parts)))


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as an object that can be sent, whatever the model wrote."""
    given = call.arguments
    if given is None or given in ("", b""):
        return {}
    try:
        found = dict(given) if isinstance(given, Mapping) else from_json(given, allow_inf_nan=False)
        found = from_json(to_json(found, inf_nan_mode="null"))
    except (ValueError, TypeError, PydanticSerializationError):  # TypeError: a text with half a surrogate pair
        found = None
    if isinstance(found, dict):
        return found
    shown = given.decode("utf-8", "replace") if isinstance(given, bytes) else clean(str(given))
    # A history with what is not an object is refused for good; the model should see what it wrote.
    return {"invalid_json": shown}


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text: the model's own where it is an object."""
    given = call.arguments
    if isinstance(given, str) and given.isascii():
        try:
            if isinstance(from_json(given, allow_inf_nan=False), dict):
                return given
        except ValueError:
            pass
    return to_json(arguments_object(call)).decode()


def same_arguments(call: ToolCall, other: ToolCall) -> bool:
    """Tell whether two calls say the same."""
    return call.name == other.name and (
        call.arguments == other.arguments or arguments_object(call) == arguments_object(other)
    )


def new_id(prefix: str = "call") -> str:
    """Return an id for a call that came without one."""
    return f"{prefix}_{os.urandom(12).hex()}"


def fields_of(options: Mapping[str, Any], known: Mapping[str, str], provider: str) -> dict[str, Any]:
    """Return the options of a request under the names that a provider has for them.

    Raises:
        ConfigError: it has none for one that is set.
    """
    made: dict[str, Any] = {}
    for name in ("max_tokens", "temperature", "top_p", "stop"):
        value = options.get(name)
        if value is None:
            continue
        if name not in known:
            raise ConfigError(
                f"{provider} takes no {name!r}. Leave it out, or send it all the same with "
                f'options={{"body": {{{name!r}: ...}}}}.'
            )
        made[known[name]] = [value] if name == "stop" and isinstance(value, str) else value
    return made


FILLER: Final = "Continue."
"""Said by the user where an API wants the user to have spoken, and nobody has."""
