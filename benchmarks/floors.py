"""Lower bounds for any library: pydantic-core validates the arguments and serializes the result of the function."""

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
    arguments = TypedDict("arguments", hints)  # type: ignore[misc]  # built from a signature
    validator = TypeAdapter(arguments).validator
    assert isinstance(validator, SchemaValidator)  # noqa: S101 - a wrapper would add to the floor
    return validator


def on_loop(sample: Sample) -> Call:
    """Make the floor of an async tool."""
    validate, function = _validator(sample).validate_json, sample.on_loop

    async def call(text: str) -> bytes:
        return to_json(await function(**validate(text)))

    return call


def refused(sample: Sample) -> Call:
    """Make the floor of a call with invalid arguments."""
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
    """Wrap the floor in anyio's thread hop."""
    work = plain(sample)

    async def call(text: str) -> bytes:
        return await anyio.to_thread.run_sync(work, text)

    return call


def hop_by_asyncio(sample: Sample) -> Call:
    """Wrap the floor in the standard library's thread hop."""
    work = plain(sample)

    async def call(text: str) -> bytes:
        return await asyncio.to_thread(work, text)

    return call
