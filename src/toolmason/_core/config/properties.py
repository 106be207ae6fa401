"""Parse Java `.properties` text, except that trailing blanks of a value are dropped because they are invisible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = 4


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
        key, rest = _split_entry(line)
        value = _unescape(rest, number)
        yield Property(number, _unescape(key, number), value)


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


def _split_entry(line: str) -> tuple[str, str]:
    """Split an entry into key and value at the first unescaped separator."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    return line[:end], rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") else rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            characters.append(character if character != "\\" else "")
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + _HEX_DIGITS]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise BadEscape(line, f"\\u{digits}")
            characters.append(chr(int(digits, 16)))
            position += _HEX_DIGITS
        else:
            characters.append(_ESCAPES.get(escape, escape))
    # Two `\u` escapes may form a surrogate pair.
    return "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
