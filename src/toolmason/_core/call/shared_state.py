"""What the calls of a toolbox and its views share, and which tools need it.

Lives here: the rule and who decides, slots, locks, meters, counters, hooks; no call. Not here: using them (`govern`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from toolmason._core.call.approval import Approver, Notary, Rule, rule_asks
from toolmason._core.call.limits import Meter, RunState
from toolmason._core.call.route import Route
from toolmason._core.run.slots import Locks, Slots
from toolmason._core.values.policy import INHERIT, Inherit, Limits, Settings
from toolmason._core.values.results import ToolCall, ToolResult

Next: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
Middleware: TypeAlias = Callable[[ToolCall, Next], Awaitable[ToolResult]]


@dataclass(slots=True, eq=False, repr=False)
class Office:
    """What the calls of a toolbox and its views share: the rule, the notary, slots, locks, meters, hooks."""

    settings: Settings
    rule: Rule | Inherit = INHERIT
    approver: Approver | None = None
    notary: Notary = field(default_factory=Notary)
    most: int | None = None
    """How many calls run at once in the whole toolbox, where that was asked for."""
    locks: Locks = field(default_factory=Locks)
    slots: dict[int, Slots] = field(default_factory=dict)
    meters: dict[int, Meter] = field(default_factory=dict)
    counts: RunState = field(default_factory=lambda: RunState(Limits(calls=None, per_tool=None)))
    """Calls of tools that say `max_calls`, outside of any run."""
    middleware: list[Middleware] = field(default_factory=list)

    def rule_in(self, run: RunState | None) -> Rule:
        """Return the approval rule.

        Where none was given, what a model does in a run is asked about if it destroys;
        a call that the application makes by itself is its own decision.
        """
        if isinstance(self.rule, Inherit):
            return None if run is None else "destructive"
        return self.rule

    def slots_for(self, key: int, most: int) -> Slots:
        """Return the slots of a tool, or of the toolbox under 0."""
        return self.slots.setdefault(key, Slots(most))


def is_governed(route: Route, office: Office, run: RunState | None) -> bool:
    """Tell whether a tool has policy on it that needs the long way."""
    options = route.tool.options
    own = (options.approval, options.max_calls, options.max_concurrency, options.lock, options.rate)
    return bool(
        run is not None
        or office.most is not None
        or any(own)
        or route.tool.listener is not None
        or rule_asks(office.rule_in(run), options)
    )
