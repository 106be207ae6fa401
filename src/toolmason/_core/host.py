"""What a toolbox offers to its servers: who answers what they ask.

Lives here: the handlers of the application, and which questions go to whoever called instead.
Not here: the questions as the wire has them (`toolmason.mcp.asking`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from toolmason._core.context import FORWARD, ToolContext
from toolmason._core.policy import Settings

Asked: TypeAlias = Callable[..., Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True)
class Host:
    """What a toolbox offers to its servers."""

    settings: Settings = field(default_factory=Settings)
    on_elicit: Asked | None = None
    on_sample: Asked | None = None
    roots: Sequence[str | Path] = ()
    context: ToolContext[Any] = field(default_factory=ToolContext)
    """In whose name the toolbox itself asks: what a server offers, and how it is."""
    passes: bool = False
    """Whether what the application does not answer goes to whoever called."""

    @property
    def own(self) -> frozenset[str]:
        """What the application answers itself, by the names of the capabilities."""
        known = {
            "elicitation": self.on_elicit not in (None, FORWARD),
            "sampling": self.on_sample not in (None, FORWARD),
            "roots": bool(self.roots),
        }
        return frozenset(name for name, is_own in known.items() if is_own)

    def forwarding(self) -> Host:
        """Return a host that passes on the questions which the application has named nobody to answer."""
        return replace(self, on_elicit=self.on_elicit or FORWARD, on_sample=self.on_sample or FORWARD, passes=True)
