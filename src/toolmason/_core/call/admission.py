"""Run a call through the full pipeline: middleware, limits, approval, slots, execution.

Tools without any policy take the fast path in `pipeline`. Both use the same steps, so the results are the same.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Final

from pydantic_core import from_json, to_json, to_jsonable_python

from toolmason._core.arguments.bind import normalize_arguments
from toolmason._core.call.approval import (
    MAX_EDIT_ROUNDS,
    Allow,
    ApprovalRequest,
    ApprovalVerdict,
    Decision,
    Deny,
    get_identity,
    make_preview,
    needs_approval,
    request_verdict,
    rule_requires_approval,
)
from toolmason._core.call.failures import make_error_fields
from toolmason._core.call.held_slots import HeldSlots, Stop
from toolmason._core.call.limits import RateLimiter, RunState, fingerprint, to_json_like
from toolmason._core.call.pipeline import (
    CLOCK_SLACK,
    CallOptions,
    CallRunner,
    make_bind_failure,
    make_failure,
    make_reporter,
    read_iterator,
    run_attempts,
)
from toolmason._core.call.render import NeedsIteration
from toolmason._core.call.route import Route, cap_timeout
from toolmason._core.call.shared_state import Middleware, NextCall, SharedCallState
from toolmason._core.define.context import CallState, ToolContext
from toolmason._core.run import eager_task
from toolmason._core.run.execute import DeadlinePassed, await_with_timeout
from toolmason._core.values.content import Text
from toolmason._core.values.definition import canonicalize
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, make_result
from toolmason.errors import ApprovalDenied, ApprovalRequired, ToolCallError, ToolCancelled, ToolTimeout

_EFFECTS: Final = ("read_only", "destructive", "idempotent", "open_world")


class _ReturnNow(Exception):
    """The call need not run, because its result is known."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__()
        self.result = result


