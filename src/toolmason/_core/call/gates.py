"""Decide whether a call may run: conditions, repeats, counts and rates."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import Any, Final, cast

from pydantic_core import to_json, to_jsonable_python

from toolmason._core.arguments.bind import Bound, LargeArguments, copy_values, normalize_arguments
from toolmason._core.call.call_policy import PolicyChain, combine_timeouts, merge_context, merge_settings
from toolmason._core.call.limits import (
    RepeatedCall,
    RunState,
    make_call_key,
    make_caller_key,
    make_max_calls_error,
)
from toolmason._core.call.route import CallOptions, Route
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.run.call_log import CALL_LOG
from toolmason._core.run.execute import (
    NEVER_CANCELLED,
    Cancellation,
    DeadlinePassed,
    await_with_timeout,
    call_user_function,
)
from toolmason._core.run.metrics import measure
from toolmason._core.values.content import Text
from toolmason._core.values.policy import INHERIT, Retry
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, replace_result
from toolmason._wire import parse_json
from toolmason.errors import (
    Abort,
    ApprovalRequired,
    ExternalCall,
    InsufficientScope,
    LimitExceeded,
    RemoteError,
    ToolCallError,
    ToolCancelled,
    ToolError,
    UnknownTool,
)

_REPEAT_NOTE: Final = (
    "This call was made before with the same arguments and gave this same result. Do not make it again."
)
_SECOND_TIME_NOTE: Final = "This is the second time that this call gave this result."


# --- repeats -----------------------------------------------------------------------------------


def get_call_key(route: Route, arguments: Arguments, bound: Bound | None, context: ToolContext[Any] | None) -> Hashable:
    """Return the key that a call has in its run. `bound` are its values, or None if the arguments are invalid.

    Calls with different contexts are different, unless the tool is a function that gets nothing of its context.
    """
    values = bound[0] if bound is not None and route.has_ordered_values else None
    key = make_call_key(route.repeat_key, arguments, values, shows_keys=route.shows_keys)
    if route.compiled.plain_function is not None:
        return key
    return key, route.context.merge(context).make_key()


def find_repeated_result(run: RunState, key: Hashable, name: str, call_id: str) -> ToolResult | None:
    """Return the earlier result of a repeated call, or None.

    Raises:
        LimitExceeded: the call was already answered with it.
    """
    measure("toolmason.tool.repeats", 1, {"gen_ai.tool.name": name})
    repeated = run.find_repeat(key, name)
    return None if repeated is None else _append_note(repeated, call_id, _REPEAT_NOTE)


def record_new_result(run: RunState, key: Hashable, result: ToolResult) -> ToolResult:
    """Record the result of a call. Return it, with a note if it is the same as the last time."""
    error = result.error
    if error is None:
        new = RepeatedCall(1, result)
        if run.repeats.setdefault(key, new) is new:
            return result
    # The call may succeed later, or has no result of its own.
    if isinstance(error, ToolCancelled) or (isinstance(error, LimitExceeded) and error.retryable):
        return result
    # A pending call has no result yet. The same call polls a server task that is still running.
    if error is not None and (is_pending(error) or getattr(error, "phase", "") == "task"):
        return result
    is_second = run.record_result(key, result) == 2  # noqa: PLR2004 - the second time
    return _append_note(result, result.call_id, _SECOND_TIME_NOTE) if is_second else result


def is_pending(error: ToolCallError) -> bool:
    """Return True if a call waits for a decision, or for the application to run it."""
    return is_own(error, ApprovalRequired) or is_own(error, ExternalCall)


def is_own(error: ToolCallError, kind: type[ToolCallError]) -> bool:
    """Return True if an error is a decision of this kind by the application itself, and not by a server.

    Compares codes, because an error that is restored from JSON has another type.
    """
    return error.code == kind.code and "server" not in error.to_model()["error"]


def _append_note(result: ToolResult, call_id: str, note: str) -> ToolResult:
    return replace_result(
        result,
        call_id=call_id,
        structured=result.structured,
        content=(*result.content, Text(f"[{note}]")),
        text=f"{result.text}\n[{note}]",
    )


# --- conditions --------------------------------------------------------------------------------


async def is_enabled(
    tool: Tool,
    chain: PolicyChain,
    context: ToolContext[Any] | None,
    seconds: float | None = None,
    cancellation: Cancellation = NEVER_CANCELLED,
) -> bool:
    """Return True if a tool exists for a context. A predicate that fails or takes too long counts as False."""
    rule = tool.options.enabled
    if isinstance(rule, bool):
        return rule
    settings = merge_settings(chain)
    if seconds is None:
        seconds = combine_timeouts(chain, settings).get_seconds(INHERIT)
    work = call_user_function(rule, merge_context(chain).merge(context), settings=settings)
    try:
        return bool(await await_with_timeout(work, seconds, tool.name, settings.cancel_grace, cancellation))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - if the predicate fails, the tool is withheld
        CALL_LOG.warning("%s is withheld: its `enabled=` failed: %s", tool.name, type(error).__name__)
        return False


async def check_caller(
    route: Route,
    context: ToolContext[Any] | None,
    seconds: float | None = None,
    cancellation: Cancellation = NEVER_CANCELLED,
) -> None:
    """Check that a tool exists for a caller, and that the caller has its scopes.

    Raises:
        UnknownTool: its `enabled=` withholds it.
        InsufficientScope: a scope is missing.
    """
    if not await is_enabled(route.tool, route.chain, context, seconds, cancellation):
        raise UnknownTool(route.name, (), is_disabled=True)
    if missing := find_missing_scopes(route.tool.options.scopes, route.context.merge(context)):
        raise InsufficientScope(route.name, missing)


def find_missing_scopes(needed: frozenset[str], values: Mapping[str, Any]) -> list[str]:
    """Return the scopes that a tool needs and a caller lacks, sorted. `values` has those of the caller, as `scopes`."""
    granted: Any = values.get("scopes") if needed else None
    if isinstance(granted, str):
        granted = granted.split()
    if not isinstance(granted, list | tuple | set | frozenset):
        return sorted(needed)
    return sorted(needed.difference(scope for scope in granted if isinstance(scope, str)))


# --- counts and rates --------------------------------------------------------------------------


def count_call(route: Route, context: ToolContext[Any] | None, *, is_in_run: bool) -> None:
    """Count a call of a tool with `max_calls` or a rate. In a run, the run counts the calls itself.

    Raises:
        LimitExceeded: the tool has used up its calls, or the rate is exceeded.
    """
    for state, max_calls in () if is_in_run else route.max_calls:
        if next(state.get_counter(route.limit_key)) >= max_calls:
            raise make_max_calls_error(route.name, max_calls)
    for state, rate in route.rates:
        if state.rates is None:
            caller = make_caller_key(rate, route.context.merge(context)) if rate.by else ""
            state.get_rate_limiter(route.limit_key, rate).count(route.name, caller)


# --- plain calls -------------------------------------------------------------------------------


def get_plain_options(
    route: Route, arguments: Arguments, options: CallOptions
) -> tuple[RunState | None, Hashable, float | None, Bound | None] | None:
    """Return the run of a call, its key in that run, its seconds and its values; None if it needs more steps."""
    run = options.run
    if options.deadline is not None or options.retry is not INHERIT or options.on_progress is not None:
        return None
    if run is not None and run.deadline is not None:
        return None
    key, bound = None, None
    if run is not None and route.tool.options.repeats == "detect" and not (run.is_program or options.is_repeated):
        try:
            bound = route.bind(arguments)
            values = bound[0] if route.has_ordered_values else None
            key = make_call_key(route.repeat_key, arguments, values, shows_keys=route.shows_keys)
        except BaseException:  # noqa: BLE001 - a validator may raise anything; the other steps bind again and report it
            return None
        if route.compiled.plain_function is None:
            key = key, route.context.merge(options.context).make_key()
        if key in run.repeats:
            return None
    seconds = route.timeout if options.timeout is INHERIT else route.timeouts.get_seconds(options.timeout)
    return run, key, seconds, bound


# --- arguments ---------------------------------------------------------------------------------


def parse_arguments(call: ToolCall) -> Mapping[str, Any]:
    """Return a call's raw arguments as a mapping."""
    raw = call.raw
    if isinstance(raw, bytes | bytearray | memoryview):
        raw = str(raw, "utf-8")
    if isinstance(raw, str):
        return dict(parse_json(raw)) if raw.strip() else {}
    return dict(raw or {})


