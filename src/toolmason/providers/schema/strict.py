"""Decide whether a tool's schema is sent in strict mode, and adapt it to the provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.define.schema_nodes import (
    LIST_KEYWORDS,
    MAPPING_KEYWORDS,
    SINGLE_KEYWORDS,
    find_malformed_keyword,
    get_own_types,
)
from toolmason._core.values.provider_tools import Strict
from toolmason.errors import ConfigError
from toolmason.providers.schema.dialects import ANTHROPIC, ANTHROPIC_STRICT, GEMINI, OPENAI, OPENAI_STRICT, Dialect
from toolmason.providers.schema.losses import Loss, NarrowedSchema
from toolmason.providers.schema.merge import CHANGED_KEYWORDS, SchemaTooComplex, modernize
from toolmason.providers.schema.narrow import USUAL_ROOT, SchemaNarrower, SharedParts

_SCALARS: Final = ("string", "integer", "number", "boolean")
_PATCHED_KEYWORDS: Final = frozenset(
    {"required", *MAPPING_KEYWORDS, *LIST_KEYWORDS, *SINGLE_KEYWORDS, *CHANGED_KEYWORDS}
)
_PLAIN_KEYWORDS: Final = frozenset({"type", "description", "minimum", "maximum", "default"})
_FAILURES: Final = (SchemaTooComplex, RecursionError, TypeError, AttributeError)
_MAX_DEPTH: Final = 200
_MAX_PLAIN_PROPERTIES: Final = 100
_match_portable_name: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch


def check_strict(strict: Any) -> Strict:
    """Return a valid `strict` option.

    Raises:
        ConfigError: the value is invalid.
    """
    if strict is True or strict is False or strict == "auto":
        return strict  # type: ignore[no-any-return]
    raise ConfigError(f'strict={strict!r}: must be True, False or "auto".')


def fit_openai(schema: Mapping[str, Any], strict: Strict, shared: SharedParts | None = None) -> NarrowedSchema:
    """Return a schema that OpenAI accepts: strict if nothing is lost or if strict mode is requested."""
    if strict is False:
        return _fit_loosely(schema, OPENAI, "strict=False", shared)
    narrowed = _narrow(schema, OPENAI_STRICT, shared, strict=True)
    if strict is True or not narrowed.losses:
        return narrowed
    blocking = next((loss for loss in narrowed.losses if loss.changes_meaning), narrowed.losses[0])
    return _fit_loosely(schema, OPENAI, str(blocking), shared)


def fit_anthropic(schema: Mapping[str, Any], strict: Strict, shared: SharedParts | None = None) -> NarrowedSchema:
    """Return a schema that Anthropic accepts: strict only if requested, because a request may hold few strict tools."""
    if strict is not True:
        reason = "strict=False" if strict is False else "Anthropic limits strict tools per request; pass strict=True"
        return _fit_loosely(schema, ANTHROPIC, reason, shared)
    return _narrow(schema, ANTHROPIC_STRICT, shared, strict=True)


def fit_gemini(schema: Mapping[str, Any], strict: Strict, shared: SharedParts | None = None) -> NarrowedSchema:
    """Return a schema for Gemini's `parametersJsonSchema`; strict mode applies to a whole request."""
    reason = "" if strict is True else "Gemini applies strict mode to a whole request; pass strict=True"
    return _narrow(schema, GEMINI, shared, strict=strict is True, reason=reason)


def fit_mcp(schema: Mapping[str, Any], strict: Strict, shared: SharedParts | None = None) -> NarrowedSchema:
    """Return the schema unchanged: MCP accepts any."""
    del strict, shared
    return NarrowedSchema(dict(schema), reason="MCP has no strict mode")


def _narrow(
    schema: Mapping[str, Any], dialect: Dialect, shared: SharedParts | None, *, strict: bool, reason: str = ""
) -> NarrowedSchema:
    narrower = SchemaNarrower(schema, dialect, shared)
    try:
        narrowed_schema = narrower.narrow_root(schema)
    except _FAILURES as error:
        return _refuse(schema, reason, error)
    return NarrowedSchema(narrowed_schema, strict, reason, tuple(narrower.losses), narrower.key_aliases)


