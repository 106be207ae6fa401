"""Every change of a schema, and for whom it breaks something: callers (input) or readers (output)."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolmason.build.compare.schema_diff import MAX_DIFFERENCES, compare_schemas
from toolmason.errors import DefinitionError

S, INT, N, B, NULL = ({"type": kind} for kind in ("string", "integer", "number", "boolean", "null"))


def obj(properties=None, required=(), **more):
    return {"type": "object", "properties": properties or {}, "required": list(required), **more}


def one(schema, *, required=True):
    """An object with one property of this schema."""
    return obj({"x": schema}, ["x"] if required else [])


def array(items, **more):
    return {"type": "array", "items": items, **more}


def either(*branches):
    return {"anyOf": list(branches)}


def defined(name, schema):
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{name}"}}, "$defs": {name: schema}}


SAME, WIDER, NARROWER, OTHER = "same", "wider", "narrower", "other"
BREAKS = {SAME: (False, False), WIDER: (False, True), NARROWER: (True, False), OTHER: (True, True)}
"""Whether a change breaks callers, and whether it breaks readers."""

# name: (old, new, what it is)
TABLE = {
    # types
    "integer to number": (one(INT), one(N), WIDER),
    "number to integer": (one(N), one(INT), NARROWER),
    "string to integer": (one(S), one(INT), OTHER),
    "anything to string": (one({}), one(S), NARROWER),
    "string to anything": (one(S), one({}), WIDER),
    "true to string": (one(True), one(S), NARROWER),
    "one type to two": (one(S), one({"type": ["string", "integer"]}), WIDER),
    "two types to one": (one({"type": ["string", "integer"]}), one(S), NARROWER),
    "array to one item": (one(array(S)), one(S), OTHER),
    "object to string": (one(obj()), one(S), OTHER),
    # null
    "null allowed": (one(S), one(either(S, NULL)), WIDER),
    "null refused": (one(either(S, NULL)), one(S), NARROWER),
    "null written another way": (one(either(S, NULL)), one({"type": ["null", "string"]}), SAME),
    # properties
    "optional property added, open": (obj(), obj({"a": S}), SAME),
    "optional property added, closed": (
        obj(additionalProperties=False),
        obj({"a": S}, additionalProperties=False),
        WIDER,
    ),
    "required property added, open": (obj(), obj({"a": S}, ["a"]), NARROWER),
    "required property added, closed": (
        obj(additionalProperties=False),
        obj({"a": S}, ["a"], additionalProperties=False),
        OTHER,
    ),
    "optional property removed": (obj({"a": S}), obj(), NARROWER),
    "required property removed": (obj({"a": S}, ["a"]), obj(), OTHER),
    "property made required": (one(S, required=False), one(S), NARROWER),
    "property made optional": (one(S), one(S, required=False), WIDER),
    "property in another case": (obj({"city": S}), obj({"City": S}), NARROWER),
    "properties in another order": (obj({"a": S, "b": INT}), obj({"b": INT, "a": S}), SAME),
    "required in another order": (obj({"a": S, "b": S}, ["a", "b"]), obj({"a": S, "b": S}, ["b", "a"]), SAME),
    "additional properties refused": (obj(), obj(additionalProperties=False), NARROWER),
    "additional properties allowed": (obj(additionalProperties=False), obj(), WIDER),
    "additional properties allowed, said": (obj(), obj(additionalProperties=True), SAME),
    "additional properties typed": (obj(), obj(additionalProperties=S), NARROWER),
    "additional properties of another type": (obj(additionalProperties=INT), obj(additionalProperties=N), WIDER),
    "additional properties untyped": (obj(additionalProperties=S), obj(), WIDER),
    "pattern of names added": (obj(), obj(patternProperties={"^x": S}), NARROWER),
    "names limited": (obj(), obj(propertyNames={"maxLength": 3}), OTHER),
    "fewest properties raised": (obj(), obj(minProperties=1), NARROWER),
    # choices
    "enum grown": (one({"enum": ["a"]}), one({"enum": ["a", "b"]}), WIDER),
    "enum shrunk": (one({"enum": ["a", "b"]}), one({"enum": ["a"]}), NARROWER),
    "enum changed": (one({"enum": ["a"]}), one({"enum": ["b"]}), OTHER),
    "enum in another order": (one({"enum": ["a", "b"]}), one({"enum": ["b", "a"]}), SAME),
    "enum to its type": (one({"type": "string", "enum": ["a"]}), one(S), WIDER),
    "type to enum": (one(S), one({"type": "string", "enum": ["a"]}), NARROWER),
    "enum without a type to a type": (one({"enum": ["a", "b"]}), one(S), WIDER),
    "const to enum": (one({"const": "a"}), one({"enum": ["a", "b"]}), WIDER),
    "const is an enum of one": (one({"const": 1}), one({"enum": [1]}), SAME),
    "true is not one": (one({"enum": [1]}), one({"enum": [True]}), OTHER),
    # numbers
    "minimum raised": (one({**INT, "minimum": 1}), one({**INT, "minimum": 2}), NARROWER),
    "minimum lowered": (one({**INT, "minimum": 1}), one({**INT, "minimum": 0}), WIDER),
    "minimum added": (one(INT), one({**INT, "minimum": 1}), NARROWER),
    "minimum dropped": (one({**INT, "minimum": 1}), one(INT), WIDER),
    "minimum made exclusive": (one({**N, "minimum": 1}), one({**N, "exclusiveMinimum": 1}), NARROWER),
    "maximum raised": (one({**INT, "maximum": 1}), one({**INT, "maximum": 2}), WIDER),
    "maximum lowered": (one({**INT, "maximum": 2}), one({**INT, "maximum": 1}), NARROWER),
    "maximum made inclusive": (one({**N, "exclusiveMaximum": 5}), one({**N, "maximum": 5}), WIDER),
    "both bounds moved": (one({**INT, "minimum": 0, "maximum": 5}), one({**INT, "minimum": 1, "maximum": 6}), OTHER),
    "multiple added": (one(INT), one({**INT, "multipleOf": 2}), NARROWER),
    "multiple of the multiple": (one({**INT, "multipleOf": 2}), one({**INT, "multipleOf": 4}), NARROWER),
    "part of the multiple": (one({**INT, "multipleOf": 4}), one({**INT, "multipleOf": 2}), WIDER),
    "another multiple": (one({**INT, "multipleOf": 2}), one({**INT, "multipleOf": 3}), OTHER),
    # texts
    "longer texts": (one({**S, "maxLength": 5}), one({**S, "maxLength": 9}), WIDER),
    "shorter texts": (one(S), one({**S, "maxLength": 9}), NARROWER),
    "fewest letters raised": (one({**S, "minLength": 1}), one({**S, "minLength": 2}), NARROWER),
    "pattern added": (one(S), one({**S, "pattern": "^a"}), NARROWER),
    "pattern dropped": (one({**S, "pattern": "^a"}), one(S), WIDER),
    "pattern changed": (one({**S, "pattern": "^a"}), one({**S, "pattern": "^b"}), OTHER),
    "format added": (one(S), one({**S, "format": "date"}), NARROWER),
    "format dropped": (one({**S, "format": "date"}), one(S), WIDER),
    "format changed": (one({**S, "format": "date"}), one({**S, "format": "time"}), OTHER),
    # lists
    "items widened": (one(array(INT)), one(array(N)), WIDER),
    "items of items narrowed": (one(array(array(N))), one(array(array(INT))), NARROWER),
    "items typed": (one({"type": "array"}), one(array(S)), NARROWER),
    "more items": (one(array(S, maxItems=2)), one(array(S, maxItems=5)), WIDER),
    "fewest items raised": (one(array(S)), one(array(S, minItems=1)), NARROWER),
    "items made unique": (one(array(S)), one(array(S, uniqueItems=True)), NARROWER),
    "unique said to be false": (one(array(S)), one(array(S, uniqueItems=False)), SAME),
    "item of a tuple widened": (
        one({"type": "array", "prefixItems": [INT]}),
        one({"type": "array", "prefixItems": [N]}),
        WIDER,
    ),
    "longer tuple": (
        one({"type": "array", "prefixItems": [INT]}),
        one({"type": "array", "prefixItems": [INT, INT]}),
        OTHER,
    ),
    "list of objects grown": (
        one(array(obj({"a": S}, ["a"]))),
        one(array(obj({"a": S, "b": S}, ["a", "b"]))),
        NARROWER,
    ),
    # alternatives
    "alternative added": (one(either(S, INT)), one(either(S, INT, B)), WIDER),
    "alternative dropped": (one(either(S, INT, B)), one(either(S, INT)), NARROWER),
    "alternatives in another order": (one(either(S, INT)), one(either(INT, S)), SAME),
    "anyOf to oneOf": (one(either(S, INT)), one({"oneOf": [S, INT]}), SAME),
    "alternative that another covers": (one(either(INT, N)), one(N), SAME),
    "alternative narrowed": (one(either(array(N), NULL)), one(either(array(INT), NULL)), NARROWER),
    "allOf of one": (one({"allOf": [S]}), one(S), SAME),
    "not": (one(S), one({**S, "not": {"const": ""}}), OTHER),
    # references
    "definition under another name": (defined("Order", obj({"a": S})), defined("Purchase", obj({"a": S})), SAME),
    "definition written out": (defined("Order", obj({"a": S})), one(obj({"a": S}), required=False), SAME),
    "definition narrowed": (defined("Order", obj({"a": S})), defined("Order", obj({"a": S}, ["a"])), NARROWER),
    "reference to nowhere": (one({"$ref": "#/$defs/No"}), one(S), OTHER),
    # words
    "description": (one({**S, "description": "a"}), one({**S, "description": "b"}), SAME),
    "title": (one({**S, "title": "a"}), one(S), SAME),
    "examples": (one(S), one({**S, "examples": ["a"]}), SAME),
    "default added": (one(S, required=False), one({**S, "default": "a"}, required=False), SAME),
    "default dropped": (one({**S, "default": "a"}, required=False), one(S, required=False), SAME),
    "default changed": (one({**S, "default": "a"}), one({**S, "default": "b"}), NARROWER),
    "nothing": (one(S), one(S), SAME),
}


def judged(old, new):
    found = compare_schemas(old, new)
    return tuple(any(difference.breaks(side) for difference in found) for side in ("input", "output"))


def test_the_table_is_long_enough():
    assert len(TABLE) >= 40


@pytest.mark.parametrize("case", TABLE)
def test_a_change_breaks_callers_when_less_is_taken_and_readers_when_more_is_given(case):
    old, new, effect = TABLE[case]

    assert judged(old, new) == BREAKS[effect]


MIRRORED = {WIDER: NARROWER, NARROWER: WIDER, OTHER: OTHER, SAME: SAME}
ONE_WAY = {
    "optional property added, open",  # to add it breaks nobody; to remove it breaks whoever sends it
    "required property added, open",
    "optional property removed",
    "required property removed",
    "property in another case",
    "default changed",
    "list of objects grown",
}


@pytest.mark.parametrize("case", [case for case in TABLE if case not in ONE_WAY and "closed" not in case])
def test_the_way_back_has_the_opposite_effect(case):
    old, new, effect = TABLE[case]

    assert judged(new, old) == BREAKS[MIRRORED[effect]]


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        pytest.param(one(S), one(INT), "$.x", "type changed from string to integer", id="property"),
        pytest.param(one(array(obj({"n": S}))), one(array(obj({"n": INT}))), "$.x[].n", "to integer", id="items"),
        pytest.param(obj({"a b": S}), obj({"a b": INT}), '$["a b"]', "to integer", id="a name with a space"),
        pytest.param(obj(additionalProperties=S), obj(additionalProperties=INT), "$.*", "to integer", id="additional"),
        pytest.param(one({"enum": ["a", "b"]}), one({"enum": ["a"]}), "$.x", 'no longer allows "b"', id="enum"),
        pytest.param(
            one({**INT, "minimum": 1}),
            one({**INT, "minimum": 5}),
            "$.x",
            "changed from at least 1 to at least 5",
            id="bound",
        ),
        pytest.param(one(S), one(either(S, NULL)), "$.x", "also allows null", id="null"),
        pytest.param(
            one({"type": "array", "prefixItems": [S]}),
            one({"type": "array", "prefixItems": [INT]}),
            "$.x[0]",
            "to integer",
            id="tuple",
        ),
    ],
)
def test_a_difference_says_where_and_what(old, new, path, words):
    [found] = compare_schemas(old, new)

    assert found.path == path
    assert words in found.message


def test_a_type_that_contains_itself_is_compared():
    def tree(leaf):
        return {"$ref": "#/$defs/T", "$defs": {"T": obj({"next": {"$ref": "#/$defs/T"}, "leaf": leaf})}}

    assert judged(tree(INT), tree(INT)) == (False, False)
    assert [found.path for found in compare_schemas(tree(INT), tree(N))] == ["$.leaf"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, S, id="a ring of references"),
        pytest.param({"$ref": "https://example.test/x"}, S, id="a reference elsewhere"),
        pytest.param({"properties": 5, "required": "x", "enum": 3, "anyOf": "y"}, obj({"a": S}), id="malformed"),
        pytest.param(
            {"type": "object", "minimum": "x", "maxLength": None}, {"minimum": 3, "type": "object"}, id="bounds"
        ),
        pytest.param(5, S, id="not a schema"),
        pytest.param({"enum": [{"a": [1]}, None, True, 1.5]}, {"enum": []}, id="odd values"),
    ],
)
def test_schemas_that_make_no_sense_are_compared_without_an_error(old, new):
    assert compare_schemas(old, new)
    assert compare_schemas(new, old)


def test_a_schema_that_doubles_with_each_reference_is_compared_in_time():
    def doubled(leaf):
        parts = {
            f"L{n}": obj({"a": {"$ref": f"#/$defs/L{n + 1}"}, "b": {"$ref": f"#/$defs/L{n + 1}"}}) for n in range(60)
        }
        return {"$ref": "#/$defs/L0", "$defs": {**parts, "L60": leaf}}

    found = compare_schemas(doubled(S), doubled(INT))

    assert 0 < len(found) <= MAX_DIFFERENCES + 1


def test_a_thousand_alternatives_are_not_compared_one_by_one():
    old = either(*(obj({f"a{n}": S}, [f"a{n}"]) for n in range(500)))
    new = either(*(obj({f"b{n}": S}, [f"b{n}"]) for n in range(500)))

    [found] = compare_schemas(old, new)

    assert "too many to compare" in found.message


def test_a_schema_that_is_nested_without_end_is_an_error():
    deep, other = S, INT
    for _ in range(20_000):
        deep, other = array(deep), array(other)

    with pytest.raises(DefinitionError, match="nested too deeply"):
        compare_schemas(deep, other)


SCHEMAS = st.recursive(
    st.sampled_from([S, INT, N, B, NULL, {}, {"enum": ["a", 1]}, {**INT, "minimum": 3}, {**S, "pattern": "a"}]),
    lambda inner: st.one_of(
        inner.map(array),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: either(*some)),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(obj),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda some: obj(some, list(some))),
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_no_schema_differs_from_its_copy(schema):
    assert [
        found for found in compare_schemas({"x": 1, **schema}, copy.deepcopy(schema)) if found.effect != "words"
    ] == []


@given(SCHEMAS, SCHEMAS)
def test_any_two_schemas_can_be_compared(old, new):
    breaks = [difference.breaks("input") or difference.breaks("output") for difference in compare_schemas(old, new)]

    assert all(isinstance(one, bool) for one in breaks)
