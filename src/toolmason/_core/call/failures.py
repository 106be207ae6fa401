"""Convert a failure to the result of a call, and decide how much of it the model sees."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

from pydantic_core import to_json

from toolmason._core.call.deadlines import Deadline
from toolmason._core.call.gates import get_effective_arguments
from toolmason._core.call.limits import to_json_like
from toolmason._core.call.long_results import truncate_middle
from toolmason._core.call.render import NO_OUTPUT
from toolmason._core.call.route import CallOptions, Route
from toolmason._core.run.call_log import get_log_id, log_failure, select_secrets
from toolmason._core.run.execute import (
    NEVER_CANCELLED,
    Cancellation,
    DeadlinePassed,
    RaisedInThread,
    await_with_timeout,
    call_user_function,
)
from toolmason._core.values.call_state import CallState
from toolmason._core.values.content import Content, Text
from toolmason._core.values.policy import EngineSettings, OnError
from toolmason._core.values.results import (
    Arguments,
    ResultFields,
    ToolResult,
    make_call_id,
    make_result,
    replace_result,
)
from toolmason._secrets import MASK, MIN_SECRET_CHARS, iter_secrets, mask_values, scrub
from toolmason.errors import (
    Abort,
    ApprovalDenied,
    ApprovalRequired,
    ArgumentProblem,
    ExecutionError,
    ExternalCall,
    LimitExceeded,
    RemoteError,
    ResultError,
    ToolCallError,
    ToolCancelled,
    ToolError,
    ToolTimeout,
)

_log = logging.getLogger("toolmason")


_ENGINE_ERRORS: Final = (
    ExecutionError,
    ResultError,
    ApprovalDenied,
    ApprovalRequired,
    ExternalCall,
    LimitExceeded,
    ToolCancelled,
)
"""Errors that say what the engine did with a call: from a tool they are a failure of the tool."""


def to_call_error(tool: str, error: BaseException) -> ToolCallError:
    """Convert a tool's exception to the error that its result carries."""
    if isinstance(error, ToolError) or (isinstance(error, RemoteError) and not error.is_of_call):
        return _set_tool(error, tool)
    if isinstance(error, ToolCallError) and error.tool in ("", tool):
        is_of_engine = error.is_of_call or isinstance(error, _ENGINE_ERRORS)
        if not is_of_engine or isinstance(error, ResultError | ExecutionError | RemoteError):
            error.tool = tool
            return error
    if isinstance(error, asyncio.CancelledError):
        return ExecutionError(tool, RuntimeError("the tool cancelled itself"))
    return ExecutionError(tool, error, retryable=isinstance(error, TimeoutError | ConnectionError))


def _set_tool(error: ToolCallError, tool: str) -> ToolCallError:
    """Return an error under the name of the tool that was called."""
    if error.tool and error.tool != tool:
        error = copy.copy(error)  # two tools may raise the same error object, and each result needs its own
    error.tool = tool
    return error


def _set_message(error: ToolCallError, message: str) -> ToolCallError:
    """Return an error with another message."""
    if message == error.message:
        return error
    error = copy.copy(error)  # as above
    error.message = message
    error.args = (message,)
    return error


async def make_failed_result(error: ToolCallError, on_error: OnError, settings: EngineSettings) -> ToolResult:
    """Return the result for an error, without the fields of its call. `on_error` may be a function, sync or async.

    Raises:
        ToolCallError: `on_error` is `"raise"`.
        Exception: any exception of the function.
    """
    if not callable(on_error):
        return make_error_result(error, on_error)
    replacement = await call_user_function(on_error, error, settings=settings)
    if isinstance(replacement, ToolResult):
        return replace_result(replacement)
    return make_result({"error": error, "text": str(replacement) or NO_OUTPUT})


def make_error_result(error: ToolCallError, on_error: Literal["message", "redact", "raise"]) -> ToolResult:
    """Return the result for an error, without the fields of its call.

    Raises:
        ToolCallError: `on_error` is `"raise"`.
    """
    if on_error == "raise":
        error.is_of_call = True
        raise error
    fields = _get_attached_fields(error)
    fields["error"] = error
    if on_error == "redact":
        fields["text"] = to_json(_redact(error)).decode()
    return make_result(fields)


