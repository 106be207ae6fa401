"""A template of addresses and an address → the values of its placeholders, in time that grows with the address alone.

Lives here: the parts of a template, and how an address is laid over them. A pattern of the regular kind would try
every way to part an address, which one with three placeholders makes cubic. Not here: what a value is used for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from toolmason.errors import DefinitionError

LONGEST: Final = 8192
"""How many characters an address may have that is laid over a template."""
# What was written with percent signs is looked at as the function gets it: `..%2F` leads out of a folder as `../` does.
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]|(?:^|[/\\])\.\.(?:[/\\]|$)")
_PARTED: Final = re.compile(r"[/\\]")
_PLACEHOLDER: Final = re.compile(r"\{(\+?)([A-Za-z_]\w*)(\*?)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """What stands between the placeholders of an address, and the placeholders."""

    literals: tuple[str, ...]
    """The text before, between and after the placeholders: one more than there are of those."""
    names: tuple[str, ...]
    wide: tuple[bool, ...]
    """Whether a placeholder may hold slashes: `{+path}` and `{path*}` may."""

    @classmethod
    def of(cls, uri: str) -> Template:
        """Return the template that an address is; one without placeholders is its own only address.

        Raises:
            DefinitionError: two placeholders have one name.
        """
        found = list(_PLACEHOLDER.finditer(uri))
        names = tuple(match[2] for match in found)
        if len({*names}) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DefinitionError(f"@resource({uri!r}): two placeholders are named {twice!r}. Rename one of them.")
        ends = [0, *(match.end() for match in found)]
        starts = [*(match.start() for match in found), len(uri)]
        literals = tuple(uri[end:start] for end, start in zip(ends, starts, strict=True))
        return cls(literals, names, tuple(bool(match[1] or match[3]) for match in found))

    def values_in(self, uri: str) -> dict[str, str] | None:
        """Return the values of the placeholders in an address; `None` where the address does not fit.

        Where it fits in several ways, the first placeholder is as long as can be, then the second. A value that leads
        up a folder (`..`) or holds control characters fits nothing, however it is written; nor does one with a slash or
        a backslash in a placeholder that is not wide.
        """
        if len(uri) > LONGEST or not uri.startswith(self.literals[0]):
            return None
        values: dict[str, str] = {}
        start, ends = len(self.literals[0]), self._ends(uri)
        for place, name in enumerate(self.names):
            last = len(uri) if self.wide[place] else _until_slash(uri, start)
            index = bisect_right(ends[place], last) - 1
            if index < 0 or (end := ends[place][index]) <= start:
                return None
            value = values[name] = unquote(uri[start:end])
            if _UNSAFE.search(value) or (not self.wide[place] and _PARTED.search(value)):
                return None
            start = end + len(self.literals[place + 1])
        return values

    def _ends(self, uri: str) -> list[list[int]]:
        """Return where each placeholder may end so that the rest of the address fits, in rising order."""
        found: list[list[int]] = []
        last = len(uri) - len(self.literals[-1])
        ends = [last] if last >= 0 and uri.endswith(self.literals[-1]) else []
        for place in range(len(self.names) - 1, -1, -1):
            found.append(ends)
            literal, begins = self.literals[place], _begins(uri, ends, wide=self.wide[place])
            ends = [at for at in _places(uri, literal) if begins[at + len(literal)]]
        return found[::-1]


def _until_slash(uri: str, start: int) -> int:
    found = uri.find("/", start)
    return len(uri) if found < 0 else found


def _begins(uri: str, ends: list[int], *, wide: bool) -> bytearray:
    """Return for each place of an address whether a placeholder that begins there can end at one of `ends`."""
    found = bytearray(len(uri) + 1)
    left = len(ends) - 1
    following = slash = len(uri) + 1
    for at in range(len(uri), -1, -1):
        while left >= 0 and ends[left] > at:
            following, left = ends[left], left - 1
        if at < len(uri) and uri[at] == "/":
            slash = at
        found[at] = following <= len(uri) and (wide or following <= slash)
    return found


def _places(uri: str, literal: str) -> Any:
    at = uri.find(literal)
    while at >= 0:
        yield at
        at = uri.find(literal, at + 1)


_OPERATORS: Final = "+#./;?&"
_MAY_BE_EMPTY: Final = "#./;?&"


def closeness(template: str, uri: str) -> int | None:
    """Return how many characters of an address a template says itself; `None` where the address does not fit it.

    A template that does not begin with a scheme of its own fits nothing: it would claim every address there is.
    """
    pieces = template.split("{")
    first, rest = pieces[0], [piece.partition("}") for piece in pieces[1:]]
    if ":" not in first or not uri.startswith(first) or any(not end for _, end, _ in rest):
        return None
    if not rest:
        return len(uri) if uri == template else None
    at, said = len(first), len(first)
    for number, (expression, _, literal) in enumerate(rest):
        last = number == len(rest) - 1
        until = _next(uri, literal, at + (expression[:1] not in _MAY_BE_EMPTY or not expression), last=last)
        if until is None or not _fits(expression, uri[at:until]):
            return None
        at, said = until + len(literal), said + len(literal)
    return said


def _next(uri: str, literal: str, start: int, *, last: bool) -> int | None:
    """Return where the value before a literal ends: at the first place of it, or at the end of the address."""
    if last:
        end = len(uri) - len(literal)
        return end if end >= start and uri.endswith(literal) else None
    found = uri.find(literal, start)
    return None if found < 0 else found


def _fits(expression: str, value: str) -> bool:
    """Tell whether a value can stand for an expression: only one with an operator or a star holds a slash."""
    return expression[:1] in _OPERATORS or expression.endswith("*") or not {"/", "?", "#"} & {*value}
