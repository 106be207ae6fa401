"""Bytes of a stream → lines → messages; a bad line costs that line, never the session.

Lives here: framing in linear time with a cap, strict and bounded JSON, and the id of a message that cannot be read,
so that whoever waits for it is told at once. Not here: processes and sockets (`stdio`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.arguments.bind import measure_nesting

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line that is taken."""
MAX_DEPTH: Final = 128
_ID_SCAN_BYTES: Final = 64 * 1024
_MAX_PRUNED_BYTES: Final = 1024 * 1024
# A string without an end matches to the end of the text: the search must not begin anew at each quote in it.
_TOKEN_PATTERN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_ID_PATTERN: Final = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\\x00-\x1f]|\\.){1,200}")\s*[,}]')


class LineTooLong(Exception):
    """A line is longer than the cap."""


@dataclass(slots=True, eq=False, repr=False)
class LineSplitter:
    """Splits bytes into lines, looking at each byte once."""

    max_bytes: int = MAX_LINE_BYTES
    _parts: list[bytes] = field(default_factory=list)
    _buffered_bytes: int = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes.

        Raises:
            TooLong: a line is over the cap.
        """
        first, *rest = chunk.split(b"\n")
        for following in rest:
            line = b"".join((*self._parts, first))
            self._parts, self._buffered_bytes = [], 0
            self._check(len(line))
            yield line
            first = following
        if first:
            self._parts.append(first)
            self._buffered_bytes += len(first)
            self._check(self._buffered_bytes)

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            raise LineTooLong(f"a line is longer than the limit of {self.max_bytes} bytes")


@dataclass(frozen=True, slots=True)
class UnreadableMessage:
    """A line that is no message: why, and the id of what it would have answered."""

    reason: str
    id: int | str | None = None


def parse_message(line: bytes, list_ids: Container[Any] = ()) -> dict[str, Any] | UnreadableMessage | None:
    """Return the JSON object that a line is; `None` for text that is no attempt at one, such as a banner.

    `lists` are the ids of questions for a list: of such an answer, only the entry that is too deep is lost.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    if (
        text.count(b"[") + text.count(b"{") > MAX_DEPTH
        and measure_nesting(text.decode("utf-8", "replace"), MAX_DEPTH) > MAX_DEPTH
    ):
        request_id = find_id(text)
        if request_id is None or request_id not in list_ids or len(text) > _MAX_PRUNED_BYTES:
            return UnreadableMessage(f"it is nested deeper than {MAX_DEPTH} levels", request_id)
        text = prune(text)
    try:
        data = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        return UnreadableMessage(f"it is not valid JSON: {str(error)[:160]}", find_id(text))
    if has_duplicate_key(text, data):
        return UnreadableMessage("a key stands twice in one object", find_id(text))
    return data if isinstance(data, dict) else None


def has_duplicate_key(text: bytes, data: Any) -> bool:
    """Tell whether an object in a text has a key twice; `data` is what the text was read as.

    Two readers would take two different values of it, and one of them may be who checked it. Written again, the data
    has a colon less for each key that was lost; only where an escape may hide one is the text read again.
    """
    try:
        if b"\\" not in text and text.count(b":") == to_json(data).count(b":"):
            return False
    except ValueError:
        pass  # a number that cannot be written
    try:
        json.loads(text, object_pairs_hook=_reject_duplicates)
    except _DuplicateKey:
        return True
    except (ValueError, RecursionError):
        return False
    return False


class _DuplicateKey(Exception):
    """A key stands twice in one object."""


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
        raise _DuplicateKey


def prune(text: bytes, max_depth: int = MAX_DEPTH) -> bytes:
    """Return JSON without what is nested deeper than `depth`; a null stands for it."""
    parts: list[bytes] = []
    level = start = 0
    for match in _TOKEN_PATTERN.finditer(text):
        token = match[0]
        if token in b"[{":
            level += 1
            if level == max_depth + 1:
                parts.append(text[start : match.start()])
        elif token in b"]}":
            if level == max_depth + 1:
                parts.append(b"null")
                start = match.end()
            level -= 1
    return b"".join((*parts, text[start:] if level <= max_depth else b""))


def find_id(text: bytes) -> int | str | None:
    """Return the id of a message that cannot be read, by looking at its beginning and its end."""
    match = _ID_PATTERN.search(text[:_ID_SCAN_BYTES]) or _ID_PATTERN.search(text[-_ID_SCAN_BYTES:])
    if match is None:
        return None
    try:
        value = from_json(match[1])
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None