def _get_attached_fields(error: ToolCallError) -> ResultFields:
    """Return the data and content parts that a tool attached to its error."""
    if not isinstance(error, ToolError) or not error.result_fields:
        return {}
    attached: Any = dict(error.result_fields)
    if parts := attached.pop("content", ()):
        attached["content"] = (Text(to_json(error.to_model()).decode()), *parts)
    fields: ResultFields = attached
    return fields


def _redact(error: ToolCallError) -> Mapping[str, Any]:
    """Return the model's view of an error without its message. The log has it under the same ID."""
    payload = error.to_model()
    if isinstance(error, ExecutionError | ResultError):
        error_id = get_log_id(error)
        retry_hint = "Trying again may help." if error.retryable else "Trying again will not help."
        payload["error"]["message"] = (
            f"{error.tool} failed because of an internal error. {retry_hint} Error id: {error_id}."
        )
        payload["error"]["id"] = error_id
    return payload


_UNMASKED: Final = frozenset({"arguments", "data", "log_kind", "phase", "request", "server", "tool"})
"""Fields of an error that are for the application, or that it chose."""


class Stop(Exception):
    """The engine ends a call with an error, as opposed to an exception of the tool."""

    def __init__(self, error: ToolCallError) -> None:
        super().__init__()
        self.error = error


@dataclass(slots=True, eq=False, repr=False)
class FailedCall:
    """Facts about a call that failed."""

    call_id: str | None
    options: CallOptions
    has_run: bool
    """True if the tool or middleware has started."""
    seconds: float | None = None
    """Time-out of an attempt, if it is not that of the error."""
    deadline: Deadline | None = None
    arguments: Arguments = None
    state: CallState | None = None
    """State that the context of the tool reads."""

    @property
    def cancellation(self) -> Cancellation:
        """Cancellation of the run that the call belongs to."""
        return NEVER_CANCELLED if self.options.run is None else self.options.run.cancellation


async def make_failure(route: Route, error: BaseException, failed: FailedCall) -> ToolResult:
    """Return the result for a failure, without the fields of its call. Re-raise what must propagate."""
    has_run, call_id, is_of_tool = failed.has_run, failed.call_id, False
    if failed.state is not None:
        failed.state.cancelled = True
    if not has_run and isinstance(error, ToolCallError):
        # Drop the traceback: it only shows engine code, and keeping its frames alive doubles the cost of a refusal.
        error.__traceback__ = error.__context__ = None
        call_error: ToolCallError = error
    elif isinstance(error, Stop):
        call_error = error.error
    elif isinstance(error, ExternalCall) and error.tool == route.name and route.tool.options.external:
        error.arguments = to_json_like(get_effective_arguments(route, failed.arguments))
        call_error = error
    else:
        call_error, is_of_tool = _to_call_error(route, error, failed), True
    hidden = route.compiled.inputs.get_hidden(route.context, failed.options.context)
    if hidden:
        hidden = [*iter_secrets({"secret": hidden})]
        call_error = _mask_error(call_error, hidden)
    if is_of_tool:
        call_id = make_call_id() if call_id is None else call_id
        call_error = _log_failure(route, call_error, call_id, failed, hidden)
    if callable(route.on_error):
        result = await _apply_error_function(route, call_error)
    else:
        result = make_error_result(call_error, route.on_error)
    fields = result.__dict__
    if call_id is not None:
        fields["call_id"] = call_id
    if not has_run:
        fields["attempts"] = 0
    return _truncate_failure(result, route)


def _log_failure(
    route: Route, error: ToolCallError, call_id: str, failed: FailedCall, hidden: Collection[str]
) -> ToolCallError:
    """Log the failure of a tool. Return its error without the secrets of the call."""
    secrets = select_secrets(route.tool.definition.input_schema, failed.arguments)
    secrets["secret"] += hidden
    if isinstance(error, ExecutionError):
        error = _set_message(error, _scrub_message(error.message, route.context, failed.options.context, secrets))
    log_failure(error, call_id, failed.arguments, route.context, failed.options.context, secrets)
    return error


