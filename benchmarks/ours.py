"""Toolmason as a contender: turn a sample into a tool, and return the text of its result."""

from collections.abc import Awaitable, Callable
from types import FunctionType
from typing import Any

from measure import Call
from samples import Sample

from toolmason import Toolbox, ToolCall, ToolResult, tool


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    # `tool` marks the function itself, so tools with different options need separate functions.
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
    """Call the sync form on the event loop."""
    return _caller(tool(runs_on="loop")(_copy(sample.plain)), **options)


async def pass_on(call: ToolCall, following: Callable[[ToolCall], Awaitable[ToolResult]]) -> ToolResult:
    """Forward a call: the minimal middleware."""
    return await following(call)


def governed(sample: Sample, *, hooked: bool = False, on_loop: bool = False, **options: Any) -> Call:
    """Call a tool with a policy, and optionally middleware; options go to the tool."""
    function = (
        tool(runs_on="loop", **options)(_copy(sample.plain)) if on_loop else tool(**options)(_copy(sample.on_loop))
    )
    box = Toolbox(function)
    if hooked:
        box.use(pass_on)
    run, name = box.call, function.__name__

    async def call(text: str) -> str:
        return (await run(name, text)).text

    return call


def in_thread(sample: Sample, **options: Any) -> Call:
    """Call the sync form in a worker thread, the default."""
    return _caller(tool(_copy(sample.plain)), **options)


def batch(function: Callable[..., Any], texts: list[str]) -> Callable[[], Awaitable[list[str]]]:
    """Send many calls as one batch."""
    box = Toolbox(tool(_copy(function)))
    calls = [ToolCall(id=str(number), name=function.__name__, arguments=text) for number, text in enumerate(texts)]

    async def call_all() -> list[str]:
        return [result.unwrap() for result in await box.call_all(calls)]

    return call_all
