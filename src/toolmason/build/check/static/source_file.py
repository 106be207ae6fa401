"""Read and parse a Python file without importing it, or return a finding if that fails."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from toolmason.build.check.rules import UNREADABLE, Finding, SourceLocation, make_finding

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Maximum file size; a larger file is data, and its syntax tree would take hundreds of megabytes."""


LocatedNode: TypeAlias = ast.stmt | ast.expr | ast.arg | ast.keyword | ast.alias
"""A syntax tree node with a position."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A parsed Python file."""

    path: str
    """Path as shown in messages."""
    text: str
    lines: tuple[str, ...]
    """The text split into lines as Python counts them."""
    tree: ast.Module
    module: str = ""
    """Dotted module name, derived from the folders."""
    is_package: bool = False

    def get_line(self, number: int) -> str:
        """Return one line of the text, counted from 1."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def get_location(self, node: LocatedNode) -> SourceLocation:
        """Return the location of a node; columns count characters, as editors do."""
        return SourceLocation(self.path, node.lineno, self._get_column(node.lineno, node.col_offset))

    def get_name_location(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> SourceLocation:
        """Return the location of the name in a `def` or `class`."""
        line = self.get_line(node.lineno).encode("utf-8")[node.col_offset :].decode("utf-8", "replace")
        head = re.match(r"(?:async\s+)?(?:def|class)\s+", line)
        return SourceLocation(
            self.path,
            node.lineno,
            self._get_column(node.lineno, node.col_offset) + (head.end() if head is not None else 0),
        )

    def _get_column(self, number: int, offset: int) -> int:
        # `col_offset` counts UTF-8 bytes.
        return len(self.get_line(number).encode("utf-8")[:offset].decode("utf-8", "replace")) + 1


def read_source(path: Path, display_path: str, module: str = "") -> Source | Finding:
    """Read and parse a file, or return a finding if it is not Python."""
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            return make_finding(
                UNREADABLE,
                SourceLocation(display_path),
                f"file too large: {size:,} bytes; the limit is {MAX_FILE_BYTES:,}",
            )
        data = path.read_bytes()
    except OSError as error:
        return make_finding(UNREADABLE, SourceLocation(display_path), f"cannot be opened: {error.strerror or error}")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding).removeprefix("\ufeff")
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        return make_finding(
            UNREADABLE, _find_decode_error(display_path, data, error), f"cannot be decoded: {_describe_error(error)}"
        )
    return parse(text, display_path, module, is_package=path.name == "__init__.py")


def parse(text: str, display_path: str, module: str = "", *, is_package: bool = False) -> Source | Finding:
    """Parse source text, or return a finding if it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        location = SourceLocation(display_path, max(error.lineno or 1, 1), max(error.offset or 1, 1))
        return make_finding(UNREADABLE, location, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return make_finding(UNREADABLE, SourceLocation(display_path), f"cannot be parsed: {_describe_error(error)}")
    return Source(display_path, text, tuple(re.split(r"\r\n|\r|\n", text)), tree, module, is_package)


def _find_decode_error(display_path: str, data: bytes, error: Exception) -> SourceLocation:
    if not isinstance(error, UnicodeDecodeError):
        # `detect_encoding` reports no position; decoding again finds it.
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
