"""A definition → about how many tokens it takes in a prompt.

Lives here: the one estimate that every command shows. No tokenizer is loaded, and nothing is asked for over a network.
"""

from __future__ import annotations

import json
from typing import Final

from toolmason._core.definition import ToolDefinition

BYTES_PER_TOKEN: Final = 4
"""What English and JSON come to with the usual tokenizers; an estimate, and named as one."""


def tokens_of(definition: ToolDefinition) -> int:
    """Return about how many tokens a definition takes."""
    text = json.dumps([definition.name, definition.description, definition.input_schema])
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