@dataclass(slots=True, eq=False, repr=False)
class Pipeline:
    """One call on the full path, with its route, the shared state and the run it belongs to."""

    route: Route
    shared: SharedCallState
    run: RunState | None
    call_options: CallOptions
    decision: Decision | None = None

    @property
    def tool_key(self) -> int:
        """Identity of the tool, independent of its name."""
        return id(self.route.tool.root)

    def execute(self, call: ToolCall) -> Coroutine[Any, Any, ToolResult]:
        """Run a call through every step, middleware outermost."""
        # Checking a string against Mapping costs more than everything else here.
        if type(call.arguments) is not str and isinstance(call.arguments, Mapping):
            call = replace(call, arguments=_copy_arguments(call.arguments))
        hooks = self.shared.middleware
        if not hooks:
            return self._run_innermost(call)
        return self._run_hook(call, 0) if self.call_options.batch_deadline is None else self._run_hooks_in_time(call)

    def _run_innermost(self, call: ToolCall) -> Coroutine[Any, Any, ToolResult]:
        runner = self.route.runner
        if runner is None or self.decision is not None:
            return self.run_steps(call)
        return runner(call.id, call.arguments, self.call_options)

    async def _run_hooks_in_time(self, call: ToolCall) -> ToolResult:
        """Run the middleware within the batch deadline. The steps enforce it themselves; middleware may not."""
        name, grace = self.route.cancel_grace
        remaining = max(0.0, (self.call_options.batch_deadline or 0.0) - monotonic()) + grace + CLOCK_SLACK
        try:
            result: ToolResult = await await_with_timeout(self._run_hook(call, 0), remaining, name, grace)
        except DeadlinePassed:
            error = ToolTimeout(name, self.call_options.batch_timeout, limit=self.call_options.limit_name)
            return ToolResult(call.id, name, attempts=0, **make_error_fields(error, self.route.on_error))
        return result

    def _run_hook(self, call: ToolCall, index: int) -> Coroutine[Any, Any, ToolResult]:
        """Run a call through the middleware at this index and everything inside it."""
        hooks = self.shared.middleware
        call_next = self._run_innermost if index + 1 == len(hooks) else partial(self._run_hook, index=index + 1)
        return _call_hook(hooks[index], call_next, call, self.route, self.call_options)

    async def run_steps(self, call: ToolCall) -> ToolResult:
        """Run a call through every step inside the middleware."""
        started = perf_counter()
        state = CallState(call, report=make_reporter(self.call_options, call.id, self.route))
        repairs: Any = ()
        try:
            values, repairs = self.route.bind(call.arguments)
        except BaseException as error:  # noqa: BLE001 - a user-defined validator may raise anything
            return self._make_result(
                call, make_bind_failure(self.route, error, self.call_options), started, replace(state, attempt=0)
            )
        try:
            call, values = await self._admit(call, values)
        except _ReturnNow as return_now:
            return return_now.result
        except BaseException as error:  # noqa: BLE001 - rules, approvers and validators are user code
            if isinstance(error, ToolCallError):
                fields = make_error_fields(error, self.route.on_error)
            else:
                fields = make_failure(self.route, error, self.call_options)
            return self._make_result(call, fields, started, replace(state, attempt=0))
        try:
            fields = await self._run_with_slots(set_call(state, call), call, values)
        except Stop as stop:
            fields = make_error_fields(stop.error, self.route.on_error)
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and the call still needs a result
            fields = make_failure(self.route, error, self.call_options)
        if repairs:
            fields["repairs"] = repairs
        return self._record(call, self._make_result(call, fields, started, state))

    def _make_result(self, call: ToolCall, fields: dict[str, Any], started: float, state: CallState) -> ToolResult:
        if state.report is not None:
            state.report.close()
        base_fields = {"call_id": call.id, "name": self.route.name, "attempts": state.attempt}
        return make_result({**fields, **base_fields, "duration": perf_counter() - started})

    # --- limits and approval ---------------------------------------------------------------

    async def _admit(self, call: ToolCall, values: dict[str, Any]) -> tuple[ToolCall, dict[str, Any]]:
        """Check limits and approval. Return the call and its values, or raise."""
        name, options = self.route.name, self.route.tool.options
        if self.run is not None and self.run.cancelled:
            raise ToolCancelled(name)
        if self.decision is None:
            if self.run is not None:
                self._check_repeats(call, self.run)
                self.run.count(name, options.max_calls, self.tool_key)
            elif options.max_calls is not None:
                self.shared.counters.count(name, options.max_calls, self.tool_key)
            if options.rate is not None:
                self.shared.rate_limiters.setdefault(self.tool_key, RateLimiter(options.rate)).count(name)
        return await self._check_approval(call, values)

    async def _check_approval(self, call: ToolCall, values: dict[str, Any]) -> tuple[ToolCall, dict[str, Any]]:
        tool = self.route.tool
        rule = self.shared.get_rule(self.run)
        if self.decision is None and tool.options.approval is False and not rule_requires_approval(rule, tool.options):
            return call, values
        context = self.route.policy.context.merge(self.call_options.context).for_call(CallState(call))
        arguments = get_effective_arguments(self.route, call.arguments)
        for _ in range(MAX_EDIT_ROUNDS):
            # Always check a signed decision: a denial stays a denial, and a forgery is detected.
            if self.decision is None and not await needs_approval(tool, rule, arguments, context):
                return call, values
            verdict, is_signed = await self._get_verdict(call, arguments, context)
            if isinstance(verdict, Allow):
                return call, values
            if isinstance(verdict, Deny):
                raise ApprovalDenied(self.route.name, verdict.reason)
            edited = dict(verdict.arguments)
            is_unchanged = canonicalize(to_json_like(edited)) == canonicalize(to_json_like(arguments))
            values, _ = self.route.bind(edited)
            call = replace(call, arguments=edited)
            arguments = get_effective_arguments(self.route, edited)
            if is_signed or is_unchanged:
                return call, values
        raise ApprovalDenied(
            self.route.name, f"its arguments were edited {MAX_EDIT_ROUNDS} times and still need approval"
        )

    async def _get_verdict(
        self, call: ToolCall, arguments: dict[str, Any], context: ToolContext[Any]
    ) -> tuple[ApprovalVerdict, bool]:
        tool = self.route.tool
        identity = get_identity(context)
        if self.decision is not None:
            return self.shared.signer.consume(self.decision, tool, to_json_like(arguments), identity), True
        lifetime = self.shared.settings.approval_seconds
        request = ApprovalRequest(
            id=os.urandom(12).hex(),
            call_id=call.id,
            tool=self.route.name,
            digest=tool.definition.digest,
            arguments=to_json_like(arguments),
            preview=await make_preview(tool, arguments, context),
            effects=tuple(name for name in _EFFECTS if getattr(tool.options, name)),
            identity=identity,
            expires=None if lifetime is None else time.time() + lifetime,
        )
        signed_request = self.shared.signer.sign_request(request)
        if self.shared.approver is None:
            raise ApprovalRequired(self.route.name, signed_request)
        deadline = self.call_options.batch_deadline
        remaining = None if deadline is None else max(0.0, deadline - monotonic())
        try:
            async with asyncio.timeout(remaining):
                return await request_verdict(self.shared.approver, signed_request), False
        except TimeoutError:
            raise ToolTimeout(
                self.route.name, self.call_options.batch_timeout, limit=self.call_options.limit_name
            ) from None

    # --- slots and execution ---------------------------------------------------------------

    async def _run_with_slots(self, state: CallState, call: ToolCall, values: dict[str, Any]) -> dict[str, Any]:
        route = self.route
        call_options = self._get_options_within_run()
        seconds = route.timeout
        if call_options.timeout is not INHERIT:
            seconds = cap_timeout(call_options.timeout, self.shared.settings)
        started = monotonic()
        async with HeldSlots(route, self.shared, values, call_options, seconds):
            if self.run is not None and self.run.cancelled:
                raise Stop(ToolCancelled(route.name))
            # Waiting for slots, notifying the listener and running share one timeout.
            if route.tool.on_arguments is not None:
                await self._notify_listener(call, values, call_options, seconds, started)
            work = run_attempts(route, values, replace(call_options, timeout=_get_remaining(seconds, started)), state)
            try:
                value, complete_values = await self._run_cancellable(work)
            except DeadlinePassed:
                raise Stop(self._make_timeout_error(call_options, seconds)) from None
        try:
            rendered = route.render(value, complete_values)
        except NeedsIteration:
            rendered = route.render(await read_iterator(route, value, call_options), complete_values)
        fields = route.truncate(rendered)
        return {**fields, "return_direct": True} if route.return_direct else fields

    def _make_timeout_error(self, call_options: CallOptions, seconds: float | None) -> ToolTimeout:
        retryable = self.route.tool.options.repeatable
        if call_options.batch_deadline is not None and monotonic() >= call_options.batch_deadline - CLOCK_SLACK:
            return ToolTimeout(
                self.route.name, call_options.batch_timeout, limit=call_options.limit_name, retryable=retryable
            )
        return ToolTimeout(self.route.name, seconds or 0.0, retryable=retryable)

    def _get_options_within_run(self) -> CallOptions:
        remaining = None if self.run is None else self.run.get_remaining_seconds()
        if remaining is None or self.run is None:
            return self.call_options
        if remaining <= 0:
            raise Stop(ToolTimeout(self.route.name, self.run.limits.seconds or 0.0, limit="run timeout"))
        deadline = monotonic() + remaining
        if self.call_options.batch_deadline is not None and self.call_options.batch_deadline <= deadline:
            return self.call_options
        return replace(
            self.call_options,
            batch_deadline=deadline,
            batch_timeout=self.run.limits.seconds or 0.0,
            limit_name="run timeout",
        )

    async def _notify_listener(
        self, call: ToolCall, values: dict[str, Any], call_options: CallOptions, seconds: float | None, started: float
    ) -> None:
        timeout_scope = asyncio.timeout(_get_remaining(seconds, started))
        try:
            async with timeout_scope:
                await self.route.tool.on_arguments.notify(values, call)
        except TimeoutError:
            if timeout_scope.expired():
                raise Stop(self._make_timeout_error(call_options, seconds)) from None
            raise

    async def _run_cancellable(self, work: Any) -> Any:
        """Run work that `run.cancel()` can stop."""
        if self.run is None:
            return await work
        loop = asyncio.get_running_loop()
        task, value, error = eager_task.start(work, loop)
        if task is not None:
            with self.run.track_task(loop, task):
                try:
                    await eager_task.watch_completion(task)
                except asyncio.CancelledError:
                    task.cancel()
                    await asyncio.wait((task,))
                    raise
            value, error = task.result()
        if isinstance(error, asyncio.CancelledError) and self.run.cancelled:
            raise Stop(ToolCancelled(self.route.name))
        if error is not None:
            raise error
        return value

    # --- repeats ---------------------------------------------------------------------------

    def _check_repeats(self, call: ToolCall, run: RunState) -> None:
        if self.route.tool.options.repeats == "allow":
            return
        key = fingerprint(self.route.name, parse_arguments(call))
        repeated = run.find_repeat(key, self.route.name)
        if repeated is not None:
            note = "This call was made before with the same arguments and gave this same result. Do not make it again."
            raise _ReturnNow(_append_note(repeated, call.id, note))

    def _record(self, call: ToolCall, result: ToolResult) -> ToolResult:
        # The same call polls a server task that is still running, so this is not a repeat.
        is_pending_task = getattr(result.error, "phase", "") == "task"
        if self.run is None or is_pending_task or self.route.tool.options.repeats == "allow":
            return result
        times = self.run.record_result(fingerprint(self.route.name, parse_arguments(call)), result)
        if times == 2:  # noqa: PLR2004 - the second time
            return _append_note(result, call.id, "This is the second time that this call gave this result.")
        return result


