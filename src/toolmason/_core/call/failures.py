"""Convert a failure to the error that a result carries, and decide how much of it the model sees."""

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
    """Convert a tool's exception to the error that its result carries."""
    if isinstance(error, ToolError):
        if error.tool and error.tool != tool:
            # Two tools may raise the same error object, and each result needs its own.
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
    """Return the fields of a failed result, according to the `on_error` policy.

    Raises:
        ToolCallError: the policy is `"raise"`.
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
    """Return the data and content parts that a tool attached to its error."""
    if not isinstance(error, ToolError) or not error.result_fields:
        return {}
    extra = dict(error.result_fields)
    if parts := extra.pop("content", ()):
        extra["content"] = (Text(to_json(error.to_model()).decode()), *parts)
    return extra


def _redact(error: ToolCallError) -> dict[str, Any]:
    """Return the model's view of an error without its message, which is logged under the same ID."""
    payload = error.to_model()
    if isinstance(error, ExecutionError | ResultError):
        error_id = os.urandom(6).hex()
        _log.error("%s failed [%s]", error.tool, error_id, exc_info=error)
        retry_hint = "Trying again may help." if error.retryable else "Trying again will not help."
        payload["error"]["message"] = (
            f"{error.tool} failed because of an internal error. {retry_hint} Error id: {error_id}."
        )
        payload["error"]["id"] = error_id
    return payload
