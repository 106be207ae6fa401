"""Decisions that come later, and a look at what a call would do.

Lives here: the part of a toolbox that a person who decides needs. Not here: the gate itself (`approve`, `govern`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolmason._core.call.admission import Governed, plain_arguments, seen_arguments
from toolmason._core.call.approval import (
    ApprovalRequest,
    Decision,
    Notary,
    Verdict,
    key_from,
    needs_approval,
    preview_of,
)
from toolmason._core.call.failures import shown
from toolmason._core.call.limits import RunState, fingerprint, json_like
from toolmason._core.call.long_results import Store
from toolmason._core.call.pipeline import NOTHING_ASKED, Ask
from toolmason._core.call.route import Route
from toolmason._core.call.shared_state import Next, Office
from toolmason._core.define.context import CallState, context_from
from toolmason._core.define.experimental import allow_experimental
from toolmason._core.run.blocking import run_to_end
from toolmason._core.run.progress import OnProgress
from toolmason._core.toolbox.options import BoxPolicy
from toolmason._core.toolbox.sync_twins import ContextLike
from toolmason._core.values.policy import INHERIT, Timeout, checked
from toolmason._core.values.results import Arguments, Repair, ToolCall, ToolResult
from toolmason.errors import ApprovalDenied, ApprovalRequired, LimitExceeded, ToolCallError


def office_of(policy: BoxPolicy) -> Office:
    """Return what the calls of a toolbox share."""
    key = key_from(policy.approval_key)
    return Office(
        policy.settings,
        middleware=[allowing_experimental] if policy.experimental else [],
        rule=policy.approve,
        approver=policy.approver,
        notary=Notary() if key is None else Notary(key),
        most=policy.max_concurrency if policy.capped_width else None,
    )


async def allowing_experimental(call: ToolCall, proceed: Next) -> ToolResult:
    """Run a call with leave to use APIs that may still change: the setting `experimental = true`."""
    with allow_experimental():
        return await proceed(call)


def store_of(policy: BoxPolicy) -> Store:
    """Return where a toolbox keeps results that are too long."""
    folder = None if policy.results_dir is None else Path(policy.results_dir)
    return Store(policy.settings.kept_bytes, folder)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a call would do; nothing was run."""

    name: str
    """The tool that would run."""
    arguments: Mapping[str, Any]
    """As the tool would get them: repairs made, defaults filled in."""
    repairs: tuple[Repair, ...] = ()
    preview: str | None = None
    """What it would do, in the tool's own words."""
    needs_approval: bool = False
    """Whether someone has to decide about it first."""


class Approvals(ABC):
    """What a toolbox does for whoever decides about calls."""

    _office: Office
    _policy: BoxPolicy
    _run: RunState | None

    @abstractmethod
    def _route_or_refusal(self, name: str) -> Route | ToolCallError:
        """Return the route of a tool, or why there is none."""

    def decide(self, request: ApprovalRequest, verdict: Verdict) -> Decision:
        """Sign a decision on a request that a result carried: `result.error.request`.

        The decision is good once, for this tool, these arguments and this identity. Both are plain JSON
        (`to_dict`, `from_dict`); with `approval_key=` they outlive the process.

        Raises:
            ApprovalDenied: the request was changed, or was not made under this key.
        """
        return self._office.notary.decided(request, verdict)

    def signed(self, decision: Decision) -> bool:
        """Tell whether a decision was made under this toolbox's key, and not changed since."""
        return self._office.notary.signed(decision)

    def recall(self, call: ToolCall, result: ToolResult) -> None:
        """Count a call of this run that was made before, in another process: limits and repeats go on from there."""
        route = self._route_or_refusal(call.name)
        if self._run is None or not isinstance(route, Route):
            return
        options, key = route.tool.options, Governed(route, self._office, self._run, NOTHING_ASKED).key
        # What was over the limit then is over it now; what could not be read was no repeat.
        with suppress(LimitExceeded, ValueError):
            self._run.count(route.name, options.max_calls, key)
            # A call that waits has been counted, and has given nothing yet.
            waits = result.error is not None and result.error.code == ApprovalRequired.code
            if options.repeats == "detect" and not waits:
                self._run.remember(fingerprint(route.name, plain_arguments(call)), result)

    async def resume(
        self,
        decision: Decision | Mapping[str, Any],
        *,
        context: ContextLike = None,
        timeout: Timeout = INHERIT,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Run the call that a decision is about, if it still holds; else the result says why not.

        A decision may come as the plain data that it was written as.
        """
        try:
            decision = decision if isinstance(decision, Decision) else Decision.from_dict(decision)
        except ApprovalDenied as error:
            return ToolResult("", error.tool, attempts=0, **shown(error, self._policy.on_error))
        request = decision.request
        route = self._route_or_refusal(request.tool)
        if isinstance(route, ToolCallError):
            return ToolResult(request.call_id, request.tool, attempts=0, **shown(route, self._policy.on_error))
        ask = Ask(context_from(context), checked(timeout), on_progress=on_progress)
        governed = Governed(route, self._office, self._run, ask, decision)
        return await governed.perform(ToolCall(request.call_id, route.name, dict(request.arguments)))

    def resume_sync(
        self,
        decision: Decision | Mapping[str, Any],
        *,
        context: ContextLike = None,
        timeout: Timeout = INHERIT,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Run `resume` to its end, from code that is not async."""
        return run_to_end(self.resume(decision, context=context, timeout=timeout, on_progress=on_progress))

    async def dry_run(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> DryRun:
        """Return what a call would do, and run nothing: the arguments as the tool would get them, and the gate.

        Raises:
            ToolCallError: there is no such tool, or the arguments do not fit.
        """
        route = self._route_or_refusal(name)
        if isinstance(route, ToolCallError):
            raise route
        _, repairs = route.bind(arguments)
        seen = seen_arguments(route, arguments)
        call = ToolCall("dry_run", route.name, seen)
        known: Any = self._policy.context.merged(context_from(context)).for_call(CallState(call))
        return DryRun(
            name=route.name,
            arguments=json_like(seen),
            repairs=repairs,
            preview=await preview_of(route.tool, seen, known),
            needs_approval=await needs_approval(route.tool, self._office.rule_in(self._run), seen, known),
        )

    def dry_run_sync(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> DryRun:
        """Run `dry_run` to its end, from code that is not async."""
        return run_to_end(self.dry_run(name, arguments, context=context))

    async def preview(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> str | None:
        """Return what a call would do, in the tool's own words (`preview=`); `None` where it has none.

        Raises:
            ToolCallError: there is no such tool, or the arguments do not fit.
        """
        route = self._route_or_refusal(name)
        if isinstance(route, ToolCallError):
            raise route
        route.bind(arguments)
        call = ToolCall("preview", route.name, arguments)
        known: Any = self._policy.context.merged(context_from(context)).for_call(CallState(call))
        return await preview_of(route.tool, plain_arguments(call), known)

    def preview_sync(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> str | None:
        """Run `preview` to its end, from code that is not async."""
        return run_to_end(self.preview(name, arguments, context=context))
