"""A stand-in for a model: no download, no network, no thinking. It matches words.

Lives here: which tool a text is most like, arguments that can be read off the text, an answer made from results. The
same text gives the same answer. It is for tests, CI and the first minute, and it says so. Not here: a real model.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from toolmason._core.toolbox.exchange import (
    CallClosed,
    CallOpened,
    Finished,
    ModelEvent,
    ModelReply,
    ModelRequest,
    TextDelta,
)
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall

_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)")
_QUOTED: Final = re.compile(r"\"([^\"]+)\"|'([^']+)'|“([^”]+)”")
_CODE: Final = re.compile(r"\b[A-Z0-9]+(?:-[A-Z0-9]+)+\b")
_NAME: Final = re.compile(r"(?<!^)(?<![.!?]\s)\b[A-Z][\w-]+(?:\s+[A-Z][\w-]+)*")
_STOP_WORDS: Final = frozenset(
    {
        *("a", "an", "the", "of", "in", "on", "for", "to", "and", "or", "is", "are", "was", "what", "which", "how"),
        *("much", "many", "do", "does", "did", "i", "me", "my", "we", "you", "your", "please", "can", "could", "would"),
        *("will", "it", "this", "that", "with", "from", "by", "at", "as", "be", "tell", "give", "show", "s"),
    }
)
MIN_SCORE: Final = 0.12
"""A text that is less like a tool than this is answered without one."""
NOTICE: Final = "I only match words and call tools; I am no language model."


class OfflineModel:
    """A stand-in that matches words. Deterministic."""

    name = "offline"

    def __init__(self) -> None:
        self._call_count = 0

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Call the tool that the last text is most like, or say what came of the calls."""
        last = request.messages[-1] if request.messages else Message("user", "")
        if last.results:
            return ModelReply(Message("assistant", _format_results(last)))
        text = last.text
        tool = _choose_tool(text, request)
        if tool is None:
            there = ", ".join(definition.name for definition in request.tools[:8]) or "none"
            return ModelReply(Message("assistant", f"{NOTICE} Nothing here fits. The tools are: {there}."))
        self._call_count += 1
        call = ToolCall(f"offline_{self._call_count}", tool.name, extract_arguments(tool, text))
        return ModelReply(Message("assistant", (), [call]), finish="calls")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Do the same, piece by piece."""
        reply = await self.respond(request)
        for piece in re.findall(r"\S+\s*", reply.text):
            yield TextDelta(piece)
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            yield CallClosed(call)
        yield Finished(reply)


def _format_results(message: Message) -> str:
    lines = []
    for result in message.results:
        if result.error is not None:
            lines.append(f"{result.name} did not work: {result.error.message}")
        else:
            lines.append(f"{result.name}: {result.text}")
    return "\n".join(lines)


def _choose_tool(text: str, request: ModelRequest) -> ToolDefinition | None:
    choice = request.tool_choice
    if choice is not None and choice.mode == "none":
        return None
    tools = [t for t in request.tools if choice is None or not choice.names or t.name in choice.names]
    if not tools:
        return None
    scored = sorted(((-score, tool.name, tool) for tool, score in rank_tools(text, tools)), key=lambda item: item[:2])
    best = scored[0]
    forced = choice is not None and choice.mode == "required"
    return best[2] if -best[0] >= MIN_SCORE or forced else None


def rank_tools(text: str, tools: Iterable[ToolDefinition]) -> list[tuple[ToolDefinition, float]]:
    """Return how like each tool a text is, from 0 to 1: shared words, the rarer the heavier."""
    tool_list = list(tools)
    stem_counts = [Counter(_extract_stems(_describe_tool(tool))) for tool in tool_list]
    document_counts = Counter(word for bag in stem_counts for word in bag)
    query_stems = Counter(_extract_stems(text))

    def weight(word: str) -> float:
        return math.log(1 + (len(tool_list) + 1) / (1 + document_counts[word]))

    total = sum(weight(word) for word in query_stems) or 1.0
    return [
        (tool, sum(weight(word) for word in query_stems if word in bag) / total)
        for tool, bag in zip(tool_list, stem_counts, strict=True)
    ]


def _describe_tool(tool: ToolDefinition) -> str:
    parts = tool.input_schema.get("properties", {})
    words = [tool.name, tool.name, tool.description]
    for name, part in parts.items():
        words += [name, str(part.get("description", "")), " ".join(map(str, part.get("enum", ())))]
    return " ".join(words).replace("_", " ")


def _extract_stems(text: str) -> list[str]:
    words = (word.casefold() for word in _WORD.findall(text))
    return [_stem(word) for word in words if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    for end in ("ing", "ed", "es", "s"):
        if word.endswith(end) and len(word) > len(end) + 2:
            return word[: -len(end)]
    return word


def extract_arguments(tool: ToolDefinition, text: str) -> dict[str, Any]:
    """Return the arguments of a tool that can be read off a text; what cannot is left out."""
    numbers = [float(found) for found in _NUMBER.findall(_CODE.sub(" ", text))]
    quoted = [next(filter(None, groups)) for groups in _QUOTED.findall(text)]
    names = [*quoted, *_CODE.findall(text), *_NAME.findall(text)]
    required = tool.input_schema.get("required", ())
    found: dict[str, Any] = {}
    for name, part in tool.input_schema.get("properties", {}).items():
        value = _extract_value(part, text, numbers, names)
        if value is None and name in required and _get_kind(part) == "string":
            value = _extract_rest(text, tool)
        if value is not None:
            found[name] = value
    return found


def _extract_value(part: Mapping[str, Any], text: str, numbers: list[float], names: list[str]) -> Any:
    if "enum" in part:
        words = {word.casefold() for word in _WORD.findall(text)}
        return next((item for item in part["enum"] if str(item).casefold() in words), None)
    kind = _get_kind(part)
    if kind == "integer":
        whole = next((n for n in numbers if n.is_integer()), None)
        if whole is None:
            return None
        numbers.remove(whole)
        return int(whole)
    if kind == "number":
        return numbers.pop(0) if numbers else None
    if kind == "string":
        return names.pop(0) if names else None
    return None


def _get_kind(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if isinstance(kind, str):
        return kind
    kinds = [branch.get("type") for branch in part.get("anyOf", ()) if isinstance(branch, dict)]
    return next((str(branch_type) for branch_type in kinds if branch_type not in (None, "null")), "")


def _extract_rest(text: str, tool: ToolDefinition) -> str:
    """Return what a text says beyond the tool itself."""
    tool_stems = set(_extract_stems(_describe_tool(tool)))
    words = [
        word
        for word in _WORD.findall(text)
        if word.casefold() not in _STOP_WORDS and _stem(word.casefold()) not in tool_stems
    ]
    return " ".join(words) or text.strip()
