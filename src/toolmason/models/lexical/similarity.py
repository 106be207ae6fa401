"""A text and tools → how like each of them the text is, by words alone.

Lives here: words, their stems, what a tool is described by and how heavily, the score. No model is asked, and the same
text gives the same numbers. Not here: who is chosen (`choosing`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolmason._core.values.definition import ToolDefinition

_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)
_CODE: Final = re.compile(r"\S*\d\S*")
_HOW_MUCH: Final = re.compile(r"\bhow much (?:is|are|does|do|for)\b", re.IGNORECASE)
"""The usual way to ask for a price names none: its words are among the common ones."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMON: Final = frozenset(
    {
        *("a", "an", "the", "of", "in", "on", "for", "to", "and", "or", "is", "are", "was", "what", "which", "how"),
        *("much", "many", "do", "does", "did", "i", "me", "my", "we", "you", "your", "please", "can", "could", "would"),
        *("will", "it", "its", "this", "that", "with", "from", "by", "at", "as", "be", "tell", "give", "show", "get"),
        *(
            "find",
            "if",
            "have",
            "has",
            "using",
            "use",
            "given",
            "want",
            "need",
            "should",
            "some",
            "any",
            "all",
            "there",
        ),
        *("when", "where", "who", "then", "than", "into", "let", "let's", "am", "were", "been", "so", "just", "about"),
    }
)
_ENDS: Final = (
    *("ations", "ation", "ating", "ators", "ator", "ated", "ates", "ate", "ities", "ity", "ingly", "ings", "ing"),
    *("ments", "ment", "ness", "ies", "ied", "ers", "er", "ed", "es", "ly", "al", "s", "e", "y"),
)
_LEAST_STEM: Final = 3

# How heavy a word is, by where a tool has it: found on the half of BFCL that the figures do not come from.
_NAME, _DESCRIPTION, _CHOICES, _PARAMETER, _PARAMETER_TEXT = 1.2, 1.0, 0.6, 0.5, 0.4
_ALIKE: Final = 0.4
"""What a word counts that only begins like one of the tool's, or means about the same."""
_SAME: Final = (
    *(("price", "cost", "quote", "expensive"), ("delete", "remove", "cancel", "erase"), ("create", "make", "new")),
    *(("buy", "purchase", "order"), ("search", "look", "list", "lookup"), ("send", "mail", "write"), ("big", "size")),
    *(("weather", "forecast", "temperature", "warm", "cold"), ("time", "clock", "hour"), ("rate", "exchange")),
    *(("sum", "add", "plus"), ("product", "article", "item"), ("money", "currency", "dollar", "euro")),
    *(("route", "direction", "way"), ("book", "reserve", "reservation"), ("compute", "calculate"), ("fix", "repair")),
)
_BEGINNING: Final = 4
NOTHING_SHARED: Final = -1.0
_LENGTH: Final = 0.03
"""What a tool pays for a long description, which would match anything."""


def _kin() -> dict[str, frozenset[str]]:
    made: dict[str, frozenset[str]] = {}
    for group in _SAME:
        own = frozenset(map(stem, group))
        for word in own:
            made[word] = made.get(word, frozenset()) | own
    return made


def stems(text: str) -> list[str]:
    """Return the words of a text that say something, without their endings."""
    words = (word.casefold() for word in _WORD.findall(_HUMP.sub(" ", text)))
    return [stem(word) for word in words if word not in _COMMON and len(word) > 1]


def stem(word: str) -> str:
    """Return a word without its ending."""
    for end in _ENDS:
        if word.endswith(end) and len(word) - len(end) >= _LEAST_STEM:
            return word[: -len(end)]
    return word


def kin_of(word: str) -> frozenset[str]:
    """Return the stems that mean about the same, the word's own among them; nothing where none are known."""
    return _KIN.get(word, frozenset())


def bag_of(tool: ToolDefinition) -> dict[str, float]:
    """Return the stems of what a tool says of itself, each with the weight of its best place."""
    bag: dict[str, float] = {}

    def add(text: str, weight: float) -> None:
        for found in stems(text):
            bag[found] = max(bag.get(found, 0.0), weight)

    add(tool.name, _NAME)
    add(tool.description, _DESCRIPTION)
    for name, part in properties_of(tool.input_schema).items():
        add(name, _PARAMETER)
        add(str(part.get("description", "")), _PARAMETER_TEXT)
        choices = part.get("enum")
        add(" ".join(map(str, choices)) if isinstance(choices, list) else "", _CHOICES)
    return bag


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the properties of a schema; one that allows anything has an empty schema."""
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    return {str(name): part if isinstance(part, Mapping) else {} for name, part in found.items()}


def likeness(text: str, tools: Iterable[ToolDefinition]) -> list[float]:
    """Return how like each tool a text is; below 0 is hardly, 1 is as good as word for word."""
    bags = [bag_of(tool) for tool in tools]
    known = Counter(word for bag in bags for word in bag)
    # What has digits in it is a value, and says nothing about the tool: "TEA-01", "3", "2024-05-01".
    asked = sorted(set(stems(_CODE.sub(" ", _HOW_MUCH.sub("price", text)))))
    weights = {word: math.log(1 + (len(bags) + 1) / (0.5 + known[word])) for word in {*known, *asked}}
    total = sum(weights[word] for word in asked) or 1.0
    scores = [_score(asked, bag, weights) / total for bag in bags]
    return [
        score - _LENGTH * math.log1p(len(bag)) if score else NOTHING_SHARED
        for score, bag in zip(scores, bags, strict=True)
    ]


def _score(asked: Sequence[str], bag: Mapping[str, float], weights: Mapping[str, float]) -> float:
    score = 0.0
    for word in asked:
        if word in bag:
            score += weights[word] * bag[word]
        elif len(word) >= _BEGINNING:
            kin = kin_of(word)
            near = [w for w in bag if w[:_BEGINNING] == word[:_BEGINNING] or w in kin]
            score += max((_ALIKE * bag[w] * weights[w] for w in near), default=0.0)
    return score


_KIN: Final = _kin()