def _mask_error(error: ToolCallError, secrets: Collection[str]) -> ToolCallError:
    """Return an error without the values of hidden arguments in any field that the model may see."""
    error = copy.copy(error)  # two views may raise the same error object
    for name, value in vars(error).items():
        if name not in _UNMASKED and not isinstance(value, int | float):
            try:
                vars(error)[name] = _mask_data(value, secrets)
            except Exception:  # noqa: BLE001 - data of the tool that contain themselves, or an object that raises
                vars(error)[name] = MASK
    error.args = (error.message,)
    return error


def _mask_data(value: Any, secrets: Collection[str]) -> Any:
    """Return data or content parts without secrets, in their form."""
    if isinstance(value, str):
        return mask_values(value, secrets)
    if isinstance(value, bytes):
        return mask_values(value.decode("utf-8", "surrogateescape"), secrets).encode("utf-8", "surrogateescape")
    if isinstance(value, Mapping):
        return {mask_values(str(key), secrets): _mask_data(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_mask_data(item, secrets) for item in value]
        return ArgumentProblem(*items) if isinstance(value, ArgumentProblem) else type(value)(items)
    if isinstance(value, Content):
        return replace(value, **{item.name: _mask_data(getattr(value, item.name), secrets) for item in fields(value)})
    is_secret = type(value) in (int, float) and str(value) in secrets and len(str(value)) >= MIN_SECRET_CHARS
    return MASK if is_secret else value


def _scrub_message(message: str, *data: Any) -> str:
    """Return a message without secrets. If there are too many arguments to search, only the others are masked."""
    found = scrub(message, *data)
    return scrub(message, *data[:-1]) if found == MASK else found


def _to_call_error(route: Route, error: BaseException, failed: FailedCall) -> ToolCallError:
    if isinstance(error, RaisedInThread):
        error = error.error
    elif isinstance(error, asyncio.CancelledError) and failed.cancellation.cancelled and not is_being_cancelled():
        return ToolCancelled(route.name)
    elif _must_propagate(error, route):
        raise error
    if isinstance(error, DeadlinePassed):
        retryable, deadline, seconds = route.tool.options.repeatable, failed.deadline, failed.seconds
        harmless = bool(route.tool.options.read_only)
        if deadline is not None and deadline.is_over:
            return deadline.make_error(route.name, retryable=retryable, is_harmless=harmless)
        limit = error.seconds if seconds is None else seconds
        return ToolTimeout(route.name, limit, retryable=retryable, is_harmless=harmless)
    return to_call_error(route.name, error)


async def _apply_error_function(route: Route, error: ToolCallError) -> ToolResult:
    """Return the result that `on_error=` makes of an error, within the time-out of a call."""
    work = make_failed_result(error, route.on_error, route.settings)
    try:
        result: ToolResult = await await_with_timeout(work, route.timeout, route.name, route.settings.cancel_grace)
    except DeadlinePassed:
        _log.warning("%s: its on_error= function did not finish in time", route.name)
        return make_error_result(error, "redact")
    return result


def _truncate_failure(result: ToolResult, route: Route) -> ToolResult:
    """Truncate an error message that exceeds the result limit."""
    error = result.error
    max_chars = route.max_result_bytes // 4
    if error is None or len(error.message) <= max_chars or "text" in vars(result):
        return result
    payload = error.to_model()
    payload["error"]["message"] = truncate_middle(error.message, max(80, max_chars - 400))
    return replace_result(result, text=to_json(payload).decode())


def is_being_cancelled() -> bool:
    """Return True if the current task is being cancelled by its owner."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _must_propagate(error: BaseException, route: Route) -> bool:
    if isinstance(error, Abort):
        return True
    if isinstance(error, GeneratorExit):
        # Raised by the tool, or because the coroutine is closed; then no loop is running.
        return asyncio._get_running_loop() is None  # noqa: SLF001 - the public function raises instead
    if isinstance(error, KeyboardInterrupt):
        # Ctrl-C arrives in the main thread. Elsewhere, a tool raised it.
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, asyncio.CancelledError):
        # A tool that raises CancelledError has failed. A cancelled task must end.
        return is_being_cancelled()
    return isinstance(error, route.rethrow)
