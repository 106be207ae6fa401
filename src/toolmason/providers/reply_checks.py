"""Check the types of parsed replies and events, and raise ModelError if a provider sent malformed data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from toolmason._core.toolbox.exchange import CallClosed, CallOpened, Finished, ModelEvent, ModelReply, Usage
from toolmason._core.values.content import Text
from toolmason._core.values.results import ToolCall
from toolmason.errors import ModelError, clip

PARSE_ERRORS: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that parsing malformed data can raise."""


def make_unreadable_error(provider: str, what: str, error: Exception, data: Any) -> ModelError:
    """Return the error for data that cannot be parsed."""
    return ModelError(provider, f"{what} cannot be parsed ({type(error).__name__}: {error}): {str(data)[:200]}")


def guard_events(provider: str, events: Iterable[ModelEvent], data: Any) -> Iterator[ModelEvent]:
    """Yield events as they are parsed.

    Raises:
        ModelError: the data is malformed.
    """
    try:
        for event in events:
            yield _check_event(event)
    except PARSE_ERRORS as error:
        raise make_unreadable_error(provider, "a stream event", error, data) from error


def check_reply(reply: ModelReply) -> ModelReply:
    """Return a reply after checking that its text, ids and names are strings.

    Raises:
        TypeError: one of them is not.
    """
    for part in reply.message.content:
        if isinstance(part, Text):
            _check_text(part.text, "the text")
    for call in reply.message.calls:
        _check_call(call)
    return reply


def read_usage(usage: Any, paths: Sequence[Sequence[str]]) -> Usage:
    """Return the usage in a reply: for each field of `Usage`, the sum of the counts at its dotted paths.

    A missing or invalid count is 0.
    """
    totals: list[int] = []
    for field_paths in paths:
        total = 0
        for path in field_paths:
            value = usage
            for key in path.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
            total += value if type(value) is int and value > 0 else 0
        totals.append(total)
    return Usage(*totals)


def make_openai_usage_paths(sent: str, received: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths for `read_usage`. `sent` and `received` are the API's words for the two directions."""
    return (
        (f"{sent}_tokens",),
        (f"{received}_tokens",),
        (f"{sent}_tokens_details.cached_tokens",),
        (f"{sent}_tokens_details.cache_write_tokens",),
        (f"{received}_tokens_details.reasoning_tokens",),
    )


def _check_event(event: ModelEvent) -> ModelEvent:
    if isinstance(event, CallOpened):
        _check_text(event.id, "the id of a call")
        _check_text(event.name, "the name of a call")
    elif isinstance(event, CallClosed):
        _check_call(event.call)
    elif not isinstance(event, Finished):
        _check_text(event.text, "a delta")
    return event


def _check_call(call: ToolCall) -> None:
    _check_text(call.id, "the id of a call")
    _check_text(call.name, "the name of a call")
    if not isinstance(call.raw, str | Mapping):
        raise TypeError(f"the arguments of a call have the type {type(call.raw).__name__}")


def _check_text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {clip(repr(value), 40)}, not a string")
