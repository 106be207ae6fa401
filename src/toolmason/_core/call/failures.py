"""What went wrong → the error that a result carries, and how much of it the model is shown.

Lives here: naming failures, and the policies `message`, `redact`, `raise` and a function of your own.
Not here: what a tool returned (`render`), or when something fails (`dispatch`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from typing import Any

from pydantic_core import to_json

from toolmason._core.call.render import NO_OUTPUT
from toolmason._core.values.content import Text
from toolmason._core.values.policy import OnError
from toolmason._core.values.results import ToolResult
from toolmason.errors import ExecutionError, RemoteError, ResultError, ToolCallError, ToolError

_log = logging.getLogger("toolmason")


def to_call_error(tool: str, error: BaseException) -> ToolCallError:
    """Return what a tool raised as the error that its result carries."""
    if isinstance(error, ToolError):
        if error.tool and error.tool != tool:
            # One error object may be raised by two tools, and each result keeps its own.
            error = copy.copy(error)
        error.tool = tool
        return error
    if isinstance(error, RemoteError):
        error.tool = error.tool or tool
    if isinstance(error, ResultError | ExecutionError | RemoteError) and error.tool == tool:
        return error
    if isinstance(error, asyncio.CancelledError):
        return ExecutionError(tool, RuntimeError("the tool cancelled itself"))
    return ExecutionError(tool, error, retryable=isinstance(error, TimeoutError | ConnectionError))


def make_error_fields(error: ToolCallError, policy: OnError) -> dict[str, Any]:
    """Return the fields of a failed result: what the model is shown, by policy.

    Raises:
        ToolCallError: the policy is to raise.
    """
    if policy == "message":
        return {"error": error, **_get_extra_fields(error)}
    if policy == "raise":
        raise error
    if policy == "redact":
        return {"error": error, "text": to_json(_redact(error)).decode(), **_get_extra_fields(error)}
    replacement = policy(error)
    if isinstance(replacement, ToolResult):
        return {
            "error": replacement.error,
            "text": replacement.text,
            "content": replacement.content,
            "value": replacement.value,
        }
    return {"error": error, "text": str(replacement) or NO_OUTPUT}


def _get_extra_fields(error: ToolCallError) -> dict[str, Any]:
    """Return what a tool said with its failure: the parts after the text that every failure has, and data."""
    if not isinstance(error, ToolError) or not error.result_fields:
        return {}
    extra = dict(error.result_fields)
    if parts := extra.pop("content", ()):
        extra["content"] = (Text(to_json(error.to_model()).decode()), *parts)
    return extra


def _redact(error: ToolCallError) -> dict[str, Any]:
    """Return the model's form without the words of a failure; the log has them, under the same id."""
    error_form = error.to_model()
    if isinstance(error, ExecutionError | ResultError):
        error_id = os.urandom(6).hex()
        _log.error("%s failed [%s]", error.tool, error_id, exc_info=error)
        retry_hint = "Trying again may help." if error.retryable else "Trying again will not help."
        error_form["error"]["message"] = (
            f"{error.tool} failed because of an internal error. {retry_hint} Error id: {error_id}."
        )
        error_form["error"]["id"] = error_id
    return error_form
