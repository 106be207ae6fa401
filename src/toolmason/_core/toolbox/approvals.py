"""Decide on calls that wait for approval, and try calls without running them, as `box.approvals`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from toolmason._core.call.approval import ApprovalRequest, ApprovalSigner, ApprovalVerdict, Decision
from toolmason._core.call.approval_gate import make_preview, predicate_requires_approval
from toolmason._core.call.call_policy import run_in_time
from toolmason._core.call.gates import check_caller, get_call_key, get_effective_arguments, is_own, is_pending
from toolmason._core.call.limits import to_json_like
from toolmason._core.call.route import CallOptions
from toolmason._core.define.context import ContextLike, ToolContext, make_context
from toolmason._core.run.blocking import blocking
from toolmason._core.run.progress import OnProgress
from toolmason._core.toolbox.calls import Calls
from toolmason._core.toolbox.lookup import ToolLookup
from toolmason._core.toolbox.state import ToolboxState
from toolmason._core.values.call_state import CallState
from toolmason._core.values.policy import INHERIT, Timeout, check_kinds, check_timeout
from toolmason._core.values.remembered_decisions import RememberedDecision
from toolmason._core.values.results import Arguments, Repair, ToolCall, ToolResult
from toolmason._explain import explain_arguments
from toolmason._text import escape_hidden
from toolmason._value import Value
from toolmason.errors import (
    ApprovalDenied,
    InsufficientScope,
    InvalidArguments,
    LimitExceeded,
    ToolCallError,
    UnknownTool,
)

_MAX_CHARS: Final = 500
"""Maximum number of characters shown of one value or key."""
_MAX_TEXT: Final = 100_000
_MAX_ITEMS: Final = 50
"""Maximum number of list items shown."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DryRun(Value):
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
    error: ToolCallError | None = None
    """Reason why the call would not run: the tool is unknown, or the arguments are invalid."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Approvals:
    """Approvals of a toolbox's calls."""

    _state: ToolboxState
    _calls: Calls

    @explain_arguments
    def decide(self, request: ApprovalRequest, verdict: ApprovalVerdict) -> Decision:
        """Sign a decision on a request that a result carried: `result.error.request`.

        The decision is valid once, for this tool, these arguments and this identity. Both are plain JSON (`to_dict`,
        `from_dict`); with `approval_key=` they outlive the process. One with `remember` also holds for later calls.

        Raises:
            ApprovalDenied: the request was changed, or was not signed with this key.
        """
        signer = self._get_signer()
        decision = signer.sign_decision(request, verdict)
        signer.remember(request, verdict)
        return decision

    def remembered(self) -> list[RememberedDecision]:
        """Return the decisions that hold for later calls, oldest first: those with `Allow(remember=...)` or `Deny`."""
        return self._get_signer().load_remembered()

    @explain_arguments
    def revoke(self, decision_id: str) -> bool:
        """Remove a remembered decision by its `id`, so that later calls are asked again. Return False if there is none.

        Raises:
            OSError: the file cannot be written.
        """
        return self._get_signer().store.remove(decision_id)

    @explain_arguments
    def verify(self, decision: Decision) -> bool:
        """Return True if a decision was signed with this toolbox's key and not changed since."""
        return self._get_signer().verify(decision)

    def _get_signer(self) -> ApprovalSigner:
        run = self._state.run
        signer: ApprovalSigner = self._state.calls.signer if run is None or run.signer is None else run.signer
        return signer

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
            return await self._calls.refuse(ToolCall("", error.tool), error)
        request = decision.request
        call = ToolCall(request.call_id, request.tool, dict(request.arguments))
        route = self._calls.lookup.get_route(request.tool)
        options = CallOptions(
            make_context(context),
            check_timeout(timeout),
            on_progress=on_progress,
            run=self._state.run,
            decision=decision,
        )
        if isinstance(route, ToolCallError):
            return await self._calls.run_unknown(call, options, route)
        return await self._calls.run(route, call, options)

    resume_sync = blocking(resume)

    async def dry_run(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> DryRun:
        """Return the effect that a call would have, without running it; with `error` if it would not run."""
        check_kinds("", {"name": name}, {"name": (str,)})
        route = self._calls.lookup.get_route(name)
        if isinstance(route, ToolCallError):
            options = CallOptions(make_context(context), run=self._state.run)
            route = await self._calls.find_unlisted(name, options, route)
        if isinstance(route, ToolCallError):
            return DryRun(name, {}, error=route)
        try:
            await check_caller(route, make_context(context))
            _, repairs = route.bind(arguments)
        except ToolCallError as error:
            return DryRun(route.name, {}, error=error)
        effective_arguments = get_effective_arguments(route, arguments)
        call = ToolCall("dry_run", route.name, effective_arguments)
        call_context = route.context.merge(make_context(context)).for_call(CallState(call, run=self._state.run))
        preview = make_preview(route.tool, effective_arguments, call_context, route.settings)
        steps = route.get_approval_steps(in_run=self._state.run is not None)
        is_required = any(step.predicate is None and not step.is_void for step in steps)
        for step in steps:
            if step.predicate is not None and not is_required:
                asked = predicate_requires_approval(step.predicate, effective_arguments, call_context, route.settings)
                is_required = await run_in_time(route.name, route.chain, asked)
        return DryRun(
            name=route.name,
            arguments=to_json_like(effective_arguments),
            repairs=repairs,
            preview=await run_in_time(route.name, route.chain, preview),
            needs_approval=is_required,
        )

    dry_run_sync = blocking(dry_run)


async def restore_call(
    state: ToolboxState, call: ToolCall, result: ToolResult, context: ToolContext[Any] | None
) -> None:
    """Count a call that another process made in a run, so that limits and repeat detection continue."""
    route = await ToolLookup(state, {}).resolve_route(call.name)
    run = state.run
    if run is None:
        return
    error = result.error
    if error is not None and (is_own(error, UnknownTool) or is_own(error, InsufficientScope)):
        run.rejected.reject(call.name, error)
        return
    if isinstance(route, ToolCallError):
        return
    bound = None
    with suppress(BaseException):  # a validator may raise anything
        bound = route.bind(call.raw)
    if bound is None and error is not None and is_own(error, InvalidArguments):
        run.rejected.reject(get_call_key(route, call.raw, None, context), error)
        return
    # A call over the limit stays over it; unreadable arguments cannot be a repeat.
    with suppress(LimitExceeded, ValueError):
        run.count(route.name, route.tool.options.max_calls, route.limit_key)
        # A pending call is counted, but has no result yet.
        is_waiting = error is not None and is_pending(error)
        if route.tool.options.repeats == "detect" and not is_waiting and not run.is_program:
            run.record_result(get_call_key(route, call.raw, bound, context), result)


# --- arguments as text ---------------------------------------------------------------------------


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments as text, with every key up to a length; a truncated value states its own."""
    text = _format_value(dict(arguments))
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} [… {len(text) - _MAX_TEXT} more characters …]"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{_format_scalar(str(key))}: {_format_value(item)}" for key, item in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        items = [_format_value(item) for item in value[:_MAX_ITEMS]]
        if len(value) > _MAX_ITEMS:
            items.append(f"[… {len(value) - _MAX_ITEMS} more of {len(value)} items …]")
        return "[" + ", ".join(items) + "]"
    return _format_scalar(value)


def _format_scalar(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    is_string = isinstance(value, str)
    if len(text) <= _MAX_CHARS:
        return _format_text(text, quoted=is_string)
    half = _MAX_CHARS // 2
    note = f" [… {len(text) - 2 * half} of {len(text)} characters left out …] "
    return _format_text(text[:half], quoted=is_string) + note + _format_text(text[-half:], quoted=is_string)


def _format_text(text: str, *, quoted: bool) -> str:
    return escape_hidden(json.dumps(text, ensure_ascii=False) if quoted else text)
