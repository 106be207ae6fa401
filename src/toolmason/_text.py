"""Format values for error messages: short and safe to print."""

from __future__ import annotations

from typing import NamedTuple


class ArgumentProblem(NamedTuple):
    """One problem with the arguments of a call."""

    path: str
    """JSON path: `$.items[2].count`."""
    message: str
    """Description of the problem."""
    expected: str
    """Expected type or value, e.g. `integer`."""
    got: str
    """Received value, e.g. `string "abc"`."""

    def to_dict(self) -> dict[str, str]:
        """Return the problem as the JSON object that the model reads."""
        return {"path": self.path, "message": self.message, "expected": self.expected, "got": self.got}


def clip(text: str, limit: int = 80) -> str:
    """Escape and truncate `text` for a message, so that a huge value cannot fill a context or a log."""
    text = text if text.isprintable() else text.encode("ascii", "backslashreplace").decode("ascii")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def safe_str(error: BaseException) -> str:
    """Return `str(error)`, or an empty string if the exception's `__str__` fails."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        return ""
