"""What a run does to the world, as data: one model turn, or one tool call.

Lives here: the value and its key within a run, and what can be said of one that was interrupted. Only data can be
written down, sent elsewhere, and looked up later. Not here: doing it (`runtime`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class RunEffect:
    """One thing that a run does."""

    run: str
    """The run that it belongs to."""
    key: str
    """What it is called within the run; the same when the run is driven again."""
    kind: Literal["model", "tool"]
    name: str
    """The model, or the tool."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """JSON data."""
    repeatable: bool = True
    """Whether an attempt that was interrupted may be made again."""
    timeout: float | None = None
    attempt: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the effect as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__} | {"arguments": dict(self.arguments)}


Work: TypeAlias = Callable[[], Awaitable[Any]]
"""Does what an effect says, here and now."""


@dataclass(frozen=True, slots=True)
class Completed:
    """An interrupted call was done, and this is what it gave."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """An interrupted call was not done: it may be made again."""


ReconciledOutcome: TypeAlias = Completed | NotExecuted
Reconciler: TypeAlias = Callable[[], Awaitable[ReconciledOutcome | None]]
"""Finds out what became of an interrupted call; `None` where that cannot be known."""
