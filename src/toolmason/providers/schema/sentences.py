"""A rule of a schema that a provider does not take → a sentence for the description.

Lives here: the wording, so that what is not enforced is still told. Not here: which rules those are (`dialects`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

_LONGEST: Final = 200
_SAID: Final[Mapping[str, str]] = {
    "const": "Always {}",
    "contains": "At least one item fits {}",
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
    "not": "Must not fit {}",
    "oneOf": "Fits one of {}",
    "pattern": "Matches the pattern {}",
    "patternProperties": "Keys by pattern: {}",
    "prefixItems": "Items in order: {}",
    "propertyNames": "Keys fit {}",
    "uniqueItems": "No item twice",
}
SILENT: Final = frozenset(
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
"""What says nothing about which arguments fit."""
TOLD: Final = frozenset({"default", "examples", "format"})
"""What a sentence says as well as a keyword: nothing enforces it in either form."""


def sentence_of(keyword: str, value: Any) -> str:
    """Return a rule in words; a long value is cut."""
    if type(value) is int:
        return _SAID.get(keyword, f"{keyword}: {{}}").replace("{}", str(value)) + "."
    said = value if isinstance(value, str) else to_json(value, inf_nan_mode="constants", fallback=str).decode()
    shown = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
    return _SAID.get(keyword, f"{keyword}: {{}}").replace("{}", shown) + "."


def described(text: Any, sentences: list[str]) -> str:
    """Return a description with sentences added, each once."""
    own = str(text).strip() if text else ""
    if not own and len(sentences) == 1:
        return sentences[0]
    more = " ".join(sentence for sentence in dict.fromkeys(sentences) if sentence not in own)
    if not own or not more:
        return own or more
    return f"{own}{' ' if own.endswith(('.', '!', '?', ':')) else '. '}{more}"