def get_effective_arguments(route: Route, raw: Any) -> Mapping[str, Any]:
    """Return the arguments as an approver sees them: repaired, with defaults filled in."""
    inputs = route.compiled.inputs
    parts = inputs.schema.get("properties", {}).items()
    defaults = {name: part["default"] for name, part in parts if isinstance(part, dict) and "default" in part}
    return {**defaults, **normalize_arguments(inputs, raw, route.name), **_get_bound_arguments(route, raw)}


def _get_bound_arguments(route: Route, raw: Any) -> Mapping[str, Any]:
    """Return the arguments as the tool receives them. Nested keys that the tool ignores are not shown.

    Empty if they do not survive a round trip through JSON; the raw arguments are shown instead.
    """
    labels = {parameter.name: parameter.label for parameter in route.compiled.parameters if parameter.injector is None}
    try:
        values, _ = route.bind(raw)
        shown = [(name, value) for name, value in values.items() if name in labels]
        json_arguments = {labels[name]: to_jsonable_python(value, by_alias=True) for name, value in shown}
        rebound, _ = route.bind(to_json(json_arguments).decode())
    except Exception:  # noqa: BLE001 - values of user-defined types may raise anything
        return {}
    return json_arguments if rebound == values else {}


def copy_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copy the arguments, so that the approved values are the ones that run, in every attempt."""
    if type(arguments) is LargeArguments:
        return arguments  # only its call has it
    try:
        return cast("dict[str, Any]", copy_values(dict(arguments), sys.maxsize))
    except Exception:  # noqa: BLE001 - an object that cannot be copied is shared
        return dict(arguments)


# --- retries -----------------------------------------------------------------------------------


def should_retry(error: Exception, retry: Retry) -> bool:
    """Return True if another attempt may succeed."""
    if isinstance(error, DeadlinePassed):
        return any(issubclass(TimeoutError, kind) for kind in retry.on)
    if isinstance(error, ToolError):
        return error.retryable
    # A server that cannot be reached has run nothing. A task that is still running is for the model to wait for.
    if isinstance(error, RemoteError) and error.retryable and error.phase != "task":
        return True
    return isinstance(error, retry.on) and not isinstance(error, Abort)
