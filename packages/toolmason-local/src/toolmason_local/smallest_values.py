"""A schema → whether a value fits it, and a small value that does.

Lives here: what stands in where a model gave nothing that fits. Not here: asking a model (`filling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema

NOTHING: Final = object()
"""There is no such value, or none that is found this way."""
_DEEP: Final = 12
_LONGEST_TEXT, _MOST_ITEMS = 10_000, 1000


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Tell whether a value fits a schema; nothing fits one that is broken."""
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
    except Exception:  # noqa: BLE001 - a schema of somebody else's may break the validator in any way
        return False


def resolved(given: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a part of a schema means: references followed, and of "this or null" this."""
    part: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    for _ in range(_DEEP):
        if isinstance(reference := part.get("$ref"), str):
            part = {**_target(reference, root), **{key: part[key] for key in ("description", "default") if key in part}}
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


def _target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def with_definitions(part: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a schema that stands by itself."""
    return {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **part}


def smallest(part: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a small value that fits, or `NOTHING`."""
    whole = with_definitions(part, root)
    for value in _guesses(resolved(part, root), root, depth):
        if value is not NOTHING and fits(value, whole):
            return value
    return NOTHING


def _guesses(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
    guesses = [part[key] for key in ("default", "const") if key in part]
    for key in ("enum", "examples"):
        if isinstance(given := part.get(key), list):
            guesses += given[:20]
    kind = part.get("type")
    if kind == "string":
        least = part.get("minLength", 0)
        guesses += ["", "x" * (least if isinstance(least, int) and least < _LONGEST_TEXT else 1), *_FORMATTED]
    elif kind in ("integer", "number"):
        guesses += [0, 1, *_near(part)]
    elif kind == "array":
        guesses += [[], _several(part, root, depth)]
    elif kind == "object" or "properties" in part:
        guesses += [_object(part, root, depth)]
    else:
        guesses += [None, False, "", 0, {}, []]
    return [*guesses, False, None]


_FORMATTED: Final = (
    *("2000-01-01", "2000-01-01T00:00:00Z", "00:00:00Z", "a@example.com", "example.com", "https://example.com"),
    *("00000000-0000-0000-0000-000000000000", "127.0.0.1", "::1", "P1D", "a", "A", "0", "00"),
)


def _near(part: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for key, step in (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1)):
        if isinstance(bound := part.get(key), int | float) and not isinstance(bound, bool):
            found += [bound + step, bound + step / 2]
    if isinstance(multiple := part.get("multipleOf"), int | float) and multiple:
        found += [multiple * -(-value // multiple) for value in found] + [multiple]
    return found


def _several(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    least = part.get("minItems", 1)
    if depth > _DEEP or not isinstance(least, int) or least > _MOST_ITEMS:
        return NOTHING
    items = part.get("items", {})
    one = smallest(items if isinstance(items, Mapping) else {}, root, depth + 1)
    return NOTHING if one is NOTHING else [one] * max(1, least)


def _object(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if depth > _DEEP:
        return NOTHING
    parts = part.get("properties", {})
    made = {}
    for name in part.get("required", ()):
        known = parts.get(name, {}) if isinstance(parts, Mapping) else {}
        value = smallest(known if isinstance(known, Mapping) else {}, root, depth + 1)
        if value is NOTHING:
            return NOTHING
        made[name] = value
    return made
