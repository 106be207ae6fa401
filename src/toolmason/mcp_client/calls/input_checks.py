"""Validate arguments against the server's input schema before they are sent, at a bounded cost.

The server writes the schema, so it must not control the cost: keywords that can be expensive are not checked, and steps
are counted. Arguments that exceed the budget are sent unchecked; the server validates them in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from toolmason._core.arguments.nulls import NullSearch
from toolmason._core.define.bounded_checks import (
    INLINE_STEPS,
    BudgetExceeded,
    CheckBudget,
    get_validator_class,
    is_simple,
    surely_matches,
    use_budget,
)
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.schema_nodes import (
    SchemaMismatch,
    find_malformed_keyword,
    get_own_types,
    has_few_alternatives,
    iter_subschemas,
)
from toolmason._core.values.definition import Extra, JsonSchema
from toolmason._wire import parse_json

_log = logging.getLogger("toolmason.mcp")

MAX_STEPS: Final = 5_000
"""Steps of one check, which runs on the event loop: at most about 60 ms."""
_MAX_ERRORS: Final = 50
_MAX_TEXT_BYTES: Final = 256 * 1024
_REFUSED_KEYWORDS: Final = frozenset(
    {"$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "patternProperties"}
)
"""Keywords that move references elsewhere, or run regular expressions of the server."""
_NUMBER_KEYWORDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNT_KEYWORDS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_LIST_KEYWORDS: Final = frozenset({"anyOf", "oneOf", "allOf", "required", "enum", "prefixItems"})
_SCHEMA_KEYWORDS: Final = frozenset({"items", "additionalProperties"})
_CHECKED_KEYWORDS: Final = frozenset(
    {"type", "properties", "const", "$ref"} | _LIST_KEYWORDS | _SCHEMA_KEYWORDS | _NUMBER_KEYWORDS | _COUNT_KEYWORDS
)
_TYPE_NAMES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


def parse_object(text: str | bytes, **kwargs: Any) -> dict[str, Any]:
    """Parse a JSON object."""
    del kwargs
    data = parse_json(text, allow_inf_nan=False)
    if not isinstance(data, dict):
        raise ValueError("the arguments must be a JSON object")  # noqa: TRY004 - validators raise ValueError
    return data


def copy_mapping(value: Any, **kwargs: Any) -> dict[str, Any]:
    """Return a copy of arguments that were passed as a mapping."""
    del kwargs
    return dict(value)


def make_remote_inputs(schema: JsonSchema, owner: str) -> Inputs:
    """Return the inputs of a remote tool: parse its arguments, and check them as far as that is cheap."""
    is_valid = find_malformed_keyword(schema) is None and all(map(_is_well_formed, iter_subschemas(schema)))
    if not is_valid or not has_few_alternatives(schema):
        _log.info("%s: its arguments are not validated here: its input schema is too complex or not valid", owner)
        return Inputs({"type": "object", "properties": {}}, parse_object, copy_mapping, extra="allow")
    checker = InputChecker(schema, owner)
    extra: Extra = "ignore" if schema.get("additionalProperties") is False else "allow"
    return Inputs(schema, checker.validate_json, checker.validate_python, extra=extra)


class InputChecker:
    """Checker of arguments against one input schema."""

    def __init__(self, schema: JsonSchema, owner: str) -> None:
        self._schema, self._owner = schema, owner
        self._is_simple = is_simple(schema)
        self._is_checkable = all(map(_REFUSED_KEYWORDS.isdisjoint, iter_subschemas(_without_dialect(schema))))
        self._validator: Any = None

    def validate_json(self, text: str | bytes, **kwargs: Any) -> dict[str, Any]:
        """Parse arguments and check them.

        Raises:
            ValueError: they are not a JSON object, or do not match the schema.
        """
        data = parse_object(text, **kwargs)
        if len(text) <= _MAX_TEXT_BYTES:
            self._check(data)
        return data

    def validate_python(self, value: Any, **kwargs: Any) -> dict[str, Any]:
        """Copy arguments and check them.

        Raises:
            ValueError: they do not match the schema.
        """
        data = copy_mapping(value, **kwargs)
        self._check(data)
        return data

    def _check(self, data: dict[str, Any]) -> None:
        if self._is_simple and surely_matches(self._schema, data, [INLINE_STEPS]):
            return
        errors: list[Any] = []
        if self._is_checkable:
            try:
                validator = self._get_validator()  # imports jsonschema the first time, which must not use up the budget
                with use_budget(CheckBudget(MAX_STEPS)):
                    errors = list(islice(validator.iter_errors(data), _MAX_ERRORS))
            except BudgetExceeded:
                _log.info("%s: arguments not validated: it would take too long", self._owner)
            except Exception:  # noqa: BLE001 - a schema that the server wrote may fail in any way, and must not fail the call
                _log.info("%s: arguments not validated: its input schema is not valid", self._owner)
                self._is_checkable = False
        # Even if the schema could not be checked, nulls can be read as "omitted".
        if errors or NullSearch(self._schema).drop(data, self._schema) != data:
            raise SchemaMismatch(errors, self._schema)

    def _get_validator(self) -> Any:
        if self._validator is None:
            from referencing import Registry  # noqa: PLC0415 - only for arguments that are not surely valid

            # The empty registry has no function to retrieve a schema from the network.
            self._validator = get_validator_class(_CHECKED_KEYWORDS)(
                _without_dialect(self._schema), registry=Registry()
            )
        return self._validator


def _without_dialect(schema: JsonSchema) -> JsonSchema:
    return {name: value for name, value in schema.items() if name not in ("$schema", "$id")}


def _is_well_formed(node: Mapping[str, Any]) -> bool:
    """Return True if the other keywords of a schema have their types. The metaschema takes 0.4 ms for each node."""
    return (
        _TYPE_NAMES.issuperset(get_own_types(node))
        and all(isinstance(node[key], dict | bool) for key in _SCHEMA_KEYWORDS & node.keys())
        and all(type(node[key]) in (int, float) for key in _NUMBER_KEYWORDS & node.keys())
        and all(type(node[key]) is int for key in _COUNT_KEYWORDS & node.keys())
        and node.get("multipleOf", 1) > 0
    )
