"""A definition → about how many tokens it takes in a prompt.

Lives here: the one estimate that every command shows. No tokenizer is loaded, and nothing is asked for over a network.
"""

from __future__ import annotations

import json
import re
from typing import Final

from toolmason._core.values.definition import PORTABLE_NAME, ToolDefinition

BYTES_PER_TOKEN: Final = 4
"""What English and JSON come to with the usual tokenizers; an estimate, and named as one."""


def estimate_tokens(definition: ToolDefinition) -> int:
    """Return about how many tokens a definition takes."""
    text = json.dumps([definition.name, definition.description, definition.input_schema])
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


PROVIDERS: Final = ("openai", "anthropic", "gemini")

TOOL_NAME_PATTERNS: Final[dict[str, str]] = {
    # Chat Completions and Messages take 64 characters, Responses 128; the shorter one is what is portable.
    "openai": PORTABLE_NAME,
    "anthropic": PORTABLE_NAME,
    "gemini": r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
}
PARAMETER_NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
"""What every provider takes as the name of a property."""


def find_refusing_providers(name: str) -> list[str]:
    """Return the providers that refuse a tool of this name."""
    return [provider for provider in PROVIDERS if not re.fullmatch(TOOL_NAME_PATTERNS[provider], name)]
