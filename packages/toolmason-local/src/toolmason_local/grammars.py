"""What a value may be → a grammar that lets a model write nothing else.

Lives here: GBNF, as llama.cpp reads it, for choices and for pieces of a text; a schema with an end to its strings.
Not here: asking a model (`engine`), or which grammar fits a parameter (`filling`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_WORD: Final = re.compile(r"\S+")
_BEFORE: Final = re.compile(r"^[^\w$€£#@+-]+")
_AFTER: Final = re.compile(r"(?:['\u2019]s)?[^\w%)!+#]*$")
MAX_WORDS: Final = 90
"""A text with more words than this is read from its end: a grammar of all its pieces would be slow."""
MAX_STRING_CHARS: Final = 80
MAX_LIST_ITEMS: Final = 8
_MAX_DEPTH: Final = 24


def format_literal(text: str) -> str:
    """Return a text as a terminal of a grammar."""
    escaped = "".join(_escape_character(character) for character in text)
    return f'"{escaped}"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    # Control characters and what lies outside of ASCII are written by number, so that no reader can trip over them.
    return character if " " <= character <= "~" else f"\\U{ord(character):08X}"


def make_choice_grammar(values: Iterable[Any]) -> str:
    """Return the grammar of some JSON values."""
    return "root ::= " + " | ".join(format_literal(json.dumps(value, ensure_ascii=False)) for value in values)


def make_phrase_grammar(text: str) -> str | None:
    """Return the grammar of a JSON string that is some words of a text, in a row; `None` where it has no words."""
    rules = _make_phrase_rules(text)
    return None if rules is None else "\n".join(["root ::= piece", *rules])


def make_phrase_list_grammar(text: str) -> str | None:
    """Return the grammar of a JSON list of such strings, up to as many as a list may have."""
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
    """Return a schema under which a model comes to an end: strings and lists have a length, objects no strangers."""
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
