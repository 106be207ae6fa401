"""Read lists, the words around numbers and whole names from text."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic_core import from_json

from toolmason.models.lexical.extraction import FoundNumber

_LIST: Final = re.compile(r"\[[^\[\]]{0,500}\]|\(\s*-?\d+(?:\.\d+)?(?:\s*,\s*-?\d+(?:\.\d+)?){1,50}\s*\)")
_NAME_OF_SEVERAL_WORDS: Final = re.compile(r"(?<!^)(?<![.!?:]\s)\b[A-Z][\w-]*(?: [A-Z][\w-]*)+")
_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)


def get_nearby_words(text: str, number: FoundNumber) -> tuple[str, ...]:
    """Return the words around a number: following words first, then the preceding ones, nearest first."""
    after = [word.casefold() for word in _WORD.findall(text[number.end : number.end + 40])][:2]
    before = [word.casefold() for word in _WORD.findall(text[max(0, number.start - 40) : number.start])][-3:]
    return (*after, *reversed(before))


def find_lists(text: str) -> list[list[Any]]:
    """Return the lists written out in the text, such as `[1, 2, 3]` or `(1, 2)`."""
    found = []
    for match in _LIST.findall(text):
        inner = match[1:-1].strip()
        try:
            found.append(from_json(f"[{inner}]"))
        except ValueError:
            found.append([item.strip().strip("'\"") for item in inner.split(",") if item.strip()])
    return [value for value in found if value]


def expand_name(value: str, text: str) -> str:
    """Return the full name that a value is part of, such as "New York City" for "New York"."""
    for match in _NAME_OF_SEVERAL_WORDS.finditer(text):
        name = match[0]
        if value != name and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", name) and value[:1].isupper():
            return name
    return value
