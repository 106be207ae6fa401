"""Write calls and their failures to the log, one line each, with line breaks and control characters escaped."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.values.results import ToolResult
from toolmason._secrets import LOGGED_NAMES, MASK, format_stack, make_record_safe, scrub
from toolmason._text import safe_str, to_line
from toolmason.errors import ToolCallError, ToolCancelled

CALL_LOG: Final = logging.getLogger("toolmason.calls")
"""Logger of calls and their failures."""
CALL_LOG_LEVELS: Final[dict[int, bool]] = vars(CALL_LOG).get("_cache", {})
"""Answers of `CALL_LOG.isEnabledFor` that logging keeps until a level changes; asking takes a twentieth of a call."""
MAX_CONTENT_CHARS: Final = 500
"""Maximum length of logged arguments, and of a logged result."""


for _name in ("toolmason", "toolmason.mcp", "toolmason.mcp_server"):  # CALL_LOG has messages that are safe already
    logging.getLogger(_name).addFilter(make_record_safe)


def log_call(result: ToolResult, arguments: Any, *, has_content: bool = False) -> None:
    """Log the outcome of a call, and with `has_content` its arguments and its result."""
    outcome = "ok" if result.error is None else result.error.code
    name, call_id = to_line(result.name), to_line(result.call_id)
    if has_content:
        texts = (show_content(arguments), show_content(result.text))
        CALL_LOG.debug("%s [%s] %s in %.1f ms: %s -> %s", name, call_id, outcome, result.duration * 1000, *texts)
    else:
        CALL_LOG.debug("%s [%s] %s in %.1f ms", name, call_id, outcome, result.duration * 1000)


def log_failure(error: ToolCallError, call_id: str, *data: Any) -> None:
    """Log that a tool failed, once and with an ID: type and place, then its message, then the stack.

    The message and the stack may hold data of the call, so they have levels of their own. Values of `data`, such as
    arguments and context, are masked in them if the names of their fields say that they are secret.
    """
    if error.log_kind == "known":
        del error.log_kind  # a mark for this place: the error is that of a local tool
        return
    is_answer = error.log_kind == "answer"
    if isinstance(error, ToolCancelled) or not CALL_LOG.isEnabledFor(logging.INFO if is_answer else logging.WARNING):
        return
    name, call_id = to_line(error.tool), to_line(call_id)
    if is_answer:
        CALL_LOG.info(
            "%s [%s] answered with an error: %s", name, call_id, to_line(scrub(error.message, *map(_parse, data)))
        )
        return
    cause = error.__cause__ or error
    error_id = get_log_id(error)
    CALL_LOG.warning("%s [%s] failed, id %s: %s%s", name, call_id, error_id, type(cause).__name__, _get_place(cause))
    if CALL_LOG.isEnabledFor(logging.INFO):
        message = error.message if cause is error else safe_str(cause)
        CALL_LOG.info("%s [%s] failure %s: %s", name, call_id, error_id, to_line(scrub(message, *map(_parse, data))))
    if CALL_LOG.isEnabledFor(logging.DEBUG):
        stack = format_stack(cause, *map(_parse, data))
        CALL_LOG.debug("%s [%s] failure %s, stack:\n%s", name, call_id, error_id, stack)


def get_log_id(error: ToolCallError) -> str:
    """Return the ID of a failure in the log."""
    if not error.log_id:
        error.log_id = os.urandom(6).hex()
    return error.log_id


def _get_place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def show_content(content: Any) -> str:
    """Return arguments or a result as one short line, without the values of fields that name a secret."""
    content = _parse(content)
    text = content if isinstance(content, str) else to_json(_mask(content), serialize_unknown=True).decode()
    line = to_line(text)
    return line if len(line) <= MAX_CONTENT_CHARS else f"{line[:MAX_CONTENT_CHARS]}…"


def _parse(content: Any) -> Any:
    """Return the data of JSON text. Return other text and other values as they are."""
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    if not isinstance(text, str):
        return text
    try:
        return from_json(text)
    except ValueError:
        return text


def _mask(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): MASK if re.search(LOGGED_NAMES, str(key)) else _mask(value) for key, value in content.items()}
    return [_mask(item) for item in content] if isinstance(content, list | tuple) else content
