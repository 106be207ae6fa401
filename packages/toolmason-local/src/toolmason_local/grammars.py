"""Build GBNF grammars and JSON Schemas that constrain the output of llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_STRING_CHARS: Final = 80
MAX_LIST_ITEMS: Final = 8
_MAX_DEPTH: Final = 24
_TIME: Final = "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"


def format_literal(text: str) -> str:
    """Return a string as a terminal of a grammar."""
    escaped = "".join(_escape_character(character) for character in text)
    return f'"{escaped}"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    # Escape control and non-ASCII characters by code point, so that any parser accepts them.
    return character if " " <= character <= "~" else f"\\U{ord(character):08X}"


def limit_lengths(schema: Any, depth: int = 0) -> Any:
    """Return a schema that bounds the output: strings and lists get a maximum length, objects no extra keys."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {"type": "string", "maxLength": MAX_STRING_CHARS} if depth > _MAX_DEPTH else schema
    limited: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            limited[key] = {name: limit_lengths(part, depth + 1) for name, part in value.items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            limited[key] = [limit_lengths(part, depth + 1) for part in value]
        elif key == "items":
            limited[key] = limit_lengths(value, depth + 1)
        else:
            limited[key] = value
    kind = limited.get("type")
    if kind == "string" and limited.get("format") == "time":
        # llama.cpp would also demand a time zone, which no request mentions.
        return {"type": "string", "pattern": _TIME}
    if kind == "string" and "enum" not in limited and "const" not in limited and "pattern" not in limited:
        limited["maxLength"] = min(_int_or_default(limited.get("maxLength"), MAX_STRING_CHARS), MAX_STRING_CHARS)
    elif kind == "array":
        max_items = min(_int_or_default(limited.get("maxItems"), MAX_LIST_ITEMS), MAX_LIST_ITEMS)
        limited["maxItems"] = max(max_items, _int_or_default(limited.get("minItems"), 0))
    elif kind == "object" and "properties" in limited:
        limited["additionalProperties"] = False
    return limited


def _int_or_default(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
