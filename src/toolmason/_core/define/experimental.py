"""Raise ExperimentalError unless the caller has opted in to experimental APIs."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Generator
from contextvars import ContextVar, Token
from typing import Any, Final, TypeVar, overload

from toolmason.errors import ConfigError, DefinitionError, ExperimentalError

_F = TypeVar("_F")

EXPERIMENTAL_ATTRIBUTE: Final = "__experimental__"
"""Attribute that marks an experimental API; holds the reason or an empty string."""

ENVIRONMENT_VARIABLE: Final = "TOOLMASON_EXPERIMENTAL"
_process_wide_grants: Final[set[object]] = set()
"""Calls of `allow_experimental()` that apply to the whole process."""
_allowed_in_context: ContextVar[bool] = ContextVar("toolmason_experimental", default=False)


class allow_experimental:  # noqa: N801 - a call that is also a context manager, like `contextlib.suppress`
    """Allow experimental APIs: as a call, in the whole process; as a context manager, within its block.

    A block applies to its task and thread, and to the tasks and tool calls started in it.
    """

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: list[Token[bool]] = []
        _process_wide_grants.add(self)

    def __enter__(self) -> None:
        # A block allows only itself, so revoke the process-wide grant of the constructor.
        _process_wide_grants.discard(self)
        self._tokens.append(_allowed_in_context.set(True))

    def __exit__(self, *exception: object) -> None:
        _allowed_in_context.reset(self._tokens.pop())


def experimental_is_allowed() -> bool:
    """Return True if experimental APIs are allowed here.

    Raises:
        ConfigError: the environment variable is not a boolean.
    """
    if _allowed_in_context.get() or _process_wide_grants:
        return True
    value = os.environ.get(ENVIRONMENT_VARIABLE)
    if value is None:
        return False
    from toolmason._core.config.keys import parse_flag  # noqa: PLC0415 - 5 ms at start-up, needed only if the variable is set

    if (flag := parse_flag(value)) is None:
        raise ConfigError(f"{ENVIRONMENT_VARIABLE}={value!r} is not a boolean. Use true or false.")
    return flag


def refuse_experimental(name: str, reason: str = "") -> None:
    """Raise unless experimental APIs are allowed here.

    Raises:
        ExperimentalError: they are not; explains how to allow them.
    """
    if not experimental_is_allowed():
        raise ExperimentalError(name, reason)


@overload
def experimental(item: str) -> Callable[[_F], _F]: ...
@overload
def experimental(item: _F) -> _F: ...
def experimental(item: Any) -> Any:
    """Mark a function or class as experimental: `@experimental`, or `@experimental("why")`.

    Calling the function or instantiating the class raises unless experimental APIs are allowed. The signature is
    kept. Write `@experimental` below `@tool`, so that the tool wraps the marked function.

    Raises:
        DefinitionError: the marked object is neither a function nor a class.
    """
    if isinstance(item, str):
        return lambda marked: _mark(marked, item)
    return _mark(item, "")


def _mark(item: Any, reason: str) -> Any:
    if isinstance(item, type):
        return _mark_class(item, reason)
    if isinstance(item, staticmethod | classmethod) or not inspect.isroutine(item):
        raise DefinitionError(
            f"@experimental requires a function or class, not {item!r}. Put it below @staticmethod and @classmethod."
        )
    wrapper = _wrap_function(item, item.__qualname__, reason)
    setattr(wrapper, EXPERIMENTAL_ATTRIBUTE, reason)
    return wrapper


def _wrap_function(fn: Callable[..., Any], name: str, reason: str) -> Callable[..., Any]:
    """Return a wrapper of the same kind as the function, because callers inspect the kind."""
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
            refuse_experimental(name, reason)
            return await fn(*args, **kwargs)

        return async_wrapper
    if inspect.isasyncgenfunction(fn):

        @functools.wraps(fn)
        async def async_generator_wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            refuse_experimental(name, reason)
            async for item in fn(*args, **kwargs):
                yield item

        return async_generator_wrapper
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def generator_wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            refuse_experimental(name, reason)
            return (yield from fn(*args, **kwargs))

        return generator_wrapper

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        refuse_experimental(name, reason)
        return fn(*args, **kwargs)

    return wrapper


def _mark_class(cls: Any, reason: str) -> Any:
    original_init: Any = cls.__init__

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces the class's `__init__`
        refuse_experimental(cls.__qualname__, reason)
        # With an `__init__` on the class, `object.__init__` rejects arguments that a custom `__new__` has consumed.
        if original_init is not object.__init__ or cls.__new__ is object.__new__:
            original_init(self, *args, **kwargs)

    cls.__init__ = __init__
    setattr(cls, EXPERIMENTAL_ATTRIBUTE, reason)
    return cls
