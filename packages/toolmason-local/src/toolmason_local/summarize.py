"""Results of calls → an answer that says what they say.

Lives here: the sentences. They are put together, not written by a model: one of this size gets three results of five
wrong when it puts them into its own words (measured). Not here: when to answer (`local`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json

from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult

_SHORT: Final = 120
_LONGEST_VALUE: Final = 60


def told(results: Sequence[ToolResult], calls: Sequence[ToolCall]) -> str:
    """Return an answer made of results; `calls` are what they answer."""
    by_id = {call.id: call for call in calls}
    return "\n".join(_sentence(result, by_id.get(result.call_id)) for result in results)


def calls_before(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls that the last message answers."""
    return next((message.calls for message in reversed(messages) if message.calls), ())


def _sentence(result: ToolResult, call: ToolCall | None) -> str:
    what = f"{result.name}({_arguments(call)})"
    if result.error is not None:
        return f"{what} did not work: {result.error.message}"
    text = result.text.strip()
    if not text or text == "null":
        return f"{what} is done."
    return f"{what} gave {text}" if len(text) <= _SHORT and "\n" not in text else f"{what} gave:\n{text}"


def _arguments(call: ToolCall | None) -> str:
    given = call.arguments if call is not None else None
    if isinstance(given, str | bytes):
        try:
            given = from_json(given)
        except ValueError:
            given = None
    if not isinstance(given, Mapping):
        return ""
    return ", ".join(f"{name}={_shown(value)}" for name, value in given.items())


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
