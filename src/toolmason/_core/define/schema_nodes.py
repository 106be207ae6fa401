"""JSON Schemas and what was compiled from a type, as values: looking into them, without making them.

Lives here: plain data and walks over it; nothing here loads pydantic's schema machinery, which is the dearest part
of a start. Not here: how a type becomes a schema (`schema`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic_core import SchemaSerializer, SchemaValidator

from toolmason._core.values.definition import JsonSchema

ExtraKeys: TypeAlias = Literal["ignore", "forbid", "allow"]
EnumNames: TypeAlias = dict[int, dict[str, Any]]
"""For each enum in a schema, by the identity of its node: member names → values, so that a model may say either."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeSchema:
    """A type, compiled."""

    schema: JsonSchema
    validator: SchemaValidator
    serializer: SchemaSerializer
    enum_names: EnumNames = field(default_factory=dict)
    has_aliases: bool = False
    """Whether a field is written under another name than Python's."""
    has_decimals: bool = False
    """Whether there is a decimal, which pydantic reads from a text too."""
    validate_strict: Callable[[str], dict[str, Any]] | None = None
    """As the validator of an object, strict, but a name nobody asked for is left out without a word."""
    writes_nan: bool = False
    """Whether a NaN is written as such, and not as null."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FieldSpec:
    """One field of an object: what the model calls it, its type, and what the schema says of it."""

    label: str
    hint: Any
    required: bool
    keywords: Mapping[str, Any]
    """`description`, `examples`, `default`, as the schema shows them."""
    schema: Mapping[str, Any] | None = None
    """The field's schema, instead of the one its type gives."""


def resolve_root(schema: JsonSchema) -> JsonSchema:
    """Return a schema whose root says what it is: a type that contains itself is written as a reference there."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].removeprefix("#/$defs/")
    return {**schema["$defs"][name], "$defs": schema["$defs"]}


_MAPPING_KEYWORDS = ("properties", "$defs", "patternProperties", "dependentSchemas")
_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_KEYWORDS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")


def iter_subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schema and every schema in it; references are not followed."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield node
        for key in _MAPPING_KEYWORDS:
            stack.extend(node.get(key, {}).values())
        for key in _LIST_KEYWORDS:
            stack.extend(node.get(key, ()))
        stack.extend(node[key] for key in _SINGLE_KEYWORDS if key in node)


def admits_unbounded_depth(schema: JsonSchema) -> bool:
    """Tell whether values of unbounded depth fit: anything goes somewhere, or a type contains itself."""
    if _is_recursive(schema.get("$defs", {})):
        return True
    for node in iter_subschemas(schema):
        if "$ref" in node:
            continue
        kind = node.get("type")
        if kind is None and not node.keys() & {"anyOf", "oneOf", "allOf", "enum", "const"}:
            return True
        if kind == "array" and not node.keys() & {"items", "prefixItems"}:
            return True
        if kind == "object" and node.get("additionalProperties", "properties" not in node) is True:
            return True
    return False


def _is_recursive(definitions: Mapping[str, Any]) -> bool:
    """Tell whether a definition refers to itself, however far round."""
    references = {
        name: {str(node["$ref"]).removeprefix("#/$defs/") for node in iter_subschemas(part) if "$ref" in node}
        for name, part in definitions.items()
    }
    while resolved_names := [name for name, others in references.items() if not others & references.keys()]:
        for name in resolved_names:
            del references[name]
    return bool(references)


def admits_nan(schema: JsonSchema) -> bool:
    """Tell whether a NaN could pass: anything goes somewhere, or a model with rules of its own takes a number."""
    nested = schema.get("$defs", {}).values()
    return any(
        node.get("type") == "number" for part in nested for node in iter_subschemas(part)
    ) or admits_unbounded_depth(schema)


def admits_number(schema: JsonSchema) -> bool:
    """Tell whether a number that is not whole fits somewhere."""
    return any(node.get("type") == "number" for node in iter_subschemas(schema)) or admits_unbounded_depth(schema)
