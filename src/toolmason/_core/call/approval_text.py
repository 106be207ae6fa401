"""Format a call's arguments for the person who approves it: every key is shown, and hidden characters are escaped."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

_MAX_CHARS: Final = 500
"""Maximum number of characters shown of one value or key."""
_MAX_ITEMS: Final = 50
"""Maximum number of list items shown."""
_NOT_PLAIN: Final = re.compile(r"[^\n\x20-\x7e\xa1-\xac\xae-\u024f]")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Rendered as blank by Unicode, although their category is letter or mark.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escape_hidden(text: str) -> str:
    """Escape invisible and direction-changing characters. Line breaks stay."""
    return _NOT_PLAIN.sub(_escape_character, text)


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) not in _HIDDEN_CATEGORIES and not _BLANK.match(character):
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - four digits


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments as text. Every key is present, and a truncated value states its length."""
    return _format_value(dict(arguments))


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_format_scalar(str(key))}: {_format_value(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        items = [_format_value(item) for item in value[:_MAX_ITEMS]]
        if len(value) > _MAX_ITEMS:
            items.append(f"[… {len(value) - _MAX_ITEMS} more of {len(value)} items …]")
        return "[" + ", ".join(items) + "]"
    return _format_scalar(value)


def _format_scalar(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    note = ""
    if len(text) > _MAX_CHARS:
        half = _MAX_CHARS // 2
        note = f" [… {len(text) - 2 * half} of {len(text)} characters left out …] "
        head, tail = text[:half], text[-half:]
    else:
        head, tail = text, ""
    if isinstance(value, str):
        head, tail = json.dumps(head, ensure_ascii=False), json.dumps(tail, ensure_ascii=False) if tail else ""
    return escape_hidden(head) + note + escape_hidden(tail)
