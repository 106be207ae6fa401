"""Which applications a bundle of tools is for: `@supported_for`.

Lives here: the mark, and whether it fits an application. Not here: who asks (`plugins`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from toolmason.errors import DefinitionError

_F = TypeVar("_F")

SUPPORTED_FOR_ATTRIBUTE: Final = "__supported_for__"
"""Where the mark is kept. A module sets it by itself: `__supported_for__ = (App,)`."""

TAGS_ATTRIBUTE: Final = "__tags__"
"""What an application calls itself, beside being of a class: texts that `supported_for("...")` names."""


def supported_for(*applications: type | str) -> Callable[[_F], _F]:
    """Say which applications a bundle, function or toolbox is for; `discover` and `scan` leave it out elsewhere.

    An application fits if its class is one of these or derives from one, if it has what a runtime-checkable
    protocol asks for, or if it carries one of the texts in `__tags__`. Without this mark a bundle is for all
    applications; with `supported_for()`, for none.

    Raises:
        DefinitionError: one of them is neither a class nor a text, or is a protocol that cannot be checked.
    """
    _check_applications(applications)

    def mark(item: _F) -> _F:
        try:
            setattr(item, SUPPORTED_FOR_ATTRIBUTE, applications)
        except AttributeError as error:
            raise DefinitionError(
                f"@supported_for cannot mark {item!r}: it takes no attributes. Mark its class, or the function."
            ) from error
        return item

    return mark


def _check_applications(applications: tuple[Any, ...]) -> None:
    for item in applications:
        if not isinstance(item, type | str):
            raise DefinitionError(
                f"supported_for({item!r}): give classes, runtime-checkable protocols or texts: "
                '`@supported_for(App, "worker")`.'
            )
        if getattr(item, "_is_protocol", False) and not getattr(item, "_is_runtime_protocol", False):
            raise DefinitionError(
                f"supported_for({item!r}): this protocol cannot be checked. Decorate it with @runtime_checkable."
            )


def is_supported(item: Any, application: Any) -> bool:
    """Tell whether what is marked is for an application: an object, a class or a text.

    Raises:
        DefinitionError: the mark is not one that `supported_for` makes.
    """
    marks: Any = getattr(item, SUPPORTED_FOR_ATTRIBUTE, None)
    if marks is None:
        return True
    marks = marks if isinstance(marks, tuple) else tuple(marks) if isinstance(marks, list | set) else (marks,)
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
        # Python asks an object, not a class, for the attributes of a protocol.
        return all(hasattr(application, name) for name in _get_protocol_members(mark))


def _get_protocol_members(protocol: Any) -> set[str]:
    if sys.version_info >= (3, 12):
        return set(protocol.__protocol_attrs__)
    names = {name for base in protocol.__mro__[:-1] for name in [*vars(base), *getattr(base, "__annotations__", {})]}
    return {name for name in names if not name.startswith(("_abc_", "__", "_is_"))}
