"""Convert attrs and msgspec instances to builtins.

Separate from `define.foreign_types`, which imports pydantic: a third of the start-up time of a program without tools.
"""

from __future__ import annotations

import sys
from typing import Any


def is_attrs(kind: Any) -> bool:
    """Return True if `kind` is an attrs class."""
    return isinstance(kind, type) and "__attrs_attrs__" in vars(kind)


def is_struct(kind: Any) -> bool:
    """Return True if `kind` is a msgspec Struct."""
    return isinstance(kind, type) and hasattr(kind, "__struct_fields__") and hasattr(kind, "__struct_config__")


def _struct_to_builtins(item: Any) -> Any:
    return sys.modules["msgspec"].to_builtins(item) if is_struct(type(item)) else item


def to_builtins(value: Any) -> Any:
    """Return an attrs or msgspec instance as builtins, for values that JSON does not support.

    Raises:
        TypeError: it is neither.
    """
    if is_struct(type(value)):
        return sys.modules["msgspec"].to_builtins(value)
    if is_attrs(type(value)):
        return sys.modules["attr"].asdict(value, value_serializer=lambda _, __, item: _struct_to_builtins(item))
    raise TypeError(f"an object of type {type(value).__qualname__!r} has no JSON form")