def _refuse(schema: Mapping[str, Any], reason: str, error: Exception) -> NarrowedSchema:
    """Return the form of a schema that cannot be written out, which no request contains unless it is `lossy`."""
    what = "the schema is too complex: its parts refer to each other too often"
    if isinstance(error, TypeError | AttributeError):
        if (keyword := find_malformed_keyword(schema)) is None:
            raise error
        what = f"the value of `{keyword}` has the wrong type"
    loss = Loss("$", what, changes_meaning=True)
    return NarrowedSchema({"type": "object", "properties": {}}, reason=reason or str(loss), losses=(loss,))


def _is_accepted(schema: Mapping[str, Any], dialect: Dialect, shared: SharedParts) -> bool:
    """Return True if a dialect without strict rules accepts a schema as it is; a full walk costs twice as much."""
    properties = schema.get("properties")
    if type(properties) is not dict or not schema.keys() <= USUAL_ROOT or schema.get("type") != "object":
        return False
    if type(schema.get("required", [])) is not list or len(properties) > _MAX_PLAIN_PROPERTIES:
        return False
    if schema.get("additionalProperties", False) is not False:
        return False
    parts = chain(properties.values(), schema.get("$defs", {}).values())
    return all(map(_match_portable_name, properties)) and all(_is_unchanged(part, dialect, shared) for part in parts)


def _is_unchanged(part: Any, dialect: Dialect, shared: SharedParts) -> bool:
    if type(part) is not dict:
        return False
    if part.get("type") in _SCALARS and part.keys() <= _PLAIN_KEYWORDS:
        return True
    shape = part.copy()
    shape.pop("description", None)
    try:
        key = to_json(shape)
    except ValueError:  # too deep for the serializer, or not JSON data
        return False
    if (found := shared.unchanged.get(key)) is None:
        narrower = SchemaNarrower({}, dialect)
        is_patched = find_malformed_keyword(shape) is not None or _patch(shape, narrower, 1) != shape
        found = shared.unchanged[key] = not is_patched and not narrower.key_aliases
    return found


def _fit_loosely(
    schema: Mapping[str, Any], dialect: Dialect, reason: str, shared: SharedParts | None
) -> NarrowedSchema:
    try:
        if _is_accepted(schema, dialect, shared or SharedParts()):
            return NarrowedSchema(dict(schema), reason=reason)
        if find_malformed_keyword(schema) is not None:
            raise TypeError  # `_refuse` names the keyword
        narrower = SchemaNarrower(schema, dialect)
        root = {"type": "object", "properties": {}, **narrower.flatten_root(schema)}
        patched = _patch(root, narrower, 0)
    except _FAILURES as error:
        return _refuse(schema, reason, error)
    if root["type"] != "object":
        narrower.add_loss("$", f"the schema has type {root['type']!r}, not 'object'", changes_meaning=True)
    patched.pop("$schema", None)
    return NarrowedSchema(patched, reason=reason, losses=tuple(narrower.losses), keys=narrower.key_aliases)


def _patch(node: Any, narrower: SchemaNarrower, depth: int) -> Any:
    """Return a schema with `items` on arrays and property names that the API accepts."""
    is_node = type(node) is dict or isinstance(node, Mapping)
    if not is_node or depth > _MAX_DEPTH or (node.get("type") in _SCALARS and _PATCHED_KEYWORDS.isdisjoint(node)):
        return node
    node = modernize(node)
    patched = dict(node)
    dialect = narrower.dialect
    for key, value in node.items():
        if key not in _PATCHED_KEYWORDS:
            continue
        if key in MAPPING_KEYWORDS and isinstance(value, Mapping):
            children = {name: _patch(part, narrower, depth + 1) for name, part in value.items()}
            patched[key] = narrower.alias_properties(children) if key == "properties" else children
        elif key in LIST_KEYWORDS and isinstance(value, list):
            patched[key] = [_patch(part, narrower, depth + 1) for part in value]
        elif key in SINGLE_KEYWORDS:
            patched[key] = _patch(value, narrower, depth + 1)
        elif key == "required" and isinstance(value, list):
            patched[key] = [narrower.alias_key(name) for name in value]
    kinds = get_own_types(node) if dialect.requires_items else ()
    if "array" in kinds:
        patched.setdefault("items", {})
    if "object" in kinds and "additionalProperties" not in node:
        patched.setdefault("properties", {})
    return patched
