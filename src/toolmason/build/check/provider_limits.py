"""Estimate the tokens of a definition and check names against provider limits.

No tokenizer is loaded and no network request is made.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic_core import to_json

from toolmason._core.values.definition import ToolDefinition
from toolmason.providers.registry import get_format
from toolmason.providers.schema.narrow import SharedParts
from toolmason.providers.tool_set import ProviderRules

BYTES_PER_TOKEN: Final = 4
"""Average for English and JSON with common tokenizers; an estimate."""


def estimate_tokens(definition: ToolDefinition, provider: str = "openai") -> int:
    """Return the estimated number of tokens of a definition, in the form in which a provider gets it."""
    # The schema alone: a provider does not show a model the rest of its own JSON.
    schema = get_format(provider).rules.fit_schema(definition.input_schema, "auto", SharedParts()).schema
    return -(-len(to_json([definition.name, definition.description, schema])) // BYTES_PER_TOKEN)


PROVIDERS: Final = ("openai", "anthropic", "gemini")
PARAMETER_NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
"""Property names that every provider accepts."""
_NAMING_FORMATS: Final = {"openai": "openai-chat"}
"""The format with the stricter name limits, for providers with two formats."""


def get_naming_rules(provider: str) -> ProviderRules:
    """Return the rules of a provider for the names of tools."""
    return get_format(_NAMING_FORMATS.get(provider, provider)).rules


def find_refusing_providers(name: str) -> list[str]:
    """Return the providers that reject a tool name."""
    return [provider for provider in PROVIDERS if not re.fullmatch(get_naming_rules(provider).name_pattern, name)]
