"""Hold the state that all calls of a toolbox and its views share."""

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
    """Shared state: approval rule, signer, slots, locks, rate limits and middleware."""

    settings: EngineSettings
    approval_rule: ApprovalRule | Inherit = INHERIT
    approver: Approver | None = None
    signer: ApprovalSigner = field(default_factory=ApprovalSigner)
    max_concurrency: int | None = None
    """Maximum number of concurrent calls in the whole toolbox, if set."""
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    semaphores: dict[int, Semaphore] = field(default_factory=dict)
    rate_limiters: dict[int, RateLimiter] = field(default_factory=dict)
    counters: RunState = field(default_factory=lambda: RunState(Limits(calls=None, per_tool=None)))
    """Call counters for tools with `max_calls`, outside of a run."""
    middleware: list[Middleware] = field(default_factory=list)

    def get_rule(self, run: RunState | None) -> ApprovalRule:
        """Return the approval rule.

        If the application sets no rule, destructive calls of a model need approval within a run. Direct calls by the
        application need none.
        """
        if isinstance(self.approval_rule, Inherit):
            return None if run is None else "destructive"
        return self.approval_rule

    def get_semaphore(self, key: int, limit: int) -> Semaphore:
        """Return the semaphore of a tool, or of the whole toolbox for key 0."""
        return self.semaphores.setdefault(key, Semaphore(limit))


def needs_pipeline(route: Route, shared: SharedCallState, run: RunState | None) -> bool:
    """Return True if a tool has a policy that requires the full pipeline."""
    options = route.tool.options
    policy_options = (options.approval, options.max_calls, options.max_concurrency, options.lock, options.rate)
    return bool(
        run is not None
        or shared.max_concurrency is not None
        or any(policy_options)
        or route.tool.on_arguments is not None
        or rule_requires_approval(shared.get_rule(run), options)
    )
