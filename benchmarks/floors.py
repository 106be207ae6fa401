"""What no library can beat: pydantic-core reads the arguments, the function runs, pydantic-core writes the result.

Lives here: the floor on the loop, for refused arguments, behind a thread hop.
Not here: anything that knows tools.
"""

import asyncio
from collections.abc import Callable

import anyio.to_thread
from measure import Call
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError, to_json
from samples import Sample
from typing_extensions import TypedDict, get_type_hints


def _validator(sample: Sample) -> SchemaValidator:
    hints = get_type_hints(sample.plain)
    hints.pop("return")
    arguments = TypedDict("arguments", hints)  # type: ignore[misc]  # made from a signature
    validator = TypeAdapter(arguments).validator
    assert isinstance(validator, SchemaValidator)  # noqa: S101 - a wrapper in its place would be part of the floor
    return validator


def on_loop(sample: Sample) -> Call:
    """Make the floor of an async tool."""
    validate, function = _validator(sample).validate_json, sample.on_loop

    async def call(text: str) -> bytes:
        return to_json(await function(**validate(text)))

    return call


def refused(sample: Sample) -> Call:
    """Make the floor of a call whose arguments are wrong."""
    validate = _validator(sample).validate_json

    async def call(text: str) -> bytes:
        try:
            validate(text)
        except ValidationError:
            return b"refused"
        raise AssertionError(text)

    return call


def plain(sample: Sample) -> Callable[[str], bytes]:
    """Make the floor of a sync tool, without a thread."""
    validate, function = _validator(sample).validate_json, sample.plain

    def call(text: str) -> bytes:
        return to_json(function(**validate(text)))

    return call


def hop_by_anyio(sample: Sample) -> Call:
    """Make the common thread hop around the floor."""
    work = plain(sample)

    async def call(text: str) -> bytes:
        return await anyio.to_thread.run_sync(work, text)

    return call


def hop_by_asyncio(sample: Sample) -> Call:
    """Make the hop of the standard library around the floor."""
    work = plain(sample)

    async def call(text: str) -> bytes:
        return await asyncio.to_thread(work, text)

    return call
