"""Restrict tools to specific applications with `@supported_for`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from typing_extensions import get_protocol_members

from toolmason.errors import DefinitionError

_F = TypeVar("_F")

SUPPORTED_FOR_ATTRIBUTE: Final = "__supported_for__"
"""Attribute that holds the applications. A module may set it directly: `__supported_for__ = (App,)`."""

TAGS_ATTRIBUTE: Final = "__tags__"
"""Attribute of an application with the tags that `supported_for("...")` matches."""


def supported_for(*applications: type | str) -> Callable[[_F], _F]:
    """Restrict a bundle, function or toolbox to some applications; `discover` and `scan` skip it for others.

    An application matches if it is an instance of one of the classes, implements a runtime-checkable protocol, or has
    one of the strings in `__tags__`. Unmarked tools support every application; `supported_for()` supports none.

    Raises:
        DefinitionError: an argument is neither a class nor a string, or is a protocol that is not runtime-checkable.
    """
    _check_applications(applications)

    def mark(item: _F) -> _F:
        try:
            setattr(item, SUPPORTED_FOR_ATTRIBUTE, applications)
        except AttributeError as error:
            raise DefinitionError(
                f"@supported_for cannot mark {item!r}: it accepts no attributes. Mark its class or function."
            ) from error
        return item

    return mark


def _check_applications(applications: tuple[Any, ...]) -> None:
    for item in applications:
        if not isinstance(item, type | str):
            raise DefinitionError(
                f"supported_for({item!r}): arguments must be classes, runtime-checkable protocols or strings: "
                '`@supported_for(App, "worker")`.'
            )
        if getattr(item, "_is_protocol", False) and not getattr(item, "_is_runtime_protocol", False):
            raise DefinitionError(
                f"supported_for({item!r}): this protocol is not runtime-checkable. Decorate it with @runtime_checkable."
            )


def is_supported(item: Any, application: Any) -> bool:
    """Return True if an item supports an application, given as an object, a class or a string.

    Raises:
        DefinitionError: the item's `__supported_for__` is invalid.
    """
    value: Any = getattr(item, SUPPORTED_FOR_ATTRIBUTE, None)
    if value is None:
        return True
    marks = tuple(value) if isinstance(value, tuple | list | set) else (value,)
    _check_applications(marks)
    return application is not None and any(_matches_application(application, mark) for mark in marks)


def _matches_application(application: Any, mark: type | str) -> bool:
    if isinstance(mark, str):
        tags = getattr(application, TAGS_ATTRIBUTE, ())
        return mark == application or mark in ((tags,) if isinstance(tags, str) else tags)
    if not isinstance(application, type):
        return isinstance(application, mark)
    try:
        return issubclass(application, mark)
    except TypeError:
        # `issubclass` rejects protocols with data members, so check the attributes of the class.
        return all(hasattr(application, name) for name in get_protocol_members(mark))
