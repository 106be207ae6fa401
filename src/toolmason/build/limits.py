"""What each provider says about names: the rules of their wire formats, as data.

Lives here: regular expressions. Not here: schemas, or what is sent instead (`portability`).
"""

from __future__ import annotations

import re
from typing import Final

from toolmason._core.definition import PORTABLE_NAME

PROVIDERS: Final = ("openai", "anthropic", "gemini")

TOOL_NAMES: Final[dict[str, str]] = {
    # Chat Completions and Messages take 64 characters, Responses 128; the shorter one is what is portable.
    "openai": PORTABLE_NAME,
    "anthropic": PORTABLE_NAME,
    "gemini": r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
}
PARAMETER_NAME: Final = r"[A-Za-z0-9_.-]{1,64}"
"""What every provider takes as the name of a property."""


def refused_by(name: str) -> list[str]:
    """Return the providers that refuse a tool of this name."""
    return [provider for provider in PROVIDERS if not re.fullmatch(TOOL_NAMES[provider], name)]
