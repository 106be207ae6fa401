"""Results that are too long for a model → the beginning, the end, and a handle to read the rest by.

Lives here: cutting, the store behind the handles, and `read_result`, the tool that pages and searches it.
Not here: when a result is too long (`govern`).
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections import OrderedDict
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final

from toolmason._core.catalog.catalog import READ_RESULT
from toolmason._core.define.decorators import Declaration, Param
from toolmason._core.define.tool import FunctionTool
from toolmason._core.values.content import Text
from toolmason._core.values.definition import ToolOptions
from toolmason.errors import ToolError

_LONGEST_READ: Final = 64 * 1024
_MATCHES: Final = 50
_numbers = itertools.count(1)
_whose: ContextVar[str] = ContextVar("toolmason_results_kept_for", default="")

keep_for, let_go = _whose.set, _whose.reset
"""Say for whom results are kept and read in this task; a toolbox that is served has more than one user."""


class Store:
    """Whole results under handles, in memory or in a directory; bounded, the oldest go first.

    A result is for whoever's call it was: nobody else reads it, whatever handle they give.
    """

    def __init__(self, limit: int, directory: Path | None = None) -> None:
        self.limit = limit
        self.directory = directory
        self._kept: OrderedDict[tuple[str, str], str | Path] = OrderedDict()
        """For whom, and under which handle."""
        self._sizes: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def keep(self, text: str) -> str:
        """Keep a text and return its handle."""
        # Callers that nothing tells apart have only this between them.
        handle = f"result_{next(_numbers)}_{os.urandom(16).hex()}"
        key = (_whose.get(), handle)
        kept: str | Path = text
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            kept = self.directory / f"{handle}.txt"
            kept.write_bytes(text.encode())
        with self._lock:
            self._kept[key], self._sizes[key] = kept, len(text.encode())
            while len(self._kept) > 1 and sum(self._sizes.values()) > self.limit:
                self._drop(next(iter(self._kept)))
        return handle

    def read(self, handle: str) -> str:
        """Return a whole text.

        Raises:
            ToolError: there is none under this handle.
        """
        with self._lock:
            kept = self._kept.get((_whose.get(), handle))
        if kept is None:
            # Which others there are is not told: a toolbox may serve more than one user.
            raise ToolError(f"There is no result under {handle[:64]!r}. It may have been dropped; make the call again.")
        return kept.read_bytes().decode() if isinstance(kept, Path) else kept

    def clear(self) -> None:
        """Drop everything that is kept."""
        with self._lock:
            for key in list(self._kept):
                self._drop(key)

    def __len__(self) -> int:
        return len(self._kept)

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key)
        del self._sizes[key]
        if isinstance(kept, Path):
            kept.unlink(missing_ok=True)


def cut(text: str, limit: int, handle: str) -> str:
    """Return the head and the tail of a text, cut between lines where there are any, with a line that says how much."""
    data = text.encode()
    note = f"\n[… {{}} of {len(data)} bytes left out. Read them with {READ_RESULT}(handle={handle!r}, offset=…) …]\n"
    room = max(2, limit - len(note.encode()) - 16)
    head = _whole_lines(data[: room * 2 // 3].decode("utf-8", "ignore"), from_end=False)
    tail = _whole_lines(data[len(data) - room // 3 :].decode("utf-8", "ignore"), from_end=True)
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}{note.format(left_out)}{tail}"


def clipped(text: str, limit: int) -> str:
    """Return a text that is too long with its middle left out, for words that are not worth a handle."""
    if len(text) <= limit:
        return text
    half = max(1, (limit - 40) // 2)
    return f"{text[:half]} […{len(text) - 2 * half} characters…] {text[-half:]}"


def shortened(fields: dict[str, Any], limit: int, store: Store) -> dict[str, Any]:
    """Return the fields of a result within a limit: a text that is too long is cut, and the whole is kept."""
    text = fields["text"]
    size = len(text.encode())
    if size <= limit:
        return fields
    handle = store.keep(text)
    short = cut(text, limit, handle)
    others = tuple(part for part in fields.get("content", ()) if getattr(part, "text", None) is None)
    from hashlib import sha256  # noqa: PLC0415 - 4 ms at start-up, for the rare long result

    digest = sha256(text.encode()).hexdigest()
    meta = {**fields.get("meta", {}), "handle": handle, "bytes": size}
    parts = (Text(short), *others)
    return {**fields, "text": short, "content": parts, "structured": None, "meta": meta, "whole": digest}


def _whole_lines(text: str, *, from_end: bool) -> str:
    place = text.find("\n") if from_end else text.rfind("\n")
    # A text without line ends near the cut is cut where it is: half a screen is better than nothing.
    if place < 0 or (place > len(text) // 2 if from_end else place < len(text) // 2):
        return text
    return text[place + 1 :] if from_end else text[:place]


def reader_of(store: Store) -> FunctionTool:
    """Return the tool that reads kept results."""

    def read_result(
        handle: Annotated[str, Param(description="As the cut result names it")],
        offset: Annotated[int, Param(description="Character to start at; from the end if negative")] = 0,
        length: Annotated[int, Param(description="How many characters")] = 16384,
        search: Annotated[str | None, Param(description="Give the lines that hold this text instead")] = None,
    ) -> str:
        """Read a part of a result that was too long to show whole, by place or by search."""
        text = store.read(handle)
        if search:
            return _found(text, search)
        start = max(0, len(text) + offset) if offset < 0 else offset
        part = text[start : start + max(1, min(length, _LONGEST_READ))]
        end = start + len(part)
        return f"{part}\n[characters {start} to {end} of {len(text)}]"

    options = ToolOptions(
        read_only=True,
        runs_on="loop",
        timeout=None,
        repeats="allow",
        max_calls=1_000_000,
        max_result_bytes=4 * _LONGEST_READ + 1024,
    )
    return FunctionTool(read_result, Declaration("tool", options=options, output_schema=False))


def _found(text: str, search: str) -> str:
    lines: list[str] = []
    total = 0
    offset = 0
    wanted = re.compile(re.escape(search), re.IGNORECASE)
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if match := wanted.search(line):
            total += 1
            if total <= _MATCHES:
                begin = max(0, match.start() - 100)
                lines.append(
                    f"{number} (character {offset + match.start()}): {line[begin : match.end() + 100].strip()}"
                )
        offset += len(line)
    more = f"\n[{total - _MATCHES} more lines]" if total > _MATCHES else ""
    return "\n".join(lines) + more if lines else f"No line holds {search[:80]!r}."
