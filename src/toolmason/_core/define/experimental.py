"""APIs that may still change → an error for whoever uses one without leave.

Lives here: the mark, and the three ways to give leave: a call, a block, the environment.
Not here: which of our own APIs are marked, or the key `experimental` of a configuration (`config`, `approvals`).
"""

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
"""Where the mark is kept: the reason, or an empty text."""

ENVIRONMENT_VARIABLE: Final = "TOOLMASON_EXPERIMENTAL"
_process_wide_grants: Final[set[object]] = set()
"""The calls of `allow_experimental()` that hold for the whole process."""
_allowed_in_context: ContextVar[bool] = ContextVar("toolmason_experimental", default=False)


class allow_experimental:  # noqa: N801 - a call that is also a context manager, like `contextlib.suppress`
    """Allow APIs that may still change: called, for the whole process; as a context manager, inside its block.

    Leave for a block is kept to its task and thread, and to the tasks and tool calls that are started in it.
    """

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: list[Token[bool]] = []
        _process_wide_grants.add(self)

    def __enter__(self) -> None:
        # A block gives leave to itself alone, so what the call gave to the process is taken back.
        _process_wide_grants.discard(self)
        self._tokens.append(_allowed_in_context.set(True))

    def __exit__(self, *exception: object) -> None:
        _allowed_in_context.reset(self._tokens.pop())


def experimental_is_allowed() -> bool:
    """Tell whether experimental APIs may be used here.

    Raises:
        ConfigError: the environment variable is neither on nor off.
    """
    if _allowed_in_context.get() or _process_wide_grants:
        return True
    value = os.environ.get(ENVIRONMENT_VARIABLE)
    if value is None:
        return False
    from toolmason._core.config.keys import parse_flag  # noqa: PLC0415 - 5 ms at start-up, for programs that set it

    if (flag := parse_flag(value)) is None:
        raise ConfigError(f"{ENVIRONMENT_VARIABLE}={value!r} is not a yes or no. Write true or false.")
    return flag


def refuse_experimental(name: str, reason: str = "") -> None:
    """Raise unless experimental APIs may be used here.

    Raises:
        ExperimentalError: they may not; says how to allow them.
    """
    if not experimental_is_allowed():
        raise ExperimentalError(name, reason)


@overload
def experimental(item: str) -> Callable[[_F], _F]: ...
@overload
def experimental(item: _F) -> _F: ...
def experimental(item: Any) -> Any:
    """Mark a function or class as one that may still change: `@experimental`, or `@experimental("why")`.

    Its use raises unless that is allowed: the call of a function, the making of an object. What is marked keeps
    its signature. Below `@tool`, so that the tool is what is marked: write `@tool` first, `@experimental` second.

    Raises:
        DefinitionError: what is marked is neither a function nor a class.
    """
    if isinstance(item, str):
        return lambda marked: _mark(marked, item)
    return _mark(item, "")


def _mark(item: Any, reason: str) -> Any:
    if isinstance(item, type):
        return _mark_class(item, reason)
    if isinstance(item, staticmethod | classmethod) or not inspect.isroutine(item):
        raise DefinitionError(
            f"@experimental goes on a function or class, not on {item!r}. Put it below @staticmethod and @classmethod."
        )
    wrapper = _wrap_function(item, item.__qualname__, reason)
    setattr(wrapper, EXPERIMENTAL_ATTRIBUTE, reason)
    return wrapper


def _wrap_function(fn: Callable[..., Any], name: str, reason: str) -> Callable[..., Any]:
    """Return the same function behind the gate, of the same kind: what looks at it must not see a difference."""
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
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it takes the place of one
        refuse_experimental(cls.__qualname__, reason)
        # `object` takes what `__new__` took already only from a class that has no `__init__` of its own.
        if original_init is not object.__init__ or cls.__new__ is object.__new__:
            original_init(self, *args, **kwargs)

    cls.__init__ = __init__
    setattr(cls, EXPERIMENTAL_ATTRIBUTE, reason)
    return cls
