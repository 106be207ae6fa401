"""Format a call's arguments for the person who approves it: every key is shown, and hidden characters are escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from toolmason._text import escape_hidden

_MAX_CHARS: Final = 500
"""Maximum number of characters shown of one value or key."""
_MAX_ITEMS: Final = 50
"""Maximum number of list items shown."""


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments as text. Every key is present, and a truncated value states its length."""
    return _format_value(dict(arguments))


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{_format_scalar(str(key))}: {_format_value(item)}" for key, item in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        items = [_format_value(item) for item in value[:_MAX_ITEMS]]
        if len(value) > _MAX_ITEMS:
            items.append(f"[… {len(value) - _MAX_ITEMS} more of {len(value)} items …]")
        return "[" + ", ".join(items) + "]"
    return _format_scalar(value)


def _format_scalar(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    is_string = isinstance(value, str)
    if len(text) <= _MAX_CHARS:
        return _format_text(text, quoted=is_string)
    half = _MAX_CHARS // 2
    note = f" [… {len(text) - 2 * half} of {len(text)} characters left out …] "
    return _format_text(text[:half], quoted=is_string) + note + _format_text(text[-half:], quoted=is_string)


def _format_text(text: str, *, quoted: bool) -> str:
    return escape_hidden(json.dumps(text, ensure_ascii=False) if quoted else text)
