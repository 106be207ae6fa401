"""Carry what MCP has no field for: the kind of an error, how a value is sent, and how often the server tried.

Toolmason servers write it into `_meta`. A server must not be able to fake a decision of the application: an approval
that it reports is not a request that the application can decide, and a limit that it reports never ends a run.

MCP requires structured content to be an object, so servers send other values as `{"result": value}`. The SDK, FastMCP
and Toolmason all use this form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from typing_extensions import override

from toolmason._text import MAX_PROBLEMS_SHOWN, ArgumentProblem, clip
from toolmason._wire import parse_json
from toolmason.errors import (
    ApprovalDenied,
    ApprovalRequired,
    ExecutionError,
    InvalidArguments,
    LimitExceeded,
    ResultError,
    ToolCallError,
    ToolCancelled,
    ToolError,
    ToolTimeout,
)
from toolmason.mcp_client.specification import SERVER_INFO_META_KEY

ERROR_META_KEY: Final = "toolmason/error"
"""Key in `_meta` of a failed result for the kind of its error."""
_OWN_CODES: Final = frozenset({ToolCallError.code, ToolCancelled.code})
"""Codes that a server must not report: only this process knows whether a call was cancelled."""
_CODE: Final = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
_LOG_ID: Final = re.compile(r"[0-9a-f]{12}")
_TEXT_CODES: Final = frozenset({"invalid_arguments", "unknown_tool", "timeout", "tool_error"})
"""Codes accepted from the text of a result without `_meta`."""
_MAX_FIELD_LENGTH: Final = 1000
_MAX_ATTEMPTS: Final = 1000
RESULT_META_KEY: Final = "toolmason/result"
"""Key in `_meta` of a result for its `ResultMarks`."""
WRAPPED_META_KEY: Final = "toolmason/wrapped"
"""Key in `_meta` of a tool whose output schema looks wrapped; False if it is not."""
UNTRUSTED_META_KEY: Final = "toolmason/untrusted"
"""Key in `_meta` of a tool; True if the toolbox that serves it asks before a run calls it."""
_FASTMCP_SCHEMA_KEY: Final = "x-fastmcp-wrap-result"
_ALLOWED_KEYWORDS: Final = frozenset(
    {
        "type",
        "properties",
        "required",
        "title",
        "description",
        "additionalProperties",
        "$defs",
        "$schema",
        _FASTMCP_SCHEMA_KEY,
    }
)


# --- errors ------------------------------------------------------------------------------------


class ServerFailure(ToolError):
    """A tool of a server failed, and the server does not say how."""

    log_kind = "failure"


class ServerInvalidArguments(InvalidArguments, ToolError):
    """A server rejected the arguments of a call."""


class ServerExecutionError(ExecutionError, ToolError):
    """A tool of a server raised an exception."""

    log_kind = "failure"


class ServerResultError(ResultError, ToolError):
    """A server could not send the result of its tool."""

    log_kind = "failure"


class ServerTimeout(ToolTimeout, ToolError):
    """A tool of a server did not finish within a deadline of the server."""

    log_kind = "failure"


class ServerRefusal(ToolError):
    """A server refused a call: its own application did not approve it, or a limit of the server is reached."""

    server: str

    @override
    def to_model(self) -> dict[str, Any]:
        payload = super().to_model()
        payload["error"]["server"] = self.server
        return payload


class ServerLimitExceeded(LimitExceeded, ServerRefusal):
    """A limit of a server is reached. It never ends a run."""


def make_error_data(error: ToolCallError, attempts: int = 1) -> dict[str, Any]:
    """Return the kind of an error as JSON data. Its message is only in the text, which may be redacted."""
    data: dict[str, Any] = {"code": error.code, "retryable": error.retryable}
    if error.log_id:
        data["id"] = error.log_id
    if isinstance(error, ServerFailure):
        data["failed"] = True
    if attempts != 1:
        data["attempts"] = attempts
    if isinstance(error, InvalidArguments):
        data["parameters"] = [problem.to_dict() for problem in error.problems[:MAX_PROBLEMS_SHOWN]]
    elif isinstance(error, LimitExceeded):
        data["limit"] = error.limit
        if error.retry_after is not None:
            data["retry_after"] = round(error.retry_after, 3)
    elif isinstance(error, ToolTimeout):
        data |= {"limit": error.limit, "seconds": error.seconds}
    return data


def restore_error(text: str, meta: Mapping[str, Any] | None, server: str) -> ToolError | None:
    """Return the error that a Toolmason server sent, or None if the result has no such error."""
    data = (meta or {}).get(ERROR_META_KEY)
    payload = _parse_payload(text)
    if not isinstance(data, Mapping):
        if payload is None or not isinstance(payload.get("retryable"), bool):
            return None
        code = payload.get("code")
        data = {**payload, "code": code if code in _TEXT_CODES else ToolError.code}
    message = text if payload is None else payload["message"]
    code = str(data.get("code"))
    kind = _KINDS.get(code, ServerFailure if data.get("failed") is True else ToolError)
    error = kind.__new__(kind)  # its constructor would word the message, which the server has done
    ToolCallError.__init__(error, message, retryable=data.get("retryable") is True)
    error.__dict__.update(_read_fields(kind, data), server=server, data=text, result_fields={})
    if code != kind.code and code not in _OWN_CODES and _CODE.fullmatch(code):
        error.__dict__["code"] = code  # for this instance only
    if isinstance(log_id := data.get("id"), str) and _LOG_ID.fullmatch(log_id):
        error.log_id = log_id
    if (attempts := _get_attempts(data)) != 1:
        error.result_fields["attempts"] = attempts
    return error


def _get_attempts(data: Mapping[str, Any]) -> int:
    attempts = data.get("attempts")
    return attempts if type(attempts) is int and 0 <= attempts <= _MAX_ATTEMPTS else 1


def _parse_payload(text: str) -> Mapping[str, Any] | None:
    """Return the error that a Toolmason server encoded as JSON, or None if the text is not such an error."""
    if not text.startswith('{"error":{"code":'):
        return None
    try:
        payload = parse_json(text)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return payload if isinstance(payload, dict) and isinstance(payload.get("message"), str) else None


def _read_fields(kind: type[ToolError], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that only errors of one kind have."""
    if kind is ServerInvalidArguments:
        entries = data.get("parameters")
        problems = [
            ArgumentProblem(*(clip(str(entry.get(name, "")), _MAX_FIELD_LENGTH) for name in ArgumentProblem._fields))
            for entry in (entries if isinstance(entries, list) else ())[:MAX_PROBLEMS_SHOWN]
            if isinstance(entry, Mapping)
        ]
        return {"problems": tuple(problems), "raw": None}
    if kind is ServerLimitExceeded:
        seconds = _get_seconds(data, "retry_after")
        return {"limit": _get_text(data, "limit"), "ends_run": False, "retry_after": seconds}
    if kind is ServerTimeout:
        return {"seconds": _get_seconds(data, "seconds") or 0.0, "limit": _get_text(data, "limit") or "timeout"}
    return {}


