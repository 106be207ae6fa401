"""Match URIs against templates in time linear in the URI.

A regular expression would backtrack over every split of the URI, which is cubic with three placeholders.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from toolmason.errors import DefinitionError

MAX_URI_LENGTH: Final = 8192
"""Maximum number of characters of a URI that is matched against a template."""
# Values are checked after percent-decoding, as the function receives them: `..%2F` escapes a folder like `../`.
_UNSAFE_VALUE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]|(?:^|[/\\])\.\.(?:[/\\]|$)")
_PATH_SEPARATOR: Final = re.compile(r"[/\\]")
_PLACEHOLDER: Final = re.compile(r"\{(\+?)([A-Za-z_]\w*)(\*?)\}")


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """The literals and placeholders of a URI template."""

    literals: tuple[str, ...]
    """The text before, between and after the placeholders; one more item than `names`."""
    names: tuple[str, ...]
    allows_slashes: tuple[bool, ...]
    """True for each placeholder that may contain slashes: `{+path}` and `{path*}`."""

    @classmethod
    def parse(cls, uri: str) -> UriTemplate:
        """Parse a URI template. A URI without placeholders matches only itself.

        Raises:
            DefinitionError: two placeholders have the same name.
        """
        placeholders = list(_PLACEHOLDER.finditer(uri))
        names = tuple(match[2] for match in placeholders)
        if len({*names}) != len(names):
            duplicate = next(name for name in names if names.count(name) > 1)
            raise DefinitionError(f"@resource({uri!r}): two placeholders are named {duplicate!r}. Rename one of them.")
        ends = [0, *(match.end() for match in placeholders)]
        starts = [*(match.start() for match in placeholders), len(uri)]
        literals = tuple(uri[end:start] for end, start in zip(ends, starts, strict=True))
        return cls(literals, names, tuple(bool(match[1] or match[3]) for match in placeholders))

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the placeholder values in a URI, or None if it does not match.

        If several splits match, the first placeholder is as long as possible, then the second. A decoded value that
        contains control characters or a `..` path segment never matches; nor does one with a slash or backslash,
        unless the placeholder allows slashes.
        """
        if len(uri) > MAX_URI_LENGTH or not uri.startswith(self.literals[0]):
            return None
        values: dict[str, str] = {}
        start = len(self.literals[0])
        ends = self._find_ends(uri)
        for index, name in enumerate(self.names):
            last = len(uri) if self.allows_slashes[index] else _find_slash(uri, start)
            end_index = bisect_right(ends[index], last) - 1
            if end_index < 0 or (end := ends[index][end_index]) <= start:
                return None
            value = values[name] = unquote(uri[start:end])
            if _UNSAFE_VALUE.search(value) or (not self.allows_slashes[index] and _PATH_SEPARATOR.search(value)):
                return None
            start = end + len(self.literals[index + 1])
        return values

    def _find_ends(self, uri: str) -> list[list[int]]:
        """Return the positions where each placeholder may end such that the rest of the URI matches, ascending."""
        ends_by_placeholder: list[list[int]] = []
        last = len(uri) - len(self.literals[-1])
        ends = [last] if last >= 0 and uri.endswith(self.literals[-1]) else []
        for index in range(len(self.names) - 1, -1, -1):
            ends_by_placeholder.append(ends)
            literal = self.literals[index]
            can_begin = _find_starts(uri, ends, allows_slashes=self.allows_slashes[index])
            ends = [position for position in _find_all(uri, literal) if can_begin[position + len(literal)]]
        return ends_by_placeholder[::-1]


def _find_slash(uri: str, start: int) -> int:
    found = uri.find("/", start)
    return len(uri) if found < 0 else found


def _find_starts(uri: str, ends: list[int], *, allows_slashes: bool) -> bytearray:
    """Return 1 for each position from which a placeholder can reach one of `ends`, and 0 for the others."""
    starts = bytearray(len(uri) + 1)
    end_index = len(ends) - 1
    next_end = slash = len(uri) + 1
    for position in range(len(uri), -1, -1):
        while end_index >= 0 and ends[end_index] > position:
            next_end = ends[end_index]
            end_index -= 1
        if position < len(uri) and uri[position] == "/":
            slash = position
        starts[position] = next_end <= len(uri) and (allows_slashes or next_end <= slash)
    return starts


def _find_all(uri: str, literal: str) -> Iterator[int]:
    position = uri.find(literal)
    while position >= 0:
        yield position
        position = uri.find(literal, position + 1)


_OPERATORS: Final = "+#./;?&"
"""Operators of RFC 6570 expressions, such as the plus in `{+path}`."""
_MAY_BE_EMPTY: Final = "#./;?&"
"""Operators whose expressions may match an empty string."""


def measure_specificity(template: str, uri: str) -> int | None:
    """Return the number of literal characters with which a template matches a URI, or None if it does not match.

    A template without a literal scheme never matches, because it would claim every URI.
    """
    first, *pieces = template.split("{")
    rest = [piece.partition("}") for piece in pieces]
    if ":" not in first or not uri.startswith(first) or any(not brace for _, brace, _ in rest):
        return None
    if not rest:
        return len(uri) if uri == template else None
    position = literal_length = len(first)
    for number, (expression, _, literal) in enumerate(rest):
        is_last = number == len(rest) - 1
        min_length = 0 if expression and expression[0] in _MAY_BE_EMPTY else 1
        end = _find_literal(uri, literal, position + min_length, is_last=is_last)
        if end is None or not _can_expand_to(expression, uri[position:end]):
            return None
        position = end + len(literal)
        literal_length += len(literal)
    return literal_length


def _find_literal(uri: str, literal: str, start: int, *, is_last: bool) -> int | None:
    """Return the position of a literal, which ends the value before it, or None. The last literal ends the URI."""
    if is_last:
        end = len(uri) - len(literal)
        return end if end >= start and uri.endswith(literal) else None
    found = uri.find(literal, start)
    return None if found < 0 else found


def _can_expand_to(expression: str, value: str) -> bool:
    """Return True if an expression can expand to a value. Only an operator or a star allows a slash."""
    return expression[:1] in _OPERATORS or expression.endswith("*") or not {"/", "?", "#"} & {*value}
