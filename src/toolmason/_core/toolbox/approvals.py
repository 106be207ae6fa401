"""Sign decisions, resume approved calls, and preview the effect of a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolmason._core.call.admission import Pipeline, get_effective_arguments, parse_arguments
from toolmason._core.call.approval import (
    ApprovalRequest,
    ApprovalSigner,
    ApprovalVerdict,
    Decision,
    make_preview,
    needs_approval,
    parse_key,
)
from toolmason._core.call.failures import make_error_fields
from toolmason._core.call.limits import RunState, fingerprint, to_json_like
from toolmason._core.call.long_results import ResultStore
from toolmason._core.call.pipeline import NO_OPTIONS, CallOptions
from toolmason._core.call.route import Route
from toolmason._core.call.shared_state import NextCall, SharedCallState
from toolmason._core.define.context import CallState, ContextLike, make_context
from toolmason._core.define.experimental import allow_experimental
from toolmason._core.run.blocking import blocking
from toolmason._core.run.progress import OnProgress
from toolmason._core.toolbox.options import ToolboxPolicy
from toolmason._core.values.policy import INHERIT, Timeout, check_timeout
from toolmason._core.values.results import Arguments, Repair, ToolCall, ToolResult
from toolmason.errors import ApprovalDenied, ApprovalRequired, LimitExceeded, ToolCallError


def make_shared_call_state(policy: ToolboxPolicy) -> SharedCallState:
    """Return the state that all calls of a toolbox share."""
    key = parse_key("approval_key", policy.approval_key)
    return SharedCallState(
        policy.settings,
        middleware=[run_with_experimental] if policy.experimental else [],
        approval_rule=policy.approve,
        approver=policy.approver,
        signer=ApprovalSigner() if key is None else ApprovalSigner(key),
        max_concurrency=policy.max_concurrency if policy.max_concurrency_is_set else None,
    )


async def run_with_experimental(call: ToolCall, call_next: NextCall) -> ToolResult:
    """Run a call with experimental APIs allowed (the setting `experimental = true`)."""
    with allow_experimental():
        return await call_next(call)


def make_result_store(policy: ToolboxPolicy) -> ResultStore:
    """Return the store for a toolbox's long results."""
    directory = None if policy.results_dir is None else Path(policy.results_dir)
    return ResultStore(policy.settings.kept_bytes, directory)


@dataclass(frozen=True, slots=True)
class DryRun:
    """Effect that a call would have. Nothing was run."""

    name: str
    """Name of the tool that would run."""
    arguments: Mapping[str, Any]
    """Arguments as the tool would receive them: repaired, with defaults filled in."""
    repairs: tuple[Repair, ...] = ()
    preview: str | None = None
    """Text from the tool's `preview` function that describes the effect of the call."""
    needs_approval: bool = False
    """True if the call needs a decision first."""


class Approvals(ABC):
    """Approval methods of a toolbox."""

    _shared: SharedCallState
    _policy: ToolboxPolicy
    _run_state: RunState | None

    @abstractmethod
    def _get_route_or_error(self, name: str) -> Route | ToolCallError:
        """Return the route of a tool, or the error if it has none."""

    def decide(self, request: ApprovalRequest, verdict: ApprovalVerdict) -> Decision:
        """Sign a decision on a request that a result carried: `result.error.request`.

        The decision is valid once, for this tool, these arguments and this identity. Both are plain JSON (`to_dict`,
        `from_dict`); with `approval_key=` they outlive the process.

        Raises:
            ApprovalDenied: the request was changed, or was not signed with this key.
        """
        return self._shared.signer.sign_decision(request, verdict)

    def verify(self, decision: Decision) -> bool:
        """Return True if a decision was signed with this toolbox's key and not changed since."""
        return self._shared.signer.verify(decision)

    def record_earlier_call(self, call: ToolCall, result: ToolResult) -> None:
        """Count a call that another process made in this run, so that limits and repeat detection continue."""
        route = self._get_route_or_error(call.name)
        if self._run_state is None or not isinstance(route, Route):
            return
        options = route.tool.options
        tool_key = Pipeline(route, self._shared, self._run_state, NO_OPTIONS).tool_key
        # A call over the limit stays over it; unreadable arguments cannot be a repeat.
        with suppress(LimitExceeded, ValueError):
            self._run_state.count(route.name, options.max_calls, tool_key)
            # A pending call is counted, but has no result yet.
            is_pending = result.error is not None and result.error.code == ApprovalRequired.code
            if options.repeats == "detect" and not is_pending:
                self._run_state.record_result(fingerprint(route.name, parse_arguments(call)), result)

    async def resume(
        self,
        decision: Decision | Mapping[str, Any],
        *,
        context: ContextLike = None,
        timeout: Timeout = INHERIT,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Run the call that a decision is about. If the decision is not valid, the result carries the reason.

        `decision` may also be the plain data of `Decision.to_dict`.
        """
        try:
            decision = decision if isinstance(decision, Decision) else Decision.from_dict(decision)
        except ApprovalDenied as error:
            return ToolResult("", error.tool, attempts=0, **make_error_fields(error, self._policy.on_error))
        request = decision.request
        route = self._get_route_or_error(request.tool)
        if isinstance(route, ToolCallError):
            return ToolResult(
                request.call_id, request.tool, attempts=0, **make_error_fields(route, self._policy.on_error)
            )
        call_options = CallOptions(make_context(context), check_timeout(timeout), on_progress=on_progress)
        pipeline = Pipeline(route, self._shared, self._run_state, call_options, decision)
        return await pipeline.execute(ToolCall(request.call_id, route.name, dict(request.arguments)))

    resume_sync = blocking(resume)

    async def dry_run(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> DryRun:
        """Return the effect that a call would have, without running it.

        Raises:
            ToolCallError: the tool is unknown, or the arguments are invalid.
        """
        route = self._get_route_or_error(name)
        if isinstance(route, ToolCallError):
            raise route
        _, repairs = route.bind(arguments)
        effective_arguments = get_effective_arguments(route, arguments)
        call = ToolCall("dry_run", route.name, effective_arguments)
        call_context: Any = self._policy.context.merge(make_context(context)).for_call(CallState(call))
        return DryRun(
            name=route.name,
            arguments=to_json_like(effective_arguments),
            repairs=repairs,
            preview=await make_preview(route.tool, effective_arguments, call_context),
            needs_approval=await needs_approval(
                route.tool, self._shared.get_rule(self._run_state), effective_arguments, call_context
            ),
        )

    dry_run_sync = blocking(dry_run)

    async def preview(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> str | None:
        """Return the text of the tool's `preview` function, or None if it has none.

        Raises:
            ToolCallError: the tool is unknown, or the arguments are invalid.
        """
        route = self._get_route_or_error(name)
        if isinstance(route, ToolCallError):
            raise route
        route.bind(arguments)
        call = ToolCall("preview", route.name, arguments)
        call_context: Any = self._policy.context.merge(make_context(context)).for_call(CallState(call))
        return await make_preview(route.tool, parse_arguments(call), call_context)

    preview_sync = blocking(preview)