def _get_seconds(data: Mapping[str, Any], name: str) -> float | None:
    seconds = data.get(name)
    return seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


def _get_text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return clip(value, _MAX_FIELD_LENGTH) if isinstance(value, str) else ""


_KINDS: Final[Mapping[str, type[ToolError]]] = {
    InvalidArguments.code: ServerInvalidArguments,
    LimitExceeded.code: ServerLimitExceeded,
    ToolTimeout.code: ServerTimeout,
    ExecutionError.code: ServerExecutionError,
    ResultError.code: ServerResultError,
    ApprovalRequired.code: ServerRefusal,
    ApprovalDenied.code: ServerRefusal,
}


# --- values ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultMarks:
    """Facts about a result that a Toolmason server sends besides its content."""

    value: Literal["structured", "none", "json", "content", "parts"] = "structured"
    """Place of the value: the structured data, or the text if there is none; `"none"` if it is None; JSON in the text;
    or the content, as its only part or as a list of its parts."""
    shows_content: bool = False
    """True if the model reads the content only, even if the structured data says something else."""
    wrapped: bool | None = None
    """True if the structured data is a wrapped value; None if the definition of the tool says it."""
    attempts: int = 1
    handle: str = ""
    """Handle of the full text on the server, if the text was truncated."""
    size: int = 0
    """Size of the full text in bytes."""
    digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the marks as JSON data, without those that say nothing."""
        marks = {name: getattr(self, name) for name in self.__slots__}
        return {name: mark for name, mark in marks.items() if mark != getattr(NO_MARKS, name)}


NO_MARKS: Final = ResultMarks()
_VALUE_MARKS: Final = ("structured", "none", "json", "content", "parts")


def read_result_marks(meta: Mapping[str, Any] | None) -> ResultMarks:
    """Return the marks of a result. A server may write anything there."""
    data = meta.get(RESULT_META_KEY) if meta else None
    if not isinstance(data, Mapping):
        return NO_MARKS
    value, size, wrapped = data.get("value"), data.get("size"), data.get("wrapped")
    handle = _get_text(data, "handle")
    return ResultMarks(
        cast("Any", value) if value in _VALUE_MARKS else NO_MARKS.value,
        data.get("shows_content") is True,
        wrapped if isinstance(wrapped, bool) else None,
        _get_attempts(data),
        handle,
        size if type(size) is int and size >= 0 else 0,
        _get_text(data, "digest") or None if handle else None,
    )


def drop_protocol_keys(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the tool itself wrote into `_meta`."""
    return {key: value for key, value in (meta or {}).items() if key not in _PROTOCOL_KEYS}


_PROTOCOL_KEYS: Final = frozenset({SERVER_INFO_META_KEY, ERROR_META_KEY, RESULT_META_KEY})


# --- wrapped values ----------------------------------------------------------------------------


def looks_wrapped(schema: Mapping[str, Any] | None) -> bool:
    """Return True if a schema is an object with the one required property `result`, and says nothing else."""
    if schema is None or schema.get("type") != "object" or not _ALLOWED_KEYWORDS.issuperset(schema):
        return False
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and list(properties) == ["result"] and schema.get("required") == ["result"]


def wraps_result(schema: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> bool:
    """Return True if a tool with this output schema and `_meta` wraps its values."""
    mark = (meta or {}).get(WRAPPED_META_KEY)
    if isinstance(mark, bool):
        return mark
    return schema is not None and (schema.get(_FASTMCP_SCHEMA_KEY) is True or looks_wrapped(schema))


def marks_wrapped_result(meta: Mapping[str, Any] | None) -> bool:
    """Return True if FastMCP marked a result as wrapped."""
    mark = meta.get("fastmcp") if meta else None
    return isinstance(mark, Mapping) and mark.get("wrap_result") is True
