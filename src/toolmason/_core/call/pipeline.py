"""Run a call: bind, gates, slots, run with deadline and retries, render, record.

Every call gets exactly one result. The runner of a tool is composed once, of the steps that the tool needs.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from logging import DEBUG
from time import monotonic, perf_counter
from typing import Any, Final, cast

from toolmason._core.arguments.bind import LargeArguments
from toolmason._core.call.approval_gate import ApprovalGate
from toolmason._core.call.call_policy import Middleware, NextCall
from toolmason._core.call.current_call import CurrentCall
from toolmason._core.call.deadlines import get_earlier
from toolmason._core.call.failures import FailedCall, make_failure
from toolmason._core.call.gates import check_caller, copy_arguments, get_plain_options, record_new_result, should_retry
from toolmason._core.call.limits import RunState
from toolmason._core.call.long_results import ResultStore, link_result, truncate_result
from toolmason._core.call.render import NeedsThread, convert, get_structured_shape, refuse_to_render
from toolmason._core.call.route import CallOptions, CallRunner, Route, get_result_origin
from toolmason._core.run import eager_task
from toolmason._core.run.call_log import CALL_LOG, CALL_LOG_LEVELS, log_call
from toolmason._core.run.execute import (
    NEVER_CANCELLED,
    Attempt,
    Cancellation,
    DeadlinePassed,
    await_task,
    await_with_timeout,
    call_user_function,
    run_attempt,
    run_in_thread,
)
from toolmason._core.values.call_state import CallState
from toolmason._core.values.policy import INHERIT, Inherit, get_longest_pause
from toolmason._core.values.results import (
    OWN,
    Arguments,
    OpenResult,
    ToolCall,
    ToolResult,
    make_call,
    make_call_id,
    replace_result,
)
from toolmason.errors import InsufficientScope, ToolCallError, ToolError, ToolTimeout, UnknownTool

NO_OPTIONS: Final = CallOptions()


def compose_runners(route: Route) -> Route:
    """Set the runners of a route: with the steps that its tool needs, and with those of a run."""
    options = route.tool.options
    is_plain = route.is_direct and not route.semaphores and options.lock is None
    is_plain = is_plain and options.rate is None and not route.opens_tickets and not options.return_direct
    for in_run in (False, True):
        runner = _make_runner(route, in_run=in_run)
        is_counted = options.max_calls is not None and not in_run
        if is_plain and not is_counted and not route.get_approval_steps(in_run=in_run):
            runner = _make_plain_runner(route, runner)
        runner = _add_condition(route, _add_origin(route, runner))
        if in_run:
            route.run_runner = _add_tickets(route, runner) if route.opens_tickets else runner
        else:
            route.runner = runner
    route.full_runner = _add_condition(route, _add_origin(route, _make_runner(route, in_run=True)))
    for runner in (route.runner, route.run_runner):
        runner.__qualname__ = "Toolbox.call"  # Python shows it if the coroutine is not awaited
    return route


def _add_origin(route: Route, runner: CallRunner) -> CallRunner:
    """Return the runner of a tool whose results are not the application's own, or the same one."""
    origin = get_result_origin(route.tool)
    if origin == OWN:
        return runner

    async def run_and_mark(call_id: str | None, arguments: Arguments, options: CallOptions) -> ToolResult:
        result = await runner(call_id, arguments, options)
        if result.attempts:  # a refusal is the toolbox's own
            result.__dict__["origin"] = origin
            if options.run is not None:
                options.run.origins.add(origin)
        return result

    return run_and_mark


