"""Run one call on the fast path: bind, run with deadline and retries, render.

Every call gets exactly one result.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from logging import DEBUG
from time import monotonic, perf_counter
from typing import Any, Final, TypeAlias, cast

from pydantic_core import to_json

from toolmason._core.call.failures import make_error_fields, to_call_error
from toolmason._core.call.long_results import truncate_middle
from toolmason._core.call.render import NeedsIteration, read_items
from toolmason._core.call.route import Route, cap_timeout
from toolmason._core.define.context import CallState, ToolContext
from toolmason._core.run import eager_task
from toolmason._core.run.execute import (
    Attempt,
    DeadlinePassed,
    RaisedInThread,
    ThreadAbandoned,
    await_task,
    await_with_timeout,
    run_attempt,
    run_in_thread,
)
from toolmason._core.run.progress import OnProgress, Reporter
from toolmason._core.values.policy import INHERIT, Inherit, Retry, Timeout
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, set_result_fields
from toolmason.errors import Abort, InvalidArguments, LimitExceeded, ResultError, ToolError, ToolTimeout

_log = logging.getLogger("toolmason")


@dataclass(slots=True, eq=False, repr=False)
class CallOptions:
    """Options of one call besides its arguments."""

    context: ToolContext[Any] | None = None
    timeout: Timeout = INHERIT
    retry: Retry | Inherit | None = INHERIT
    batch_deadline: float | None = None
    """Deadline of the batch, on the clock of `time.monotonic()`."""
    batch_timeout: float = 0.0
    """Total seconds of the batch or run."""
    limit_name: str = "batch timeout"
    """Name of that limit in error messages."""
    on_progress: OnProgress | None = None


CLOCK_SLACK: Final = 0.005
"""Seconds a timer may fire early. Its deadline counts as passed."""

CallRunner: TypeAlias = Callable[[str, Arguments, CallOptions], Coroutine[Any, Any, ToolResult]]
"""Runs a call, given its ID, arguments and options."""

NO_OPTIONS: Final = CallOptions()
NO_TIMEOUT: Final = CallOptions(timeout=None)


def make_runner(route: Route) -> CallRunner:  # noqa: C901, PLR0915 - one function: each layer costs a tenth of the whole
    """Return a runner for the fast path of a tool."""
    name, bind, render, function, is_async = route.name, route.bind, route.render, route.plain_function, route.is_async
    max_chars, default_timeout, runs_on, new = route.max_text_chars, route.timeout, route.runs_on, object.__new__
    settings = route.policy.settings
    is_plain = function is not None and runs_on != "process" and route.retry is None

    async def run_call(call_id: str, arguments: Arguments, options: CallOptions) -> ToolResult:  # noqa: C901, PLR0912 - as above
        """Run one call through every step. Raise only exceptions that must propagate, or with `on_error="raise"`."""
        started = perf_counter()
        repairs: Any = ()
        state = None
        try:
            values, repairs = bind(arguments)
        except BaseException as error:  # noqa: BLE001 - a user-defined validator may raise anything
            fields = make_bind_failure(route, error, options)
        else:
            try:
                seconds = default_timeout if options.timeout is INHERIT else options.timeout
                if function is None or not is_plain or options.batch_deadline or options.retry is not INHERIT:
                    state = CallState(ToolCall(call_id, name, arguments), report=make_reporter(options, call_id, route))
                    value, values = await run_attempts(route, values, options, state)
                elif runs_on == "thread":
                    value = await _run_plain_in_thread(route, values, seconds)
                else:
                    value = function(**values)
                    if is_async or hasattr(value, "__await__"):
                        if seconds is None:
                            value = await value
                        else:
                            task, value, failure = eager_task.start(value, get_running_loop())
                            if task is not None:
                                value = await await_task(task, cap_timeout(seconds, settings), *route.cancel_grace)
                            elif failure is not None:
                                raise failure  # noqa: TRY301 - handled below with all other failures
                try:
                    fields = render(value, values)
                except NeedsIteration:
                    fields = render(await read_iterator(route, value, options), values)
                if len(fields["text"]) > max_chars:
                    fields = route.truncate(fields)
                if route.return_direct:
                    fields["return_direct"] = True
            except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and the call still needs a result
                fields = make_failure(route, error, options)
        if repairs:
            fields["repairs"] = repairs
        if state is not None:
            fields["attempts"] = state.attempt
            if state.report is not None:
                state.report.close()
        fields["call_id"] = call_id
        fields["name"] = name
        fields["duration"] = perf_counter() - started
        if _log.isEnabledFor(DEBUG):
            _log_call(route, call_id, fields)
        result = new(ToolResult)
        set_result_fields(result, fields)
        return result

    return run_call


async def _run_plain_in_thread(route: Route, values: dict[str, Any], seconds: float | None) -> Any:
    """Run a function that needs no context in a thread."""
    settings = route.policy.settings
    function = cast("Callable[..., Any]", route.plain_function)
    try:
        value = await run_in_thread(
            partial(function, **values), cap_timeout(seconds, settings), settings, get_running_loop()
        )
    except ThreadAbandoned as abandoned:
        raise abandoned.reason from None
    return await await_with_timeout(value, seconds, *route.cancel_grace) if hasattr(value, "__await__") else value


async def read_iterator(route: Route, value: Any, call_options: CallOptions) -> list[Any]:
    """Exhaust a returned iterator in a thread, within the timeout of the call."""
    settings = route.policy.settings
    seconds = _get_attempt_timeout(route, call_options)
    try:
        items: list[Any] = await run_in_thread(
            partial(read_items, route.name, value), seconds, settings, get_running_loop()
        )
    except ThreadAbandoned as abandoned:
        raise abandoned.reason from None
    return items


def make_reporter(call_options: CallOptions, call_id: str, route: Route) -> Reporter | None:
    """Return the progress reporter of a call, or None if the caller wants no progress."""
    if call_options.on_progress is None:
        return None
    return Reporter(call_options.on_progress, call_id, route.name, route.policy.settings.progress_queue)


def _log_call(route: Route, call_id: str, fields: dict[str, Any]) -> None:
    outcome = "ok" if fields.get("error") is None else fields["error"].code
    _log.debug("%s [%s] %s in %.1f ms", route.name, call_id, outcome, fields["duration"] * 1000)


async def run_attempts(
    route: Route, values: dict[str, Any], call_options: CallOptions, state: CallState
) -> tuple[Any, dict[str, Any]]:
    """Run a tool until it succeeds or has no attempts left. Return its value and the arguments used."""
    tool = route.tool
    settings = route.policy.settings
    retry = route.retry if isinstance(call_options.retry, Inherit) else call_options.retry
    base_context = route.policy.context.merge(call_options.context)
    while True:
        seconds = _get_attempt_timeout(route, call_options)
        attempt_state = state.with_deadline(None if seconds is None else monotonic() + seconds)
        attempt_context = base_context.for_call(attempt_state)
        if state.attempt > 1:
            # The previous attempt may have modified a list or dict in place.
            values, _ = route.bind(state.call.arguments if state.call is not None else None)
        complete_values = tool.fill(dict(values), attempt_context)
        try:
            value = await run_attempt(
                Attempt(tool, complete_values, attempt_context, attempt_state, settings, seconds, route.runs_on)
            )
        except Exception as error:
            if retry is None or state.attempt >= retry.attempts or not _should_retry(error, retry):
                raise
            pause = retry.wait(state.attempt)
            if call_options.batch_deadline is not None and monotonic() + pause >= call_options.batch_deadline:
                raise
            _log.debug("%s: attempt %d failed: %s", route.name, state.attempt, type(error).__name__)
            await asyncio.sleep(pause)
            state.attempt += 1
        else:
            return value, complete_values


def _get_attempt_timeout(route: Route, call_options: CallOptions) -> float | None:
    """Return the timeout of an attempt, capped at the remaining time of its batch."""
    own_timeout = (
        route.timeout if call_options.timeout is INHERIT else cap_timeout(call_options.timeout, route.policy.settings)
    )
    if call_options.batch_deadline is None:
        return own_timeout
    remaining = max(0.0, call_options.batch_deadline - monotonic())
    return remaining if own_timeout is None else min(own_timeout, remaining)


def _should_retry(error: Exception, retry: Retry) -> bool:
    if isinstance(error, DeadlinePassed):
        return any(issubclass(TimeoutError, kind) for kind in retry.on)
    if isinstance(error, ToolError):
        return error.retryable
    return isinstance(error, retry.on) and not isinstance(error, Abort)


def make_bind_failure(route: Route, error: BaseException, call_options: CallOptions) -> dict[str, Any]:
    """Return the result fields of a call with invalid arguments."""
    if not isinstance(error, InvalidArguments | LimitExceeded):
        return {**make_failure(route, error, call_options), "attempts": 0}
    # Drop the traceback: it only shows engine code, and keeping its frames alive doubles the cost of a refusal.
    error.__traceback__ = error.__context__ = None
    fields = make_error_fields(error, route.on_error)
    fields["attempts"] = 0
    return fields


def make_failure(route: Route, error: BaseException, call_options: CallOptions) -> dict[str, Any]:
    """Return the result fields for a failure, or re-raise an exception that must propagate."""
    return _truncate_failure(_make_failure_fields(route, error, call_options), route)


def _truncate_failure(fields: dict[str, Any], route: Route) -> dict[str, Any]:
    """Truncate an error message that exceeds the result limit."""
    error = fields.get("error")
    if error is None or len(error.message) <= route.max_text_chars:
        return fields
    payload = error.to_model()
    payload["error"]["message"] = truncate_middle(error.message, max(80, route.max_text_chars - 400))
    return {"text": to_json(payload).decode(), **fields}


def _make_failure_fields(route: Route, error: BaseException, call_options: CallOptions) -> dict[str, Any]:
    if isinstance(error, RaisedInThread):
        error = error.error
    elif _must_propagate(error, route):
        raise error
    if isinstance(error, DeadlinePassed):
        return make_error_fields(_make_timeout_error(route, error.seconds, call_options), route.on_error)
    if not isinstance(error, ToolError | ResultError):
        # Log only type and location: the message may hold data that must not be logged.
        _log.info("%s failed: %s%s", route.name, type(error).__name__, _format_location(error))
    return make_error_fields(to_call_error(route.name, error), route.on_error)


def _format_location(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _make_timeout_error(route: Route, seconds: float, call_options: CallOptions) -> ToolTimeout:
    retryable = route.tool.options.repeatable
    if call_options.batch_deadline is not None and monotonic() >= call_options.batch_deadline - CLOCK_SLACK:
        return ToolTimeout(route.name, call_options.batch_timeout, limit=call_options.limit_name, retryable=retryable)
    return ToolTimeout(route.name, seconds, retryable=retryable)


def _must_propagate(error: BaseException, route: Route) -> bool:
    if isinstance(error, Abort | GeneratorExit):
        return True
    if isinstance(error, KeyboardInterrupt):
        # Ctrl-C arrives in the main thread. Elsewhere, a tool raised it.
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, asyncio.CancelledError):
        # A tool that raises CancelledError has failed. A cancelled task must end.
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, route.policy.rethrow)
