"""Tools → an index that finds them by what they do: BM25, on this machine, with no model.

Lives here: the index. It takes the words of `likeness`, so that a search and a choice see the same ones.
Not here: when a chat searches, and what it offers (`toolmason.chat.search`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from toolmason._core.values.definition import ToolDefinition
from toolmason.models.lexical.similarity import kin_of, properties_of, stems

_SATURATION, _LENGTH = 1.2, 0.75
"""BM25's usual k1 and b."""
_NAME, _DESCRIPTION, _PARAMETER = 3, 2, 1
"""How often a word counts, by where it stands."""
_KIN: Final = 0.4
"""What a word counts that only means about the same as the one that was asked for."""


class ToolIndex:
    """Definitions, found by words."""

    def __init__(self, tools: Iterable[ToolDefinition]) -> None:
        self.tools = tuple(tools)
        self.names = frozenset(tool.name for tool in self.tools)
        self._places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths: list[int] = []
        for place, tool in enumerate(self.tools):
            counts = _counted(tool)
            lengths.append(sum(counts.values()))
            for word, count in counts.items():
                self._places[word].append((place, count))
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [_SATURATION * (1 - _LENGTH + _LENGTH * length / (mean or 1.0)) for length in lengths]

    def find(self, query: str, most: int = 8) -> list[ToolDefinition]:
        """Return the tools that fit a query best, the best first; those that share no word with it are left out."""
        scores: defaultdict[int, float] = defaultdict(float)
        exact = query.strip().casefold()
        for word in dict.fromkeys(stems(query)):
            for term, weight in ((word, 1.0), *((other, _KIN) for other in kin_of(word) if other != word)):
                for place, gain in self._gains(term):
                    scores[place] += weight * gain
        for place, tool in enumerate(self.tools):
            if tool.name.casefold() == exact:
                scores[place] = math.inf
        best = sorted(scores, key=lambda place: (-scores[place], self.tools[place].name))
        return [self.tools[place] for place in best[: max(0, most)]]

    def _gains(self, word: str) -> Iterable[tuple[int, float]]:
        there = self._places.get(word, ())
        rare = math.log(1 + (len(self.tools) - len(there) + 0.5) / (len(there) + 0.5))
        for place, count in there:
            yield place, rare * count * (_SATURATION + 1) / (count + self._norms[place])


def _counted(tool: ToolDefinition) -> Counter[str]:
    counts: Counter[str] = Counter()
    texts = [(tool.name, _NAME), (tool.description, _DESCRIPTION)]
    for name, part in properties_of(tool.input_schema).items():
        texts += [(name, _PARAMETER), (str(part.get("description", "")), _PARAMETER)]
    for text, weight in texts:
        for word in stems(text):
            counts[word] += weight
    return counts
