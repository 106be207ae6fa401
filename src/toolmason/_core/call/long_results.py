"""Truncate results that are too long for a model, and store the full text for `read_result`."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from toolmason._core.catalog.catalog import READ_RESULT
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Declaration, Param
from toolmason._core.define.tool import FunctionTool, Tool
from toolmason._core.values.content import Text
from toolmason._core.values.definition import ToolOptions
from toolmason._core.values.results import ToolResult, replace_result
from toolmason._secrets import write_private
from toolmason._wire import ByteBudget
from toolmason.errors import ToolError

_log = logging.getLogger("toolmason")

_MAX_READ_CHARS: Final = 64 * 1024
_MAX_MATCHES: Final = 50
_MAX_COUNTED: Final = 200_000
"""Lines that one search counts."""
_SHARES: Final = 4
"""One user of a server can fill this part of the store."""
_MAX_LINKS: Final = 256
"""Maximum number of results on servers that a store remembers."""
ReadRest: TypeAlias = Callable[[dict[str, Any], ToolContext[Any]], Awaitable[str]]
"""Reads part of a result on the server that truncated it, given the arguments of `read_result`."""
_handle_numbers = itertools.count(1)
_result_owner: ContextVar[str] = ContextVar("toolmason_result_owner", default="")

set_result_owner, reset_result_owner = _result_owner.set, _result_owner.reset
"""Set the owner of results stored and read in this task. A served toolbox has more than one user."""


class ResultStore:
    """Bounded store of full results by handle, in memory or in a directory.

    Only the owner can read a result, even if another caller has its handle. The oldest of an owner with more than its
    share are dropped first, then the oldest of the owner with the most.
    """

    def __init__(self, limit: int, directory: Path | None = None) -> None:
        self.limit = limit
        self.directory = directory
        self._entries: OrderedDict[tuple[str, str], str | Path] = OrderedDict()
        """Entries by owner and handle."""
        self._links: dict[tuple[str, str], ReadRest] = {}
        """Results that are stored on a server, by owner and handle."""
        self._lock = threading.Lock()

    @cached_property
    def _sizes(self) -> ByteBudget[tuple[str, str]]:
        # Made at the first long result: each run has a store, and most have none.
        return ByteBudget(self.limit, self.limit // _SHARES)

    @cached_property
    def _link_counts(self) -> ByteBudget[tuple[str, str]]:
        return ByteBudget(_MAX_LINKS, _MAX_LINKS // _SHARES)

    def save(self, text: str) -> str:
        """Store `text` and return its handle."""
        # Without an owner, only an unguessable handle separates callers.
        handle = f"result_{next(_handle_numbers)}_{os.urandom(16).hex()}"
        key = (_result_owner.get(), handle)
        entry = text if self.directory is None else self._write(self.directory, handle, text)
        with self._lock:
            self._entries[key] = entry
            self._sizes.grow(key, key[0], len(text.encode()))
            while (excess := self._sizes.find_excess(key[0])) not in (None, key):
                self._drop(excess)
        return handle

    @staticmethod
    def _write(directory: Path, handle: str, text: str) -> str | Path:
        """Write a result to a file. Return the text if the directory cannot hold it: the tool has run."""
        path = directory / f"{handle}.txt"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, text.encode())
        except OSError as error:
            _log.warning("a long result is kept in memory: %s cannot be written: %s", path, error.strerror)
            with suppress(OSError):
                path.unlink()
            return text
        return path

    def read(self, handle: str) -> str:
        """Return a stored text.

        Raises:
            ToolError: no result has this handle.
        """
        with self._lock:
            entry = self._entries.get((_result_owner.get(), handle))
        if entry is None:
            # Do not list other handles: a toolbox may serve several users.
            raise ToolError(f"No result has the handle {handle[:64]!r}. It may have been dropped; make the call again.")
        return entry.read_bytes().decode() if isinstance(entry, Path) else entry

    def link(self, handle: str, read_rest: ReadRest) -> None:
        """Remember a result that is stored on a server."""
        key = (_result_owner.get(), handle)
        with self._lock:
            self._link_counts.release(key)
            self._link_counts.grow(key, key[0], 1)
            self._links[key] = read_rest
            while (excess := self._link_counts.find_excess(key[0])) is not None:
                self._link_counts.release(excess)
                del self._links[excess]

    def find_link(self, handle: str) -> ReadRest | None:
        """Return the function that reads a result on its server, or None if it is not stored on one."""
        return self._links.get((_result_owner.get(), handle))

    def clear(self) -> None:
        """Drop all stored results."""
        with self._lock:
            for link in list(self._links):
                self._link_counts.release(link)
                del self._links[link]
            for key in list(self._entries):
                self._drop(key)

    def __len__(self) -> int:
        return len(self._entries) + len(self._links)

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key)
        self._sizes.release(key)
        if isinstance(entry, Path):
            entry.unlink(missing_ok=True)


def truncate(text: str, limit: int, handle: str) -> str:
    """Return the head and tail of `text`, cut at line breaks if possible, with a line that states the omitted size."""
    data = text.encode()
    note = f"\n[… {{}} of {len(data)} bytes left out. Read them with {READ_RESULT}(handle={handle!r}, offset=…) …]\n"
    budget = max(2, limit - len(note.encode()) - 16)
    head = _trim_to_lines(data[: budget * 2 // 3].decode("utf-8", "ignore"), from_end=False)
    tail = _trim_to_lines(data[len(data) - budget // 3 :].decode("utf-8", "ignore"), from_end=True)
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}{note.format(left_out)}{tail}"


def truncate_middle(text: str, limit: int) -> str:
    """Omit the middle of `text` if it is too long, without storing it."""
    if len(text) <= limit:
        return text
    half = max(1, (limit - 40) // 2)
    return f"{text[:half]} […{len(text) - 2 * half} characters…] {text[-half:]}"


def truncate_result(result: ToolResult, limit: int, store: ResultStore) -> ToolResult:
    """Return a result with its text truncated to `limit` bytes, and store the full text."""
    text = result.text
    size = len(text.encode())
    if size <= limit:
        return result
    handle = store.save(text)
    truncated = truncate(text, limit, handle)
    other_parts = tuple(part for part in result.content if getattr(part, "text", None) is None)
    from hashlib import sha256  # noqa: PLC0415 - 4 ms at start-up, needed only for long results

    return replace_result(
        result,
        text=truncated,
        content=(Text(truncated), *other_parts),
        structured=None,
        meta={**result.meta, "handle": handle, "bytes": size},
        full_text_digest=sha256(text.encode()).hexdigest(),
    )


def link_result(result: ToolResult, tool: Tool, store: ResultStore) -> None:
    """Let `read_result` read the rest of a result that the tool's server truncated."""
    read_rest: ReadRest | None = getattr(tool, "read_rest", None)
    if read_rest is not None and "handle" in result.meta:
        store.link(str(result.meta["handle"]), read_rest)


