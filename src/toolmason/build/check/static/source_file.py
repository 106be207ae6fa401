"""A Python file → its text and its syntax tree, or the finding that says why it has none.

Lives here: encodings, line ends, columns, files that are broken, binary or too large. The file is never imported.
Not here: what stands in the tree (`names`, `hints`, `declared`).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from toolmason.build.check.rules import UNREADABLE, Finding, SourceLocation, make_finding

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""A larger file is data; its tree would take hundreds of megabytes."""


class LocatedNode(Protocol):
    """A node of a syntax tree that knows where it stands."""

    lineno: int
    col_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A Python file that was read."""

    path: str
    """As it is shown."""
    text: str
    lines: tuple[str, ...]
    """The text, split as Python counts lines."""
    tree: ast.Module
    module: str = ""
    """Its dotted name, as far as the folders tell."""
    is_package: bool = False

    def get_line(self, number: int) -> str:
        """Return one line of the text, counted from 1."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def get_location(self, node: LocatedNode) -> SourceLocation:
        """Return where a node stands; columns count characters, as editors do."""
        return SourceLocation(self.path, node.lineno, self._column(node.lineno, node.col_offset))

    def get_name_location(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> SourceLocation:
        """Return where the name stands in a `def` or `class`."""
        line = self.get_line(node.lineno).encode("utf-8")[node.col_offset :].decode("utf-8", "replace")
        head = re.match(r"(?:async\s+)?(?:def|class)\s+", line)
        return SourceLocation(
            self.path, node.lineno, self._column(node.lineno, node.col_offset) + (head.end() if head is not None else 0)
        )

    def _column(self, number: int, offset: int) -> int:
        # Python counts bytes of UTF-8.
        return len(self.get_line(number).encode("utf-8")[:offset].decode("utf-8", "replace")) + 1


def read_source(path: Path, display_path: str, module: str = "") -> Source | Finding:
    """Read a file; a finding where it is not Python."""
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            return make_finding(
                UNREADABLE,
                SourceLocation(display_path),
                f"{size:,} bytes are too many: files up to {MAX_FILE_BYTES:,} are read",
            )
        data = path.read_bytes()
    except OSError as error:
        return make_finding(UNREADABLE, SourceLocation(display_path), f"cannot be opened: {error.strerror or error}")
    try:
        text = _decode(data)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        return make_finding(
            UNREADABLE, _find_decode_error(display_path, data, error), f"cannot be decoded: {_describe_error(error)}"
        )
    return parse(text, display_path, module, is_package=path.name == "__init__.py")


def parse(text: str, display_path: str, module: str = "", *, is_package: bool = False) -> Source | Finding:
    """Parse a text; a finding where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a user's text is not our message to give
            tree = ast.parse(text)
    except SyntaxError as error:
        location = SourceLocation(display_path, max(error.lineno or 1, 1), max(error.offset or 1, 1))
        return make_finding(UNREADABLE, location, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return make_finding(UNREADABLE, SourceLocation(display_path), f"cannot be parsed: {_describe_error(error)}")
    return Source(display_path, text, tuple(re.split(r"\r\n|\r|\n", text)), tree, module, is_package)


def _decode(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    return text.removeprefix("\ufeff")


def _find_decode_error(display_path: str, data: bytes, error: Exception) -> SourceLocation:
    if not isinstance(error, UnicodeDecodeError):
        # `detect_encoding` tells no place, but the bytes do.
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as cause:
            error = cause
        else:
            return SourceLocation(display_path)
    before = data[: error.start]
    start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
    line = len(re.findall(rb"\r\n|\r|\n", before)) + 1
    return SourceLocation(display_path, line, len(before[start:].decode("utf-8", "replace")) + 1)


def _describe_error(error: BaseException) -> str:
    return str(error) or type(error).__name__
