"""Several schemas that hold together → one; references → what they stand for; older drafts → the current one.

Lives here: `allOf`, alternatives at the top, look-up of references. Not here: what a provider takes (`narrow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

_LOCAL: Final = ("#/$defs/", "#/definitions/")
_LEAST: Final = {"maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"}
_MOST: Final = {"minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum"}

_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


class Conflict(ValueError):
    """Two schemas that cannot be written as one."""


def name_of(ref: Any) -> str | None:
    """Return the name of the definition that a reference means, where it means one of the schema's own."""
    for prefix in _LOCAL:
        if isinstance(ref, str) and ref.startswith(prefix):
            return ref.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    return None


def pointed(root: Any, ref: Any) -> Any:
    """Return the part of a schema that a reference points to, such as `#/properties/a`; nothing where there is none."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    for step in unquote(ref[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, Mapping) and key in root:
            root = root[key]
        elif isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            return None
    return root


def modern(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema of an older draft as the current one writes it; one that is right comes back as it is."""
    if isinstance(node.get("items"), list):
        rest = {key: value for key, value in node.items() if key not in ("items", "additionalItems")}
        more = {"items": node["additionalItems"]} if "additionalItems" in node else {}
        node = {**rest, "prefixItems": node["items"], **more}
    for bound, limit in _BOUNDS.items():
        if isinstance(said := node.get(bound), bool):
            rest = {key: value for key, value in node.items() if key != bound and not (said and key == limit)}
            node = {**rest, bound: node[limit]} if said and limit in node else rest
    return node


def definitions_of(root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named schemas of a root, old spelling included."""
    found: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        held = root.get(key)
        if isinstance(held, Mapping):
            found.update(held)
    return found


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one schema that says what all of them say.

    Raises:
        Conflict: there is none.
    """
    whole: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            whole[key] = value if key not in whole or whole[key] == value else _both(key, whole[key], value)
    return whole


def _both(key: str, one: Any, other: Any) -> Any:
    if key == "properties":
        shared = {name: merged([one[name], other[name]]) for name in one.keys() & other.keys()}
        return {**one, **other, **shared}
    if key == "required":
        return [*one, *(name for name in other if name not in one)]
    if key in ("description", "title"):
        return f"{one} {other}" if key == "description" else one
    if key in _LEAST:
        return min(one, other)
    if key in _MOST:
        return max(one, other)
    if key == "enum" and (kept := [value for value in one if value in other]):
        return kept
    if key == "type" and (kinds := [kind for kind in _kinds(one) if kind in _kinds(other)]):
        return kinds[0] if len(kinds) == 1 else kinds
    if key == "additionalProperties" and isinstance(one, bool) and isinstance(other, bool):
        return one and other
    if key in ("default", "examples"):
        return other
    raise Conflict(key)


def _kinds(said: Any) -> list[str]:
    return said if isinstance(said, list) else [said]


def united(root: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one object that takes what any of the branches takes: their properties, required where all require."""
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
    kept = {key: value for key, value in root.items() if key not in ("anyOf", "oneOf", "$ref")}
    whole = {**kept, "type": "object", "properties": properties}
    if required:
        whole["required"] = required
    return whole
