"""Ask for approval of a call."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from toolmason._core.arguments.bind import LargeArguments
from toolmason._core.call.approval import (
    MAX_EDIT_ROUNDS,
    REQUEST_SECONDS,
    Allow,
    ApprovalRequest,
    ApprovalSigner,
    ApprovalVerdict,
    Approver,
    Decision,
    Deny,
    Edit,
    get_effects,
    get_identity,
)
from toolmason._core.call.current_call import CurrentCall
from toolmason._core.call.gates import get_effective_arguments
from toolmason._core.call.limits import to_json_like
from toolmason._core.call.route import ApprovalStep
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.run.call_log import CALL_LOG, log_failure
from toolmason._core.run.execute import DeadlinePassed, await_with_timeout, call_user_function, call_with_arguments
from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import open_span
from toolmason._core.values.call_state import CallState
from toolmason._core.values.definition import ApprovalOption, canonicalize
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import ToolCall
from toolmason._text import to_line
from toolmason.errors import ApprovalDenied, ApprovalRequired, ExecutionError, ToolTimeout, clip


class ApprovalGate:
    """Approval of one call: every rule is asked, innermost first, and each approver once for the same arguments."""

    def __init__(self, current: CurrentCall, steps: tuple[ApprovalStep, ...]) -> None:
        self.current, self.steps = current, steps
        self.route, self.options = current.route, current.options

    async def admit(self) -> None:
        """Wait until the call is approved. Its arguments may be edited.

        Raises:
            ApprovalDenied: an approver denied the call, or the decision is not valid.
            ApprovalRequired: the application has to decide.
            ToolTimeout: an approver did not answer in time.
        """
        current = self.current
        if (decision := self.options.decision) is not None:
            edited = await self._use_decision(decision, current.make_call())
            if edited is not None:
                current.edit(edited)
        for _ in range(MAX_EDIT_ROUNDS):
            edited = await self._ask_all(current.make_call())
            if edited is None:
                return
            current.edit(edited)
        raise ApprovalDenied(
            self.route.name, f"its arguments were edited {MAX_EDIT_ROUNDS} times and still need approval"
        )

    def _make_context(self, call: ToolCall) -> ToolContext[Any]:
        return self.route.context.merge(self.options.context).for_call(CallState(call, run=self.current.run))

    async def _use_decision(self, decision: Decision, call: ToolCall) -> Mapping[str, Any] | None:
        """Return the edited arguments of a decision, or None if it allows the call as it is."""
        route = self.route
        arguments = to_json_like(await _run_off_loop(call, get_effective_arguments, route, call.raw))
        verdict = await self._get_signer().consume(
            decision, route.tool, self._make_digest(), arguments, get_identity(self._make_context(call))
        )
        if isinstance(verdict, Deny):
            raise ApprovalDenied(route.name, verdict.reason)
        return None if isinstance(verdict, Allow) else dict(verdict.arguments)

    async def _ask_all(self, call: ToolCall) -> Mapping[str, Any] | None:
        """Ask every approver of the call. Return the arguments that one of them changed, or None if all allow it."""
        arguments = await _run_off_loop(call, get_effective_arguments, self.route, call.raw)
        context = self._make_context(call)
        approvers: dict[int, Approver] = {}
        is_pending = False
        for step in self.steps:
            # A decision answers for the called toolbox. The approvers of inner toolboxes are asked all the same.
            if (step.is_outermost and self.options.decision is not None) or step.is_void:
                continue
            if step.predicate is not None and not await self._in_time(
                predicate_requires_approval(step.predicate, arguments, context, self.route.settings)
            ):
                continue
            if step.approver is None:
                is_pending = True
            elif step.approver not in approvers.values():
                approvers[step.position] = step.approver
        if not approvers and not is_pending:
            return None
        request = await self._make_request(call, arguments, context)
        CALL_LOG.debug("%s [%s] needs approval: request %s", self.route.name, to_line(call.id), request.id)
        for position, approver in approvers.items():
            edited = await self._ask(approver, position, request, call)
            if edited is not None:
                return edited
        if is_pending and not await self._is_remembered(request):
            raise ApprovalRequired(self.route.name, request)
        return None

    async def _is_remembered(self, request: ApprovalRequest, approver: str = "") -> bool:
        """Return True if an earlier decision allows the call.

        Raises:
            ApprovalDenied: an earlier decision denies it.
        """
        verdict = await asyncio.to_thread(self._get_signer().find_remembered, request, approver)
        if isinstance(verdict, Deny):
            raise ApprovalDenied(self.route.name, verdict.reason)
        return verdict is not None

    async def _ask(
        self, approver: Approver, position: int, request: ApprovalRequest, call: ToolCall
    ) -> Mapping[str, Any] | None:
        # With the place of its toolbox, so that a decision of one does not answer for another one.
        name = f"{position} {getattr(approver, '__module__', '')}.{getattr(approver, '__qualname__', '')}"
        if await self._is_remembered(request, name):
            return None
        verdict: ApprovalVerdict = await self._in_time(
            request_verdict(approver, request, self.route.settings), self._get_approval_seconds()
        )
        CALL_LOG.debug("%s: request %s was answered with %s", request.tool, request.id, type(verdict).__name__)
        if not isinstance(verdict, Edit) and verdict.remember is not None:
            await asyncio.to_thread(self._get_signer().remember, request, verdict, name)
        if isinstance(verdict, Deny):
            raise ApprovalDenied(self.route.name, verdict.reason)
        if isinstance(verdict, Allow):
            return None
        edited = dict(verdict.arguments)
        # The request shows repairs and defaults. An approver that asks for the same again may send neither.
        same = [canonicalize(given) for given in (request.arguments, to_json_like(call.raw))]
        return None if canonicalize(to_json_like(edited)) in same else edited

    def _get_approval_seconds(self) -> float | None:
        """Return the seconds that an approver has: the setting, else the hard limit of a call, if it has a time-out."""
        settings = self.route.settings
        if settings.approval_seconds is not None:
            return settings.approval_seconds
        return None if self.current.seconds is None else settings.max_timeout

    async def _in_time(self, work: Any, seconds: float | None = None) -> Any:
        """Await user code, within `seconds` or the time-out of the call, and within the batch and the run."""
        route, deadline = self.route, self.current.deadline
        if seconds is None:
            seconds = self.current.seconds
        total = seconds
        if deadline is not None:
            seconds = deadline.remaining if seconds is None else min(seconds, deadline.remaining)
        grace = route.settings.cancel_grace
        try:
            return await await_with_timeout(work, seconds, route.name, grace, self.current.cancellation)
        except DeadlinePassed:
            if deadline is not None and deadline.is_over:
                raise deadline.make_error(route.name, is_harmless=True) from None
            raise ToolTimeout(
                route.name, total or 0.0, limit="timeout, waiting for approval", is_harmless=True
            ) from None

    async def _make_request(
        self, call: ToolCall, arguments: Mapping[str, Any], context: ToolContext[Any]
    ) -> ApprovalRequest:
        tool = self.route.tool
        lifetime = self.route.settings.approval_seconds
        lifetime = REQUEST_SECONDS if lifetime is None else lifetime
        now = time.time()
        request = ApprovalRequest(
            id=os.urandom(12).hex(),
            call_id=call.id,
            tool=self.route.name,
            digest=self._make_digest(),
            arguments=to_json_like(arguments),
            preview=await self._in_time(make_preview(tool, arguments, context, self.route.settings)),
            effects=get_effects(tool.options),
            identity=get_identity(context),
            expires=now + lifetime,
            issued=now,
            delegates=() if self.current.run is None else self.current.run.path,
            origins=tuple(sorted(context.origins)),
            conversation=context.session_id,
            reason=next((step.get_distrust() for step in self.steps if step.get_distrust is not None), ""),
        )
        signed: ApprovalRequest = await _run_off_loop(call, self._get_signer().sign_request, request)
        return signed

    def _make_digest(self) -> str:
        return self._get_signer().make_digest(self.route.tool, self.route.compiled.inputs.view)

    def _get_signer(self) -> ApprovalSigner:
        run = self.current.run
        signer: ApprovalSigner = self.route.chain[-1].signer if run is None or run.signer is None else run.signer
        return signer


async def _run_off_loop(call: ToolCall, work: Callable[..., Any], *values: Any) -> Any:
    """Run work whose time grows with the arguments, in a thread if they are large."""
    return await asyncio.to_thread(work, *values) if type(call.raw) is LargeArguments else work(*values)


async def predicate_requires_approval(
    rule: ApprovalOption, arguments: Mapping[str, Any], context: ToolContext[Any], settings: EngineSettings
) -> bool:
    """Return the answer of a tool's `approval=` for a call. A predicate that fails counts as True."""
    if isinstance(rule, bool):
        return rule
    try:
        return bool(await call_user_function(rule, deepcopy(arguments), context, settings=settings))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - if the predicate fails, ask
        _log_failure("approval=", error, arguments, context)
        return True