def _add_condition(route: Route, runner: CallRunner) -> CallRunner:
    """Return the runner of a tool that is for some callers only, or the same one."""
    if route.tool.options.enabled is True and not route.tool.options.scopes:
        return runner

    async def run_if_allowed(call_id: str | None, arguments: Arguments, options: CallOptions) -> ToolResult:
        call_id = make_call_id() if call_id is None else call_id
        run, cancellation = options.run, _get_cancellation(options.run)
        deadline = get_earlier(options.deadline, None if run is None else run.deadline)
        seconds = route.timeouts.get_seconds(options.timeout)
        if deadline is not None:
            seconds = deadline.remaining if seconds is None else min(seconds, deadline.remaining)
        try:
            await check_caller(route, options.context, seconds, cancellation)
        except BaseException as error:  # noqa: BLE001 - the call needs a result if its run is cancelled
            if run is not None and isinstance(error, UnknownTool | InsufficientScope):
                error = run.rejected.reject(route.name, error)
            failed = await make_failure(route, error, FailedCall(call_id, options, has_run=False))
            result = replace_result(failed, call_id=call_id, name=route.name)
            if CALL_LOG.isEnabledFor(DEBUG):
                log_call(result, arguments, route.trace)
            return result
        return await runner(call_id, arguments, options)

    return run_if_allowed


def _add_tickets(route: Route, runner: CallRunner) -> CallRunner:
    """Return the runner of a tool whose work may go on in the background."""

    def run(_: Route, call: ToolCall, options: CallOptions) -> Coroutine[Any, Any, ToolResult]:
        return runner(call.id, call.raw, options)

    async def run_or_open_ticket(call_id: str | None, arguments: Arguments, options: CallOptions) -> ToolResult:
        if options.run is None or options.run.open_ticket is None:
            return await runner(call_id, arguments, options)
        return await options.run.open_ticket(run, route, make_call(call_id, route.name, arguments), options)

    return run_or_open_ticket


# --- the plain call ----------------------------------------------------------------------------


def _make_plain_runner(route: Route, run_steps: CallRunner) -> CallRunner:  # noqa: C901, PLR0915 - one function: each layer costs a tenth of the whole
    """Return the runner of a tool without limits and approval. `run_steps` takes the calls that need more steps."""
    name, bind, write, shape = route.name, route.bind, route.write, get_structured_shape(route.tool)
    default_timeout, in_thread, grace = route.timeout, route.runs_on == "thread", route.settings.cancel_grace
    max_chars = route.max_result_bytes // 4
    function = cast("Any", None if in_thread else route.plain_function)
    is_awaitable = in_thread or route.compiled.kind == "async"
    start = eager_task.choose_start(route.compiled.function)

    async def run_plain(call_id: str | None, arguments: Arguments, options: CallOptions) -> ToolResult:  # noqa: C901, PLR0912 - as above
        run = key = bound = state = text = None
        value: Any = None
        result: Any = None
        repairs: Any = ()
        seconds = default_timeout
        if options is not NO_OPTIONS:
            if (plain_options := get_plain_options(route, arguments, options)) is None:
                return await run_steps(call_id, arguments, options)
            run, key, seconds, bound = plain_options
        started, has_run = perf_counter(), False
        try:
            values, repairs = bind(arguments) if bound is None else bound
            if run is not None:
                run.admit(name, route.tool.options.max_calls, route.limit_key)
            has_run = True
            if function is None:
                call_id, state, value, values = _start_call(route, call_id, arguments, values, options, seconds)
            else:
                value = function(**values)
            if is_awaitable or hasattr(value, "__await__"):
                if in_thread or (seconds is None and run is None):
                    value = await value
                else:
                    task, value, failure = start(value)
                    if task is not None:
                        value = await await_task(task, seconds, name, grace, _get_cancellation(run))
                    elif failure is not None:
                        raise failure  # noqa: TRY301 - handled below with all other failures
            text = write(value) if type(arguments) is not LargeArguments else None
            if text is None or repairs or len(text) > max_chars:
                result = await _render(route, value, values, arguments, _get_remaining(seconds, started), run)
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and the call still needs a result
            failed = FailedCall(call_id, options, has_run, None, None, arguments, state)
            result = await make_failure(route, error, failed)
        if result is None:
            result = OpenResult()
            result.name = name
            result.value = value
            result.text = text
            result.structured_from = shape
            result.duration = perf_counter() - started
            if call_id is not None:
                result.call_id = call_id
            result.__class__ = ToolResult
        else:
            _set_call_fields(result, call_id, name, repairs, perf_counter() - started)
        if CALL_LOG_LEVELS.get(DEBUG, True) and CALL_LOG.isEnabledFor(DEBUG):
            log_call(result, arguments, route.trace)
        return result if run is None or key is None else record_new_result(run, key, result)

    return run_plain


