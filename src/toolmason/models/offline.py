"""Deterministic model stand-in that matches keywords, without a download or network access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, iter_reply_events
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.models.lexical.extraction import find_choices, find_codes, find_names, find_numbers, find_quoted
from toolmason.models.lexical.similarity import extract_words, get_properties, score_similarity, weigh_stems

MIN_SCORE: Final = 0.05
"""Minimum similarity of a tool to the prompt; if no tool reaches it, no tool is called."""
NOTICE: Final = "I'm not a language model, I only match keywords."


class OfflineModel:
    """Model stand-in that matches keywords. The same prompt always gets the same answer."""

    name = "offline"

    def __init__(self) -> None:
        self._call_count = 0

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Call the tool that is most similar to the last message, or repeat the results of the calls.

        A typed answer has the values that the message and the results contain.
        """
        last = request.messages[-1] if request.messages else Message("user", "")
        answer = None if request.answer is None else request.answer.definition
        if last.results and answer is None:
            return ModelReply(Message("assistant", _format_results(last)))
        tool = None if last.results else _choose_tool(last.text, request)
        if answer is not None and (tool is None or tool.name == answer.name):
            prompt = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
            text = "\n".join([*(result.text for result in last.results), prompt])
            return ModelReply(Message("assistant", to_json(extract_arguments(answer, text)).decode()))
        if tool is None:
            names = ", ".join(definition.name for definition in request.tools[:8]) or "none"
            return ModelReply(Message("assistant", f"{NOTICE} No tool matches. Tools: {names}."))
        self._call_count += 1
        call = ToolCall(f"offline_{self._call_count}", tool.name, extract_arguments(tool, last.text))
        return ModelReply(Message("assistant", (), [call]), finish="calls")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the same answer as events, word by word."""
        for event in iter_reply_events(await self.respond(request)):
            yield event


def _format_results(message: Message) -> str:
    return "\n".join(map(_format_result, message.results))


def _format_result(result: ToolResult) -> str:
    if result.error is None:
        return f"{result.name}: {result.text}"
    said = result.error.message
    return said if said.startswith(result.name) else f"{result.name} failed: {said}"


def _choose_tool(text: str, request: ModelRequest) -> ToolDefinition | None:
    choice = request.tool_choice
    if choice is not None and choice.mode == "none":
        return None
    tools = [tool for tool in request.tools if choice is None or not choice.names or tool.name in choice.names]
    if not tools:
        return None
    scores = score_similarity(text, tools)
    best = scores.index(max(scores))
    is_required = choice is not None and choice.mode == "required"
    return tools[best] if scores[best] >= MIN_SCORE or is_required else None


def extract_arguments(tool: ToolDefinition, text: str) -> dict[str, Any]:
    """Return the arguments of a tool that the text contains; the others are omitted."""
    numbers = find_numbers(text)
    names = [*find_quoted(text), *find_codes(text), *find_names(text)]
    required = tool.input_schema.get("required", ())
    arguments: dict[str, Any] = {}
    for name, part in get_properties(tool.input_schema).items():
        value = _extract_value(part, text, numbers, names)
        if value is None and name in required and _get_type(part) == "string":
            value = " ".join(extract_words(text, exclude=weigh_stems(tool))) or text.strip()
        if value is not None:
            arguments[name] = value
    return arguments


def _extract_value(part: Mapping[str, Any], text: str, numbers: list[float], names: list[str]) -> Any:
    if isinstance(choices := part.get("enum"), Sequence):
        return next(iter(find_choices(text, choices)), None)
    kind = _get_type(part)
    if kind == "string":
        return names.pop(0) if names else None
    if kind not in ("integer", "number"):
        return None
    value = next((number for number in numbers if kind == "number" or number.is_integer()), None)
    if value is None:
        return None
    numbers.remove(value)
    return int(value) if kind == "integer" else value


def _get_type(part: Mapping[str, Any]) -> str:
    kinds = [part.get("type"), *(branch.get("type") for branch in part.get("anyOf", ()) if isinstance(branch, dict))]
    return next((kind for kind in kinds if isinstance(kind, str) and kind != "null"), "")