def _trim_to_lines(text: str, *, from_end: bool) -> str:
    position = text.find("\n") if from_end else text.rfind("\n")
    # Without a line break in the nearer half, cut mid-line: trimming would drop most of the text.
    if position < 0 or (position > len(text) // 2 if from_end else position < len(text) // 2):
        return text
    return text[position + 1 :] if from_end else text[:position]


def make_result_reader(store: ResultStore) -> FunctionTool:
    """Return the `read_result` tool."""

    def read_result(
        handle: Annotated[str, Param(description="Handle from the truncated result")],
        offset: Annotated[int, Param(description="First character; counts from the end if negative")] = 0,
        length: Annotated[int, Param(description="Number of characters")] = 16384,
        search: Annotated[str | None, Param(description="Return only the lines that contain this text")] = None,
        *,
        ctx: ToolContext[Any],
    ) -> Any:
        """Read part of a result that was too long to show in full, by position or by search."""
        if (read_rest := store.find_link(handle)) is not None:
            arguments = {"handle": handle, "offset": offset, "length": length}
            return read_rest(arguments if search is None else {**arguments, "search": search}, ctx)
        text = store.read(handle)
        if search:
            return _search_lines(text, search)
        start = max(0, len(text) + offset) if offset < 0 else offset
        part = text[start : start + max(1, min(length, _MAX_READ_CHARS))]
        end = start + len(part)
        return f"{part}\n[characters {start} to {end} of {len(text)}]"

    options = ToolOptions(
        read_only=True,
        runs_on="loop",
        timeout=None,
        repeats="allow",
        max_calls=1_000_000,
        max_result_bytes=4 * _MAX_READ_CHARS + 1024,
    )
    return FunctionTool(read_result, Declaration("tool", options=options, output_schema=False))


def _search_lines(text: str, search: str) -> str:
    """Return the lines that contain `search`, in any case. Linear, as a regular expression would not be."""
    lowered, wanted = text.lower(), search.lower()
    if len(lowered) != len(text):  # some letters have two in lower case
        lowered, wanted = text, search
    lines: list[str] = []
    total, number, counted = 0, 1, 0
    position = lowered.find(wanted)
    while position >= 0 and total <= _MAX_COUNTED:
        total += 1
        end = text.find("\n", position) % (len(text) + 1)
        if total <= _MAX_MATCHES:
            number, counted = number + text.count("\n", counted, position), position
            begin = max(text.rfind("\n", 0, position) + 1, position - 100)
            shown = text[begin : min(end, position + len(wanted) + 100)].strip()
            lines.append(f"{number} (character {position}): {shown}")
        position = lowered.find(wanted, end + 1)
    more = "more than " if total > _MAX_COUNTED else ""
    remainder = f"\n[{more}{min(total, _MAX_COUNTED) - _MAX_MATCHES} more lines]" if total > _MAX_MATCHES else ""
    return "\n".join(lines) + remainder if lines else f"No line contains {search[:80]!r}."