def _set_call_fields(result: ToolResult, call_id: str | None, name: str, repairs: Any, duration: float) -> None:
    fields = result.__dict__
    fields["name"] = name
    fields["duration"] = duration
    if call_id is not None:
        fields["call_id"] = call_id
    if repairs:
        fields["repairs"] = repairs


def _start_call(
    route: Route,
    call_id: str | None,
    arguments: Arguments,
    values: Any,
    options: CallOptions,
    seconds: float | None,
) -> tuple[str | None, CallState | None, Any, Any]:
    """Start a tool in a thread, or with a context. Return the ID of the call, its state, the outcome and the values."""
    if (function := route.compiled.plain_function) is not None:
        state, work = None, partial(function, **values)
    else:
        state, context = None, route.context if options.context is None else route.context.merge(options.context)
        if route.compiled.call is not route.compiled.blind_call:
            if type(arguments) is not str and isinstance(arguments, Mapping):
                arguments = copy_arguments(arguments)
            call = make_call(call_id, route.name, arguments)
            call_id = call.id
            state = CallState(call, 1, None if seconds is None else monotonic() + seconds, options.run)
            context = context.for_call(state)
        values = route.compiled.fill(values, context)
        if route.runs_on == "loop":
            return call_id, state, route.compiled.call(values, context), values
        work = partial(route.compiled.call, values, context)
    return call_id, state, _run_in_thread(route, work, seconds, _get_cancellation(options.run)), values


async def _render(
    route: Route,
    value: Any,
    values: Mapping[str, Any],
    arguments: Arguments,
    seconds: float | None,
    run: RunState | None,
) -> ToolResult:
    """Return the result for a value that has no text yet, or a long one."""
    is_large = type(arguments) is LargeArguments and route.compiled.renderer is None
    try:
        result = (refuse_to_render if is_large else route.render)(value, values)
    except NeedsThread:
        result = await _convert_in_thread(route, value, values, seconds, _get_cancellation(run))
    if len(result.text) > route.max_result_bytes // 4:
        return truncate_result(result, route.max_result_bytes, _get_store(route, run))
    if result.full_text_digest is not None:
        link_result(result, route.root, _get_store(route, run))
    return result


def _get_remaining(seconds: float | None, started: float) -> float | None:
    return None if seconds is None else max(0.0, seconds - (perf_counter() - started))


def _get_cancellation(run: RunState | None) -> Cancellation:
    """Return the cancellation of the run that a call belongs to."""
    return NEVER_CANCELLED if run is None else run.cancellation


def _get_store(route: Route, run: RunState | None) -> ResultStore:
    """Return the store for a long result: of the run, if the call belongs to one."""
    return route.store if run is None or run.store is None else run.store


async def _run_in_thread(
    route: Route, work: Callable[[], Any], seconds: float | None, cancellation: Cancellation
) -> Any:
    """Run a tool in a thread, and await on the loop what it returns."""
    started = perf_counter()
    value = await run_in_thread(work, seconds, route.settings, get_running_loop(), cancellation)
    if not hasattr(value, "__await__"):
        return value
    remaining = _get_remaining(seconds, started)
    return await await_with_timeout(value, remaining, route.name, route.settings.cancel_grace, cancellation)


async def _convert_in_thread(
    route: Route, value: Any, values: Mapping[str, Any], seconds: float | None, cancellation: Cancellation
) -> ToolResult:
    """Convert a return value in a thread, within the time-out of the call. A future is awaited on the loop."""
    if isinstance(value, Future):
        started, grace = perf_counter(), route.settings.cancel_grace
        value = await await_with_timeout(asyncio.wrap_future(value), seconds, route.name, grace, cancellation)
        seconds = _get_remaining(seconds, started)
    work = partial(convert, route.tool, value, values)
    result: ToolResult = await run_in_thread(work, seconds, route.settings, get_running_loop(), cancellation)
    if route.tool.options.return_direct:
        result.__dict__["return_direct"] = True
    return result


# --- every step --------------------------------------------------------------------------------


