"""Merge schemas, resolve references, and convert older JSON Schema drafts to the current one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_LOCAL_PREFIXES: Final = ("#/$defs/", "#/definitions/")
_UPPER_BOUNDS: Final = {"maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"}
_LOWER_BOUNDS: Final = {"minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum"}

_EXCLUSIVE_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


class SchemaConflict(ValueError):
    """Two schemas that cannot be merged into one."""


def get_definition_name(ref: Any) -> str | None:
    """Return the name of the local definition that a reference points to, or None if it points elsewhere."""
    for prefix in _LOCAL_PREFIXES:
        if isinstance(ref, str) and ref.startswith(prefix):
            return ref.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    return None


def modernize(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema of an older draft in the current form; a current one is returned unchanged."""
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
        value = root.get(key)
        if isinstance(value, Mapping):
            definitions.update(value)
    return definitions


def merge_schemas(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one schema equivalent to all of these together.

    Raises:
        SchemaConflict: there is no such schema.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = (
                value if key not in merged or merged[key] == value else _merge_keyword(key, merged[key], value)
            )
    return merged


def _merge_keyword(key: str, one: Any, other: Any) -> Any:
    if key == "properties":
        shared = {name: merge_schemas([one[name], other[name]]) for name in one.keys() & other.keys()}
        return {**one, **other, **shared}
    if key == "required":
        return [*one, *(name for name in other if name not in one)]
    if key in ("description", "title"):
        return f"{one} {other}" if key == "description" else one
    if key in _UPPER_BOUNDS:
        return min(one, other)
    if key in _LOWER_BOUNDS:
        return max(one, other)
    if key == "enum" and (common := [value for value in one if value in other]):
        return common
    if key == "type" and (kinds := [kind for kind in _to_type_list(one) if kind in _to_type_list(other)]):
        return kinds[0] if len(kinds) == 1 else kinds
    if key == "additionalProperties" and isinstance(one, bool) and isinstance(other, bool):
        return one and other
    if key in ("default", "examples"):
        return other
    raise SchemaConflict(key)


def _to_type_list(types: Any) -> list[str]:
    return types if isinstance(types, list) else [types]


def unite_branches(root: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one object schema that accepts any of the branches; a property is required if all branches require it."""
    properties: dict[str, Any] = dict(root.get("properties", {}))
    own = set(properties)
    for branch in branches:
        for name, part in branch.get("properties", {}).items():
            known = properties.get(name)
            if known is None:
                properties[name] = part
            elif known != part and name not in own:
                parts = known["anyOf"] if isinstance(known, dict) and known.keys() == {"anyOf"} else [known]
                properties[name] = {"anyOf": [*parts, *([] if part in parts else [part])]}
    shared = [name for name in properties if all(name in branch.get("required", ()) for branch in branches)]
    required = list(dict.fromkeys([*root.get("required", ()), *shared]))
    other_keywords = {key: value for key, value in root.items() if key not in ("anyOf", "oneOf", "$ref")}
    united = {**other_keywords, "type": "object", "properties": properties}
    if required:
        united["required"] = required
    return united
