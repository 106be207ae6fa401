"""Comments in source → which findings they hide, and which of them hide nothing.

Lives here: `# toolmason: ignore` and `# toolmason: ignore[TM101, TM102]`. Not here: codes switched off for a whole
check (`settings`).
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from toolmason.build.check.rules import RULES, UNUSED_IGNORE, Finding, Place, finding

_COMMENT: Final = re.compile(r"#\s*toolmason:\s*ignore(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True, eq=False)
class Ignore:
    """One comment."""

    place: Place
    codes: frozenset[str] | None
    """The codes that it names; `None` where it hides everything."""
    used: set[str] = field(default_factory=set)

    def hides(self, found: Finding) -> bool:
        """Tell whether it hides a finding, and remember that it did."""
        if self.codes is not None and found.code not in self.codes:
            return False
        self.used.add(found.code)
        return True


def read_ignores(text: str, lines: Iterable[str], path: str) -> dict[int, Ignore]:
    """Return the ignore comments of a file, by line."""
    if "toolmason:" not in text:
        return {}
    comments = _comments(text)
    found: dict[int, Ignore] = {}
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line)
        if match is None or (comments is not None and (number, match.start()) not in comments):
            continue
        named = None if match[1] is None else frozenset(code for code in re.split(r"[\s,]+", match[1].upper()) if code)
        found[number] = Ignore(Place(path, number, match.start() + 1), named)
    return found


def _comments(text: str) -> set[tuple[int, int]] | None:
    """Return where our words stand in comments, and not in a text; `None` where the file cannot be split."""
    places: set[tuple[int, int]] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                places.update((token.start[0], token.start[1] + at.start()) for at in _COMMENT.finditer(token.string))
    except (tokenize.TokenError, SyntaxError):
        return None
    return places


def without_ignored(findings: Iterable[Finding], ignores: dict[str, dict[int, Ignore]]) -> Iterator[Finding]:
    """Yield the findings that no comment hides: neither on their line nor on the line of their `def`."""
    for found in findings:
        own = ignores.get(found.place.path, {})
        marks = [own[line] for line in (found.place.line, found.owner) if line in own]
        if not any([mark.hides(found) for mark in marks]):  # noqa: C419 - each comment is to know that it was used
            yield found


def unused(ignores: Iterable[Ignore], judged: frozenset[str]) -> Iterator[Finding]:
    """Yield a finding for each comment that hid nothing; `judged` are the codes that were looked for."""
    for mark in ignores:
        if mark.codes is None:
            idle = [] if mark.used else ["it hides nothing"]
        elif not mark.codes:
            idle = ["it names no code"]
        else:
            idle = [f"there is no rule {code}" for code in sorted(mark.codes - RULES.keys())]
            idle += [f"{code} is not found here" for code in sorted((mark.codes & judged) - mark.used)]
        if idle:
            yield finding(UNUSED_IGNORE, mark.place, f"unused ignore: {'; '.join(idle)}")
