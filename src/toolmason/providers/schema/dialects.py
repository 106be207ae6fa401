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
    enum_types: tuple[type, ...] | None = None
    """Of what kinds the values of an `enum` may be; `None`: of any."""
    requires_closed_objects: bool = False
    """Every object says `additionalProperties: false`."""
    requires_all_properties: bool = False
    """Every property is required, so an optional one may be null instead."""
    requires_flat_root: bool = True
    """No alternatives at the top."""
    requires_lone_refs: bool = False
    """Nothing may stand beside a `$ref`."""
    allows_lookaround: bool = True
    """Patterns may look ahead and behind."""
    allows_any_item_count: bool = True
    """`minItems` and `maxItems` of any size; else `minItems` 0 and 1 alone."""
    requires_type: bool = False
    """Every schema says what it is."""
    requires_items: bool = False
    """An array says what its items are, and an object what its properties are."""
    property_name_pattern: str | None = None
    """What the name of a property may be, as a regular expression."""
    max_depth: int | None = None
    max_properties: int | None = None
    max_enum_values: int | None = None


OPENAI: Final = Dialect(provider="openai", requires_items=True)
OPENAI_STRICT: Final = Dialect(
    provider="openai",
    keywords=_SHAPE | _NUMBERS | {"$defs", "const", "pattern", "format", "minItems", "maxItems"},
    formats=_FORMATS,
    requires_closed_objects=True,
    requires_all_properties=True,
    requires_lone_refs=True,
    allows_lookaround=False,
    requires_type=True,
    requires_items=True,
    max_depth=10,
    max_properties=5_000,
    max_enum_values=1_000,
)
ANTHROPIC: Final = Dialect(provider="anthropic", property_name_pattern=r"[A-Za-z0-9_.-]{1,64}")
ANTHROPIC_STRICT: Final = replace(
    ANTHROPIC,
    keywords=_SHAPE | {"$defs", "const", "format", "minItems"},
    formats=_FORMATS | {"uri"},
    enum_types=(str, int, float, bool, type(None)),
    requires_closed_objects=True,
    allows_any_item_count=False,
    requires_type=True,
)
GEMINI: Final = Dialect(
    provider="gemini",
    keywords=_SHAPE | {"$defs", "format", "prefixItems", "minItems", "maxItems", "minimum", "maximum"},
    enum_types=(str, int, float),
    requires_lone_refs=True,
    requires_flat_root=False,
)
"""Of `parametersJsonSchema`, which takes more than the older field `parameters`."""
MCP: Final = Dialect(provider="mcp", requires_flat_root=False)
