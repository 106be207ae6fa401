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

from toolmason._core.values.content import Audio, Content, EmbeddedResource, Image, Text, describe_part
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError

BlobKind: TypeAlias = Literal["image", "audio", "file"]
IMAGE_MIME_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider that takes images takes."""
PDF_MIME_TYPE: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes in a message, and what they are."""

    kind: BlobKind
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


def get_blob(part: Content) -> Blob | None:
    """Return the bytes of a part; nothing where it is text."""
    match part:
        case Image(data, mime_type):
            return Blob("image", mime_type, data) if data else None
        case Audio(data, mime_type):
            return Blob("audio", mime_type, data) if data else None
        case EmbeddedResource(uri, None, bytes() as data, mime_type) if data:
            mime = mime_type or "application/octet-stream"
            family = mime.partition("/")[0]
            kind: BlobKind = "image" if family == "image" else "audio" if family == "audio" else "file"
            return Blob(kind, mime, data, uri.rpartition("/")[2] or "file")
        case _:
            return None


def replace_surrogates(text: str) -> str:
    """Return a text that can be encoded: half a surrogate pair would spoil the whole request."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def part_to_text(part: Content) -> str:
    """Return a part as text; what is not text is named."""
    return replace_surrogates(part.text if isinstance(part, Text) else describe_part(part))


def join_parts(parts: Iterable[Content]) -> str:
    """Return parts as one text."""
    return "\n".join(filter(None, map(part_to_text, parts)))


def get_arguments_object(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as an object that can be sent, whatever the model wrote."""
    arguments = call.arguments
    if arguments is None or arguments in ("", b""):
        return {}
    try:
        parsed = dict(arguments) if isinstance(arguments, Mapping) else from_json(arguments, allow_inf_nan=False)
        parsed = from_json(to_json(parsed, inf_nan_mode="null"))
    except (ValueError, TypeError, PydanticSerializationError):  # TypeError: a text with half a surrogate pair
        parsed = None
    if isinstance(parsed, dict):
        return parsed
    text = arguments.decode("utf-8", "replace") if isinstance(arguments, bytes) else replace_surrogates(str(arguments))
    # A history with what is not an object is refused for good; the model should see what it wrote.
    return {"invalid_json": text}


def get_arguments_json(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text: the model's own where it is an object."""
    arguments = call.arguments
    if isinstance(arguments, str) and arguments.isascii():
        try:
            if isinstance(from_json(arguments, allow_inf_nan=False), dict):
                return arguments
        except ValueError:
            pass
    return to_json(get_arguments_object(call)).decode()


def have_same_arguments(call: ToolCall, other: ToolCall) -> bool:
    """Tell whether two calls say the same."""
    return call.name == other.name and (
        call.arguments == other.arguments or get_arguments_object(call) == get_arguments_object(other)
    )


def make_call_id(prefix: str = "call") -> str:
    """Return an id for a call that came without one."""
    return f"{prefix}_{os.urandom(12).hex()}"


def map_options(options: Mapping[str, Any], option_keys: Mapping[str, str], provider: str) -> dict[str, Any]:
    """Return the options of a request under the names that a provider has for them.

    Raises:
        ConfigError: it has none for one that is set.
    """
    fields: dict[str, Any] = {}
    for name in ("max_tokens", "temperature", "top_p", "stop"):
        value = options.get(name)
        if value is None:
            continue
        if name not in option_keys:
            raise ConfigError(
                f"{provider} takes no {name!r}. Leave it out, or send it all the same with "
                f'options={{"body": {{{name!r}: ...}}}}.'
            )
        fields[option_keys[name]] = [value] if name == "stop" and isinstance(value, str) else value
    return fields


FILLER_TEXT: Final = "Continue."
"""Said by the user where an API wants the user to have spoken, and nobody has."""
