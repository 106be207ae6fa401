"""A schema that came from a database or an API is checked at a bounded cost, or refused with a reason."""

import re

import pytest

from toolmason import Tool, Toolbox
from toolmason.errors import DefinitionError, LossyDefinition


def tool_of(schema, **options):
    return Tool.from_schema("t", "d", {"type": "object", **schema}, lambda arguments, _: arguments, **options)


def box_of(part, **keywords):
    return Toolbox(tool_of({"properties": {"x": part}, **keywords}))


def fan(keyword, levels):
    definitions = {f"n{n}": {keyword: [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(levels)}
    return {
        "properties": {"x": {"$ref": "#/$defs/n0"}},
        "$defs": {**definitions, f"n{levels}": {"type": "object"}},
    }


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_parts_multiply_is_refused(keyword):
    with pytest.raises(DefinitionError, match="its input schema is too complex"):
        Toolbox(tool_of(fan(keyword, 30))).call_sync("t", {})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_few_levels_of_parts_are_fine(keyword):
    result = Toolbox(tool_of(fan(keyword, 5))).call_sync("t", {"x": "no object"})

    assert result.error.code == "invalid_arguments"


def test_a_schema_that_describes_a_tree_is_fine():
    tree = {"type": "object", "properties": {side: {"$ref": "#/$defs/tree"} for side in ("a", "b")}}
    box = box_of({"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}, **{"$defs": {"tree": tree}})

    assert box.call_sync("t", {"x": {"a": {"b": {}}}}).ok
    assert not box.call_sync("t", {"x": {"a": {"b": 1}}}).ok


def test_arguments_that_fit_too_many_ways_are_refused():
    definitions = {
        f"n{n}": {"anyOf": [{"properties": {"a": {"$ref": f"#/$defs/n{n + 1}"}}, "required": [key]} for key in "ab"]}
        for n in range(30)
    }
    box = box_of({"$ref": "#/$defs/n0"}, **{"$defs": {**definitions, "n30": {"type": "string"}}})
    text = '{"b": 1, "a":' * 30 + "1" + "}" * 30
    result = box.call_sync("t", f'{{"x": {text}}}')

    assert "fit too many alternatives of the schema" in result.text


def test_a_tool_that_no_provider_can_take_is_refused_for_it():
    tree = {"allOf": [{"properties": {side: {"allOf": [{"$ref": "#/$defs/tree"}, {}]} for side in ("a", "b")}}]}
    box = box_of({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}})

    with pytest.raises(LossyDefinition, match="the schema is too complex: its parts refer to each other too often"):
        box.definitions("gemini")


def test_a_schema_of_allof_becomes_one_object_however_often_it_is_named():
    [made] = Toolbox(tool_of({**fan("allOf", 8), "additionalProperties": False})).definitions("gemini")

    assert made["functionDeclarations"][0]["parametersJsonSchema"]["$defs"]["n0"]["type"] == "object"


def test_nothing_is_fetched_that_a_schema_refers_to():
    box = box_of({"$ref": "http://127.0.0.1:9/schema"})

    assert box.call_sync("t", {"x": 1}).error is not None


PATTERNS = {
    "^[a-z]+$": ("abc", "Abc"),
    r"^\d{4}-\d{2}$": ("2024-05", "2024-5"),
    "b": ("abc", "acd"),
    r"^(?=.*[A-Z])(?=.*\d).{8,}$": ("Passw0rdPassw0rd", "password"),
    r"(?<!a)b": ("cb", "ab"),
    r"^(\w)\1$": ("aa", "ab"),
    r"^[\w.+-]+@[\w-]+\.[\w.]+$": ("a@b.org", "a@b"),
    r"^[a&&b]$": ("&", "c"),
    r"\A\S+\Z": ("abc", "a c"),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_as_ever(pattern):
    fitting, other = PATTERNS[pattern]
    box = box_of({"type": "string", "pattern": pattern})

    assert (bool(re.search(pattern, fitting)), bool(re.search(pattern, other))) == (True, False)
    assert box.call_sync("t", {"x": fitting}).ok
    assert box.call_sync("t", {"x": other}).error.code == "invalid_arguments"


HOSTILE = [
    f"^({body}){sign}$" for body in ("a+", "a*", "a|a", "(a+)+", "a?", r"\w+\s?") for sign in ("+", "*", "{1,50}")
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_that_backtracks_is_searched_in_linear_time(pattern):
    box = box_of({"type": "string", "pattern": pattern}, patternProperties={pattern: {}}, additionalProperties=False)

    assert box.call_sync("t", {"x": "a" * 50_000 + "!"}).error.code == "invalid_arguments"
    assert box.call_sync("t", {"x": "a", "a" * 50_000 + "!": 1}).ok, "an unknown argument is dropped"


@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("around", ["(?=a){}", "{}(?!b)", r"(c)\1{}"], ids=["ahead", "not ahead", "back-reference"])
def test_a_pattern_that_would_take_exponential_time_is_refused(pattern, around):
    hostile = around.format(pattern.strip("^$")) + "$"

    with pytest.raises(DefinitionError, match="can take exponential time"):
        box_of({"type": "string", "pattern": hostile}).call_sync("t", {})


def test_a_text_that_is_too_long_for_its_pattern_is_refused():
    box = box_of({"type": "string", "pattern": r"^(?!b)a*a*a*c"})

    assert box.call_sync("t", {"x": "aac"}).ok
    assert "too many alternatives" in box.call_sync("t", {"x": "a" * 5_000}).text


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, 1.0], False),
        ([True, 1], True),
        ([{"a": 1}, {"a": 1}], False),
        ([[1], [2], "1"], True),
        ([None, False], True),
    ],
)
def test_items_are_unique_as_json_values(items, unique):
    assert box_of({"type": "array", "uniqueItems": True}).call_sync("t", {"x": items}).ok is unique


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"type": "object", "minProperties": 3}, {"api_key": "s3cr3t-value"}),
        ({"type": "array", "uniqueItems": True}, [{"token": "s3cr3t-value"}] * 2),
        ({"not": {"type": "object"}}, {"password": "s3cr3t-value"}),
    ],
    ids=str,
)
def test_a_problem_does_not_show_the_fields_of_a_value(part, value):
    result = box_of(part).call_sync("t", {"x": value})

    assert result.error.code == "invalid_arguments"
    assert "s3cr3t" not in result.text