def _log_failure(part: str, error: BaseException, arguments: Mapping[str, Any], context: ToolContext[Any]) -> None:
    log_failure(ExecutionError(context.tool_name, error), context.call_id, arguments, context, part=f": its {part}")


async def make_preview(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext[Any], settings: EngineSettings
) -> str | None:
    """Return the text of the tool's `preview` function, or None if it has none. Never runs the tool."""
    preview = tool.options.preview
    if preview is None:
        return None
    try:
        return str(await call_with_arguments(preview, deepcopy(arguments), context, settings))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken preview must not decide anything
        _log_failure("preview", error, arguments, context)
        return f"(the preview failed: {type(error).__name__})"


async def request_verdict(approver: Approver, request: ApprovalRequest, settings: EngineSettings) -> ApprovalVerdict:
    """Ask the approver for a verdict, in a span. An invalid answer counts as a denial.

    Raises:
        ApprovalDenied: the approver failed.
    """
    tool = {"gen_ai.tool.name": request.tool}
    started, answer = time.monotonic(), "none"
    with open_span(f"approve {request.tool}", {**tool, "toolmason.approval.request": request.id}) as span:
        try:
            verdict = await _call_approver(approver, request, settings)
            answer = type(verdict).__name__.lower()
        except ApprovalDenied:
            answer = "deny"
            raise
        finally:
            outcome = {"toolmason.approval.verdict": answer}
            if span is not None:
                span.set(outcome)
            measure("toolmason.approval.duration", time.monotonic() - started, {**tool, **outcome})
    return verdict


async def _call_approver(approver: Approver, request: ApprovalRequest, settings: EngineSettings) -> ApprovalVerdict:
    try:
        verdict: Any = await call_user_function(approver, request, settings=settings)
    except (Exception, SystemExit) as error:
        denied = ApprovalDenied(request.tool, f"the approver failed: {type(error).__name__}")
        denied.__cause__ = error  # for the log
        log_failure(denied, request.call_id, request.arguments, part=": its approver")
        raise denied from error
    if isinstance(verdict, bool):
        return Allow() if verdict else Deny()
    edited: Any = getattr(verdict, "arguments", None)
    if isinstance(verdict, Allow | Deny) or (isinstance(verdict, Edit) and isinstance(edited, Mapping)):
        return verdict
    return Deny(f"the approver returned an invalid verdict: {clip(repr(verdict))}")
