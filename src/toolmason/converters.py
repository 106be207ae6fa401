"""Ready-made `converter=` functions: `(value, return_type) -> str`.

A converter decides what the model reads; the application still receives the original value.
"""

from __future__ import annotations

from typing import Any

from toolmason._core.call.render import check_finite, to_json_bytes

__all__ = ["as_json", "quoted_json", "text"]


def text(value: Any, return_type: Any) -> str:
    """Convert a value with `str()`."""
    del return_type
    return str(value)


def as_json(value: Any, return_type: Any) -> str:
    """Convert a value to indented JSON. A string is returned unchanged."""
    del return_type
    return value if isinstance(value, str) else _json(value, indent=2)


def quoted_json(value: Any, return_type: Any) -> str:
    """Convert every value to JSON, including strings. `None` becomes `"Done"`."""
    del return_type
    return '"Done"' if value is None else _json(value)


def _json(value: Any, indent: int | None = None) -> str:
    data = to_json_bytes(value, indent)
    check_finite(value, data)
    return data.decode()
