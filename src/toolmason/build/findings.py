"""What a check says: a finding with its code, its place and its words.

Lives here: the frozen values that every rule yields and every report prints. Not here: the rules (`rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]
"""Errors fail a check, warnings fail a strict one, notes fail none."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something is written; line and column count from 1."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One mistake, at one place."""

    place: Place
    code: str
    message: str
    severity: Severity
    hint: str = ""
    """What to do about it."""
    tool: str = ""
    """The tool that it is about, by the name the model sees."""
    owner: int = 0
    """The line of the `def`, where an ignore comment counts too; 0 where there is none."""

    @property
    def order(self) -> tuple[Place, str, str]:
        """Sorts findings by place, then by code."""
        return self.place, self.code, self.message
