"""Instances that JSON does not know → builtins, for attrs and msgspec; neither is loaded for it.

Lives here: telling such a class, and writing an instance of it plainly.
"""

from __future__ import annotations

import sys
from typing import Any


def is_attrs(kind: Any) -> bool:
    """Tell whether `kind` is an attrs class."""
    return isinstance(kind, type) and "__attrs_attrs__" in vars(kind)


def is_struct(kind: Any) -> bool:
    """Tell whether `kind` is a msgspec Struct."""
    return isinstance(kind, type) and hasattr(kind, "__struct_fields__") and hasattr(kind, "__struct_config__")


def _builtins(item: Any) -> Any:
    return sys.modules["msgspec"].to_builtins(item) if is_struct(type(item)) else item


def plain(value: Any) -> Any:
    """Return an attrs or msgspec instance as builtins; the way out for values that JSON does not know.

    Raises:
        TypeError: it is neither.
    """
    if is_struct(type(value)):
        return sys.modules["msgspec"].to_builtins(value)
    if is_attrs(type(value)):
        return sys.modules["attr"].asdict(value, value_serializer=lambda _, __, item: _builtins(item))
    raise TypeError(f"an object of type {type(value).__qualname__!r} has no JSON form")
