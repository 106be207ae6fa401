"""Send errors to other processes, even if a field or the cause cannot be pickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping


_E = TypeVar("_E", bound=BaseException)


def rebuild(kind: type[_E], args: tuple[Any, ...], fields: Mapping[str, Any], cause: BaseException | None = None) -> _E:
    """Rebuild an unpickled error."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    error.__cause__ = cause
    return error


def copy_error(error: _E) -> _E:
    """Copy an error with all of its data, of which `__reduce__` replaces what cannot be pickled."""
    copied = rebuild(type(error), error.args, error.__dict__, error.__cause__)
    return copied.with_traceback(error.__traceback__)


def make_picklable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, with each value that cannot be pickled replaced by its `repr`."""
    import pickle  # noqa: PLC0415 - 10 ms at start-up; loaded by the time an error is pickled

    picklable_fields = dict(fields)
    for name, value in fields.items():
        try:
            pickle.dumps(value)
        except Exception:  # noqa: BLE001 - the error must still be sent if a foreign __reduce__ fails
            picklable_fields[name] = repr(value)
    return picklable_fields


def make_error_picklable(error: BaseException | None) -> BaseException | None:
    """Return an error, or a `RuntimeError` with its message if it cannot be pickled."""
    import pickle  # noqa: PLC0415 - as above

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - trusted: pickled in the same expression
    except Exception:  # noqa: BLE001 - keep the message even if the foreign type cannot be pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
