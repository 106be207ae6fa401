"""Decide the reply to a conversation with tools: calls, an answer from results, or an intent such as a greeting.

The adapter writes one line at a time. A grammar offers only the names of the tools, the schema of a tool constrains its
arguments, and a string that nearly repeats words of the request is replaced by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic_core import from_json

from toolmason import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models import ToolChoice
from toolmason.models.lexical.similarity import score_similarity
from toolmason_local.grammars import format_literal, limit_lengths
from toolmason_local.grounding import copy_strings, drop_unmentioned, has_unknown_code, is_mentioned
from toolmason_local.prompts import CALL, INTENTS, SAY, Intent, Turn, format_prompt
from toolmason_local.smallest_values import find_smallest, is_valid
from toolmason_local.writer import GenerationLimits, TextGenerator

MAX_TOOLS: Final = 8
"""Maximum tools in a prompt: of more, those whose words are the most similar to the request."""
MAX_CALLS: Final = 4
"""Maximum calls in one reply."""
MIN_CALL_PROBABILITY: Final = 0.6
"""Minimum probability of a call: a wrong call costs more than a missing one."""
MIN_INVENTED_PROBABILITY: Final = 0.98
"""Minimum probability of a call with a value that the request does not mention."""
_MAX_SAY_TOKENS: Final = 70
_MAX_ARGUMENT_TOKENS: Final = 220


@dataclass(frozen=True, slots=True)
class Reply:
    """Calls with their arguments, or else an intent, or else text."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    intent: Intent | None = None
    text: str = ""


def filter_allowed(tools: Sequence[ToolDefinition], choice: ToolChoice | None) -> list[ToolDefinition]:
    """Return the tools that may be called."""
    if choice is None:
        return list(tools)
    return [] if choice.mode == "none" else [tool for tool in tools if not choice.names or tool.name in choice.names]


def decide_reply(
    writer: TextGenerator,
    tools: Sequence[ToolDefinition],
    turns: Sequence[Turn],
    *,
    must: Literal["call", "say"] | None = None,
) -> Reply:
    """Return the reply to a conversation; with `must`, always a call, or always a sentence.

    Raises:
        ModelError: llama.cpp failed.
    """
    request = next((turn.text for turn in reversed(turns) if turn.role == "user"), "")
    offered = shortlist(tools, request)
    prompt = format_prompt(offered, turns, is_trained=writer.has_adapter)
    first = writer.generate(
        prompt, _make_first_limits(offered, must or ("any" if turns[-1].role == "tool" else "first"))
    )
    line = first.text
    if must is None and writer.has_adapter and line.startswith(CALL) and first.probability < MIN_CALL_PROBABILITY:
        return Reply(intent="none")
    if line.startswith(SAY):
        return Reply(text=line.removeprefix(SAY).strip())
    for intent in INTENTS:
        if line == intent:
            return Reply(intent=intent)
    calls: list[tuple[str, dict[str, Any]]] = []
    while line.strip():
        tool = next(tool for tool in offered if tool.name == line.strip().removeprefix(CALL).strip())
        prompt += f"{line} "
        arguments, written = fill_arguments(writer, tool, prompt, request)
        if arguments is None or (tool.name, arguments) in calls:
            break
        # After "2 TEA-01 and 4 CUP-01", the model may add CUP-02 to "And 5 TEA-02?".
        is_named = not any(has_unknown_code(made, request) for _, made in calls)
        if calls and has_unknown_code(arguments, request if is_named else " ".join(turn.text for turn in turns)):
            break
        is_doubtful = not calls and must is None and writer.has_adapter and first.probability < MIN_INVENTED_PROBABILITY
        if is_doubtful and not is_mentioned(arguments, tool.input_schema, request):
            return Reply(intent="none")
        calls.append((tool.name, arguments))
        if len(calls) == MAX_CALLS:
            break
        prompt += written
        limits = GenerationLimits(grammar=f'root ::= ("\\n{CALL}" ({_join_names(offered)}))?', max_tokens=40)
        line = writer.generate(prompt, limits).text
    return Reply(tuple(calls))


def fill_arguments(
    writer: TextGenerator, tool: ToolDefinition, prompt: str, request: str
) -> tuple[dict[str, Any] | None, str]:
    """Return arguments that match the tool's schema, or None, and the text that the model wrote."""
    schema = tool.input_schema
    if not schema.get("properties"):
        return ({}, "{}") if is_valid({}, schema) else (_find_smallest(schema), "{}")
    written = ""
    values: Any = None
    try:
        limits = GenerationLimits(schema=limit_lengths(schema), max_tokens=_MAX_ARGUMENT_TOKENS)
        written = writer.generate(prompt, limits).text
        values = copy_strings(from_json(written), schema, request)
        if isinstance(values, dict):
            values = drop_unmentioned(values, schema, request)
    except (ModelError, ValueError):
        # llama.cpp cannot convert every schema to a grammar, and a long value may be cut.
        values = None
    if isinstance(values, dict) and is_valid(values, schema):
        return values, written
    required = {
        name: values[name] for name in schema.get("required", ()) if isinstance(values, dict) and name in values
    }
    if required and is_valid(required, schema):
        return required, written
    return _find_smallest(schema), written


def shortlist(tools: Sequence[ToolDefinition], request: str) -> list[ToolDefinition]:
    """Return the tools for a prompt, in their order."""
    if len(tools) <= MAX_TOOLS:
        return list(tools)
    scores = score_similarity(request, tools)
    best = sorted(range(len(tools)), key=lambda index: -scores[index])[:MAX_TOOLS]
    return [tools[index] for index in sorted(best)]


def _make_first_limits(
    tools: Sequence[ToolDefinition], kind: Literal["call", "say", "any", "first"]
) -> GenerationLimits:
    """Return the limits of the first line: the intents are replies to a request only, not to a result."""
    call, say = f'"{CALL}" ({_join_names(tools)})', f'"{SAY}" [^\\n]+'
    intents = " | ".join(format_literal(intent) for intent in INTENTS)
    root = {"call": call, "say": say, "any": f"{call} | {say}", "first": f"{call} | {intents}"}[kind]
    return GenerationLimits(grammar=f"root ::= {root}", max_tokens=_MAX_SAY_TOKENS)


def _join_names(tools: Sequence[ToolDefinition]) -> str:
    return " | ".join(format_literal(tool.name) for tool in tools)


def _find_smallest(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    smallest = find_smallest(schema, schema)
    return smallest if isinstance(smallest, dict) else None
