"""Parts of wire formats that clients and servers share: lines, JSON without duplicate keys, `Retry-After`."""

from __future__ import annotations

import gc
import json
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic_core import from_json, to_json

_NUMBER_SHAPES: Final = bytes.maketrans(b"123456789E", b"000000000e")
UNLIMITED_PEERS: Final = frozenset({"127.0.0.1", "::1", "localhost", ""})
"""Addresses of this machine: clients on it, or behind a proxy on it, cannot be distinguished."""
_LARGE_DIGITS: Final = b"0" * 200
"""An exponent of two digits makes a number of so many infinite. A number without exponent and fraction is an int."""
_LARGE_FLOAT: Final = re.compile(rb"\xff0*+[.e]")
_K = TypeVar("_K")
KEPT_BYTES: Final = 64 * 1024
"""Bytes that are kept of the start and of the end of a line that is too long."""


def is_retryable_status(status: int) -> bool:
    """Return True if a request that failed with this HTTP status may succeed later."""
    return status in (408, 409, 429) or status >= 500  # noqa: PLR2004 - those of failing servers


def has_large_number(text: bytes) -> bool:
    """Return True if JSON text may have a number that is too large for a float, and so becomes infinite."""
    shapes = text.translate(_NUMBER_SHAPES, b"+")  # 20 times as fast as a regular expression
    if b"0e000" in shapes:
        return True
    # UTF-8 has no byte 255.
    return (
        len(shapes) > len(_LARGE_DIGITS)
        and _LARGE_DIGITS in shapes
        and _LARGE_FLOAT.search(shapes.replace(_LARGE_DIGITS, b"\xff")) is not None
    )


@dataclass(slots=True, eq=False, repr=False)
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
    """Pause the garbage collector while many objects are built that are all kept: each collection would be wasted.

    That is a third of the time to read large JSON or a manifest of a thousand tools, and more for syntax trees.
    """
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


def has_long_integer(text: bytes) -> bool:
    """Return True if JSON text may have an integer that is too large for a float, and so becomes an infinite one."""
    return _LARGE_DIGITS in text.translate(_NUMBER_SHAPES)


def parse_json(text: str | bytes | bytearray, **options: Any) -> Any:
    """Parse JSON with pydantic-core. Raise ValueError also for text with a lone surrogate, as `json.loads` makes it."""
    return from_json(text.encode() if isinstance(text, str) and not text.isascii() else text, **options)


def parse_long_integers(text: str | bytes) -> Any:
    """Parse JSON. An integer of more digits than Python converts, 4,300, becomes a string."""
    return json.loads(text, parse_int=_parse_integer)


def _parse_integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def replace_long_integers(data: Any) -> Any:
    """Return data with integers of more digits than Python writes, 4,300, as strings, so that it can be stored."""
    try:
        json.dumps(data, default=str)
    except ValueError:
        return parse_long_integers(to_json(data, fallback=str))
    return data


def load_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        DuplicateKey: an object has a key twice.
        ValueError: the text is not JSON.
    """
    return json.loads(text, object_pairs_hook=_collect_pairs)


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
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


class ByteBudget(OrderedDict[_K, tuple[str, int]], Generic[_K]):
    """Client and size of each item that is held, the oldest first, with limits for a client and in all."""

    def __init__(self, max_bytes: int, max_client_bytes: int) -> None:
        super().__init__()
        self.max_bytes, self.max_client_bytes = max_bytes, max_client_bytes
        self.bytes: Counter[str] = Counter()
        """Bytes held for each client."""

    def grow(self, item: _K, client: str, size: int) -> None:
        """Add bytes to an item."""
        self[item] = client, self.get(item, ("", 0))[1] + size
        self.bytes[client] += size

    def release(self, item: _K) -> None:
        """Forget an item, if it is held."""
        client, size = self.pop(item, ("", 0))
        self.bytes[client] -= size
        if self.bytes[client] <= 0:
            del self.bytes[client]

    def find_excess(self, client: str) -> _K | None:
        """Return the item that has to give way after one of `client` has grown, or None.

        It is the oldest item of the client if it is over its share, else of the client that holds most.
        """
        if client in UNLIMITED_PEERS or self.bytes[client] <= self.max_client_bytes:
            if self.bytes.total() <= self.max_bytes:
                return None
            client = max(self.bytes, key=self.bytes.__getitem__)
        return next(item for item, (holder, _) in self.items() if holder == client)
