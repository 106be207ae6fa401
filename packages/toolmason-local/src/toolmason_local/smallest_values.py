"""Validate values against a schema, and find a small valid value if the model produced none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema

NO_VALUE: Final = object()
"""Marker for "no valid value exists or was found"."""
_MAX_DEPTH: Final = 12
_MAX_TEXT_CHARS: Final = 10_000
_MAX_ITEMS: Final = 1000


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if a value matches a schema; no value matches a broken schema."""
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
    except Exception:  # noqa: BLE001 - a third-party schema may make the validator raise anything
        return False


def resolve(given: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with references resolved and "X or null" reduced to X."""
    part: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    for _ in range(_MAX_DEPTH):
        if isinstance(reference := part.get("$ref"), str):
            part = {
                **_resolve_reference(reference, root),
                **{key: part[key] for key in ("description", "default") if key in part},
            }
            continue
        branches = part.get("anyOf") or part.get("oneOf")
        if not isinstance(branches, list) or "type" in part:
            break
        useful = [branch for branch in branches if isinstance(branch, Mapping) and branch.get("type") != "null"]
        if not useful:
            break
        part = {**useful[0], **{key: part[key] for key in ("description", "default") if key in part}}
    kinds = part.get("type")
    if isinstance(kinds, list):
        kept = [kind for kind in kinds if kind != "null"] or ["null"]
        part = {**part, "type": kept[0]}
    return part


def _resolve_reference(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def with_definitions(part: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return part of a schema together with the definitions that it may refer to."""
    return {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **part}


def find_smallest(part: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a small valid value, or `NO_VALUE`."""
    standalone = with_definitions(part, root)
    for value in _list_candidates(resolve(part, root), root, depth):
        if value is not NO_VALUE and is_valid(value, standalone):
            return value
    return NO_VALUE


def _list_candidates(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
    candidates = [part[key] for key in ("default", "const") if key in part]
    for key in ("enum", "examples"):
        if isinstance(given := part.get(key), list):
            candidates += given[:20]
    kind = part.get("type")
    if kind == "string":
        min_length = part.get("minLength", 0)
        candidates += [
            "",
            "x" * (min_length if isinstance(min_length, int) and min_length < _MAX_TEXT_CHARS else 1),
            *_FORMAT_EXAMPLES,
        ]
    elif kind in ("integer", "number"):
        candidates += [0, 1, *_list_numbers_near_bounds(part)]
    elif kind == "array":
        candidates += [[], _make_array(part, root, depth)]
    elif kind == "object" or "properties" in part:
        candidates += [_make_object(part, root, depth)]
    else:
        candidates += [None, False, "", 0, {}, []]
    return [*candidates, False, None]


_FORMAT_EXAMPLES: Final = (
    *("2000-01-01", "2000-01-01T00:00:00Z", "00:00:00Z", "a@example.com", "example.com", "https://example.com"),
    *("00000000-0000-0000-0000-000000000000", "127.0.0.1", "::1", "P1D", "a", "A", "0", "00"),
)


def _list_numbers_near_bounds(part: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for key, step in (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1)):
        if isinstance(bound := part.get(key), int | float) and not isinstance(bound, bool):
            found += [bound + step, bound + step / 2]
    if isinstance(multiple := part.get("multipleOf"), int | float) and multiple:
        found += [multiple * -(-value // multiple) for value in found] + [multiple]
    return found


def _make_array(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    min_items = part.get("minItems", 1)
    if depth > _MAX_DEPTH or not isinstance(min_items, int) or min_items > _MAX_ITEMS:
        return NO_VALUE
    items = part.get("items", {})
    item = find_smallest(items if isinstance(items, Mapping) else {}, root, depth + 1)
    return NO_VALUE if item is NO_VALUE else [item] * max(1, min_items)


def _make_object(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return NO_VALUE
    parts = part.get("properties", {})
    values = {}
    for name in part.get("required", ()):
        property_schema = parts.get(name, {}) if isinstance(parts, Mapping) else {}
        value = find_smallest(property_schema if isinstance(property_schema, Mapping) else {}, root, depth + 1)
        if value is NO_VALUE:
            return NO_VALUE
        values[name] = value
    return values
