"""An error → what crosses a process border, and the error again on the other side.

Lives here: what to do about fields and causes that cannot be pickled. Not here: the errors (`errors`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping


_E = TypeVar("_E", bound=BaseException)


def rebuild(kind: type[_E], args: tuple[Any, ...], fields: Mapping[str, Any], cause: BaseException | None = None) -> _E:
    """Make an error out of what crossed."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    error.__cause__ = cause
    return error


def make_picklable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with a text for each that cannot be pickled."""
    import pickle  # noqa: PLC0415 - 10 ms at start-up; whoever gets here has loaded it already

    pickled_fields = dict(fields)
    for name, value in fields.items():
        try:
            pickle.dumps(value)
        except Exception:  # noqa: BLE001 - whatever a foreign __reduce__ raises, the error must still travel
            pickled_fields[name] = repr(value)
    return pickled_fields


def make_cause_picklable(cause: BaseException | None) -> BaseException | None:
    """Return the cause, or its text where it cannot be pickled."""
    import pickle  # noqa: PLC0415 - as above

    try:
        pickle.loads(pickle.dumps(cause))  # noqa: S301 - our own bytes, made one call before
    except Exception:  # noqa: BLE001 - the cause is foreign; its text survives even if its type cannot
        return RuntimeError(f"{type(cause).__name__}: {cause}")
    return cause
