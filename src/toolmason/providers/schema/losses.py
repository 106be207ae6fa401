"""What became of a tool on its way to a provider, as frozen values.

Lives here: losses and what a narrowing gives. Not here: how they come about (`narrow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that a provider's form of a schema does not say."""

    path: str
    """Of the parameter, as a JSON path: `$.items[*].count`."""
    what: str
    """What was dropped or changed, in words."""
    changes_meaning: bool = False
    """Whether arguments that the tool takes can no longer be said. Else a rule is only no longer enforced by the
    provider: the description tells it, and we still hold it."""

    @override
    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class NarrowedSchema:
    """A schema as one provider takes it."""

    schema: dict[str, Any]
    strict: bool = False
    reason: str = ""
    """Why it is not strict, where it is not."""
    losses: tuple[Loss, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """What is sent instead of the name of a property that the provider refuses → that name."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one provider makes of one tool."""

    provider: str
    tool: str
    narrowed: NarrowedSchema
    alias: str | None = None
    """The name that is sent instead, where the tool's own is refused."""

    @property
    def status(self) -> str:
        """`accepted`, `lossy` (a rule is told and not enforced) or `rejected` (the meaning would change)."""
        if any(loss.changes_meaning for loss in self.narrowed.losses):
            return "rejected"
        return "lossy" if self.narrowed.losses else "accepted"
