"""Write calls and their failures to the log, one line each, with line breaks and control characters escaped."""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.values.results import ToolResult
from toolmason._text import escape_hidden, safe_str
from toolmason.errors import ToolCallError, ToolCancelled, ToolError

CALL_LOG: Final = logging.getLogger("toolmason.calls")
"""Logger of calls and their failures."""
MAX_CONTENT_CHARS: Final = 500
"""Maximum length of logged arguments, and of a logged result."""
MAX_MESSAGE_CHARS: Final = 2000
MAX_SECRETS: Final = 100
"""Maximum number of secrets that are searched in a message. If a call has more, the whole message is masked."""
MIN_SECRET_CHARS: Final = 4
"""Minimum length of a secret that is masked in messages. Shorter strings occur in a message by chance."""
_MASKED_FIELDS: Final = r"(?i)authorization|cookie|credential|token|secret|passw|api_?key|\bkey\b"  # compiled if needed
_MASK: Final = "…"


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
    is_answer = isinstance(error, ToolError)
    if isinstance(error, ToolCancelled) or not CALL_LOG.isEnabledFor(logging.INFO if is_answer else logging.WARNING):
        return
    name, call_id = to_line(error.tool), to_line(call_id)
    if is_answer:
        CALL_LOG.info("%s [%s] answered with an error: %s", name, call_id, to_line(_hide_secrets(error.message, data)))
        return
    cause = error.__cause__ or error
    error_id = get_log_id(error)
    CALL_LOG.warning("%s [%s] failed, id %s: %s%s", name, call_id, error_id, type(cause).__name__, _get_place(cause))
    if CALL_LOG.isEnabledFor(logging.INFO):
        message = error.message if cause is error else safe_str(cause)
        CALL_LOG.info("%s [%s] failure %s: %s", name, call_id, error_id, to_line(_hide_secrets(message, data)))
    if CALL_LOG.isEnabledFor(logging.DEBUG):
        # Each line is marked, so that a line break in a message cannot forge a record.
        text = _hide_secrets("".join(traceback.format_exception(cause)).rstrip(), data)
        stack = escape_hidden(text).replace("\n", "\n| ")
        CALL_LOG.debug("%s [%s] failure %s, stack:\n| %s", name, call_id, error_id, stack)


def get_log_id(error: ToolCallError) -> str:
    """Return the ID of a failure in the log."""
    if not error.log_id:
        error.log_id = os.urandom(6).hex()
    return error.log_id


def to_line(text: str) -> str:
    """Return text for one line of a log: shortened, and with line breaks and control characters escaped."""
    short = text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]}…"
    return short if short.isprintable() else escape_hidden(short).replace("\n", "\\n")


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
        return {
            str(key): _MASK if re.search(_MASKED_FIELDS, str(key)) else _mask(value) for key, value in content.items()
        }
    return [_mask(item) for item in content] if isinstance(content, list | tuple) else content


def _hide_secrets(text: str, data: Iterable[Any]) -> str:
    """Return text without the values that `data` holds in fields whose names say that they are secret."""
    found = (secret for item in data for secret in _iter_secrets(_parse(item)))
    secrets = set(islice(found, MAX_SECRETS + 1))
    if len(secrets) > MAX_SECRETS:
        return _MASK
    for secret in sorted(secrets, key=len, reverse=True):
        for form in (secret, repr(secret)[1:-1], to_json(secret).decode()[1:-1]):
            text = text.replace(form, _MASK)
    return text


def _iter_secrets(content: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the strings in fields whose names say that they are secret, at any depth."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _iter_secrets(value, is_secret=is_secret or re.search(_MASKED_FIELDS, str(key)) is not None)
    elif isinstance(content, list | tuple):
        for item in content:
            yield from _iter_secrets(item, is_secret=is_secret)
    elif is_secret and isinstance(content, str) and len(content) >= MIN_SECRET_CHARS:
        yield content
