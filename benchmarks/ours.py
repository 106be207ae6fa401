"""Toolmason as a contender: turn a sample into a tool, and return the text of its result."""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Mapping
from types import FunctionType
from typing import Any

from measure import Call
from samples import Sample

from toolmason import Limits, Toolbox, ToolCall, ToolResult, tool

ENGINE = {"engine": {"argument_bytes": 1 << 28, "result_bytes": 1 << 28, "kept_bytes": 1 << 28}}
"""Limits that no sample reaches: a refused or truncated one would be cheaper than the work."""


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    # `tool` marks the function itself, so tools with different options need separate functions.
    assert isinstance(function, FunctionType)  # noqa: S101 - the samples are plain functions
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    twin.__annotations__, twin.__doc__, twin.__module__ = (
        function.__annotations__,
        function.__doc__,
        function.__module__,
    )
    return twin


def _box(function: Callable[..., Any], context: Mapping[str, Any]) -> Toolbox:
    return Toolbox(function, context=context or None, config=ENGINE)


def _caller(function: Callable[..., Any], sample: Sample, **options: Any) -> Call:
    run, name = _box(function, sample.context).call, function.__name__

    async def call(text: str) -> str:
        return (await run(name, text)).text

    async def call_with_options(text: str) -> str:
        return (await run(name, text, **options)).text

    # A caller without options unpacks no dict, which takes 700 instructions.
    return call_with_options if options else call


def on_loop(sample: Sample, **options: Any) -> Call:
    """Call the async form; options go to the tool."""
    return _caller(tool(**options)(sample.on_loop), sample)


def on_loop_awaiting(sample: Sample) -> Call:
    """Call an async form that awaits the other one, so that it may wait: it runs in a task, with a deadline."""
    function = sample.on_loop

    @functools.wraps(function)
    async def await_function(*args: Any, **keywords: Any) -> Any:
        return await function(*args, **keywords)

    return _caller(tool(await_function), sample)


def on_loop_with(sample: Sample, **options: Any) -> Call:
    """Call the async form; options go to the call."""
    return _caller(tool(sample.on_loop), sample, **options)


def plain_on_loop(sample: Sample, **options: Any) -> Call:
    """Call the sync form on the event loop; options go to the tool."""
    return _caller(tool(runs_on="loop", **options)(_copy(sample.plain)), sample)


async def pass_on(call: ToolCall, following: Callable[[ToolCall], Awaitable[ToolResult]]) -> ToolResult:
    """Forward a call: the minimal middleware."""
    return await following(call)


def governed(sample: Sample, *, hooked: bool = False, on_loop: bool = False, **options: Any) -> Call:
    """Call a tool with a policy, and optionally middleware; options go to the tool."""
    function = tool(runs_on="loop", **options)(_copy(sample.plain)) if on_loop else tool(**options)(sample.on_loop)
    box = _box(function, sample.context)
    if hooked:
        box.use(pass_on)
    run, name = box.call, function.__name__

    async def call(text: str) -> str:
        return (await run(name, text)).text

    return call


def distinct(sample: Sample, *, limits: Limits | None = None, in_run: bool = False, **options: Any) -> Call:
    """Call the async form with other arguments each time, in a run or not; options go to the tool.

    A run answers a repeated call without the tool.
    """
    function = tool(**options)(sample.on_loop)
    box = _box(function, sample.context)
    run, name = (box.run(limits) if in_run else box).call, function.__name__
    text, numbers = sample.varied, itertools.count(1)

    async def call(_: str) -> str:
        return (await run(name, text % next(numbers))).text

    return call


def in_thread(sample: Sample, **options: Any) -> Call:
    """Call the sync form in a worker thread, the default; options go to the tool."""
    return _caller(tool(**options)(_copy(sample.plain)), sample)


def batch(function: Callable[..., Any], texts: list[str]) -> Callable[[], Awaitable[list[Any]]]:
    """Send many calls as one batch."""
    box = Toolbox(tool(_copy(function)))
    calls = [ToolCall(id=str(number), name=function.__name__, arguments=text) for number, text in enumerate(texts)]

    async def call_all() -> list[Any]:
        return [result.unwrap() for result in await box.call_all(calls)]

    return call_all


def gathered(function: Callable[..., Any], texts: list[str]) -> Callable[[], Awaitable[list[Any]]]:
    """Send many calls with `asyncio.gather`."""
    box, name = Toolbox(tool(_copy(function))), function.__name__

    async def gather() -> list[Any]:
        return [result.unwrap() for result in await asyncio.gather(*(box.call(name, text) for text in texts))]

    return gather
