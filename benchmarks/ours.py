"""Toolwright as a contender: a sample becomes a tool, a text becomes a result's text.

Lives here: the only use of the package in the measurements of calls.
Not here: what it is compared with.
"""

from collections.abc import Awaitable, Callable
from types import FunctionType
from typing import Any

from measure import Call
from samples import Sample

from toolwright import Toolbox, ToolCall, tool


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    # `tool` marks the function itself: two tools with other options need two functions.
    assert isinstance(function, FunctionType)  # noqa: S101 - the samples are plain functions
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__annotations__, twin.__doc__, twin.__module__ = (
        function.__annotations__,
        function.__doc__,
        function.__module__,
    )
    return twin


def _caller(function: Callable[..., Any], **options: Any) -> Call:
    box = Toolbox(function)
    run, name = box.call, function.__name__

    async def call(text: str) -> str:
        return (await run(name, text, **options)).text

    return call


def on_loop(sample: Sample, **options: Any) -> Call:
    """Call the async form; options go to the call."""
    return _caller(tool(_copy(sample.on_loop)), **options)


def plain_on_loop(sample: Sample, **options: Any) -> Call:
    """Call the sync form where it is."""
    return _caller(tool(runs_on="loop")(_copy(sample.plain)), **options)


def in_thread(sample: Sample, **options: Any) -> Call:
    """Call the sync form as it runs by default: in a worker thread."""
    return _caller(tool(_copy(sample.plain)), **options)


def batch(function: Callable[..., Any], texts: list[str]) -> Callable[[], Awaitable[list[str]]]:
    """Send many calls as one batch."""
    box = Toolbox(tool(_copy(function)))
    calls = [ToolCall(id=str(number), name=function.__name__, arguments=text) for number, text in enumerate(texts)]

    async def call_all() -> list[str]:
        return [result.unwrap() for result in await box.call_all(calls)]

    return call_all
