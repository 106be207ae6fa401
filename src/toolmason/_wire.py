"""Parts of wire formats that clients and servers share: lines, JSON without duplicate keys, `Retry-After`."""

from __future__ import annotations

import gc
import json
import math
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_LARGE_NUMBER: Final = r"\d[eE]\+?\d{3}|\d{309}"
KEPT_BYTES: Final = 64 * 1024
"""Bytes that are kept of the start and of the end of a line that is too long."""


@dataclass(slots=True)
class OversizedLine:
    """Start and end of a line that is too long."""

    start: bytes
    end: bytes
    size: int

    @classmethod
    def cut(cls, line: bytes) -> OversizedLine:
        """Return the start and the end of a line."""
        return cls(line[:KEPT_BYTES], line[-KEPT_BYTES:], len(line))

    def extend(self, more: bytes) -> OversizedLine:
        """Add bytes to the end."""
        self.end = (self.end + more)[-KEPT_BYTES:]
        self.size += len(more)
        return self


class LineSplitter:
    """Incremental splitter of bytes into lines. Looks at each byte once, and skips lines over the limit."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._buffered_bytes = 0
        self.oversized: OversizedLine | None = None
        """The current line, if it is too long."""

    def feed(self, chunk: bytes) -> Iterator[bytes | OversizedLine]:
        """Yield the lines that a chunk completes."""
        *line_ends, rest = chunk.split(b"\n")
        for line_end in line_ends:
            if self.oversized is not None:
                yield self.oversized.extend(line_end)
            else:
                line = b"".join((*self._parts, line_end)) if self._parts else line_end
                yield line if len(line) <= self.max_bytes else OversizedLine.cut(line)
            self._parts = []
            self._buffered_bytes = 0
            self.oversized = None
        if rest and self.oversized is not None:
            self.oversized.extend(rest)
        elif rest:
            self._parts.append(rest)
            self._buffered_bytes += len(rest)
            if self._buffered_bytes > self.max_bytes:
                self.oversized = OversizedLine.cut(b"".join(self._parts))
                self._parts = []


LARGE_JSON_BYTES: Final = 128 * 1024
"""JSON above this size is parsed and validated off the event loop."""


@contextmanager
def pause_garbage_collection() -> Generator[None]:
    """Pause the garbage collector: it would walk large JSON again and again while it is read, and find nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class DuplicateKey(ValueError):
    """A JSON object has a key twice; parsers disagree on which value counts."""

    def __init__(self, key: str) -> None:
        super().__init__(f"duplicate key {key!r}")
        self.key = key


def load_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        DuplicateKey: an object has a key twice.
        ValueError: the text is not JSON.
    """
    return json.loads(text, object_pairs_hook=_collect_pairs)


def may_overflow(text: str | bytes) -> bool:
    """Return True if a number in JSON may be too large for a float, and so become infinite."""
    found = re.search(_LARGE_NUMBER, text) if isinstance(text, str) else re.search(_LARGE_NUMBER.encode(), text)
    return found is not None


def _collect_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)
    return unique


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks the client to wait, or None if it does not ask."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "").strip()) / scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 5 ms at start-up, needed only for a date

    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, date.timestamp() - time.time())
