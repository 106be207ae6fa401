"""Results against the schema of their server: found wrong where they are, and never at a price that a server sets."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp_types import CallToolResult
from pydantic_core import to_json

from toolmason import Toolbox
from toolmason._core.define import bounded_checks
from toolmason._core.define.bounded_checks import get_validator_class, use_budget
from toolmason.mcp_client.calls.input_checks import InputChecker
from toolmason.mcp_client.calls.output_checks import (
    INLINE_STEPS,
    BudgetExceeded,
    CheckBudget,
    OutputChecker,
    find_error,
    make_validator,
    surely_matches,
)
from toolmason.mcp_client.calls.remote_tools import RemoteTool

ENOUGH = CheckBudget(10_000)


def schema_of(items):
    return {"type": "object", "properties": {"a": {"type": "array", "items": items}}}


def tool_with(output, structured):
    entry = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": output}
    answer = CallToolResult.model_validate({"content": [], "structuredContent": structured}, by_name=False)

    async def call(*_):
        return answer

    return RemoteTool("evil", entry, call)


@pytest.mark.parametrize("branches", [60, 200])
async def test_a_result_that_would_take_minutes_to_check_is_passed_on(branches):
    output = schema_of({"anyOf": [*[{"type": "string"}] * branches, {"type": "integer"}]})
    box = Toolbox(tool_with(output, {"a": [1] * 60_000}))

    result = await box.call("t", {})

    assert result.value == {"a": [1] * 60_000}


async def test_a_result_that_does_not_fit_is_refused_each_time():
    box = Toolbox(tool_with(schema_of({"type": "integer"}), {"a": [1, "x"]}))

    first, second = await box.call("t", {}), await box.call("t", {})

    assert "does not match its output schema: $.a[1]: 'x' is not of type 'integer'" in first.text
    assert second.text == first.text


async def test_more_than_a_few_steps_are_taken_in_a_thread():
    checker = OutputChecker(schema_of({"type": "integer"}), "evil/t")
    await checker.find_misfit({"a": []})

    found = await checker.find_misfit({"a": [1] * 400 + ["x"]})

    assert "$.a[400]" in found


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"anyOf": [*[{"type": "string"}] * 60, {}]}, [1] * 200),
        ({"enum": [*["x" * 9] * 1000, "y"]}, ["y"] * 200),
        ({"required": [str(i) for i in range(1000)]}, [{str(i): 1 for i in range(1000)}] * 20),
        ({"allOf": [{"additionalProperties": True}] * 60}, [{str(i): 1 for i in range(5000)}] * 2),
        ({"anyOf": [{"type": "string"}] * 60}, [[0] * 60_000]),
    ],
    ids=["branches", "compared", "required", "keys", "words"],
)
def test_every_kind_of_work_is_counted(items, value):
    validator = make_validator(to_json(schema_of(items)))

    with pytest.raises(BudgetExceeded):
        find_error(validator, {"a": value}, CheckBudget(2000))


async def test_a_machine_that_stands_still_does_not_end_a_check(monkeypatch):
    """A garbage collection of a large program takes longer than a check, and on the same thread."""
    for clock in ("monotonic", "thread_time"):
        times = itertools.count(step=60.0)
        monkeypatch.setattr(bounded_checks, clock, lambda times=times: next(times), raising=False)
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer", "maximum": 9}}}}

    assert InputChecker(schema, "far/t").validate_python({"a": [1]}) == {"a": [1]}
    with pytest.raises(ValueError, match="do not match"):
        InputChecker(schema, "far/t").validate_python({"a": [1, 10]})


def test_a_reference_costs_as_many_steps_as_its_path_has_parts():
    deep: dict[str, object] = {}
    for _ in range(200):
        deep = {"properties": {"x": deep}}
    reference = "#/$defs/deep" + "/properties/x" * 200
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"deep": deep}}
    budget = CheckBudget(10_000)
    with use_budget(budget):
        assert list(get_validator_class()(schema).iter_errors({"a": 1})) == []

    assert 400 < 10_000 - budget.steps < 500


@pytest.mark.parametrize(
    "schema",
    [
        schema_of({"pattern": "(a+)+$"}),
        schema_of({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}),
        schema_of({"required": [[1], "a"] * 5000}),
        schema_of({"type": 5}),
        {"type": "object", "allOf": [{}] * 301},
    ],
    ids=["regular expression", "another dialect", "unsorted list", "no schema", "many parts"],
)
def test_a_schema_that_would_get_round_the_count_is_not_used(schema):
    assert make_validator(to_json(schema)) is None


def test_the_dialect_at_the_root_does_not_choose_the_validator():
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema_of({"type": "integer"})}

    assert "$.a[0]" in find_error(make_validator(to_json(schema)), {"a": ["x"]}, ENOUGH)


async def test_a_value_that_is_too_large_is_not_checked():
    assert await OutputChecker(schema_of({"type": "integer"}), "evil/t").find_misfit({"a": ["x" * 300_000]}) is None


# --- plain schemas --------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def objects(inner):
    parts = {
        "type": st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null"]),
        "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
        "items": inner,
        "additionalProperties": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=parts)


@given(st.recursive(objects(st.just({})), objects, max_leaves=5), VALUES)
def test_what_is_taken_without_a_validator_would_be_taken_by_one(schema, value):
    taken = surely_matches(schema, value, [INLINE_STEPS])

    assert not taken or Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "value", "taken"),
    [
        (
            {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]},
            {"result": "a"},
            True,
        ),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2], True),
        ({"type": "array", "items": {"type": "integer"}}, [1] * 1000, False),
        ({"type": "integer"}, True, False),
        ({"type": "number"}, 1.5, True),
    ],
)
def test_plain_results_need_no_validator(schema, value, taken):
    assert surely_matches(schema, value, [INLINE_STEPS]) is taken


@pytest.mark.parametrize("schema", [{"properties": 5}, {"items": [1]}, {"properties": {"a": 5}}, {"required": 5}])
async def test_what_is_no_schema_checks_nothing_and_breaks_nothing(schema):
    assert await OutputChecker(schema, "it").find_misfit({"a": 1}) is None
