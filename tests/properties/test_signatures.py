"""For every signature: a valid schema, valid arguments arrive as they are, others never get through unseen."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from properties.shapes import SHAPES, Shape, function_of, functions, same
from toolmason.errors import InvalidArguments

pytestmark = pytest.mark.fuzz

generous = settings(print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# Twice the same item is the same set: nothing is lost, so nothing needs a repair.
Lenient = extend(Draft202012Validator, {"uniqueItems": lambda *_: None})

REPLACEMENTS = [None, True, False, 0, 5, 10**30, 1.0, 1.5, "", "x", "5", "-1.50", "TRUE", "null", "RED", "blue", "low"]
REPLACEMENTS += ["[1]", "[", '{"a": 1}', "2024-01-01", [], {}, [None], [1, 1], ["5"], {"a": 1}, {"kind": "cat"}]


def places(tree, path=()):
    """Yield the way to everything in a JSON value."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, item in items:
        yield from places(item, (*path, step))


@st.composite
def mutated(draw, tree):
    """Return a JSON object in which one to three things were changed."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in places(tree) if path] or [("new",)]))
        holder = tree
        for step in path[:-1]:
            holder = holder[step]
        old = holder.get(path[-1]) if isinstance(holder, dict) else holder[path[-1]]
        how = draw(st.sampled_from(["replace", "drop", "as text", "in a list", "twice", "more"]))
        if how == "drop" and isinstance(holder, dict):
            holder.pop(path[-1], None)
        elif how == "as text":
            holder[path[-1]] = json.dumps(old)
        elif how == "in a list":
            holder[path[-1]] = [old]
        elif how == "twice" and isinstance(holder, list):
            holder.append(old)
        elif how == "more" and isinstance(holder, dict):
            holder["unexpected"] = copy.deepcopy(draw(st.sampled_from(REPLACEMENTS)))
        else:
            holder[path[-1]] = copy.deepcopy(draw(st.sampled_from(REPLACEMENTS)))
    return tree


def paths_of_nulls(errors):
    """Yield the paths of the nulls that errors are about, in the members of a union as well."""
    for error in errors:
        if error.instance is None:
            yield list(error.absolute_path)
        else:
            yield from paths_of_nulls(error.context or ())


def is_taken(function, tree):
    """Tell whether the schema takes arguments, less what is ignored by promise: strangers, and null for "left out"."""
    validator = Lenient(function.schema)
    tree = {key: copy.deepcopy(value) for key, value in tree.items() if key in function.shapes}
    while errors := list(validator.iter_errors(tree)):
        nulls = list(paths_of_nulls(errors))
        if not nulls:
            return False
        *way, last = nulls[0]
        holder = tree
        for step in way:
            holder = holder[step]
        if not isinstance(holder, dict):
            return False
        del holder[last]
    return True


@generous
@given(functions())
def test_every_signature_has_a_valid_schema(function):
    Draft202012Validator.check_schema(function.schema)

    assert json.loads(json.dumps(function.schema, allow_nan=False)) == function.schema
    assert function.schema["required"] == [name for name in function.schema["properties"] if name in function.required]
    assert set(function.schema["properties"]) == set(function.shapes)


@generous
@given(st.data())
def test_every_valid_value_is_valid_by_the_schema_and_arrives_equal(data):
    function = data.draw(functions())
    arguments = data.draw(function.arguments)
    text = function.written(arguments)

    Draft202012Validator(function.schema).validate(json.loads(text))
    result = function.box.call_sync("take", text)

    assert result.error is None
    assert result.repairs == ()
    assert same(function.seen[-1], function.expected(arguments))


@generous
@given(st.data())
def test_valid_values_stay_as_they_are_beside_an_argument_that_needs_care(data):
    """A repair, a null or a stranger elsewhere must not have other arguments read another way."""
    function = data.draw(functions())
    arguments = data.draw(function.arguments)
    text = function.written(arguments)

    result = function.box.call_sync("take", f'{text[:-1]}{", " if arguments else ""}"stranger": "5"}}')

    assert result.error is None
    assert {repair.rule for repair in result.repairs} <= {"undeclared"}
    assert same(function.seen[-1], function.expected(arguments))


@generous
@given(st.data())
def test_valid_values_stay_as_they_are_beside_an_item_that_is_repaired(data):
    shape = data.draw(SHAPES)
    value = data.draw(shape.values)
    pair = Shape(tuple[shape.hint, int], st.nothing(), frozenset({"array"}))
    function = function_of({"pair": pair}, {}, ["pair"])

    result = function.box.call_sync("take", f'{{"pair": [{shape.written(value)}, "7"]}}')

    assert result.error is None
    assert [(repair.path, repair.before, repair.after) for repair in result.repairs] == [("$.pair[1]", "7", 7)]
    assert same(function.seen[-1]["pair"], (value, 7))


@generous
@given(st.data())
def test_python_values_arrive_equal_too(data):
    function = data.draw(functions())
    arguments = data.draw(function.arguments)

    result = function.box.call_sync("take", arguments)

    assert result.error is None
    assert same(function.seen[-1], function.expected(arguments))


@generous
@given(st.data())
def test_what_the_schema_rejects_is_a_typed_error_or_a_recorded_repair_and_never_of_a_wrong_type(data):
    function = data.draw(functions())
    valid = json.loads(function.written(data.draw(function.arguments)))
    tree = data.draw(mutated(valid))

    result = function.box.call_sync("take", json.dumps(tree))

    if result.error is not None:
        assert isinstance(result.error, InvalidArguments)
        assert json.loads(result.text)["error"]["parameters"]
        assert function.seen == []
    else:
        assert result.repairs or is_taken(function, tree)
        assert all(function.shapes[name].conforms(value) for name, value in function.seen[-1].items())


@generous
@given(st.data())
def test_strict_types_take_only_what_the_schema_takes(data):
    function = data.draw(functions(strict_types=True))
    tree = data.draw(mutated(json.loads(function.written(data.draw(function.arguments)))))

    result = function.box.call_sync("take", json.dumps(tree))

    assert {repair.rule for repair in result.repairs} <= {"undeclared"}
    assert isinstance(result.error, InvalidArguments) or is_taken(function, tree)
