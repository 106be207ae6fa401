"""What each provider's API takes of JSON Schema, as data.

Lives here: the subsets, one value for each. Sources: the providers' documents and the types of their SDKs (openai 3.49,
anthropic 2.8, google-genai 3.1). Not here: what is done about the rest (`narrow`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

ANNOTATIONS: Final = frozenset({"description", "title"})
_SHAPE: Final = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "$ref"})
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The part of JSON Schema that a provider takes."""

    provider: str
    keywords: frozenset[str] | None = None
    """What may stand in a schema; `None`: anything."""
    formats: frozenset[str] | None = None
    enums: tuple[type, ...] | None = None
    """Of what kinds the values of an `enum` may be; `None`: of any."""
    closed: bool = False
    """Every object says `additionalProperties: false`."""
    all_required: bool = False
    """Every property is required, so an optional one may be null instead."""
    flat_root: bool = True
    """No alternatives at the top."""
    lone_refs: bool = False
    """Nothing may stand beside a `$ref`."""
    look_around: bool = True
    """Patterns may look ahead and behind."""
    most_items: bool = True
    """`minItems` and `maxItems` of any size; else `minItems` 0 and 1 alone."""
    typed: bool = False
    """Every schema says what it is."""
    needs_items: bool = False
    """An array says what its items are, and an object what its properties are."""
    property_names: str | None = None
    """What the name of a property may be, as a regular expression."""
    deepest: int | None = None
    most_properties: int | None = None
    most_enum_values: int | None = None


OPENAI: Final = Dialect(provider="openai", needs_items=True)
OPENAI_STRICT: Final = Dialect(
    provider="openai",
    keywords=_SHAPE | _NUMBERS | {"$defs", "const", "pattern", "format", "minItems", "maxItems"},
    formats=_FORMATS,
    closed=True,
    all_required=True,
    lone_refs=True,
    look_around=False,
    typed=True,
    needs_items=True,
    deepest=10,
    most_properties=5_000,
    most_enum_values=1_000,
)
ANTHROPIC: Final = Dialect(provider="anthropic", property_names=r"[A-Za-z0-9_.-]{1,64}")
ANTHROPIC_STRICT: Final = replace(
    ANTHROPIC,
    keywords=_SHAPE | {"$defs", "const", "format", "minItems"},
    formats=_FORMATS | {"uri"},
    enums=(str, int, float, bool, type(None)),
    closed=True,
    most_items=False,
    typed=True,
)
GEMINI: Final = Dialect(
    provider="gemini",
    keywords=_SHAPE | {"$defs", "format", "prefixItems", "minItems", "maxItems", "minimum", "maximum"},
    enums=(str, int, float),
    lone_refs=True,
    flat_root=False,
)
"""Of `parametersJsonSchema`, which takes more than the older field `parameters`."""
MCP: Final = Dialect(provider="mcp", flat_root=False)
