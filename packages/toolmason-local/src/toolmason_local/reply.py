"""Decide the reply to a conversation with tools: calls, an answer from results, or an intent such as a greeting.

The adapter writes one line at a time. A grammar offers only the names of the tools, the schema of a tool constrains its
arguments, and a string that nearly repeats words of the request is replaced by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pydantic_core import from_json

from toolmason import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models import ToolChoice
from toolmason.models.lexical.similarity import score_similarity
from toolmason_local.grammars import format_literal, limit_lengths
from toolmason_local.grounding import (
    choose_named,
    copy_strings,
    drop_unmentioned,
    has_unknown_code,
    is_mentioned,
    offer_phrases,
)
from toolmason_local.prompts import CALL, INTENTS, SAY, Intent, Turn, format_prompt
from toolmason_local.smallest_values import find_smallest, is_valid
from toolmason_local.writer import Completion, GenerationLimits, TextGenerator

MAX_TOOLS: Final = 8
"""Maximum tools in a prompt: of more, those whose words are the most similar to the request."""
MAX_CALLS: Final = 4
"""Maximum calls in one reply."""
MIN_CALL_PROBABILITY: Final = 0.6
"""Minimum probability of a call: a wrong call costs more than a missing one."""
MIN_NONE_PROBABILITY: Final = 0.8
"""Probability of "no tool fits" below which a call is made whose values the request mentions."""
MIN_INVENTED_PROBABILITY: Final = 0.995
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
    kind = must or ("any" if turns[-1].role == "tool" else "first")
    first = writer.generate(prompt, _make_first_limits(offered, kind))
    is_free = must is None and writer.has_adapter
    if first.text.startswith(SAY):
        return Reply(text=first.text.removeprefix(SAY).strip())
    for intent in INTENTS:
        if first.text == intent:
            is_doubtful = is_free and intent == "none" and first.probability < MIN_NONE_PROBABILITY
            return _find_grounded_call(writer, offered, turns) if is_doubtful else Reply(intent=intent)
    if is_free and first.probability < MIN_CALL_PROBABILITY:
        return Reply(intent="none")
    conversation = " ".join(turn.text for turn in turns)
    return _CallWriter(writer, offered, request, conversation, may_decline=is_free).write(prompt, first)


@dataclass(frozen=True, slots=True)
class _CallWriter:
    """Writer of the calls of a reply, one line after another."""

    generator: TextGenerator
    tools: Sequence[ToolDefinition]
    request: str
    conversation: str
    may_decline: bool
    """True if the reply may be that no tool fits."""

    def write(self, prompt: str, first: Completion) -> Reply:
        """Return the calls that begin with a first line, or that no tool fits."""
        calls: list[tuple[str, dict[str, Any]]] = []
        line = first.text
        while line.strip():
            tool = next(tool for tool in self.tools if tool.name == line.strip().removeprefix(CALL).strip())
            prompt += f"{line} "
            arguments, written = fill_arguments(self.generator, tool, prompt, self.request)
            if arguments is None or (tool.name, arguments) in calls or self._adds_unknown_code(calls, arguments):
                break
            if self.may_decline:
                is_doubtful = not calls and first.probability < MIN_INVENTED_PROBABILITY
                if is_doubtful and not is_mentioned(arguments, tool.input_schema, self.conversation):
                    return Reply(intent="none")
                arguments, written = self._replace_invented(tool, prompt, arguments, written)
            calls.append((tool.name, arguments))
            if len(calls) == MAX_CALLS:
                break
            prompt += written
            limits = GenerationLimits(grammar=f'root ::= ("\\n{CALL}" ({_join_names(self.tools)}))?', max_tokens=40)
            line = self.generator.generate(prompt, limits).text
        return Reply(tuple(calls))

    def _adds_unknown_code(self, calls: Sequence[tuple[str, dict[str, Any]]], arguments: Mapping[str, Any]) -> bool:
        """Return True if a further call is invented: after "2 TEA-01 and 4 CUP-01", CUP-02 for "And 5 TEA-02?"."""
        is_named = not any(has_unknown_code(made, self.request) for _, made in calls)
        return bool(calls) and has_unknown_code(arguments, self.request if is_named else self.conversation)

    def _replace_invented(
        self, tool: ToolDefinition, prompt: str, arguments: dict[str, Any], written: str
    ) -> tuple[dict[str, Any], str]:
        """Return the arguments with phrases of the request for strings that do not occur in the conversation."""
        narrow = offer_phrases(arguments, tool.input_schema, self.request, self.conversation)
        if narrow is None:
            return arguments, written
        filled, rewritten = fill_arguments(self.generator, replace(tool, input_schema=narrow), prompt, self.request)
        return (arguments, written) if filled is None else (filled, rewritten)


def _find_grounded_call(writer: TextGenerator, tools: Sequence[ToolDefinition], turns: Sequence[Turn]) -> Reply:
    """Return the most probable call if the request mentions all of its values, or else that no tool fits."""
    reply = decide_reply(writer, tools, turns, must="call")
    if len(reply.calls) == 1:
        ((name, arguments),) = reply.calls
        schema = next(tool.input_schema for tool in tools if tool.name == name)
        if arguments and is_mentioned(arguments, schema, turns[-1].text):
            return reply
    return Reply(intent="none")


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
            values = drop_unmentioned(choose_named(values, schema, request), schema, request)
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
