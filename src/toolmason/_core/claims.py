"""An address and a template of addresses → whether it fits, and how closely.

Lives here: templates that a server wrote, read in time that is linear in them; no regular expression is made of what
comes from outside. Not here: templates of our own (`resources`), or who is asked (`remotes`).
"""

from __future__ import annotations

from typing import Final

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
