"""Values → the words that an error has for them: short, and safe to print.

Lives here: shortening, and one thing that is wrong with arguments. Not here: the errors (`errors`).
"""

from __future__ import annotations

from typing import NamedTuple


class ArgumentProblem(NamedTuple):
    """One thing that is wrong with the arguments."""

    path: str
    """Where, as a JSON path: `$.items[2].count`."""
    message: str
    """What is wrong, in words."""
    expected: str
    """What fits here, e.g. `integer`."""
    got: str
    """What came, e.g. `string "abc"`."""

    def to_dict(self) -> dict[str, str]:
        """Return the problem as the model reads it."""
        return {"path": self.path, "message": self.message, "expected": self.expected, "got": self.got}


def clip(text: str, limit: int = 80) -> str:
    """Shorten `text` for a message, so that a huge value cannot fill a context or a log."""
    text = text if text.isprintable() else text.encode("ascii", "backslashreplace").decode("ascii")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def safe_str(error: BaseException) -> str:
    """Return `str(error)`, also for an exception whose own `__str__` fails or cannot be encoded."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception:  # noqa: BLE001 - a broken __str__ must not replace the error that it describes
        return ""
