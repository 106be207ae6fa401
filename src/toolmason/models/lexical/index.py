"""BM25 index that finds tools by their names, descriptions and parameters.

It uses the same stems as `similarity`, so that a search and a choice see the same words.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from toolmason._core.values.definition import ToolDefinition
from toolmason.models.lexical.similarity import Location, extract_stems, get_synonyms, iter_texts

# Standard BM25 parameters k1 and b.
_K1: Final = 1.2
_B: Final = 0.75
_WEIGHTS: Final[Mapping[Location, int]] = {"name": 3, "description": 2, "parameter": 1, "parameter_text": 1}
"""Weight of a word by its location in the definition."""
_SYNONYM_WEIGHT: Final = 0.4
"""Weight of a synonym of a query word."""


class ToolIndex:
    """Search index of tool definitions."""

    def __init__(self, tools: Iterable[ToolDefinition]) -> None:
        self.tools = tuple(tools)
        self.names = frozenset(tool.name for tool in self.tools)
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths: list[int] = []
        for index, tool in enumerate(self.tools):
            counts = _count_terms(tool)
            lengths.append(sum(counts.values()))
            for word, count in counts.items():
                self._postings[word].append((index, count))
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [_K1 * (1 - _B + _B * length / (mean or 1.0)) for length in lengths]

    def find(self, query: str, limit: int = 8) -> list[ToolDefinition]:
        """Return the best matches for a query, best first; tools that share no word with it are omitted."""
        scores: defaultdict[int, float] = defaultdict(float)
        exact = query.strip().casefold()
        for word in dict.fromkeys(extract_stems(query)):
            synonyms = [(synonym, _SYNONYM_WEIGHT) for synonym in get_synonyms(word) if synonym != word]
            for term, weight in [(word, 1.0), *synonyms]:
                for index, gain in self._score_term(term):
                    scores[index] += weight * gain
        for index, tool in enumerate(self.tools):
            if tool.name.casefold() == exact:
                scores[index] = math.inf
        ranked = sorted(scores, key=lambda index: (-scores[index], self.tools[index].name))
        return [self.tools[index] for index in ranked[: max(0, limit)]]

    def _score_term(self, word: str) -> Iterable[tuple[int, float]]:
        postings = self._postings.get(word, ())
        idf = math.log(1 + (len(self.tools) - len(postings) + 0.5) / (len(postings) + 0.5))
        for index, count in postings:
            yield index, idf * count * (_K1 + 1) / (count + self._norms[index])


def _count_terms(tool: ToolDefinition) -> Counter[str]:
    counts: Counter[str] = Counter()
    for location, text in iter_texts(tool):
        if weight := _WEIGHTS.get(location):
            for word in extract_stems(text):
                counts[word] += weight
    return counts
