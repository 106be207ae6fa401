"""Subsets of JSON Schema that the providers' APIs accept.

Sources: the providers' documentation and the types of their SDKs (openai 3.49, anthropic 2.8, google-genai 3.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

_SHAPE: Final = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "$ref"})
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_LOOKAROUND: Final = re.compile(r"\(\?[=!<]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Subset of JSON Schema that a provider accepts."""

    keywords: frozenset[str] | None = None
    """Allowed keywords; `None` allows any."""
    formats: frozenset[str] | None = None
    enum_types: tuple[type, ...] | None = None
    """Allowed types of `enum` values; `None` allows any."""
    requires_closed_objects: bool = False
    """True if every object must set `additionalProperties: false`."""
    requires_all_properties: bool = False
    """True if every property must be required; an optional one is nullable instead."""
    requires_flat_root: bool = True
    """True if the root must not have alternatives."""
    requires_lone_refs: bool = False
    """True if a `$ref` must have no sibling keywords."""
    allows_lookaround: bool = True
    """True if patterns may use lookahead and lookbehind."""
    allows_any_item_count: bool = True
    """True if `minItems` and `maxItems` may have any value; otherwise only `minItems` 0 and 1 are allowed."""
    requires_type: bool = False
    """True if every schema must have a type."""
    requires_items: bool = False
    """True if arrays must have `items` and objects must have `properties`."""
    property_name_pattern: re.Pattern[str] | None = None
    """Regular expression for property names."""
    max_depth: int | None = None
    max_properties: int | None = None
    max_enum_values: int | None = None

    def accepts_value(self, keyword: str, value: Any) -> bool:
        """Return True if an allowed keyword may have this value."""
        if keyword == "format":
            return self.formats is None or value in self.formats
        if keyword == "pattern":
            return self.allows_lookaround or not _LOOKAROUND.search(str(value))
        return self.allows_any_item_count or keyword != "minItems" or value in (0, 1)


OPENAI: Final = Dialect(requires_items=True)
OPENAI_STRICT: Final = Dialect(
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
ANTHROPIC: Final = Dialect(property_name_pattern=re.compile(r"[A-Za-z0-9_.-]{1,64}"))
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
    keywords=_SHAPE | {"$defs", "format", "prefixItems", "minItems", "maxItems", "minimum", "maximum"},
    enum_types=(str, int, float),
    requires_lone_refs=True,
    requires_flat_root=False,
)
"""For `parametersJsonSchema`, which accepts more than the older field `parameters`."""
