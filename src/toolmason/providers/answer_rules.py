"""Typed answers by provider: the models that enforce a schema on their answer, and the fields that request one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolmason._core.toolbox.exchange import AnswerFormat, ModelRequest
from toolmason._core.values.definition import ToolDefinition
from toolmason.errors import ConfigError
from toolmason.providers.schema.losses import NarrowedSchema
from toolmason.providers.schema.narrow import SharedParts
from toolmason.providers.tool_set import ProviderRules


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """One provider's rules for typed answers."""

    models: str
    """Regular expression for the names of the models that enforce a schema on their answer."""
    models_with_tools: str
    """The same for requests that also offer tools."""
    format_schema: Callable[[AnswerFormat], dict[str, Any]]
    """Returns the fields of the body with the schema of an answer. Each value is a dict."""


def _format_openai(answer: AnswerFormat) -> dict[str, Any]:
    schema = {"type": "json_schema", "name": answer.definition.name, "schema": answer.schema, "strict": True}
    return {"text": {"format": schema}}


def _format_openai_chat(answer: AnswerFormat) -> dict[str, Any]:
    schema = {"name": answer.definition.name, "schema": answer.schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _format_anthropic(answer: AnswerFormat) -> dict[str, Any]:
    return {"output_config": {"format": {"type": "json_schema", "schema": answer.schema}}}


def _format_gemini(answer: AnswerFormat) -> dict[str, Any]:
    return {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": answer.schema}}


_OPENAI: Final = r"(openai/|ft:)?(gpt-(4o|4\.|[5-9])|o[1-9]\b)"
_ANTHROPIC: Final = r"claude-(opus-4-[1-9]|(sonnet|haiku)-4-[5-9]|(opus|sonnet|haiku)-([5-9]|\d\d))\b"
_GEMINI: Final = r"(models/)?gemini-(2\.5|[3-9]|\d\d)"
_RULES: Final[Mapping[str, AnswerRules]] = {
    "openai": AnswerRules(_OPENAI, _OPENAI, _format_openai),
    "openai-chat": AnswerRules(_OPENAI, _OPENAI, _format_openai_chat),
    "anthropic": AnswerRules(_ANTHROPIC, _ANTHROPIC, _format_anthropic),
    # Gemini 2.5 rejects a schema together with tools.
    "gemini": AnswerRules(_GEMINI, r"(models/)?gemini-([3-9]|\d\d)", _format_gemini),
}


def choose_answer(
    rules: ProviderRules | None, definition: ToolDefinition, model: str, request: ModelRequest
) -> AnswerFormat:
    """Return how to request a typed answer: the first way that keeps the meaning of its schema.

    `rules` are those of the model's provider, or None if it has none. `model` is the full name of the model.

    Raises:
        ConfigError: the option `answer` names a way that is unknown or not supported.
    """
    wanted, schema = request.options.get("answer"), definition.input_schema
    answers = _RULES.get(rules.provider) if rules is not None and rules.has_tools else None
    if rules is not None and answers is not None and wanted in (None, "native"):
        models = answers.models_with_tools if request.tools or request.native else answers.models
        native = rules.fit_schema(schema, True, SharedParts())  # noqa: FBT003 - the provider enforces only a strict schema
        if re.match(models, model.partition(":")[2]) and not native.keys and not _changes_meaning(native):
            return AnswerFormat(definition, "native", native.schema)
    may_call = request.tool_choice is None or request.tool_choice.mode != "none"
    if rules is not None:
        may_call = (
            may_call and rules.has_tools and not _changes_meaning(rules.fit_schema(schema, "auto", SharedParts()))
        )
    if may_call and wanted in (None, "tool"):
        return AnswerFormat(definition, "tool")
    if wanted in (None, "json"):
        return AnswerFormat(definition, "json", schema)
    raise ConfigError(f'options={{"answer": {wanted!r}}}: {model} does not support it here. Omit it.')


def _changes_meaning(narrowed: NarrowedSchema) -> bool:
    return any(loss.changes_meaning for loss in narrowed.losses)


def add_answer(body: dict[str, Any], answer: AnswerFormat, provider: str) -> dict[str, Any]:
    """Return the body of a request with the fields that request an answer. Other keys of a field are kept."""
    if answer.mode != "native":
        # The JSON modes of the others are none beside tools, or need the word JSON in the prompt itself.
        return {"response_format": {"type": "json_object"}, **body} if provider == "openai-chat" else body
    fields = _RULES[provider].format_schema(answer)
    own = {name: value for name, value in body.items() if name in fields and isinstance(value, Mapping)}
    return {**body, **{name: {**own.get(name, {}), **value} for name, value in fields.items()}}
