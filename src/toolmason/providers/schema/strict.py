"""A tool's schema and a wish for strictness → what one provider is sent, strict or not, with the reason.

Lives here: the decision. Not here: the rewriting (`narrow`), or the rest of a definition (each provider's module).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolmason._core.toolbox.definitions import Strict
from toolmason.errors import ConfigError
from toolmason.providers.schema.dialects import ANTHROPIC, ANTHROPIC_STRICT, GEMINI, OPENAI, OPENAI_STRICT, Dialect
from toolmason.providers.schema.losses import Narrowed
from toolmason.providers.schema.merge import modern
from toolmason.providers.schema.narrow import Walk
from toolmason.providers.schema.sentences import described, sentence_of

_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
_PLAIN: Final = frozenset({"type", "description", "minimum", "maximum", "default"})
_ROOT: Final = frozenset({"type", "properties", "required", "additionalProperties", "description"})
_DEEPEST, _MOST_PLAIN = 200, 100
_PORTABLE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")


def checked_strict(strict: Any) -> Strict:
    """Return a wish for strictness.

    Raises:
        ConfigError: it is none.
    """
    if strict is True or strict is False or strict == "auto":
        return strict  # type: ignore[no-any-return]
    raise ConfigError(f'strict={strict!r}: give True, False or "auto".')


def fit_openai(schema: Mapping[str, Any], strict: Strict) -> Narrowed:
    """Return a schema as OpenAI takes it; strict wherever nothing gets lost, or where it is asked for."""
    if strict is False:
        return _loose(schema, OPENAI, "strict=False")
    if (simple := _simply(schema)) is not None:
        return Narrowed(simple, strict=True)
    walk = Walk(schema, OPENAI_STRICT)
    whole = walk.root(schema)
    if strict is True or not walk.losses:
        return Narrowed(whole, strict=True, losses=tuple(walk.losses))
    blocking = next((loss for loss in walk.losses if loss.changes_meaning), walk.losses[0])
    return _loose(schema, OPENAI, str(blocking))


def fit_anthropic(schema: Mapping[str, Any], strict: Strict) -> Narrowed:
    """Return a schema as Anthropic takes it; strict where it is asked for: a request has room for few such tools."""
    if strict is not True:
        reason = "strict=False" if strict is False else "Anthropic limits strict tools for each request; ask for it"
        return _loose(schema, ANTHROPIC, reason)
    walk = Walk(schema, ANTHROPIC_STRICT)
    whole = walk.root(schema)
    return Narrowed(whole, strict=True, losses=tuple(walk.losses), keys=walk.keys)


def fit_gemini(schema: Mapping[str, Any], strict: Strict) -> Narrowed:
    """Return a schema as Gemini takes it in `parametersJsonSchema`; strictness is a matter of the whole request."""
    reason = "" if strict is True else "Gemini is strict for a whole request, where it is asked for"
    properties = _plain_parts(schema)
    if properties is not None:
        plain = {**schema, "properties": {name: _told(part) for name, part in properties.items()}}
        return Narrowed(plain, strict=strict is True, reason=reason)
    walk = Walk(schema, GEMINI)
    whole = walk.root(schema)
    return Narrowed(whole, strict=strict is True, reason=reason, losses=tuple(walk.losses))


def fit_mcp(schema: Mapping[str, Any], strict: Strict) -> Narrowed:
    """Return a schema as MCP takes it: any."""
    del strict
    return Narrowed(dict(schema), reason="MCP has no strict mode")


def _plain_parts(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parameters where each is a plain value, as in most tools; a walk would cost ten times as much."""
    properties = schema.get("properties")
    if type(properties) is not dict or not schema.keys() <= _ROOT or schema.get("type") != "object":
        return None
    if schema.get("additionalProperties", False) is not False or len(properties) > _MOST_PLAIN:
        return None
    for part in properties.values():
        if type(part) is not dict or not part.keys() <= _PLAIN:
            return None
        kind = part.get("type")
        if type(kind) is not str or kind not in _SCALARS:
            return None
    return properties


def _told(part: dict[str, Any]) -> dict[str, Any]:
    """Return a plain parameter with its default in words."""
    if "default" not in part:
        return part
    made = {key: value for key, value in part.items() if key != "default"}
    if part["default"] is not None:
        made["description"] = described(part.get("description"), [sentence_of("default", part["default"])])
    return made


def _simply(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return OpenAI's strict form where every parameter is plain."""
    properties = _plain_parts(schema)
    if properties is None:
        return None
    required = schema.get("required", ())
    made: dict[str, Any] = {}
    for name, part in properties.items():
        if name in required:
            made[name] = _told(part)
        else:
            made[name] = {**_told(part), "type": [part["type"], "null"]}
    whole = {"type": "object", "properties": made, "required": list(made), "additionalProperties": False}
    if "description" in schema:
        whole["description"] = schema["description"]
    return whole


def _loose(schema: Mapping[str, Any], dialect: Dialect, reason: str) -> Narrowed:
    properties = _plain_parts(schema)
    if properties is not None and all(map(_PORTABLE, properties)):
        return Narrowed(dict(schema), reason=reason)
    walk = Walk(schema, dialect)
    top = walk.flattened(schema)
    if top.get("type", "object") != "object":
        walk.lose("$", f"its schema is of type {top['type']!r}, not an object", meaning=True)
    top = {"type": "object", "properties": {}, **top}
    whole = _patched(top, walk, 0)
    whole.pop("$schema", None)
    return Narrowed(whole, reason=reason, losses=tuple(walk.losses), keys=walk.keys)


def _patched(node: Any, walk: Walk, depth: int) -> Any:
    """Return a schema with what the API insists on: an array that says its items, property names that it takes."""
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return node
    node = modern(node)
    made, dialect = dict(node), walk.dialect
    for key, held in node.items():
        if key in _MAPS and isinstance(held, Mapping):
            inside = {name: _patched(part, walk, depth + 1) for name, part in held.items()}
            made[key] = walk.taken(inside) if key == "properties" else inside
        elif key in _LISTS and isinstance(held, list):
            made[key] = [_patched(part, walk, depth + 1) for part in held]
        elif key in _SINGLE:
            made[key] = _patched(held, walk, depth + 1)
        elif key == "required" and isinstance(held, list):
            made[key] = [walk.key(name) for name in held]
    if dialect.needs_items and node.get("type") == "array":
        made.setdefault("items", {})
    if dialect.needs_items and node.get("type") == "object" and "additionalProperties" not in node:
        made.setdefault("properties", {})
    return made
