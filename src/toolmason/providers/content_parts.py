"""Convert message parts and call arguments to the pieces that all provider formats share."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolmason._core.values.content import (
    Audio,
    Content,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    describe_part,
    guess_mime_type,
)
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason._wire import parse_long_integers, replace_long_integers
from toolmason.providers.aliases import to_wire_id

_INVALID_KEY: Final = "invalid_json"
"""Key of arguments that are not a JSON object."""
IMAGE_MIME_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that every provider with image support accepts."""
PDF_MIME_TYPE: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class Blob:
    """Binary content of a message part."""

    mime_type: str
    data: bytes
    name: str = "file"

    @property
    def base64(self) -> str:
        """The data as base64."""
        return base64.b64encode(self.data).decode("ascii")

    @property
    def url(self) -> str:
        """The data as a `data:` URL."""
        return f"data:{self.mime_type};base64,{self.base64}"


def join_pieces(pieces: dict[Any, list[str]], key: Any, start: str = "") -> str:
    """Return the string of a key, after its start. A string that grows would be copied for each piece."""
    return "".join((start, *pieces.pop(key, ())))


def get_blob(part: Content) -> Blob | None:
    """Return the binary content of a part, or None if it is text."""
    match part:
        case Image(data, mime_type) | Audio(data, mime_type):
            return Blob(mime_type, data) if data else None
        case EmbeddedResource(uri, None, bytes() as data, mime_type) if data:
            return Blob(mime_type or "application/octet-stream", data, uri.rpartition("/")[2] or "file")
        case _:
            return None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """File that a provider fetches, or that it stores."""

    mime_type: str
    url: str = ""
    file_id: str = ""
    """ID of a file that was uploaded to the provider."""

    @property
    def is_image(self) -> bool:
        """True if every provider with image support accepts its type."""
        return self.mime_type in IMAGE_MIME_TYPES


def get_remote_file(part: Content, *providers: str) -> RemoteFile | None:
    """Return the file of a link that a provider may fetch or has stored, or None. Not for results: a tool chose those.

    A link such as `openai:file-abc` is a file that was uploaded to that provider.
    """
    if not isinstance(part, ResourceLink) or not part.uri.isascii():
        return None
    mime_type = part.mime_type or guess_mime_type(part.uri.partition("?")[0]) or ""
    scheme, _, rest = part.uri.partition(":")
    if scheme in providers and rest:
        return RemoteFile(mime_type, file_id=rest)
    return RemoteFile(mime_type, part.uri) if part.uri.startswith("https://") else None


def replace_surrogates(text: str) -> str:
    """Return text without lone surrogates, which would make the whole request fail to encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def part_to_text(part: Content) -> str:
    """Return a part as text; other content is replaced by a short description."""
    return replace_surrogates(part.text if isinstance(part, Text) else describe_part(part))


def join_parts(parts: Iterable[Content]) -> str:
    """Return parts joined into one string."""
    return "\n".join(filter(None, map(part_to_text, parts)))


def join_system_texts(messages: Iterable[Message]) -> str:
    """Return the text of all system messages."""
    texts = [join_parts(message.content) for message in messages if message.role == "system"]
    return "\n\n".join(filter(None, texts))


def read_arguments(sent: Any) -> str | Mapping[str, Any]:
    """Return the arguments of a call as a model sent them. A value of another type becomes text, which is refused."""
    if isinstance(sent, str | Mapping):
        return sent
    return "" if sent is None else json.dumps(replace_long_integers(sent), default=str)


def get_arguments_object(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as a JSON object, even if the model sent invalid JSON."""
    arguments = call.raw
    if arguments is None or arguments in ("", b""):
        return {}
    try:
        parsed = dict(arguments) if isinstance(arguments, Mapping) else from_json(arguments, allow_inf_nan=False)
        parsed = from_json(to_json(parsed, inf_nan_mode="null"))
    except (ValueError, TypeError, PydanticSerializationError):  # TypeError: a string with a lone surrogate
        parsed = None
    if parsed is None and isinstance(arguments, Mapping):
        with suppress(ValueError, TypeError):
            parsed = parse_long_integers(to_json(arguments, inf_nan_mode="null"))
    if isinstance(parsed, dict):
        return parsed
    text = arguments.decode("utf-8", "replace") if isinstance(arguments, bytes) else replace_surrogates(str(arguments))
    # Providers reject any later request whose history holds a non-object; the model should still see its text.
    return {_INVALID_KEY: text}


def get_arguments_json(call: ToolCall) -> str:
    """Return the arguments of a call as JSON: the model's own text if it is an object."""
    arguments = call.raw
    if isinstance(arguments, str) and arguments.isascii():
        try:
            if isinstance(from_json(arguments, allow_inf_nan=False), dict):
                return arguments
        except ValueError:
            pass
    return to_json(get_arguments_object(call)).decode()


def is_replayable(call: ToolCall, original: ToolCall) -> bool:
    """Return True if the item of a call can be sent back as it came: nothing has changed, and the API accepts it."""
    arguments = get_arguments_object(original)
    is_valid = _INVALID_KEY not in arguments and (not original.id or to_wire_id(original.id) == original.id)
    is_unchanged = call.raw == original.raw or get_arguments_object(call) == arguments
    return is_valid and is_unchanged and call.name == original.name


def make_call_id(prefix: str = "call") -> str:
    """Return a new id for a call that arrived without one."""
    return f"{prefix}_{os.urandom(12).hex()}"


FILLER_TEXT: Final = "Continue."
"""User message that is sent if an API requires one and the conversation has none."""
