"""Keep the arguments that a model wrote close to the request.

A model of this size sometimes swaps letters (`TAE-02` for `TEA-02`), or sets optional arguments that the request does
not mention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any, Final

from toolmason.models.lexical.extraction import find_numbers
from toolmason.models.lexical.similarity import extract_stems
from toolmason_local.smallest_values import resolve

_MIN_RATIO: Final = 0.8
"""Minimum similarity of a string to the words that replace it."""
_MIN_CHARS: Final = 3
_MAX_WORDS: Final = 200
_WORD: Final = re.compile(r"\S+")
_DIGITS: Final = re.compile(r"\d+")
_CODE: Final = re.compile(r"(?=\S*[^\W\d_])\S*\d\S*")
"""String without spaces that has letters and digits."""
_ENGLISH: Final = frozenset(
    {
        *("the", "a", "an", "in", "of", "is", "are", "for", "to", "my", "what", "how", "with", "and", "please", "me"),
        *("i", "show", "on", "at", "from"),
    }
)
"""Words by which an English request is recognized: choices are compared with words of English requests only."""
_ORDINALS: Final = frozenset(
    {"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "last"}
)
_AMOUNTS: Final = {"week": 7.0, "fortnight": 14.0, "dozen": 12.0, "couple": 2.0, "pair": 2.0, "once": 1.0, "twice": 2.0}
"""Words that stand for a number."""
_FIXED_FORM: Final = frozenset({"enum", "const", "format", "pattern"})
"""Keywords of strings that are not words of the request: the request says "quarter past nine", the value is "09:15"."""
_MAX_PHRASES: Final = 120
_MAX_PHRASE_WORDS: Final = 4
_EDGES: Final = ".,;:!?\"'()[]{}«»“”„¿¡"


def copy_strings(values: Any, schema: Mapping[str, Any], request: str, root: Mapping[str, Any] | None = None) -> Any:
    """Return arguments whose strings are written as in the request, if they nearly occur in it."""
    root = schema if root is None else root
    part = resolve(schema, root)
    if isinstance(values, dict):
        properties = part.get("properties") or {}
        return {name: copy_strings(value, properties.get(name, {}), request, root) for name, value in values.items()}
    if isinstance(values, list):
        return [copy_strings(value, part.get("items", {}), request, root) for value in values]
    return find_copy(values.strip(), request) if isinstance(values, str) and is_free_text(part) else values


def is_free_text(part: Mapping[str, Any]) -> bool:
    """Return True if a schema admits any words, not only choices, dates or times."""
    return part.keys().isdisjoint(_FIXED_FORM)


def choose_named(values: Mapping[str, Any], schema: Mapping[str, Any], request: str) -> dict[str, Any]:
    """Return arguments with the choices that the request names, also if the model left them out."""
    stems, named = set(extract_stems(request)), dict(values)
    for name, part in (schema.get("properties") or {}).items():
        choices = resolve(part, schema).get("enum") or ()
        found = [
            one for one in choices if isinstance(one, str) and (words := extract_stems(one)) and stems.issuperset(words)
        ]
        if len(found) == 1:
            named[name] = found[0]
    return named


def find_copy(text: str, request: str) -> str:
    """Return the words of the request that a string nearly repeats, or the text."""
    at = request.casefold().find(text.casefold())
    if text and at >= 0 and len(request.casefold()) == len(request):
        return request[at : at + len(text)]
    if len(text) < _MIN_CHARS:
        return text
    words = list(_WORD.finditer(request))[-_MAX_WORDS:]
    size = len(text.split())
    best, best_ratio = text, _MIN_RATIO
    for count in {max(1, size - 1), size, size + 1}:
        for start in range(len(words) - count + 1):
            phrase = request[words[start].start() : words[start + count - 1].end()].strip(_EDGES)
            matcher = SequenceMatcher(None, text.casefold(), phrase.casefold(), autojunk=False)
            if matcher.real_quick_ratio() > best_ratio and (ratio := matcher.ratio()) > best_ratio:
                best, best_ratio = phrase, ratio
    return best


def offer_phrases(
    values: Mapping[str, Any], schema: Mapping[str, Any], request: str, conversation: str
) -> dict[str, Any] | None:
    """Return the schema with phrases of the request as the choices of each string that the conversation does not have.

    Return None if it has all strings, or if the request has too many phrases.
    """
    properties, words = schema.get("properties") or {}, _Words(conversation)
    unknown = [
        name
        for name, value in values.items()
        if isinstance(value, str)
        and is_free_text(resolve(properties.get(name, {}), schema))
        and not words.mention(name, value, {})
    ]
    phrases = _find_phrases(request) if unknown else []
    if not 0 < len(phrases) <= _MAX_PHRASES:
        return None
    return {**schema, "properties": {**properties, **{name: {"type": "string", "enum": phrases} for name in unknown}}}


def _find_phrases(request: str) -> list[str]:
    """Return the words of a request, and each sequence of some of them."""
    words = list(_WORD.finditer(request))
    spans = (
        request[words[start].start() : words[end].end()].strip(_EDGES).removesuffix("'s")
        for start in range(len(words))
        for end in range(start, min(start + _MAX_PHRASE_WORDS, len(words)))
    )
    return list(dict.fromkeys(filter(None, spans)))


def drop_unmentioned(values: dict[str, Any], schema: Mapping[str, Any], request: str) -> dict[str, Any]:
    """Return the arguments without optional ones that the request does not mention, except booleans.

    A request expresses a boolean in its way: "nothing fancy" for `formal=false`.
    """
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    words = _Words(request)
    return {
        name: value
        for name, value in values.items()
        if name in required
        or isinstance(value, bool)
        or words.mention(name, value, resolve(properties.get(name, {}), schema))
    }


def is_mentioned(values: Mapping[str, Any], schema: Mapping[str, Any], request: str) -> bool:
    """Return True if the request mentions every value; the model chooses booleans and choices itself."""
    properties, words = schema.get("properties") or {}, _Words(request)
    parts = {name: resolve(properties.get(name, {}), schema) for name in values}
    return all(
        isinstance(value, bool) or "enum" in parts[name] or words.mention(name, value, parts[name])
        for name, value in values.items()
    )


def has_unknown_code(values: Any, text: str) -> bool:
    """Return True if a string with a digit, such as a number of an article, does not occur in `text`."""
    if isinstance(values, dict | list):
        return any(has_unknown_code(one, text) for one in (values.values() if isinstance(values, dict) else values))
    return isinstance(values, str) and bool(_CODE.fullmatch(values)) and values.casefold() not in text.casefold()


class _Words:
    """Words and numbers of a request."""

    def __init__(self, request: str) -> None:
        self.text = request.casefold()
        plain = re.findall(r"\w+", self.text)
        self.stems = set(extract_stems(request)) | set(plain)
        self.is_english = not _ENGLISH.isdisjoint(plain)
        self.has_ordinal = not _ORDINALS.isdisjoint(plain)
        self.numbers = {*find_numbers(request)} | {
            float(digits)
            for digits in _DIGITS.findall(request)
            if len(digits) < 16  # noqa: PLR2004 - exact as a float
        }
        self.numbers |= {_AMOUNTS[word] for word in plain if word in _AMOUNTS}

    def mention(self, name: str, value: Any, part: Mapping[str, Any]) -> bool:
        """Return True if the request mentions a value of a parameter."""
        if isinstance(value, bool):
            return not self.is_english or not self.stems.isdisjoint(extract_stems(name))
        if isinstance(value, int | float):
            return float(value) in self.numbers or not self.is_english or (self.has_ordinal and abs(value) <= 10)  # noqa: PLR2004 - the ordinals above
        if isinstance(value, str):
            is_choice = "enum" in part or "const" in part
            return self._mention_text(value) or (is_choice and not self.is_english)
        if isinstance(value, list):
            return any(self.mention(name, item, {}) for item in value)
        return True

    def _mention_text(self, value: str) -> bool:
        if not value or value.casefold() in self.text or not self.stems.isdisjoint(extract_stems(value)):
            return bool(value)
        return any(float(digits) in self.numbers for digits in _DIGITS.findall(value)[:8])
