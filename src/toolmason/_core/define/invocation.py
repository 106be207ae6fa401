"""Call a function with values by name: defaults, positional parameters, streams collected into lists."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
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
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import MISSING
from toolmason._core.define.signature import Parameter, describe_location, is_safe_to_share, unwrap_function
from toolmason._core.values.content import CONTENT_TYPES
from toolmason._core.values.results import ToolReturn
from toolmason.errors import DefinitionError, ExternalCall

FunctionKind: TypeAlias = Literal["async", "sync"]
Defaults: TypeAlias = tuple[tuple[str, Callable[[dict[str, Any], Any], Any]], ...]
"""Parameters with a default value that Python does not make, each with the function that makes it."""
PicklableCall: TypeAlias = tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]
"""A call for another process: a function, the names it takes by position, and the values."""
_FUNCTION_TYPES: Final = (Callable, typing.Callable, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_STREAMS: Final = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)
_PLACEHOLDER: Final = r"\$\$\{|\$\{([^{}$:]+)(?::-([^{}]*))?\}"


def get_function_kind(fn: Any) -> FunctionKind:
    """Return "async" if calling a function returns an awaitable, else "sync"."""
    inner = fn if isinstance(fn, types.FunctionType) else unwrap_function(fn)
    return "async" if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner) else "sync"


def is_generator_function(fn: Any) -> bool:
    """Return True if a function is a sync or async generator."""
    inner = unwrap_function(fn)
    return inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)


def check_handler(name: str, handler: Any) -> None:
    """Raise a `DefinitionError` if a handler cannot be called with (arguments, context)."""
    if not callable(handler):
        raise DefinitionError(f"Tool {name!r}: its handler is {handler!r}. Pass a function of (arguments, context).")
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):
        return  # some callables of extension modules have none
    try:
        signature.bind({}, None)
    except TypeError as error:
        raise DefinitionError(
            f"{describe_location(handler)}: the handler of tool {name!r} cannot take (arguments, context): {error}."
        ) from None


async def leave_to_application(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
    """Run no call of a tool that the application runs.

    Raises:
        ExternalCall: always.
    """
    del arguments
    raise ExternalCall(context.call.name)


def make_caller(fn: Any, parameters: Sequence[Parameter]) -> tuple[FunctionKind, Callable[..., Any]]:
    """Return the kind of a function and a callable that takes its values by name. Streams become lists."""
    inner = unwrap_function(fn)
    positional_names = tuple(parameter.name for parameter in parameters if parameter.positional)

    def call_function(values: dict[str, Any]) -> Any:
        positional = [values[name] for name in positional_names]
        return fn(*positional, **{name: value for name, value in values.items() if name not in positional_names})

    if inspect.isasyncgenfunction(inner):

        async def collect(values: dict[str, Any], context: Any) -> list[Any]:
            del context
            return [item async for item in call_function(values)]

        return "async", collect
    if inspect.isgeneratorfunction(inner):
        return "sync", lambda values, context: list(call_function(values))  # noqa: ARG005 - same signature for every kind
    if positional_names:
        return get_function_kind(fn), lambda values, context: call_function(values)  # noqa: ARG005 - as above
    # The common case, without a copy of the values.
    return get_function_kind(fn), lambda values, context: fn(**values)  # noqa: ARG005 - as above


def make_defaults(parameters: Sequence[Parameter], *, include_all: bool) -> Defaults:
    """Return factories for omitted parameters that Python's own defaults do not cover."""
    model_parameters = [parameter for parameter in parameters if parameter.injector is None]
    include_all = include_all or any(parameter.param.template for parameter in model_parameters)
    defaults: list[tuple[str, Callable[[dict[str, Any], Any], Any]]] = []
    for index, p in enumerate(model_parameters):
        if p.param.template:
            earlier_names = [other.name for other in model_parameters[:index]]
            defaults.append((p.name, _make_template_default(p, earlier_names)))
        elif p.factory is not None and p.default is MISSING:
            defaults.append((p.name, lambda values, context, make=p.factory: make()))  # type: ignore[misc]  # noqa: ARG005
        elif p.default is MISSING:
            if not p.required:
                defaults.append((p.name, lambda values, context: None))  # noqa: ARG005 - same signature for every kind
        elif not is_safe_to_share(p.default):
            is_empty = type(p.default) in (list, dict, set) and not p.default
            make_copy: Any = type(p.default) if is_empty else partial(copy.deepcopy, p.default)
            defaults.append((p.name, lambda values, context, make=make_copy: make()))  # type: ignore[misc]  # noqa: ARG005
        elif include_all or p.positional or p.param.default is not MISSING or _is_field_default(p):
            defaults.append((p.name, lambda values, context, value=p.default: value))  # type: ignore[misc]  # noqa: ARG005
    return tuple(defaults)


