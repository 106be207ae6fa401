"""Merge schemas, resolve references, and convert older JSON Schema drafts to the current one."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.define.schema_nodes import get_json_type, get_own_types
from toolmason.providers.aliases import hash_text

_LOCAL_PREFIXES: Final = ("#/$defs/", "#/definitions/")
_UPPER_BOUNDS: Final = {"maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"}
_LOWER_BOUNDS: Final = {"minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum"}

_EXCLUSIVE_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
CHANGED_KEYWORDS: Final = frozenset({"items", *_EXCLUSIVE_BOUNDS})
"""Keywords whose form depends on the draft."""


class SchemaConflict(ValueError):
    """Two schemas that cannot be merged into one."""


class SchemaTooComplex(Exception):
    """Adapting a schema takes more steps than its size justifies."""


def get_definition_name(ref: Any) -> str | None:
    """Return the name of the local definition that a reference points to, or None if it points elsewhere."""
    for prefix in _LOCAL_PREFIXES:
        if isinstance(ref, str) and ref.startswith(prefix):
            return ref.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    return None


def make_definition_name(ref: str, known: Container[str]) -> str:
    """Return a name for the part that a local reference points to, which no known definition has."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", ref[2:]) or "root"
    if name in known:
        name += "_"
    while name in known:
        name = f"{name}_{hash_text(ref + name, 8)}"
    return name


def modernize(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema of an older draft in the current form; a current one is returned unchanged."""
    if CHANGED_KEYWORDS.isdisjoint(node):
        return node
    if isinstance(node.get("items"), list):
        rest = {key: value for key, value in node.items() if key not in ("items", "additionalItems")}
        additional_items = {"items": node["additionalItems"]} if "additionalItems" in node else {}
        node = {**rest, "prefixItems": node["items"], **additional_items}
    for bound, limit in _EXCLUSIVE_BOUNDS.items():
        if isinstance(exclusive := node.get(bound), bool):
            rest = {key: value for key, value in node.items() if key != bound and not (exclusive and key == limit)}
            node = {**rest, bound: node[limit]} if exclusive and limit in node else rest
    return node


def get_definitions(root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named schemas of a root, including those under the older key `definitions`."""
    definitions: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        if key in root and isinstance(value := root[key], Mapping):
            definitions.update(value)
    return definitions


def merge_schemas(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one schema equivalent to all of these together, in time linear in their size.

    Raises:
        SchemaConflict: there is no such schema.
    """
    values_by_key: dict[str, list[Any]] = {}
    for part in parts:
        for key, value in part.items():
            values_by_key.setdefault(key, []).append(value)
    return {
        key: values[0] if all(value == values[0] for value in values) else _merge_keyword(key, values)
        for key, values in values_by_key.items()
    }


def _merge_properties(values: Sequence[Any]) -> dict[str, Any]:
    parts: dict[str, list[Any]] = {}
    for properties in values:
        for name, part in properties.items():
            parts.setdefault(name, []).append(part)
    return {name: found[0] if len(found) == 1 else merge_schemas(found) for name, found in parts.items()}


_RULES: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    "properties": _merge_properties,
    "required": lambda values: list(dict.fromkeys(chain.from_iterable(values))),
    "description": lambda values: " ".join(dict.fromkeys(map(str, values))),
    "title": lambda values: values[0],
    "default": lambda values: values[-1],
    "examples": lambda values: values[-1],
    **dict.fromkeys(_UPPER_BOUNDS, min),
    **dict.fromkeys(_LOWER_BOUNDS, max),
}


def _merge_keyword(key: str, values: Sequence[Any]) -> Any:
    if key in _RULES:
        return _RULES[key](values)
    if key == "enum" and (common := _intersect(values)):
        return common
    if key == "type" and (kinds := _intersect([kind if isinstance(kind, list) else [kind] for kind in values])):
        return kinds[0] if len(kinds) == 1 else kinds
    if key == "additionalProperties" and all(isinstance(value, bool) for value in values):
        return all(values)
    raise SchemaConflict(key)


def _intersect(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the items of the first list that are in all others."""
    shared = set.intersection(*({make_key(item) for item in items} for items in lists[1:]))
    return [item for item in lists[0] if make_key(item) in shared]


def make_key(value: Any) -> Any:
    """Return a hashable key that equal JSON values share."""
    return to_json(value, inf_nan_mode="constants", fallback=str) if isinstance(value, Mapping | list) else value


def identify_part(branch: Any) -> Any:
    """Return a key of a part: parts with the same reference are the same."""
    return make_key(branch) if isinstance(branch, Mapping) and "$ref" in branch else id(branch)


def measure_size(schema: Mapping[str, Any]) -> int:
    """Return the length of a schema as JSON, or 0 if it is too deep for the serializer."""
    try:
        return len(to_json(schema, inf_nan_mode="constants", fallback=str))
    except (ValueError, RecursionError):
        return 0


def unite_branches(root: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one object schema that accepts any of the branches; a property is required if all branches require it."""
    own: dict[str, Any] = dict(root.get("properties", {}))
    variants: dict[str, dict[Any, Any]] = {}
    for branch in branches:
        for name, part in branch.get("properties", {}).items():
            parts = part["anyOf"] if isinstance(part, dict) and part.keys() == {"anyOf"} else [part]
            variants.setdefault(name, {}).update((make_key(each), each) for each in parts)
    properties = {name: _unite(list(found.values())) for name, found in variants.items()}
    properties = {**own, **{name: part for name, part in properties.items() if own.get(name) is None}}
    shared = set.intersection(*(set(map(make_key, branch.get("required", ()))) for branch in branches))
    required = list(dict.fromkeys([*root.get("required", ()), *(name for name in properties if name in shared)]))
    other_keywords = {key: value for key, value in root.items() if key not in ("anyOf", "oneOf", "$ref")}
    united = {**other_keywords, "type": "object", "properties": properties}
    if required:
        united["required"] = required
    return united


def _unite(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def make_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also accepts null, which then means "omitted"."""
    if "const" in schema or "$ref" in schema or "allOf" in schema:
        text = {"description": schema["description"]} if "description" in schema else {}
        inner = {key: value for key, value in schema.items() if key != "description"}
        return {"anyOf": [inner, {"type": "null"}], **text}
    if "anyOf" in schema:
        has_null = any(branch.get("type") == "null" for branch in schema["anyOf"])
        return schema if has_null else {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    nullable_schema = {**schema, "type": [*dict.fromkeys([*get_own_types(schema), "null"])]}
    if "enum" in schema and None not in schema["enum"]:
        nullable_schema["enum"] = [*schema["enum"], None]
    return nullable_schema


def infer_type(schema: Mapping[str, Any]) -> Any:
    """Return the type, or types, of a schema without one; None if it says nothing about it."""
    if "properties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    names = list(dict.fromkeys(get_json_type(value) for value in values))
    if not names:
        return None
    return names[0] if len(names) == 1 else names


def select_possible(values: list[Any], declared: Any) -> list[Any]:
    """Return the values of an enum that have the declared type; null stays, because optional values may be null."""
    if declared is None:
        return values
    kinds = {declared} if isinstance(declared, str) else set(declared)
    kinds |= {"integer"} if "number" in kinds else set()

    def is_possible(value: Any) -> bool:
        is_whole = type(value) is float and value.is_integer() and "integer" in kinds
        return is_whole or get_json_type(value) in kinds

    return [value for value in values if value is None or is_possible(value)] if any(map(is_possible, values)) else []
