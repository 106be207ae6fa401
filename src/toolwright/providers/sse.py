"""Bytes of a server-sent stream, cut anywhere → JSON events.

Lives here: the framing that all providers share. Not here: what an event means (each provider's reader).
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import from_json

from toolwright.errors import ModelError

_LONGEST: Final = 64 * 1024 * 1024
"""An event longer than this is no event; a server must not fill the memory."""


class EventStream:
    """One stream. `feed` takes whatever came; an event is given when its blank line has come."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._decode = getincrementaldecoder("utf-8-sig")("replace").decode
        self._rest = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that are complete."""
        yield from self._lines(self._decode(chunk), final=False)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the last event, where no blank line came after it."""
        yield from self._lines(self._decode(b"", final=True) + "\n\n", final=True)

    def _lines(self, text: str, *, final: bool) -> Iterator[dict[str, Any]]:
        self._size += len(text)
        if self._size > _LONGEST:
            raise ModelError(self._provider, f"an event of the stream is longer than {_LONGEST:,} characters")
        buffer = self._rest + text
        # The second half of a line's end may be in the next chunk.
        held = "\r" if buffer.endswith("\r") and not final else ""
        buffer = buffer.removesuffix(held) if held else buffer
        *lines, rest = buffer.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = rest + held
        for line in lines:
            if line:
                self._line(line)
            elif self._data:
                yield from self._event()

    def _line(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))

    def _event(self) -> Iterator[dict[str, Any]]:
        data, self._data, self._size = "\n".join(self._data), [], len(self._rest)
        if not data.strip() or data.strip() == "[DONE]":
            return
        try:
            event = from_json(data)
        except ValueError as error:
            raise ModelError(self._provider, f"an event of the stream is not JSON: {data[:200]}") from error
        if isinstance(event, dict):
            yield event