def make_plain_function(
    fn: Callable[..., Any], parameters: Sequence[Parameter], defaults: Defaults
) -> Callable[..., Any] | None:
    """Return a function that needs nothing but the arguments of the model, or None if the tool needs more."""
    needs_more = any(p.injector is not None or p.positional or p.param.template for p in parameters)
    if needs_more or is_generator_function(fn):
        return None
    if not defaults:
        return fn

    def call(**values: Any) -> Any:
        for name, make_default in defaults:
            if name not in values:
                values[name] = make_default(values, None)
        return fn(**values)

    return call


def _is_field_default(parameter: Parameter) -> bool:
    # Python would pass the FieldInfo itself, or has no default at all: `Annotated[int, Field(default=3)]`.
    marks = getattr(parameter.hint, "__metadata__", ())
    return any(not mark.is_required() for mark in marks if hasattr(mark, "is_required"))


def _make_template_default(
    parameter: Parameter, earlier: Sequence[str]
) -> Callable[[dict[str, Any], ToolContext[Any]], Any]:
    hint, text = parameter.hint, parameter.default

    def expand_default(values: dict[str, Any], context: ToolContext[Any]) -> Any:
        known_values = {name: values[name] for name in earlier if name in values}
        if "${project_dir" in text:
            known_values["project_dir"] = context.project_dir
        filled = expand(text, known_values)
        base_type = get_args(hint)[0] if get_origin(hint) is typing.Annotated else hint
        return base_type(filled) if isinstance(base_type, type) and base_type is not str else filled

    return expand_default


def resolve_return_type(hint: Any) -> Any:
    """Return the type of the final value: a list for a stream, the awaited type for an awaitable."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Awaitable, Coroutine, Future, asyncio.Future) and args:
        return args[-1]
    if origin in _STREAMS and args:
        return types.GenericAlias(list, (args[0],))
    return hint


def returns_content(hint: Any) -> bool:
    """Return True if a return type names content parts or `ToolReturn`."""
    if isinstance(hint, type) and (hint in CONTENT_TYPES or hint is ToolReturn):
        return True
    return any(returns_content(arg) for arg in get_args(hint))


def returns_function(hint: Any) -> bool:
    """Return True if a return type names a function, which has no JSON form."""
    if get_origin(hint) is Callable or (is_hashable(hint) and hint in _FUNCTION_TYPES):
        return True
    return any(returns_function(arg) for arg in get_args(hint) if not isinstance(arg, list))


def may_hold_content(hint: Any) -> bool:
    """Return True if a list of this type may contain content parts, such as images, beside data."""
    args = get_args(hint)
    return not args or Any in args or object in args or returns_content(hint)


def is_hashable(value: Any) -> bool:
    """Return True if a value can be hashed."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def expand(text: str, values: Mapping[str, Any]) -> str:
    """Expand `${name}` and `${name:-fallback}`; `$${` is a literal `${`, and an unknown name is kept.

    Expansion is a single pass: text from a model cannot inject placeholders.
    """

    def replace_placeholder(match: re.Match[str]) -> str:
        name, fallback = match.groups()
        if name is None:
            return "${"
        if name in values and values[name] is not None:
            return str(values[name])
        return match.group() if fallback is None else fallback

    return re.sub(_PLACEHOLDER, replace_placeholder, text)
