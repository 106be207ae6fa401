"""Describe in a sentence a schema constraint that a provider does not accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

_MAX_VALUE_LENGTH: Final = 200
_SENTENCES: Final[Mapping[str, str]] = {
    "const": "Always {}",
    "contains": "At least one item matches {}",
    "default": "Default: {}",
    "enum": "One of {}",
    "examples": "Examples: {}",
    "exclusiveMaximum": "Less than {}",
    "exclusiveMinimum": "More than {}",
    "format": "Format: {}",
    "maxItems": "At most {} items",
    "maxLength": "At most {} characters",
    "maxProperties": "At most {} keys",
    "maximum": "At most {}",
    "minItems": "At least {} items",
    "minLength": "At least {} characters",
    "minProperties": "At least {} keys",
    "minimum": "At least {}",
    "multipleOf": "A multiple of {}",
    "not": "Must not match {}",
    "oneOf": "Matches one of {}",
    "pattern": "Matches the pattern {}",
    "patternProperties": "Keys by pattern: {}",
    "prefixItems": "Items in order: {}",
    "propertyNames": "Keys match {}",
    "uniqueItems": "No duplicate items",
}
ANNOTATION_KEYWORDS: Final = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "$anchor",
        "title",
        "discriminator",
        "deprecated",
        "nullable",
        "readOnly",
        "writeOnly",
        "example",
    }
)
"""Keywords that do not constrain the arguments."""
UNENFORCED_KEYWORDS: Final = frozenset({"default", "examples", "format"})
"""Keywords that no provider enforces, so describing them in a sentence loses nothing."""


def make_sentence(keyword: str, value: Any) -> str:
    """Return a sentence for a constraint; a long value is truncated."""
    text = value if isinstance(value, str) else to_json(value, inf_nan_mode="constants", fallback=str).decode()
    truncated = text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 1]}…"
    return _SENTENCES.get(keyword, f"{keyword}: {{}}").replace("{}", truncated) + "."


def add_sentences(text: Any, sentences: list[str]) -> str:
    """Return a description with sentences appended, each once."""
    description = str(text).strip() if text else ""
    if not sentences:
        return description
    if len(sentences) == 1:  # as with most parameters that have a default
        added = "" if sentences[0] in description else sentences[0]
    else:
        added = " ".join(sentence for sentence in dict.fromkeys(sentences) if sentence not in description)
    if not description or not added:
        return description or added
    return f"{description}{' ' if description.endswith(('.', '!', '?', ':')) else '. '}{added}"
