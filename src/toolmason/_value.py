"""Compare and show frozen data."""

from __future__ import annotations

from dataclasses import fields
from reprlib import recursive_repr
from typing import Any


class Value:
    """Base of frozen dataclasses with `eq=False, repr=False`.

    They share these methods: generating them for each class takes a tenth of `import toolmason`.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _get_compared(self) == _get_compared(other)

    def __hash__(self) -> int:
        return hash(_get_compared(self))

    @recursive_repr()
    def __repr__(self) -> str:
        data: Any = self  # a dataclass
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(data) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _get_compared(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, field.name) for field in fields(value) if field.compare)
