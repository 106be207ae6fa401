"""Build GBNF grammars and JSON Schemas that constrain the output of llama.cpp."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_WORD: Final = re.compile(r"\S+")
_BEFORE: Final = re.compile(r"^[^\w$€£#@+-]+")
_AFTER: Final = re.compile(r"(?:['\u2019]s)?[^\w%)!+#]*$")
MAX_WORDS: Final = 90
"""Maximum words in a grammar, counted from the end of the text; a grammar of all its phrases would be slow."""
MAX_STRING_CHARS: Final = 80
MAX_LIST_ITEMS: Final = 8
_MAX_DEPTH: Final = 24


def format_literal(text: str) -> str:
    """Return a string as a terminal of a grammar."""
    escaped = "".join(_escape_character(character) for character in text)
    return f'"{escaped}"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    # Escape control and non-ASCII characters by code point, so that any parser accepts them.
    return character if " " <= character <= "~" else f"\\U{ord(character):08X}"


def make_choice_grammar(values: Iterable[Any]) -> str:
    """Return a grammar that accepts one of some JSON values."""
    return "root ::= " + " | ".join(format_literal(json.dumps(value, ensure_ascii=False)) for value in values)


def make_phrase_grammar(text: str) -> str | None:
    """Return a grammar for a JSON string of consecutive words of the text, or None if it has no words."""
    rules = _make_phrase_rules(text)
    return None if rules is None else "\n".join(["root ::= piece", *rules])


def make_phrase_list_grammar(text: str) -> str | None:
    """Return a grammar for a JSON list of such strings, up to `MAX_LIST_ITEMS`."""
    rules = _make_phrase_rules(text)
    if rules is None:
        return None
    return "\n".join([f'root ::= "[" piece (", " piece){{0,{MAX_LIST_ITEMS - 1}}} "]"', *rules])


def _make_phrase_rules(text: str) -> list[str] | None:
    words = _WORD.findall(text)[-MAX_WORDS:]
    rules: list[str] = []
    starts: list[str] = []
    for index, word in enumerate(words):
        core = _AFTER.sub("", word)
        first = _BEFORE.sub("", core)
        if first:
            starts.append(f"s{index}")
            rules.append(f"s{index} ::= {_quote(first)} {_make_continuation(word, core, index, len(words))}")
        rules.append(f"w{index} ::= {_quote(core or word)} {_make_continuation(word, core or word, index, len(words))}")
    if not starts:
        return None
    return [f'piece ::= "\\"" ({" | ".join(starts)}) "\\""', *rules]


def _make_continuation(word: str, core: str, index: int, size: int) -> str:
    if index + 1 >= size:
        return ""
    return f"({_quote(word[len(core) :] + ' ')} w{index + 1})?"


def _quote(text: str) -> str:
    return format_literal(json.dumps(text, ensure_ascii=False)[1:-1])


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
