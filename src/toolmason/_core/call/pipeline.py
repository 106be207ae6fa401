"""Calls in, results out: the steps of a call, in order.

bind (`arguments`) → fill in (`tool`) → run with deadline and retry (`execute`) → render (`result`).
Lives here: that order, and attempts. Every call gets exactly one result. Not here: several calls (`batch`).
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

from toolmason._core.call.failures import named, shown
from toolmason._core.call.long_results import clipped
from toolmason._core.call.render import Unread, read_all
from toolmason._core.call.route import Route, capped
from toolmason._core.define.context import CallState, ToolContext
from toolmason._core.run import eager_task
from toolmason._core.run.execute import (
    Attempt,
    DeadlinePassed,
    RaisedInThread,
    ThreadGivenUp,
    in_thread,
    outcome_of,
    run,
    within,
)
from toolmason._core.run.progress import OnProgress, Reporter
from toolmason._core.values.policy import INHERIT, Inherit, Retry, Timeout
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, fill
from toolmason.errors import Abort, InvalidArguments, LimitExceeded, ResultError, ToolError, ToolTimeout

_log = logging.getLogger("toolmason")


@dataclass(slots=True, eq=False, repr=False)
class Ask:
    """What a call says for itself, beside its arguments."""

    context: ToolContext[Any] | None = None
    timeout: Timeout = INHERIT
    retry: Retry | Inherit | None = INHERIT
    ends: float | None = None
    """When the batch that the call belongs to is over, on the clock of `time.monotonic()`."""
    span: float = 0.0
    """How long the batch, or the run, may take in all."""
    limit: str = "batch timeout"
    """What that limit is called."""
    on_progress: OnProgress | None = None


CLOCK_SLACK: Final = 0.005
"""A timer may fire this much early; the deadline it stands for has passed all the same."""

Perform: TypeAlias = Callable[[str, Arguments, Ask], Coroutine[Any, Any, ToolResult]]
"""The id of a call, its arguments and what it says for itself → its result."""

NOTHING_ASKED: Final = Ask()
NO_TIMEOUT: Final = Ask(timeout=None)


def performer_of(route: Route) -> Perform:  # noqa: C901, PLR0915 - one function: each layer costs a tenth of the whole
    """Return what runs a tool's calls on the short way, with everything it needs at hand."""
    name, bind, render, direct, is_async = route.name, route.bind, route.render, route.direct, route.is_async
    most, usual, where, new = route.most_characters, route.timeout, route.where, object.__new__
    simple = direct is not None and where != "process" and route.retry is None

    async def perform(call_id: str, raw: Arguments, ask: Ask) -> ToolResult:  # noqa: C901, PLR0912 - as above
        """Run one call through every step. Raises only what passes through, and for `on_error="raise"`."""
        started = perf_counter()
        repairs: Any = ()
        state = None
        try:
            values, repairs = bind(raw)
        except BaseException as error:  # noqa: BLE001 - a validator of the user's own may raise anything
            fields = unbound(route, error, ask)
        else:
            try:
                if direct is None or not simple or ask.ends is not None or ask.retry is not INHERIT:
                    state = CallState(ToolCall(call_id, name, raw), report=reporter_for(ask, call_id, route))
                    value, values = await attempts(route, values, ask, state)
                elif where == "thread":
                    value = await _threaded(route, values, usual if ask.timeout is INHERIT else ask.timeout)
                else:
                    value = direct(**values)
                    if is_async or hasattr(value, "__await__"):
                        seconds = usual if ask.timeout is INHERIT else ask.timeout
                        if seconds is None:
                            value = await value
                        else:
                            task, value, failure = eager_task.start(value, get_running_loop())
                            if task is not None:
                                value = await outcome_of(task, capped(seconds, route.policy.settings), *route.patience)
                            elif failure is not None:
                                raise failure  # noqa: TRY301 - to the one place below that decides what becomes of it
                try:
                    fields = render(value, values)
                except Unread:
                    fields = render(await all_read(route, value, ask), values)
                if len(fields["text"]) > most:
                    fields = route.shorten(fields)
                if route.return_direct:
                    fields["return_direct"] = True
            except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and a result must come of it
                fields = failed(route, error, ask)
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
            _note(route, call_id, fields)
        result = new(ToolResult)
        fill(result, fields)
        return result

    return perform


async def _threaded(route: Route, values: dict[str, Any], seconds: float | None) -> Any:
    """Run a plain function in a thread; what it needs to know is all in its values."""
    settings, function = route.policy.settings, cast("Callable[..., Any]", route.direct)
    try:
        value = await in_thread(partial(function, **values), capped(seconds, settings), settings, get_running_loop())
    except ThreadGivenUp as given_up:
        raise given_up.reason from None
    return await within(value, seconds, *route.patience) if hasattr(value, "__await__") else value


async def all_read(route: Route, value: Any, ask: Ask) -> list[Any]:
    """Read what a tool returned to its end, in a thread, within the time of a call."""
    settings = route.policy.settings
    seconds = _seconds_for(route, ask)
    try:
        found: list[Any] = await in_thread(partial(read_all, route.name, value), seconds, settings, get_running_loop())
    except ThreadGivenUp as given_up:
        raise given_up.reason from None
    return found


