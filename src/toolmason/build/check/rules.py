"""Define rules and findings, and select rules by code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pkgutil import get_data
from typing import Final, Literal, TypeAlias

from pydantic_core import from_json

from toolmason._text import DOCUMENTATION, suggest_name
from toolmason.errors import ConfigError

Severity: TypeAlias = Literal["error", "warning", "note"]
"""Errors fail a check, warnings fail a strict one, notes never do."""


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """Position in a source file; line and column count from 1."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One mistake at one location."""

    location: SourceLocation
    code: str
    message: str
    severity: Severity
    hint: str = ""
    """How to fix it."""
    tool: str = ""
    """Name of the affected tool, as the model sees it."""
    def_line: int = 0
    """Line of the `def`, where ignore comments also apply; 0 if none."""

    @property
    def sort_key(self) -> tuple[SourceLocation, str, str]:
        """Sort key: location, then code."""
        return self.location, self.code, self.message


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of mistake."""

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    fix: str
    dynamic: bool = False
    """True if the rule needs loaded tools."""

    @property
    def page(self) -> str:
        """URL of the rule's docs page."""
        return f"{DOCUMENTATION}/reference/rules/{self.code}.md"


RULES: Final[dict[str, Rule]] = {
    code: Rule(code, **fields)
    for code, fields in from_json(get_data("toolmason.build.check", "rules.json") or b"").items()
}
"""All rules by code."""

_MAX_MESSAGE_CHARS: Final = 400
"""Maximum length of a message; messages quote source, and a default may be a megabyte long."""

UNREADABLE: Final = "TM100"
NOT_LOADED: Final = "TM198"
UNUSED_IGNORE: Final = "TM199"


def make_finding(
    code: str, location: SourceLocation, message: str, *, tool: str = "", def_line: int = 0, hint: str = ""
) -> Finding:
    """Return a finding with the severity of its rule, and its hint unless there is a better one."""
    rule = RULES[code]
    if len(message) > _MAX_MESSAGE_CHARS:
        message = f"{message[:_MAX_MESSAGE_CHARS]}…"
    return Finding(
        location=location,
        code=code,
        message=message,
        severity=rule.severity,
        hint=hint or rule.fix,
        tool=tool,
        def_line=def_line,
    )


def parse_codes(selectors: Iterable[str], origin: str) -> frozenset[str]:
    """Return the codes that selectors such as `TM101`, `TM1` or `ALL` match.

    Raises:
        ConfigError: a selector matches no rule; names the selector and its origin.
    """
    codes: set[str] = set()
    for selector in selectors:
        prefix = selector.strip().upper()
        matching = [code for code in RULES if prefix == "ALL" or (prefix.startswith("TM") and code.startswith(prefix))]
        if not matching:
            hint = suggest_name(prefix, RULES, "Use a code such as 'TM101', a family such as 'TM1', or 'ALL'.")
            raise ConfigError(f"{origin}: no rule matches {selector!r}. {hint}")
        codes.update(matching)
    return frozenset(codes)
