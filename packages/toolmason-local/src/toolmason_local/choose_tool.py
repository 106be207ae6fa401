"""Choose the tool that the user's text asks for, or none.

Similarity of words decides clear cases; the model decides ties and doubtful matches. Words alone choose better than
this model alone (0.97 against 0.83 on one half of BFCL `multiple`).
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

# Tuned on the half of BFCL that the figures in the docs do not use.
MIN_SCORE: Final = -0.05
"""Below this similarity to every tool, none is called."""
CERTAIN_SCORE: Final = 0.05
"""From this similarity on, the tool is called without asking the model."""
_TIE_MARGIN: Final = 0.03
"""Maximum difference in similarity between tied tools."""
_MIN_GAIN: Final = 2.0
"""Minimum increase of the text's mean log-probability per token, given the tool, to accept a doubtful match."""
_MODEL_WEIGHT: Final = 0.02
"""Weight of the model's gain beside the similarity."""
_MAX_CANDIDATES: Final = 3
_MAX_TEXT_CHARS: Final = 1500
_MAX_NOTE_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Candidate:
    """Tool with its similarity to the text."""

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
    """Return the tool that the text asks for, or None; with `required`, always return a tool if there is one.

    If the model fails, similarity alone decides.
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
    """Return the tools that tie with the most similar one, best first, then by name."""
    scored = [Candidate(tool, score) for tool, score in zip(tools, score_similarity(text, tools), strict=True)]
    scored.sort(key=lambda candidate: (-candidate.score, candidate.tool.name))
    return [candidate for candidate in scored if candidate.score > scored[0].score - _TIE_MARGIN][:_MAX_CANDIDATES]


def _decide_with_model(
    writer: TextGenerator, text: str, candidates: Sequence[Candidate], *, required: bool
) -> ToolDefinition | None:
    request_text = escape_special_tokens(text[-_MAX_TEXT_CHARS:])
    baseline = writer.score_text("User request:", request_text)
    gains = [writer.score_text(_make_prompt(candidate.tool), request_text) - baseline for candidate in candidates]
    scores = [candidate.score + _MODEL_WEIGHT * gain for candidate, gain in zip(candidates, gains, strict=True)]
    best = scores.index(max(scores))
    if required or candidates[best].score >= CERTAIN_SCORE or gains[best] > _MIN_GAIN:
        return candidates[best].tool
    return None


def _make_prompt(tool: ToolDefinition) -> str:
    note = " ".join(escape_special_tokens(tool.description).split())[:_MAX_NOTE_CHARS]
    return f"Function {escape_special_tokens(tool.name)}: {note}\nUser request to this function:"
