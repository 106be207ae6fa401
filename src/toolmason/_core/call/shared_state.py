"""What the calls of a toolbox and its views share, and which tools need it.

Lives here: the rule and who decides, slots, locks, meters, counters, hooks; no call. Not here: using them (`govern`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from toolmason._core.call.approval import ApprovalRule, ApprovalSigner, Approver, rule_requires_approval
from toolmason._core.call.limits import RateLimiter, RunState
from toolmason._core.call.route import Route
from toolmason._core.run.slots import KeyedLocks, Semaphore
from toolmason._core.values.policy import INHERIT, EngineSettings, Inherit, Limits
from toolmason._core.values.results import ToolCall, ToolResult

NextCall: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
Middleware: TypeAlias = Callable[[ToolCall, NextCall], Awaitable[ToolResult]]


@dataclass(slots=True, eq=False, repr=False)
class SharedCallState:
    """What the calls of a toolbox and its views share: the rule, the notary, slots, locks, meters, hooks."""

    settings: EngineSettings
    approval_rule: ApprovalRule | Inherit = INHERIT
    approver: Approver | None = None
    signer: ApprovalSigner = field(default_factory=ApprovalSigner)
    max_concurrency: int | None = None
    """How many calls run at once in the whole toolbox, where that was asked for."""
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    semaphores: dict[int, Semaphore] = field(default_factory=dict)
    rate_limiters: dict[int, RateLimiter] = field(default_factory=dict)
    counters: RunState = field(default_factory=lambda: RunState(Limits(calls=None, per_tool=None)))
    """Calls of tools that say `max_calls`, outside of any run."""
    middleware: list[Middleware] = field(default_factory=list)

    def get_rule(self, run: RunState | None) -> ApprovalRule:
        """Return the approval rule.

        Where none was given, what a model does in a run is asked about if it destroys;
        a call that the application makes by itself is its own decision.
        """
        if isinstance(self.approval_rule, Inherit):
            return None if run is None else "destructive"
        return self.approval_rule

    def get_semaphore(self, key: int, limit: int) -> Semaphore:
        """Return the slots of a tool, or of the toolbox under 0."""
        return self.semaphores.setdefault(key, Semaphore(limit))


def needs_pipeline(route: Route, shared: SharedCallState, run: RunState | None) -> bool:
    """Tell whether a tool has policy on it that needs the long way."""
    options = route.tool.options
    policy_options = (options.approval, options.max_calls, options.max_concurrency, options.lock, options.rate)
    return bool(
        run is not None
        or shared.max_concurrency is not None
        or any(policy_options)
        or route.tool.on_arguments is not None
        or rule_requires_approval(shared.get_rule(run), options)
    )