def reporter_for(ask: Ask, call_id: str, route: Route) -> Reporter | None:
    """Return where the progress of a call goes, if anywhere."""
    if ask.on_progress is None:
        return None
    return Reporter(ask.on_progress, call_id, route.name, route.policy.settings.progress_queue)


def _note(route: Route, call_id: str, fields: dict[str, Any]) -> None:
    outcome = "ok" if fields.get("error") is None else fields["error"].code
    _log.debug("%s [%s] %s in %.1f ms", route.name, call_id, outcome, fields["duration"] * 1000)


async def attempts(route: Route, values: dict[str, Any], ask: Ask, state: CallState) -> tuple[Any, dict[str, Any]]:
    """Run a tool until it succeeds or no attempt is left; return its value and what it was called with."""
    tool, settings = route.tool, route.policy.settings
    retry = route.retry if isinstance(ask.retry, Inherit) else ask.retry
    known = route.policy.context.merged(ask.context)
    while True:
        seconds = _seconds_for(route, ask)
        own = state.until(None if seconds is None else monotonic() + seconds)
        mine = known.for_call(own)
        if state.attempt > 1:
            # The attempt before may have changed a list or a dict in place.
            values, _ = route.bind(state.call.arguments if state.call is not None else None)
        complete = tool.complete(dict(values), mine)
        try:
            value = await run(Attempt(tool, complete, mine, own, settings, seconds, route.where))
        except Exception as error:
            if retry is None or state.attempt >= retry.attempts or not _worth_another(error, retry):
                raise
            pause = retry.wait(state.attempt)
            if ask.ends is not None and monotonic() + pause >= ask.ends:
                raise
            _log.debug("%s: attempt %d failed: %s", route.name, state.attempt, type(error).__name__)
            await asyncio.sleep(pause)
            state.attempt += 1
        else:
            return value, complete


def _seconds_for(route: Route, ask: Ask) -> float | None:
    """Return how long an attempt may take: its own time-out, within what is left of its batch."""
    own = route.timeout if ask.timeout is INHERIT else capped(ask.timeout, route.policy.settings)
    if ask.ends is None:
        return own
    left = max(0.0, ask.ends - monotonic())
    return left if own is None else min(own, left)


def _worth_another(error: Exception, retry: Retry) -> bool:
    if isinstance(error, DeadlinePassed):
        return any(issubclass(TimeoutError, kind) for kind in retry.on)
    if isinstance(error, ToolError):
        return error.retryable
    return isinstance(error, retry.on) and not isinstance(error, Abort)


def unbound(route: Route, error: BaseException, ask: Ask) -> dict[str, Any]:
    """Return the fields of the result of a call whose arguments did not fit."""
    if not isinstance(error, InvalidArguments | LimitExceeded):
        return {**failed(route, error, ask), "attempts": 0}
    # Where in our own code it was found says nothing, and the frames would keep every refused call alive for the
    # garbage collector: that alone doubles the cost of a refusal.
    error.__traceback__ = error.__context__ = None
    fields = shown(error, route.on_error)
    fields["attempts"] = 0
    return fields


def failed(route: Route, error: BaseException, ask: Ask) -> dict[str, Any]:
    """Return the fields of the result that a failure comes to, or let it pass through."""
    return _bounded(_failure(route, error, ask), route)


def _bounded(fields: dict[str, Any], route: Route) -> dict[str, Any]:
    """Keep the words of a failure within what a result may have."""
    error = fields.get("error")
    if error is None or len(error.message) <= route.most_characters:
        return fields
    form = error.to_model()
    form["error"]["message"] = clipped(error.message, max(80, route.most_characters - 400))
    return {"text": to_json(form).decode(), **fields}


def _failure(route: Route, error: BaseException, ask: Ask) -> dict[str, Any]:
    if isinstance(error, RaisedInThread):
        error = error.error
    elif _passes_through(error, route):
        raise error
    if isinstance(error, DeadlinePassed):
        return shown(_timed_out(route, error.seconds, ask), route.on_error)
    if not isinstance(error, ToolError | ResultError):
        # The type and the place, not the words: an exception's text may hold what a log must not.
        _log.info("%s failed: %s%s", route.name, type(error).__name__, _place_of(error))
    return shown(named(route.name, error), route.on_error)


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _timed_out(route: Route, seconds: float, ask: Ask) -> ToolTimeout:
    again = route.tool.options.repeatable
    if ask.ends is not None and monotonic() >= ask.ends - CLOCK_SLACK:
        return ToolTimeout(route.name, ask.span, limit=ask.limit, retryable=again)
    return ToolTimeout(route.name, seconds, retryable=again)


def _passes_through(error: BaseException, route: Route) -> bool:
    if isinstance(error, Abort | GeneratorExit):
        return True
    if isinstance(error, KeyboardInterrupt):
        # Ctrl-C comes to the main thread; anywhere else it is something that a tool raised.
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, asyncio.CancelledError):
        # A tool that raises CancelledError by itself has failed; a task that was cancelled must end.
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, route.policy.rethrow)