def _make_runner(route: Route, *, in_run: bool) -> CallRunner:  # noqa: C901, PLR0915 - as above
    """Return a runner with every step that the tool needs."""
    options_of_tool, listener = route.tool.options, route.compiled.on_arguments
    approval_steps = route.get_approval_steps(in_run=in_run)
    is_counted = options_of_tool.max_calls is not None or options_of_tool.rate is not None
    has_slots = bool(route.semaphores) or options_of_tool.lock is not None
    detects_repeats = options_of_tool.repeats == "detect"
    max_chars = -1 if options_of_tool.return_direct else route.max_result_bytes // 4
    grace, write, shape = route.settings.cancel_grace, route.write, get_structured_shape(route.tool)
    on_loop = cast("Any", route.plain_function if route.runs_on == "loop" else None)
    start = eager_task.choose_start(route.compiled.function)
    has_shared_rates = any(state.rates is not None for state, _ in route.rates)

    async def run_steps(call_id: str | None, arguments: Arguments, options: CallOptions) -> ToolResult:  # noqa: C901, PLR0912 - as above
        current = CurrentCall(route, call_id, arguments, options)
        result: Any
        try:
            repeated = current.enter(detects_repeats=detects_repeats, is_counted=is_counted)
            if repeated is not None:
                return repeated
            if has_shared_rates and options.decision is None:
                await current.count_rates()
            if approval_steps or options.decision is not None:
                await ApprovalGate(current, approval_steps).admit()
            if route.opens_tickets and options.run is not None and options.run.on_admitted is not None:
                options.run.on_admitted()
            bound: Any = current.bound
            values = bound[0]
            current.start_timer()
            if has_slots:
                await current.acquire_slots(values)
            if listener is not None:
                await current.wait(listener.notify(values, current.make_call(), route.settings))
            current.attempts = 1
            if on_loop is None or options.retry is not INHERIT:
                value, values = await _invoke(current, values)
            else:
                value = on_loop(**values)
                if hasattr(value, "__await__"):
                    task, value, failure = start(value)
                    if task is not None:
                        value = await await_task(task, current.get_remaining(), route.name, grace, current.cancellation)
                    elif failure is not None:
                        raise failure  # noqa: TRY301 - handled below with all other failures
            text = write(value) if type(arguments) is not LargeArguments else None
            if text is None or len(text) > max_chars:
                result = await _render(route, value, values, arguments, current.get_remaining(), options.run)
            else:
                result = OpenResult()
                result.__dict__ = {"value": value, "text": text, "structured_from": shape}
                result.__class__ = ToolResult
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and the call still needs a result
            result = await current.fail(error)
        finally:
            if current.slots is not None:
                current.slots.release()
        return current.finish(result)

    return run_steps


