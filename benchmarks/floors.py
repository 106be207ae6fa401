"""Lower bounds for any library: pydantic-core validates the arguments and serializes the result of the function."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, NotRequired

import anyio.to_thread
from measure import Call
from pydantic import TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, ValidationError, to_json
from samples import Sample
from typing_extensions import TypedDict, get_type_hints


def _validator(sample: Sample) -> SchemaValidator:
    """Validate into the declared types; an omitted argument gets its default from the function."""
    hints = get_type_hints(sample.plain, include_extras=True)
    hints.pop("return", None)
    parameters = inspect.signature(sample.plain).parameters
    fields = {
        name: hint if parameters[name].default is inspect.Parameter.empty else NotRequired[hint]
        for name, hint in hints.items()
        if name not in sample.given
    }
    arguments = TypedDict("arguments", fields)  # type: ignore[misc]  # built from a signature
    validator = TypeAdapter(arguments).validator
    assert isinstance(validator, SchemaValidator)  # noqa: S101 - a wrapper would add to the floor
    return validator


def _serializer(sample: Sample) -> SchemaSerializer:
    serializer = TypeAdapter(get_type_hints(sample.plain, include_extras=True).get("return", Any)).serializer
    assert isinstance(serializer, SchemaSerializer)  # noqa: S101 - the same
    return serializer


def _named(call_tool: Callable[[str, str], Awaitable[str]], name: str) -> Call:
    """Call a tool by its name, with one coroutine between, as the calls of Toolmason do."""

    async def call(text: str) -> str:
        return await call_tool(name, text)

    return call


def on_loop(sample: Sample) -> Call:
    """Make the floor of an async tool: find it by name, validate, call, serialize by the return type, decode."""
    function, given = sample.on_loop, sample.given
    tools = {function.__name__: (_validator(sample).validate_json, function, _serializer(sample).to_json)}

    async def call_tool(name: str, text: str) -> str:
        validate, run, write = tools[name]
        return write(await run(**validate(text))).decode()

    async def call_with_values(name: str, text: str) -> str:
        validate, run, write = tools[name]
        return write(await run(**validate(text), **given)).decode()

    return _named(call_with_values if given else call_tool, function.__name__)


def least(sample: Sample) -> Call:
    """Make a harder floor, without the look-up, the serializer of the return type and the text."""
    validate, function, given = _validator(sample).validate_json, sample.on_loop, sample.given

    async def call(text: str) -> bytes:
        return to_json(await function(**validate(text), **given))

    return call


def refused(sample: Sample) -> Call:
    """Make the floor of a call with invalid arguments: find the tool, validate, write the text of the error."""
    tools = {sample.plain.__name__: _validator(sample).validate_json}

    async def call_tool(name: str, text: str) -> str:
        try:
            tools[name](text)
        except ValidationError as error:
            return str(error)
        raise AssertionError(text)

    return _named(call_tool, sample.plain.__name__)


def plain(sample: Sample) -> Callable[[str], str]:
    """Make the floor of a sync tool, without a thread."""
    function = sample.plain
    name = function.__name__
    tools = {name: (_validator(sample).validate_json, function, _serializer(sample).to_json)}

    def call(text: str) -> str:
        validate, run, write = tools[name]
        return write(run(**validate(text))).decode()

    return call


def hop_by_anyio(sample: Sample) -> Call:
    """Wrap the floor in anyio's thread hop."""
    work = plain(sample)

    async def call(text: str) -> str:
        return await anyio.to_thread.run_sync(work, text)

    return call


def hop_by_asyncio(sample: Sample) -> Call:
    """Wrap the floor in the standard library's thread hop."""
    work = plain(sample)

    async def call(text: str) -> str:
        return await asyncio.to_thread(work, text)

    return call


def hop_alone(sample: Sample) -> Call:
    """Make the cheapest hop: a thread that waits at a queue, without limits, context, deadlines or cancellation."""
    work, tasks = plain(sample), SimpleQueue()

    def serve() -> None:
        while True:
            text, loop, future = tasks.get()
            loop.call_soon_threadsafe(future.set_result, work(text))

    threading.Thread(target=serve, daemon=True).start()

    async def call(text: str) -> str:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        tasks.put((text, loop, future))
        return await future

    return call