def run_call(
    route: Route, shared: SharedCallState, run: RunState | None, call_options: CallOptions, call: ToolCall
) -> Coroutine[Any, Any, ToolResult]:
    """Run a call of a tool that has a policy or middleware."""
    hooks, runner = shared.middleware, route.runner
    if len(hooks) != 1 or runner is None or call_options.batch_deadline is not None or type(call.arguments) is not str:
        return Pipeline(route, shared, run, call_options).execute(call)
    # Fast path for the common case, one middleware: no pipeline object is needed.
    return _call_hook(
        hooks[0], lambda given: runner(given.id, given.arguments, call_options), call, route, call_options
    )


async def _call_hook(
    hook: Middleware, call_next: NextCall, call: ToolCall, route: Route, call_options: CallOptions
) -> ToolResult:
    """Run a call through a middleware. Return a result whatever the middleware does."""
    try:
        result: Any = await hook(call, call_next)
    except BaseException as error:
        if route.on_error == "raise" and isinstance(error, ToolCallError):
            raise  # the call's own policy is to raise, and middleware may raise as well
        fields = make_failure(route, error, call_options)
    else:
        if type(result) is ToolResult:
            return result if result.call_id == call.id else make_result({**vars(result), "call_id": call.id})
        type_error = TypeError(f"a middleware returned {type(result).__name__}, not a ToolResult")
        fields = make_failure(route, type_error, call_options)
    return ToolResult(call.id, route.name, **fields)


