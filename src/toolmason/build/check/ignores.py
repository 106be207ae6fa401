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

from toolmason.build.check.rules import RULES, UNUSED_IGNORE, Finding, SourceLocation, make_finding

_COMMENT: Final = re.compile(r"#\s*toolmason:\s*ignore(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreComment:
    """One comment."""

    location: SourceLocation
    codes: frozenset[str] | None
    """The codes that it names; `None` where it hides everything."""
    used_codes: set[str] = field(default_factory=set)

    def applies_to(self, found: Finding) -> bool:
        """Tell whether it hides a finding, and remember that it did."""
        if self.codes is not None and found.code not in self.codes:
            return False
        self.used_codes.add(found.code)
        return True


def read_ignores(text: str, lines: Iterable[str], path: str) -> dict[int, IgnoreComment]:
    """Return the ignore comments of a file, by line."""
    if "toolmason:" not in text:
        return {}
    comments = _find_comments(text)
    found: dict[int, IgnoreComment] = {}
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line)
        if match is None or (comments is not None and (number, match.start()) not in comments):
            continue
        codes = None if match[1] is None else frozenset(code for code in re.split(r"[\s,]+", match[1].upper()) if code)
        found[number] = IgnoreComment(SourceLocation(path, number, match.start() + 1), codes)
    return found


def _find_comments(text: str) -> set[tuple[int, int]] | None:
    """Return where our words stand in comments, and not in a text; `None` where the file cannot be split."""
    positions: set[tuple[int, int]] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                positions.update(
                    (token.start[0], token.start[1] + match.start()) for match in _COMMENT.finditer(token.string)
                )
    except (tokenize.TokenError, SyntaxError):
        return None
    return positions


def drop_ignored(findings: Iterable[Finding], ignores: dict[str, dict[int, IgnoreComment]]) -> Iterator[Finding]:
    """Yield the findings that no comment hides: neither on their line nor on the line of their `def`."""
    for found in findings:
        file_ignores = ignores.get(found.location.path, {})
        comments = [file_ignores[line] for line in (found.location.line, found.def_line) if line in file_ignores]
        if not any([comment.applies_to(found) for comment in comments]):  # noqa: C419 - each comment is to know that it was used
            yield found


def find_unused(ignores: Iterable[IgnoreComment], checked_codes: frozenset[str]) -> Iterator[Finding]:
    """Yield a finding for each comment that hid nothing; `judged` are the codes that were looked for."""
    for comment in ignores:
        if comment.codes is None:
            problems = [] if comment.used_codes else ["it hides nothing"]
        elif not comment.codes:
            problems = ["it names no code"]
        else:
            problems = [f"there is no rule {code}" for code in sorted(comment.codes - RULES.keys())]
            problems += [
                f"{code} is not found here" for code in sorted((comment.codes & checked_codes) - comment.used_codes)
            ]
        if problems:
            yield make_finding(UNUSED_IGNORE, comment.location, f"unused ignore: {'; '.join(problems)}")