@pytest.mark.parametrize("reference", ["#/$defs/none", "http://a.example/b", "#none", "#/properties/y/%", "other"])
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
async def test_a_reference_to_nothing_is_a_problem_and_no_failure_of_the_tool(reference, keyword):
    error = (await box_of({keyword: reference}).call("t", {"x": 1})).error

    assert error.code == "invalid_arguments"
    assert "refers to a part that it does not have" in str(error)


@pytest.mark.parametrize(
    ("part", "value"),
    [({"multipleOf": 1e-7}, 10**400), ({"multipleOf": 0.5}, 10**4000), ({"multipleOf": 10**400}, 1.5)],
    ids=["tiny factor", "long number", "long factor"],
)
async def test_a_number_that_no_float_can_hold_is_a_problem_of_the_arguments(part, value):
    box = Toolbox(
        Tool.from_schema("t", "d", {"type": "object", "properties": {"x": part}}, lambda arguments, _: "done")
    )

    assert (await box.call("t", {"x": value})).error.code == "invalid_arguments"


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [([True, 1], True), ([True, [1]], True), ([False, [0], 0, []], True), ([1, 1.0], False), ([[True], [True]], False)],
    ids=str,
)
def test_items_are_unique_as_json_compares_them(items, is_unique):
    result = box_of({"type": "array", "uniqueItems": True}).call_sync("t", {"x": items})

    assert result.ok is is_unique
