"""A text and tools → the tool to call, or none.

Lives here: words decide where they are clear. Where two tools are about as like the text, or where it is doubtful that
any is meant, the model decides, "none" among the choices. Words alone choose better than this model alone (0.97 against
0.83 on a half of BFCL `multiple`), so it is asked only about what they leave open. Not here: words (`likeness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolmason._core.toolbox.exchange import ToolChoice
from toolmason._core.values.definition import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models.lexical.similarity import likeness
from toolmason_local.writer import Writer, harmless

# Found on the half of BFCL that the figures in the docs do not come from.
NEVER: Final = -0.05
"""Less like any tool than this: none is meant."""
SURELY: Final = 0.05
"""More like a tool than this: it is meant."""
_CLOSE: Final = 0.03
"""Two tools that are less apart than this are a tie."""
_CONVINCED: Final = 2.0
"""By how much a tool must make a text likelier, as a log-probability of each token, before a doubt is over."""
_MODEL_WEIGHT: Final = 0.02
_MOST_ASKED: Final = 3
_LONGEST_TEXT, _LONGEST_NOTE = 1500, 300


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool, and how like the text it is."""

    tool: ToolDefinition
    score: float


def allowed(tools: Sequence[ToolDefinition], choice: ToolChoice | None) -> list[ToolDefinition]:
    """Return the tools that may be called."""
    if choice is None:
        return list(tools)
    return [] if choice.mode == "none" else [tool for tool in tools if not choice.names or tool.name in choice.names]


def chosen(writer: Writer, text: str, tools: Sequence[ToolDefinition], *, must: bool = False) -> ToolDefinition | None:
    """Return the tool that a text asks for; with `must`, always one of them.

    A model that cannot be asked leaves it to the words.
    """
    best = shortlist(text[-_LONGEST_TEXT:], tools)
    if not best or (best[0].score < NEVER and not must):
        return None
    if len(best) == 1 and (must or best[0].score >= SURELY):
        return best[0].tool
    try:
        return _decided(writer, text, best, must=must)
    except ModelError:
        return best[0].tool if must or best[0].score >= SURELY else None


def shortlist(text: str, tools: Sequence[ToolDefinition]) -> list[Candidate]:
    """Return the tools that are about as like a text as the best one, the best first; ties by name."""
    scored = [Candidate(tool, score) for tool, score in zip(tools, likeness(text, tools), strict=True)]
    scored.sort(key=lambda one: (-one.score, one.tool.name))
    return [one for one in scored if one.score > scored[0].score - _CLOSE][:_MOST_ASKED]


def _decided(writer: Writer, text: str, best: Sequence[Candidate], *, must: bool) -> ToolDefinition | None:
    asked = harmless(text[-_LONGEST_TEXT:])
    none = writer.likelihood("User request:", asked)
    gains = [writer.likelihood(_prompt(one.tool), asked) - none for one in best]
    both = [
        (one.score + _MODEL_WEIGHT * gain, -place) for place, (one, gain) in enumerate(zip(best, gains, strict=True))
    ]
    place = -max(both)[1]
    if must or best[place].score >= SURELY or gains[place] > _CONVINCED:
        return best[place].tool
    return None


def _prompt(tool: ToolDefinition) -> str:
    note = " ".join(harmless(tool.description).split())[:_LONGEST_NOTE]
    return f"Function {harmless(tool.name)}: {note}\nUser request to this function:"