def make_full_runner(route: Route, shared: SharedCallState) -> CallRunner:
    """Return a runner for the full path, without middleware and outside of a run."""

    async def run_full(call_id: str, arguments: Arguments, call_options: CallOptions) -> ToolResult:
        copied = _copy_arguments(arguments) if isinstance(arguments, Mapping) else arguments
        return await Pipeline(route, shared, None, call_options).run_steps(ToolCall(call_id, route.name, copied))

    return run_full


def _get_remaining(seconds: float | None, started: float) -> float | None:
    return None if seconds is None else max(0.001, seconds - (monotonic() - started))


def set_call(state: CallState, call: ToolCall) -> CallState:
    """Set the admitted call on a state and return the state."""
    state.call = call
    return state


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return a call's raw arguments as a mapping."""
    raw = call.arguments
    if isinstance(raw, bytes | bytearray | memoryview):
        raw = str(raw, "utf-8")
    if isinstance(raw, str):
        return dict(from_json(raw)) if raw.strip() else {}
    return dict(raw or {})


def get_effective_arguments(route: Route, raw: Any) -> dict[str, Any]:
    """Return the arguments as an approver sees them: repaired, with defaults filled in."""
    inputs = route.tool.inputs
    parts = inputs.schema.get("properties", {}).items()
    defaults = {name: part["default"] for name, part in parts if isinstance(part, dict) and "default" in part}
    return {**defaults, **normalize_arguments(inputs, raw, route.name), **_get_bound_arguments(route, raw)}


def _get_bound_arguments(route: Route, raw: Any) -> dict[str, Any]:
    """Return the arguments as the tool receives them. Nested keys that the tool ignores are not shown.

    Empty if they do not survive a round trip through JSON; the raw arguments are shown instead.
    """
    labels = {parameter.name: parameter.label for parameter in getattr(route.tool.root, "parameters", ())}
    try:
        values, _ = route.bind(raw)
        json_arguments = {labels[name]: to_jsonable_python(value, by_alias=True) for name, value in values.items()}
        rebound, _ = route.bind(to_json(json_arguments).decode())
    except Exception:  # noqa: BLE001 - values of user-defined types may raise anything
        return {}
    return json_arguments if rebound == values else {}


def _copy_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copy the arguments, so that the approved values are the ones that run, in every attempt."""
    try:
        return deepcopy(dict(arguments))
    except Exception:  # noqa: BLE001 - an object that cannot be copied is shared
        return dict(arguments)


def _append_note(result: ToolResult, call_id: str, note: str) -> ToolResult:
    fields = {**vars(result), "call_id": call_id, "structured": result.structured}
    fields["content"] = (*result.content, Text(f"[{note}]"))
    fields["text"] = f"{result.text}\n[{note}]"
    return make_result(fields)
