"""Parse Java `.properties` text, except that trailing blanks of a value are dropped because they are invisible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u(.{0,4})|.?)", re.DOTALL)
_ENTRY: Final = re.compile(r"((?:\\.?|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
"""A key, whose escaped characters separate nothing, and a value."""


class Property(NamedTuple):
    """One entry of a file."""

    line: int
    """Line where the entry begins, counting from 1."""
    key: str
    value: str


class BadEscape(ValueError):
    r"""A `\u` escape without four hexadecimal digits."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(line, text)
        self.line, self.text = line, text


def parse_properties(text: str) -> Iterator[Property]:
    """Yield the entries of a file, in order. A key may repeat.

    Raises:
        BadEscape: an escape is invalid; carries the line where its entry begins.
    """
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        key, value = match.groups() if match else (line, "")
        yield Property(number, _unescape(key, number), _unescape(value, number))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each entry as one line, with the number of its first line."""
    first_number = 0
    parts: list[str] = []
    for number, line in enumerate(_LINE_ENDS.split(text), start=1):
        part = line.lstrip(_BLANKS)
        if not parts and (not part or part[0] in "#!"):
            continue
        first_number = first_number if parts else number
        if _is_continued(part):
            parts.append(part[:-1])
            continue
        yield first_number, _strip_trailing_blanks("".join([*parts, part]))
        parts = []
    if parts:
        yield first_number, _strip_trailing_blanks("".join(parts))


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _strip_trailing_blanks(line: str) -> str:
    """Strip trailing blanks, except an escaped one."""
    stripped = line.rstrip(_BLANKS)
    return line[: len(stripped) + 1] if _is_continued(stripped) else stripped


def _unescape(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        escape, digits = match.groups()
        if digits is None:
            return _ESCAPES.get(escape, escape)
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise BadEscape(line, match[0])
        return chr(int(digits, 16))

    if "\\" not in text:
        return text
    # Two `\u` escapes may form a surrogate pair.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
