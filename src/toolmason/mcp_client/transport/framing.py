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

from toolmason._core.arguments.bind import nesting

LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line that is taken."""
DEPTH: Final = 128
_SCANNED: Final = 64 * 1024
_PRUNED: Final = 1024 * 1024
# A string without an end matches to the end of the text: the search must not begin anew at each quote in it.
_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_ID: Final = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\\x00-\x1f]|\\.){1,200}")\s*[,}]')


class TooLong(Exception):
    """A line is longer than the cap."""


@dataclass(slots=True, eq=False, repr=False)
class Lines:
    """Splits bytes into lines, looking at each byte once."""

    cap: int = LINE_BYTES
    _parts: list[bytes] = field(default_factory=list)
    _held: int = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes.

        Raises:
            TooLong: a line is over the cap.
        """
        first, *rest = chunk.split(b"\n")
        for end in rest:
            line = b"".join((*self._parts, first))
            self._parts, self._held = [], 0
            self._check(len(line))
            yield line
            first = end
        if first:
            self._parts.append(first)
            self._held += len(first)
            self._check(self._held)

    def _check(self, size: int) -> None:
        if size > self.cap:
            raise TooLong(f"a line is longer than the limit of {self.cap} bytes")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no message: why, and the id of what it would have answered."""

    reason: str
    id: int | str | None = None


def read_line(line: bytes, lists: Container[Any] = ()) -> dict[str, Any] | Unreadable | None:
    """Return the JSON object that a line is; `None` for text that is no attempt at one, such as a banner.

    `lists` are the ids of questions for a list: of such an answer, only the entry that is too deep is lost.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    if text.count(b"[") + text.count(b"{") > DEPTH and nesting(text.decode("utf-8", "replace"), DEPTH) > DEPTH:
        asked = id_in(text)
        if asked is None or asked not in lists or len(text) > _PRUNED:
            return Unreadable(f"it is nested deeper than {DEPTH} levels", asked)
        text = pruned(text)
    try:
        data = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        return Unreadable(f"it is not valid JSON: {str(error)[:160]}", id_in(text))
    if repeats_a_key(text, data):
        return Unreadable("a key stands twice in one object", id_in(text))
    return data if isinstance(data, dict) else None


def repeats_a_key(text: bytes, data: Any) -> bool:
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
        json.loads(text, object_pairs_hook=_unique)
    except _Twice:
        return True
    except (ValueError, RecursionError):
        return False
    return False


class _Twice(Exception):
    """A key stands twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
        raise _Twice


def pruned(text: bytes, depth: int = DEPTH) -> bytes:
    """Return JSON without what is nested deeper than `depth`; a null stands for it."""
    kept: list[bytes] = []
    level = start = 0
    for found in _TOKENS.finditer(text):
        token = found[0]
        if token in b"[{":
            level += 1
            if level == depth + 1:
                kept.append(text[start : found.start()])
        elif token in b"]}":
            if level == depth + 1:
                kept.append(b"null")
                start = found.end()
            level -= 1
    return b"".join((*kept, text[start:] if level <= depth else b""))


def id_in(text: bytes) -> int | str | None:
    """Return the id of a message that cannot be read, by looking at its beginning and its end."""
    found = _ID.search(text[:_SCANNED]) or _ID.search(text[-_SCANNED:])
    if found is None:
        return None
    try:
        value = from_json(found[1])
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None
