"""The arguments of a call → what a person reads before deciding about it: every key, and nothing that hides.

Lives here: shortening of long values with a note of how much is left out, and characters that are not seen or that
turn the order of others, shown by their numbers. Not here: the question itself, or who asks it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

_LONGEST: Final = 500
"""Characters of one value, or one key, that are shown."""
_MOST: Final = 50
"""Items of a list that are shown."""
_PLAIN: Final = re.compile(r"[^\n\x20-\x7e\xa1-\xac\xae-\u024f]")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Unicode has them drawn as nothing, though they are letters and marks by their kind.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def legible(text: str) -> str:
    """Return a text in which everything is seen, in the order it has; ends of lines stay."""
    return _PLAIN.sub(_told, text)


def _told(found: re.Match[str]) -> str:
    character = found[0]
    if unicodedata.category(character) not in _HIDDEN and not _BLANK.match(character):
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - four digits


def arguments_shown(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call for a person: every key is there, and a long value says how long it is."""
    return _written(dict(arguments))


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_short(str(key))}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        items = [_written(item) for item in value[:_MOST]]
        if len(value) > _MOST:
            items.append(f"[… {len(value) - _MOST} more of {len(value)} items …]")
        return "[" + ", ".join(items) + "]"
    return _short(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    note = ""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        note = f" [… {len(text) - 2 * half} of {len(text)} characters left out …] "
        head, tail = text[:half], text[-half:]
    else:
        head, tail = text, ""
    if isinstance(value, str):
        head, tail = json.dumps(head, ensure_ascii=False), json.dumps(tail, ensure_ascii=False) if tail else ""
    return legible(head) + note + legible(tail)
