"""Score the similarity of text to tools by their words, deterministically and without a model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from toolmason._core.values.definition import ToolDefinition

_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)
_CODE: Final = re.compile(r"\S*\d\S*")
_HOW_MUCH: Final = re.compile(r"\bhow much (?:is|are|does|do|for)\b", re.IGNORECASE)
"""The usual question for a price consists of stop words only, so it is replaced by "price"."""
_CAMEL_BOUNDARY: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STOP_WORDS: Final = frozenset(
    {
        *("a", "an", "the", "of", "in", "on", "for", "to", "and", "or", "is", "are", "was", "what", "which", "how"),
        *("much", "many", "do", "does", "did", "i", "me", "my", "we", "you", "your", "please", "can", "could", "would"),
        *("will", "it", "its", "this", "that", "with", "from", "by", "at", "as", "be", "tell", "give", "show", "get"),
        *("find", "if", "have", "has", "using", "use", "given", "want", "need", "should", "some", "any"),
        *("all", "there"),
        *("when", "where", "who", "then", "than", "into", "let", "let's", "am", "were", "been", "so", "just", "about"),
    }
)
_SUFFIXES: Final = (
    *("ations", "ation", "ating", "ators", "ator", "ated", "ates", "ate", "ities", "ity", "ingly", "ings", "ing"),
    *("ments", "ment", "ness", "ies", "ied", "ers", "er", "ed", "es", "ly", "al", "s", "e", "y"),
)
_MIN_STEM_CHARS: Final = 3

Location: TypeAlias = Literal["name", "description", "parameter", "parameter_text", "choices"]
"""Location of a string in a tool's definition."""
_WEIGHTS: Final[Mapping[Location, float]] = {
    "name": 1.2,
    "description": 1.0,
    "choices": 0.6,
    "parameter": 0.5,
    "parameter_text": 0.4,
}
"""Weight of a word by its location, tuned on the half of BFCL that the published figures do not use."""
_PARTIAL_WEIGHT: Final = 0.4
"""Weight of a synonym, or of a word that shares only a prefix with one of the tool's words."""
_SYNONYM_GROUPS: Final = (
    *(("price", "cost", "quote", "expensive"), ("delete", "remove", "cancel", "erase"), ("create", "make", "new")),
    *(("buy", "purchase", "order"), ("search", "look", "list", "lookup"), ("send", "mail", "write"), ("big", "size")),
    *(("weather", "forecast", "temperature", "warm", "cold"), ("time", "clock", "hour"), ("rate", "exchange")),
    *(("sum", "add", "plus"), ("product", "article", "item"), ("money", "currency", "dollar", "euro")),
    *(("route", "direction", "way"), ("book", "reserve", "reservation"), ("compute", "calculate"), ("fix", "repair")),
)
_PREFIX_CHARS: Final = 4
NO_OVERLAP: Final = -1.0
"""Similarity of text that shares no word with a tool."""
_LENGTH_PENALTY: Final = 0.03
"""Penalty for a long description, which would match anything."""


def _make_synonyms() -> dict[str, frozenset[str]]:
    synonyms: dict[str, frozenset[str]] = {}
    for group in _SYNONYM_GROUPS:
        group_stems = frozenset(map(stem, group))
        for word in group_stems:
            synonyms[word] = synonyms.get(word, frozenset()) | group_stems
    return synonyms


def extract_stems(text: str) -> list[str]:
    """Return the stems of the words of the text, without stop words."""
    words = (word.casefold() for word in _WORD.findall(_CAMEL_BOUNDARY.sub(" ", text)))
    return [stem(word) for word in words if word not in _STOP_WORDS and len(word) > 1]


def extract_words(text: str, *, exclude: Container[str]) -> list[str]:
    """Return the words of the text unchanged, without stop words and excluded stems."""
    return [
        word
        for word in _WORD.findall(text)
        if word.casefold() not in _STOP_WORDS and len(word) > 1 and stem(word.casefold()) not in exclude
    ]


def stem(word: str) -> str:
    """Return a word without its suffix."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM_CHARS:
            return word[: -len(suffix)]
    return word


def get_synonyms(word: str) -> frozenset[str]:
    """Return the synonymous stems, including the word's own; empty if none are known."""
    return _SYNONYMS.get(word, frozenset())


def weigh_stems(tool: ToolDefinition) -> dict[str, float]:
    """Return the stems in a tool's definition, each with its highest weight."""
    weights: dict[str, float] = {}
    for location, text in iter_texts(tool):
        for word_stem in extract_stems(text):
            weights[word_stem] = max(weights.get(word_stem, 0.0), _WEIGHTS[location])
    return weights


def iter_texts(tool: ToolDefinition) -> Iterator[tuple[Location, str]]:
    """Yield the strings of a tool's definition, each with its location."""
    yield "name", tool.name
    yield "description", tool.description
    for name, part in get_properties(tool.input_schema).items():
        yield "parameter", name
        yield "parameter_text", str(part.get("description", ""))
        choices = part.get("enum")
        if isinstance(choices, list):
            yield "choices", " ".join(map(str, choices))


def get_properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the properties of a schema; a property without constraints has an empty schema."""
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    return {str(name): part if isinstance(part, Mapping) else {} for name, part in found.items()}


def score_similarity(text: str, tools: Iterable[ToolDefinition]) -> list[float]:
    """Return the similarity of the text to each tool: below 0 hardly similar, 1 nearly identical."""
    weights_by_tool = [weigh_stems(tool) for tool in tools]
    document_counts = Counter(word for tool_weights in weights_by_tool for word in tool_weights)
    # Words with digits ("TEA-01", "3", "2024-05-01") are values and say nothing about the tool.
    query_stems = sorted(set(extract_stems(_CODE.sub(" ", _HOW_MUCH.sub("price", text)))))
    rarity = {
        word: math.log(1 + (len(weights_by_tool) + 1) / (0.5 + document_counts[word]))
        for word in {*document_counts, *query_stems}
    }
    total = sum(rarity[word] for word in query_stems) or 1.0
    scores = [_score_tool(query_stems, tool_weights, rarity) / total for tool_weights in weights_by_tool]
    return [
        score - _LENGTH_PENALTY * math.log1p(len(tool_weights)) if score else NO_OVERLAP
        for score, tool_weights in zip(scores, weights_by_tool, strict=True)
    ]


def _score_tool(query_stems: Sequence[str], tool_weights: Mapping[str, float], rarity: Mapping[str, float]) -> float:
    score = 0.0
    for word in query_stems:
        if word in tool_weights:
            score += rarity[word] * tool_weights[word]
        elif len(word) >= _PREFIX_CHARS:
            synonyms = get_synonyms(word)
            near = [w for w in tool_weights if w[:_PREFIX_CHARS] == word[:_PREFIX_CHARS] or w in synonyms]
            score += max((_PARTIAL_WEIGHT * tool_weights[w] * rarity[w] for w in near), default=0.0)
    return score


_SYNONYMS: Final = _make_synonyms()
