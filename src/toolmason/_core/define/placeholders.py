"""Placeholders in a developer's text: `${name}`, `${name:-fallback}`, `$${` for a plain `${`.

Lives here: one expansion, one pass. What is put in is never looked at again, so text that a model supplied
cannot expand into anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_PLACEHOLDER: Final = r"\$\$\{|\$\{([^{}$:]+)(?::-([^{}]*))?\}"


def expand(text: str, values: Mapping[str, Any]) -> str:
    """Return `text` with its placeholders filled; an unknown name without a fallback stays as it is."""

    def replace_placeholder(match: re.Match[str]) -> str:
        name, fallback = match.groups()
        if name is None:
            return "${"
        if name in values and values[name] is not None:
            return str(values[name])
        return match.group() if fallback is None else fallback

    return re.sub(_PLACEHOLDER, replace_placeholder, text)
