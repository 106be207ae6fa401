"""What a value may be → a grammar that lets a model write nothing else.

Lives here: GBNF, as llama.cpp reads it, for choices and for pieces of a text; a schema with an end to its strings.
Not here: asking a model (`engine`), or which grammar fits a parameter (`filling`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_PIECE: Final = re.compile(r"\S+")
_BEFORE: Final = re.compile(r"^[^\w$€£#@+-]+")
_AFTER: Final = re.compile(r"(?:['\u2019]s)?[^\w%)!+#]*$")
MOST_WORDS: Final = 90
"""A text with more words than this is read from its end: a grammar of all its pieces would be slow."""
LONGEST_STRING: Final = 80
LONGEST_LIST: Final = 8
_DEEP: Final = 24


def literal(text: str) -> str:
    """Return a text as a terminal of a grammar."""
    shown = "".join(_character(character) for character in text)
    return f'"{shown}"'


def _character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    # Control characters and what lies outside of ASCII are written by number, so that no reader can trip over them.
    return character if " " <= character <= "~" else f"\\U{ord(character):08X}"


def any_of(values: Iterable[Any]) -> str:
    """Return the grammar of some JSON values."""
    return "root ::= " + " | ".join(literal(json.dumps(value, ensure_ascii=False)) for value in values)


def piece_of(text: str) -> str | None:
    """Return the grammar of a JSON string that is some words of a text, in a row; `None` where it has no words."""
    rules = _pieces(text)
    return None if rules is None else "\n".join(["root ::= piece", *rules])


def pieces_of(text: str) -> str | None:
    """Return the grammar of a JSON list of such strings, up to as many as a list may have."""
    rules = _pieces(text)
    if rules is None:
        return None
    return "\n".join([f'root ::= "[" piece (", " piece){{0,{LONGEST_LIST - 1}}} "]"', *rules])


def _pieces(text: str) -> list[str] | None:
    words = _PIECE.findall(text)[-MOST_WORDS:]
    rules: list[str] = []
    starts: list[str] = []
    for place, word in enumerate(words):
        core = _AFTER.sub("", word)
        first = _BEFORE.sub("", core)
        if first:
            starts.append(f"s{place}")
            rules.append(f"s{place} ::= {_quoted(first)} {_rest(word, core, place, len(words))}")
        rules.append(f"w{place} ::= {_quoted(core or word)} {_rest(word, core or word, place, len(words))}")
    if not starts:
        return None
    return [f'piece ::= "\\"" ({" | ".join(starts)}) "\\""', *rules]


def _rest(word: str, core: str, place: int, size: int) -> str:
    if place + 1 >= size:
        return ""
    return f"({_quoted(word[len(core) :] + ' ')} w{place + 1})?"


def _quoted(text: str) -> str:
    return literal(json.dumps(text, ensure_ascii=False)[1:-1])


def bounded(schema: Any, depth: int = 0) -> Any:
    """Return a schema under which a model comes to an end: strings and lists have a length, objects no strangers."""
    if not isinstance(schema, Mapping) or depth > _DEEP:
        return {"type": "string", "maxLength": LONGEST_STRING} if depth > _DEEP else schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            made[key] = {name: bounded(part, depth + 1) for name, part in value.items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            made[key] = [bounded(part, depth + 1) for part in value]
        elif key == "items":
            made[key] = bounded(value, depth + 1)
        else:
            made[key] = value
    kind = made.get("type")
    if kind == "string" and "enum" not in made and "const" not in made and "pattern" not in made:
        made["maxLength"] = min(_number(made.get("maxLength"), LONGEST_STRING), LONGEST_STRING)
    elif kind == "array":
        most = min(_number(made.get("maxItems"), LONGEST_LIST), LONGEST_LIST)
        made["maxItems"] = max(most, _number(made.get("minItems"), 0))
    elif kind == "object" and "properties" in made:
        made["additionalProperties"] = False
    return made


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
