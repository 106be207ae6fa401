"""Apply `# toolmason: ignore` and `# toolmason: ignore[TM101, TM102]` comments to findings."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from toolmason.build.check.rules import RULES, UNUSED_IGNORE, Finding, SourceLocation, make_finding

_COMMENT: Final = re.compile(r"#\s*toolmason:\s*ignore(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreComment:
    """One ignore comment."""

    location: SourceLocation
    codes: frozenset[str] | None
    """Codes that the comment names; None if it hides every code."""
    used_codes: set[str] = field(default_factory=set)

    def applies_to(self, found: Finding) -> bool:
        """Return True if the comment hides a finding, and record the use."""
        if self.codes is not None and found.code not in self.codes:
            return False
        self.used_codes.add(found.code)
        return True


def read_ignores(text: str, path: str) -> dict[int, IgnoreComment]:
    """Return the ignore comments of a file, by line, as far as the file can be tokenized."""
    found: dict[int, IgnoreComment] = {}
    if "toolmason:" not in text:
        return found
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)) is not None:
                line, column = token.start
                codes = None if match[1] is None else frozenset(re.findall(r"[^\s,]+", match[1].upper()))
                found[line] = IgnoreComment(SourceLocation(path, line, column + match.start() + 1), codes)
    return found


def drop_ignored(findings: Iterable[Finding], ignores: dict[str, dict[int, IgnoreComment]]) -> Iterator[Finding]:
    """Yield the findings that no comment hides, neither on their line nor on the line of their `def`."""
    for found in findings:
        file_ignores = ignores.get(found.location.path, {})
        comments = [file_ignores[line] for line in (found.location.line, found.def_line) if line in file_ignores]
        if not any([comment.applies_to(found) for comment in comments]):  # noqa: C419 - every comment must record its use
            yield found


def find_unused(ignores: Iterable[IgnoreComment], checked_codes: set[str]) -> Iterator[Finding]:
    """Yield a finding for each comment that hid nothing; `checked_codes` are the codes that were checked."""
    for comment in ignores:
        if comment.codes is None:
            problems = [] if comment.used_codes else ["it hides nothing"]
        elif not comment.codes:
            problems = ["it names no code"]
        else:
            problems = [f"unknown rule {code}" for code in sorted(comment.codes - RULES.keys())]
            problems += [
                f"{code} is not reported here" for code in sorted((comment.codes & checked_codes) - comment.used_codes)
            ]
        if problems:
            yield make_finding(UNUSED_IGNORE, comment.location, f"unused ignore: {'; '.join(problems)}")
