"""Make public functions name their arguments if one has a wrong type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from toolmason._text import suggest
from toolmason.errors import ConfigError, ToolmasonError, clip

_WRONG = (TypeError, AttributeError, LookupError, ValueError)
_OURS = ("toolmason", "pathlib", "posixpath", "ntpath", "random", "re", "functools", "dataclasses")
"""Packages that raise such an error for an argument. An error of other code is its own."""
_F = TypeVar("_F", bound=Callable[..., Any])


def explain_arguments(function: _F) -> _F:
    """Make a public function, or the `__post_init__` of a dataclass, name its arguments if one has a wrong type."""

    @wraps(function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except ToolmasonError:
            raise
        except _WRONG as error:
            given = None if not _is_ours(error) else _find_arguments(function, args, keywords)
            if given is None:
                if hint := _suggest_keyword(function, error):
                    raise TypeError(f"{error}.{hint}") from None
                raise
            name = function.__qualname__.removesuffix(".__init__").removesuffix(".__post_init__")
            shown = ", ".join(f"{key}={clip(_describe(value))}" for key, value in given.items())
            raise ConfigError(
                f"{name}({shown}): a value has a wrong type: {clip(str(error), 200)}. Correct it."
            ) from error

    return cast("_F", wrapper)


def _suggest_keyword(function: Callable[..., Any], error: Exception) -> str:
    """Return the parameters nearest to a misspelt keyword, which Python names itself since 3.13, or an empty string."""
    misspelt = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if misspelt is None or "Did you mean" in str(error) or type(error) is not TypeError:
        return ""
    from inspect import signature  # noqa: PLC0415 - 5 ms at start-up, needed only for an error

    return suggest(misspelt[1], signature(function).parameters)


def _is_ours(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in _OURS


def _find_arguments(function: Callable[..., Any], args: Any, keywords: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by name, or None if Python refuses them for their number or names."""
    if function.__name__ == "__post_init__":
        names = (field.name for field in args[0].__dataclass_fields__.values() if field.init)
        return {name: getattr(args[0], name, None) for name in names}
    from inspect import signature  # noqa: PLC0415 - 5 ms at start-up, needed only for an error

    try:
        given = dict(signature(function).bind(*args, **keywords).arguments)
    except TypeError:
        return None
    return {key: value for key, value in given.items() if key not in ("self", "cls")}


def _describe(value: Any) -> str:
    from toolmason._secrets import scrub  # noqa: PLC0415 - 1 ms at start-up, needed only for an error

    try:
        return scrub(repr(value))
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error
        return type(value).__name__
