"""A function and its parameters → how to call it with values by name.

Lives here: what kind of function it is, what stands in for a value that was left out, streams as lists.
Not here: which parameters there are (`signature`), or where the call runs (`execute`).
"""

from __future__ import annotations

import copy
import inspect
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import MISSING
from toolmason._core.define.placeholders import expand
from toolmason._core.define.signature import Parameter, inner_function, is_shared_safely

Kind: TypeAlias = Literal["async", "sync"]
_STREAMS: Final = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


def kind_of(fn: Any) -> Kind:
    """Tell whether calling a function gives an awaitable, or blocks."""
    inner = inner_function(fn)
    return "async" if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner) else "sync"


def streams(fn: Any) -> bool:
    """Tell whether a function yields its values one by one."""
    inner = inner_function(fn)
    return inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)


def caller_of(fn: Any, parameters: Sequence[Parameter]) -> tuple[Kind, Callable[..., Any]]:
    """Return how to call a function with values by name; streams are collected into lists."""
    inner = inner_function(fn)
    before = tuple(parameter.name for parameter in parameters if parameter.positional)
    plain: Callable[[dict[str, Any]], Any] = (
        (lambda values: fn(*(values[name] for name in before), **{k: v for k, v in values.items() if k not in before}))
        if before
        else (lambda values: fn(**values))
    )
    if inspect.isasyncgenfunction(inner):

        async def collect(values: dict[str, Any], context: Any) -> list[Any]:
            del context
            return [item async for item in plain(values)]

        return "async", collect
    if inspect.isgeneratorfunction(inner):
        return "sync", lambda values, context: list(plain(values))  # noqa: ARG005 - one shape for every kind
    if before:
        return kind_of(fn), lambda values, context: plain(values)  # noqa: ARG005 - as above
    return kind_of(fn), lambda values, context: fn(**values)  # noqa: ARG005 - as above


def standins(
    parameters: Sequence[Parameter], *, every: bool
) -> tuple[tuple[str, Callable[[dict[str, Any], Any], Any]], ...]:
    """Return what fills a parameter that the model left out, where Python's own default does not do."""
    sent = [parameter for parameter in parameters if parameter.filler is None]
    every = every or any(parameter.param.template for parameter in sent)
    found: list[tuple[str, Callable[[dict[str, Any], Any], Any]]] = []
    for p in sent:
        if p.param.template:
            found.append((p.name, _template(p, [other.name for other in sent[: sent.index(p)]])))
        elif p.factory is not None and p.default is MISSING:
            found.append((p.name, lambda values, context, make=p.factory: make()))  # type: ignore[misc]  # noqa: ARG005
        elif p.default is MISSING:
            if not p.required:
                found.append((p.name, lambda values, context: None))  # noqa: ARG005 - one shape for every kind
        elif not is_shared_safely(p.default):
            found.append((p.name, lambda values, context, it=p.default: copy.deepcopy(it)))  # type: ignore[misc]  # noqa: ARG005
        elif every or p.positional or p.param.default is not MISSING or _default_is_field(p):
            found.append((p.name, lambda values, context, it=p.default: it))  # type: ignore[misc]  # noqa: ARG005
    return tuple(found)


def _default_is_field(parameter: Parameter) -> bool:
    # Python would pass the FieldInfo itself, or has no default at all: `Annotated[int, Field(default=3)]`.
    return any(hasattr(mark, "default_factory") for mark in getattr(parameter.hint, "__metadata__", ()))


def _template(parameter: Parameter, earlier: Sequence[str]) -> Callable[[dict[str, Any], ToolContext[Any]], Any]:
    wanted, text = parameter.hint, parameter.default

    def fill(values: dict[str, Any], context: ToolContext[Any]) -> Any:
        known = {name: values[name] for name in earlier if name in values}
        if "${project_dir" in text:
            known["project_dir"] = context.project_dir
        filled = expand(text, known)
        core = get_args(wanted)[0] if get_origin(wanted) is typing.Annotated else wanted
        return core(filled) if isinstance(core, type) and core is not str else filled

    return fill


def awaited(hint: Any) -> Any:
    """Return what a caller gets in the end: the item list of a stream, the value of an awaitable."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Awaitable, Coroutine) and args:
        return args[-1]
    if origin in _STREAMS and args:
        return types.GenericAlias(list, (args[0],))
    return hint
