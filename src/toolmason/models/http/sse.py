"""Parse a stream of server-sent events into JSON objects."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import from_json

from toolmason.errors import ModelError

_MAX_EVENT_LENGTH: Final = 64 * 1024 * 1024
"""Maximum length of an event, so that a server cannot exhaust the memory."""


class EventStream:
    """Incremental parser of one stream; an event is complete at its blank line."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._decode = getincrementaldecoder("utf-8-sig")("replace").decode
        self._line_parts: list[str] = []
        """Parts of the incomplete line, joined once when it is complete."""
        self._data: list[str] = []
        """Data lines of the incomplete event."""
        self._held_length = 0
        """Characters held in `_line_parts` and `_data`."""
        self._ended_with_return = False
        """True if the last character was a carriage return; a line feed after it ends the same line."""

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that this chunk completes."""
        yield from self._read_lines(self._decode(chunk))

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the last event if no blank line followed it."""
        yield from self._read_lines(self._decode(b"", final=True) + "\n\n")

    def _read_lines(self, text: str) -> Iterator[dict[str, Any]]:
        if not text:
            return
        if self._ended_with_return:
            text = text.removeprefix("\n")
        self._ended_with_return = text.endswith("\r")
        first, *rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._buffer(first)
        for following in rest:
            line = "".join(self._line_parts)
            self._line_parts = []
            name, _, value = line.partition(":")
            if not line:
                yield from self._parse_event()
            elif name == "data":
                self._data.append(value.removeprefix(" "))
            else:
                self._held_length -= len(line)
            self._buffer(following)

    def _buffer(self, part: str) -> None:
        if part:
            self._line_parts.append(part)
            self._held_length += len(part)
        if self._held_length > _MAX_EVENT_LENGTH:
            raise ModelError(self._provider, f"a stream event exceeds {_MAX_EVENT_LENGTH:,} characters")

    def _parse_event(self) -> Iterator[dict[str, Any]]:
        data = "\n".join(self._data)
        self._data = []
        self._held_length = 0
        if not data.strip() or data.strip() == "[DONE]":
            return
        try:
            event = from_json(data)
        except ValueError as error:
            raise ModelError(self._provider, f"a stream event is not JSON: {data[:200]}") from error
        if isinstance(event, dict):
            yield event
