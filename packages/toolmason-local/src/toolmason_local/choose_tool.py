"""A text and tools → the tool to call, or none.

Lives here: words decide where they are clear. Where two tools are about as like the text, or where it is doubtful that
any is meant, the model decides, "none" among the choices. Words alone choose better than this model alone (0.97 against
0.83 on a half of BFCL `multiple`), so it is asked only about what they leave open. Not here: words (`likeness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolmason import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models import ToolChoice
from toolmason.models.lexical.similarity import score_similarity
from toolmason_local.writer import TextGenerator, escape_special_tokens

# Found on the half of BFCL that the figures in the docs do not come from.
MIN_SCORE: Final = -0.05
"""Less like any tool than this: none is meant."""
CERTAIN_SCORE: Final = 0.05
"""More like a tool than this: it is meant."""
_TIE_MARGIN: Final = 0.03
"""Two tools that are less apart than this are a tie."""
_MIN_GAIN: Final = 2.0
"""By how much a tool must make a text likelier, as a log-probability of each token, before a doubt is over."""
_MODEL_WEIGHT: Final = 0.02
_MAX_CANDIDATES: Final = 3
_MAX_TEXT_CHARS, _MAX_NOTE_CHARS = 1500, 300


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool, and how like the text it is."""

    tool: ToolDefinition
    score: float


def filter_allowed(tools: Sequence[ToolDefinition], choice: ToolChoice | None) -> list[ToolDefinition]:
    """Return the tools that may be called."""
    if choice is None:
        return list(tools)
    return [] if choice.mode == "none" else [tool for tool in tools if not choice.names or tool.name in choice.names]


def choose_tool(
    writer: TextGenerator, text: str, tools: Sequence[ToolDefinition], *, required: bool = False
) -> ToolDefinition | None:
    """Return the tool that a text asks for; with `must`, always one of them.

    A model that cannot be asked leaves it to the words.
    """
    candidates = shortlist(text[-_MAX_TEXT_CHARS:], tools)
    if not candidates or (candidates[0].score < MIN_SCORE and not required):
        return None
    if len(candidates) == 1 and (required or candidates[0].score >= CERTAIN_SCORE):
        return candidates[0].tool
    try:
        return _decide_with_model(writer, text, candidates, required=required)
    except ModelError:
        return candidates[0].tool if required or candidates[0].score >= CERTAIN_SCORE else None


def shortlist(text: str, tools: Sequence[ToolDefinition]) -> list[Candidate]:
    """Return the tools that are about as like a text as the best one, the best first; ties by name."""
    scored = [Candidate(tool, score) for tool, score in zip(tools, score_similarity(text, tools), strict=True)]
    scored.sort(key=lambda one: (-one.score, one.tool.name))
    return [candidate for candidate in scored if candidate.score > scored[0].score - _TIE_MARGIN][:_MAX_CANDIDATES]


def _decide_with_model(
    writer: TextGenerator, text: str, candidates: Sequence[Candidate], *, required: bool
) -> ToolDefinition | None:
    request_text = escape_special_tokens(text[-_MAX_TEXT_CHARS:])
    baseline = writer.score_text("User request:", request_text)
    gains = [writer.score_text(_make_prompt(candidate.tool), request_text) - baseline for candidate in candidates]
    scores = [
        (one.score + _MODEL_WEIGHT * gain, -index)
        for index, (one, gain) in enumerate(zip(candidates, gains, strict=True))
    ]
    place = -max(scores)[1]
    if required or candidates[place].score >= CERTAIN_SCORE or gains[place] > _MIN_GAIN:
        return candidates[place].tool
    return None


def _make_prompt(tool: ToolDefinition) -> str:
    note = " ".join(escape_special_tokens(tool.description).split())[:_MAX_NOTE_CHARS]
    return f"Function {escape_special_tokens(tool.name)}: {note}\nUser request to this function:"
