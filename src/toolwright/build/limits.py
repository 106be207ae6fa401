"""What each provider says about names: the rules of their wire formats, as data.

Lives here: regular expressions and the alias that would be sent instead. Not here: schemas (`portability`).
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from toolwright._core.definition import PORTABLE_NAME

PROVIDERS: Final = ("openai", "anthropic", "gemini")

TOOL_NAMES: Final[dict[str, str]] = {
    # Chat Completions and Messages take 64 characters, Responses 128; the shorter one is what is portable.
    "openai": PORTABLE_NAME,
    "anthropic": PORTABLE_NAME,
    "gemini": r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
}
PARAMETER_NAME: Final = r"[A-Za-z0-9_.-]{1,64}"
"""What every provider takes as the name of a property."""

_LONGEST: Final = 64
_DIGEST: Final = 8


def refused_by(name: str) -> list[str]:
    """Return the providers that refuse a tool of this name."""
    return [provider for provider in PROVIDERS if not re.fullmatch(TOOL_NAMES[provider], name)]


def alias_of(name: str) -> str:
    """Return the name that is sent instead of one that is refused: readable, and different for different names."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
    if not re.match(r"[A-Za-z_]", plain):
        plain = f"_{plain}"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{plain[: _LONGEST - _DIGEST - 1]}_{digest}"