async def _invoke(current: CurrentCall, values: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Run a tool that does not run on the loop, or needs more than its values. Return its value and the arguments."""
    route = current.route
    if route.plain_function is None or current.options.retry is not INHERIT:
        return await _run_attempts(current, values)
    work = partial(route.plain_function, **values)
    return await _run_in_thread(route, work, current.get_remaining(), current.cancellation), values


async def _run_attempts(current: CurrentCall, values: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Run a tool until it succeeds or has no attempts left. Return its value and the arguments used."""
    route, options = current.route, current.options
    state = current.start_state()
    retry = route.retry if isinstance(options.retry, Inherit) else options.retry
    base_context = route.context.merge(options.context)
    while True:
        seconds = current.get_remaining()
        attempt_state = state.with_deadline(None if seconds is None else monotonic() + seconds)
        attempt_context = base_context.for_call(attempt_state)
        complete_values = route.compiled.fill(dict(values), attempt_context)
        try:
            value = await run_attempt(
                Attempt(
                    route.name,
                    route.compiled,
                    complete_values,
                    attempt_context,
                    attempt_state,
                    route.settings,
                    seconds,
                    route.runs_on,
                    route.tool.options,
                    current.cancellation,
                )
            )
        except Exception as error:
            if retry is None or state.attempt >= retry.attempts or not should_retry(error, retry):
                raise
            pause = retry.wait(state.attempt)
            if current.deadline is not None and monotonic() + pause >= current.deadline.at:
                raise
            CALL_LOG.debug("%s: attempt %d failed: %s", route.name, state.attempt, type(error).__name__)
            await current.pause(pause)
            if isinstance(error, ToolError):
                current.remote_attempts += error.result_fields.get("attempts", 1) - 1
            state.attempt += 1
            current.start_timer()
            # The previous attempt may have modified a list or dict in place.
            values, _ = route.bind(current.arguments)
        else:
            return value, complete_values


# --- middleware --------------------------------------------------------------------------------


def run_with_middleware(
    route: Route, runner: CallRunner, call: ToolCall, options: CallOptions
) -> Coroutine[Any, Any, ToolResult]:
    """Run a call through the middleware of every toolbox, outermost first, and then through the steps."""
    hooks = [hook for box_hooks in route.middleware for hook in box_hooks]
    if isinstance(call.raw, Mapping):
        call = replace(call, raw=copy_arguments(call.raw))
    again = options if options.run is None else replace(options, is_repeated=True)

    def run_from(index: int, given: ToolCall) -> Coroutine[Any, Any, ToolResult]:
        nonlocal options
        if index == len(hooks):
            current_options, options = options, again
            return runner(given.id, given.raw, current_options)
        return _run_hook(hooks[index], partial(run_from, index + 1), given, route, again)

    return _run_hooks_in_time(partial(run_from, 0, call), route, call, options)


async def _run_hooks_in_time(
    run_hooks: Callable[[], Coroutine[Any, Any, ToolResult]], route: Route, call: ToolCall, options: CallOptions
) -> ToolResult:
    """Run the middleware within its time: that of the steps, and once more that of an attempt for itself."""
    run = options.run
    deadline = get_earlier(options.deadline, None if run is None else run.deadline)
    grace = route.settings.cancel_grace
    seconds = _get_middleware_seconds(route, options)
    if deadline is not None:
        # The steps end at the deadline themselves, and need a moment to return their result.
        remaining = deadline.remaining + grace
        seconds = remaining if seconds is None else min(seconds, remaining)
    if seconds is None and run is None:
        return await run_hooks()
    cancellation = _get_cancellation(run)
    try:
        result: ToolResult = await await_with_timeout(run_hooks(), seconds, route.name, grace, cancellation)
    except asyncio.CancelledError as error:
        failure: BaseException = error
    except DeadlinePassed:
        harmless = bool(route.tool.options.read_only)
        failure = ToolTimeout(route.name, seconds or 0.0, limit="timeout, in middleware", is_harmless=harmless)
        if deadline is not None and deadline.is_over:
            failure = deadline.make_error(route.name, is_harmless=harmless)
    else:
        return result
    failed = await make_failure(route, failure, FailedCall(call.id, options, has_run=False))
    return replace_result(failed, call_id=call.id, name=route.name)


def _get_middleware_seconds(route: Route, options: CallOptions) -> float | None:
    seconds = route.timeouts.get_seconds(options.timeout)
    if seconds is None:
        return None
    retry = route.retry if isinstance(options.retry, Inherit) else options.retry
    attempts = 1 if retry is None else retry.attempts
    pauses = 0.0 if retry is None else sum(get_longest_pause(retry, number) for number in range(1, attempts))
    total = seconds * (attempts + 1) + pauses
    if route.get_approval_steps(in_run=options.run is not None):
        total += route.settings.approval_seconds or route.settings.max_timeout
    return total


async def _run_hook(
    hook: Middleware, call_next: NextCall, call: ToolCall, route: Route, options: CallOptions
) -> ToolResult:
    """Run a call through a middleware. Return a result whatever the middleware does."""
    try:
        result: Any = await call_user_function(hook, call, call_next, settings=route.settings)
    except BaseException as error:
        if route.on_error == "raise" and isinstance(error, ToolCallError):
            raise  # the call's own policy is to raise, and middleware may raise as well
        failure = error
    else:
        if type(result) is ToolResult:
            return result if result.call_id == call.id else replace_result(result, call_id=call.id)
        failure = TypeError(f"a middleware returned {type(result).__name__}, not a ToolResult")
    facts = FailedCall(call.id, options, has_run=True, arguments=call.raw)
    return replace_result(await make_failure(route, failure, facts), call_id=call.id, name=route.name)
