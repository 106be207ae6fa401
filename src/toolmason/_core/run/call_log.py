"""Write calls and their failures to the log, one line each, with line breaks and control characters escaped."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.define.schema_nodes import find_secret_names
from toolmason._core.values.policy import TraceOptions
from toolmason._core.values.results import ToolResult
from toolmason._secrets import LOGGED_NAMES, MASK, format_stack, iter_secrets, make_record_safe, scrub
from toolmason._text import safe_str, to_line
from toolmason._wire import parse_json
from toolmason.errors import ToolCallError, ToolCancelled

CALL_LOG: Final = logging.getLogger("toolmason.calls")
"""Logger of calls and their failures."""
CALL_LOG_LEVELS: Final[dict[int, bool]] = vars(CALL_LOG).get("_cache", {})
"""Answers of `CALL_LOG.isEnabledFor` that logging keeps until a level changes; asking takes a twentieth of a call."""
MAX_CONTENT_CHARS: Final = 500
"""Maximum length of logged arguments, and of a logged result."""
_MAX_SHAPE_NODES: Final = 200
"""Maximum number of values whose types a shape shows."""


# CALL_LOG has messages that are safe already. httpx2 logs each URL, which may hold a password or a token.
for _name in ("toolmason", "toolmason.mcp", "toolmason.mcp_server", "httpx2"):
    logging.getLogger(_name).addFilter(make_record_safe)


def log_call(result: ToolResult, arguments: Any, options: TraceOptions) -> None:
    """Log the outcome of a call and, if the options say so, its arguments and its result."""
    outcome = "ok" if result.error is None else result.error.code
    name, call_id = to_line(result.name), to_line(result.call_id)
    extra = _make_extra(name, call_id, result.error) | {"toolmason.duration": result.duration}
    if options.has_content:
        texts = [show_content(content, options.secret_names) for content in (arguments, result.text)]
        CALL_LOG.debug(
            "%s [%s] %s in %.1f ms: %s -> %s", name, call_id, outcome, result.duration * 1000, *texts, extra=extra
        )
    else:
        CALL_LOG.debug("%s [%s] %s in %.1f ms", name, call_id, outcome, result.duration * 1000, extra=extra)


def _make_extra(name: str, call_id: str, error: ToolCallError | None) -> dict[str, Any]:
    """Return the fields of a log record. They have the names that the attributes of a span have."""
    extra = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}
    if error is not None:
        extra["error.type"] = error.code
        if error.log_id:
            extra["toolmason.error.id"] = error.log_id
    return extra


def log_failure(error: ToolCallError, call_id: str, *data: Any, part: str = "") -> None:
    """Log that a tool, or another `part` of a call, failed, once and with an ID: type and place, message, stack.

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
        message = to_line(scrub(error.message, *map(_parse, data)))
        extra = _make_extra(name, call_id, error)
        CALL_LOG.info("%s [%s] answered with an error: %s", name, call_id, message, extra=extra)
        return
    cause = error.__cause__ or error
    error_id = get_log_id(error)
    extra, kind = _make_extra(name, call_id, error), type(cause).__name__
    place = _get_place(cause)
    CALL_LOG.warning("%s [%s]%s failed, id %s: %s%s", name, call_id, part, error_id, kind, place, extra=extra)
    if CALL_LOG.isEnabledFor(logging.INFO):
        message = to_line(scrub(error.message if cause is error else safe_str(cause), *map(_parse, data)))
        CALL_LOG.info("%s [%s] failure %s: %s", name, call_id, error_id, message, extra=extra)
    if CALL_LOG.isEnabledFor(logging.DEBUG):
        stack = format_stack(cause, *map(_parse, data))
        CALL_LOG.debug("%s [%s] failure %s, stack:\n%s", name, call_id, error_id, stack, extra=extra)


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


def show_content(content: Any, secret_names: Collection[str] = (), max_chars: int = MAX_CONTENT_CHARS) -> str:
    """Return arguments or a result as one short line, without the values of fields that name a secret.

    `secret_names` are further names. What looks like a key, and secrets of the settings, are masked as well.
    """
    content = _parse(content)
    if isinstance(content, str) and secret_names and content.lstrip().startswith("{"):
        content = MASK  # damaged JSON, whose fields have no known end
    if not isinstance(content, str):
        content = _write(lambda: mask_fields(content, secret_names))
    return _to_short_line(content, max_chars)


def _to_short_line(text: str, max_chars: int) -> str:
    line = to_line(scrub(text))
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"


def _write(make_data: Callable[[], Any]) -> str:
    """Return data as JSON, or a mask if it has values that JSON does not have."""
    try:
        return to_json(make_data(), serialize_unknown=True).decode()
    except (ValueError, RecursionError):
        return MASK


def describe_shape(content: Any) -> str:
    """Return the types and sizes in arguments or a result as one short line, without a value."""
    spare = _MAX_SHAPE_NODES

    def describe(value: Any) -> Any:
        nonlocal spare
        spare -= 1
        if spare < 0:
            return MASK
        if isinstance(value, Mapping):
            return {str(key): describe(item) for key, item in islice(value.items(), max(0, spare) + 1)}
        if isinstance(value, list | tuple):
            return [*map(describe, value[:1]), f"{len(value)} items"] if len(value) > 1 else [*map(describe, value)]
        return f"str, {len(value)} characters" if isinstance(value, str) else type(value).__name__

    return _to_short_line(_write(lambda: describe(_parse(content))), MAX_CONTENT_CHARS)


def select_secrets(schema: Any, arguments: Any, pattern: str = LOGGED_NAMES) -> dict[str, list[str]]:
    """Return the values of arguments whose names or types say that they are secret, under a name that says so."""
    names = find_secret_names(schema)
    pattern = "" if "" in names else "|".join((pattern, *(rf"^{re.escape(name)}$" for name in names)))
    return {"secret": [*iter_secrets(_parse(arguments), pattern)]}


def _parse(content: Any) -> Any:
    """Return the data of JSON text. Return other text and other values as they are."""
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    if not isinstance(text, str):
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text


def mask_fields(content: Any, secret_names: Collection[str] = (), pattern: str = LOGGED_NAMES) -> Any:
    """Return data without the values of fields that have one of the names, or one that matches the pattern."""
    if isinstance(content, list | tuple):
        return [mask_fields(item, secret_names, pattern) for item in content]
    if not isinstance(content, Mapping):
        return content
    masked: dict[str, Any] = {}
    for key, value in content.items():
        is_secret = "" in secret_names or key in secret_names or re.search(pattern, str(key))
        masked[str(key)] = MASK if is_secret else mask_fields(value, secret_names, pattern)
    return masked
