"""Small values that fit a schema."""

import pytest

from toolmason_local.smallest_values import NO_VALUE, find_smallest, is_valid, resolve

SCHEMAS = {
    "default": {"type": "integer", "default": 7},
    "const": {"const": "x"},
    "enum": {"enum": ["b", "a"]},
    "examples": {"type": "string", "pattern": "^[A-Z]{2}$", "examples": ["CZ"]},
    "length": {"type": "string", "minLength": 3},
    "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"},
    "minimum": {"type": "integer", "minimum": 5},
    "above": {"type": "number", "exclusiveMinimum": 0.5, "maximum": 1},
    "maximum": {"type": "integer", "maximum": -3},
    "multiple": {"type": "integer", "minimum": 11, "multipleOf": 5},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "list": {"type": "array", "minItems": 2, "items": {"type": "string", "minLength": 1}},
    "object": {"type": "object", "properties": {"a": {"type": "integer"}, "b": True}, "required": ["a", "b", "c"]},
    "nullable": {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 1}]},
    "two types": {"type": ["null", "integer"]},
    "anything": {},
    "not a string": {"not": {"type": "string"}},
    "reference": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "minimum": 2}}},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_value_that_fits_is_found(schema):
    value = find_smallest(schema, schema)

    assert value is not NO_VALUE
    assert is_valid(value, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(?=q)qqq-[0-9]{9}$"},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "array", "minItems": 10**9, "items": {}},
        {"$ref": "#", "type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"enum": []}}, "required": ["x"]},
        {"type": 3},
    ],
    ids=["pattern", "impossible", "endless", "recursive", "no choice", "broken"],
)
def test_where_there_is_none_that_is_said(schema):
    assert find_smallest(schema, schema) is NO_VALUE


def test_a_reference_to_nowhere_allows_anything():
    assert resolve({"$ref": "#/$defs/gone/further"}, {}) == {}
    assert resolve(True, {}) == {}
    assert resolve({"anyOf": [{"type": "null"}]}, {}) == {"anyOf": [{"type": "null"}]}


def test_what_is_written_beside_a_reference_stays():
    root = {"$defs": {"n": {"type": "integer"}}}

    assert resolve({"$ref": "#/$defs/n", "default": 3}, root) == {"type": "integer", "default": 3}
