"""Compare and show frozen data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final


class Value:
    """Base of frozen dataclasses with `eq=False, repr=False`.

    They share these methods: generating them for each class takes a tenth of `import toolmason`. A chat compares
    messages and their text in each step, so those have their own.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        kind = self.__class__
        if other.__class__ is not kind:
            return NotImplemented
        get = _getters.get(kind) or _make_getter(kind)
        return bool(get(self) == get(other))

    def __hash__(self) -> int:
        return hash((_getters.get(self.__class__) or _make_getter(self.__class__))(self))

    @recursive_repr()
    def __repr__(self) -> str:
        data: Any = self  # a dataclass
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(data) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"


_getters: Final[dict[type, Callable[[Any], Any]]] = {}
"""Functions that return the compared fields as a tuple, by class."""


def _make_getter(kind: Any) -> Callable[[Any], Any]:
    names = [field.name for field in fields(kind) if field.compare]
    # Two names at least, because `attrgetter` returns a single field as it is; the classes are equal.
    get: Callable[[Any], Any] = attrgetter("__class__", "__class__", *names)
    _getters[kind] = get
    return get
