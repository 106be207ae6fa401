"""Arguments as a model writes them: what is taken, what is repaired and recorded, what is refused and how."""

import json
import time
from typing import Annotated, Any, Literal, get_origin

import pydantic
import pytest

from core.takers import Colour, Item, refused, seen_by, take
from toolmason import McpServer, Param, Tool, Toolbox, ToolContext, tool
from toolmason.errors import DefinitionError, ExecutionError, InvalidArguments
from toolmason.extend import EngineSettings

# --- every problem at once ---------------------------------------------------------------------


@pytest.mark.row("L4-17")
async def test_every_problem_is_told_at_once_with_its_path_and_the_tool_is_not_run():
    ran = []

    @tool
    async def order(name: str, count: int, items: list[Item], unit: Literal["C", "F"]) -> None:
        ran.append(1)

    arguments = {"count": "many", "items": [{"sku": "a"}, {"sku": 5}, {"count": "x"}], "unit": "K"}
    error = await refused(Toolbox(order), "order", json.dumps(arguments))

    assert sorted(problem.path for problem in error.problems) == [
        "$.count",
        "$.items[1].sku",
        "$.items[2].count",
        "$.items[2].sku",
        "$.name",
        "$.unit",
    ]
    assert ran == []


@pytest.mark.row("L4-17")
async def test_a_problem_says_what_was_expected_and_what_came():
    error = await refused(Toolbox(take), "take", '{"whole": "many", "flag": 1, "words": 5}')

    found = {problem.path: (problem.expected, problem.got) for problem in error.problems}
    assert found["$.whole"][0] == "integer"
    assert "many" in found["$.whole"][1]
    assert found["$.flag"][0] == "boolean"
    assert found["$.words"][0] == "array"


async def test_a_missing_argument_is_told_as_missing():
    @tool
    async def greet(name: str) -> None: ...

    error = await refused(Toolbox(greet), "greet", "{}")

    [problem] = error.problems
    assert problem.path == "$.name"
    assert "missing" in problem.message


async def test_the_path_uses_the_name_that_the_model_knows():
    @tool
    async def greet(first_name: Annotated[int, Param(name="firstName")]) -> int:
        return first_name

    box = Toolbox(greet)

    assert (await refused(box, "greet", '{"firstName": "x"}')).problems[0].path == "$.firstName"
    assert (await refused(box, "greet", "{}")).problems[0].path == "$.firstName"
    assert (await box.call("greet", '{"firstName": 3}')).unwrap() == 3


async def test_the_branches_of_a_union_do_not_show_up_in_a_path():
    @tool
    async def put(where: int | Item | list[int]) -> None: ...

    error = await refused(Toolbox(put), "put", '{"where": {"sku": 5}}')

    assert {problem.path for problem in error.problems} <= {"$.where", "$.where.sku"}


async def test_a_huge_value_does_not_fill_the_answer():
    error = await refused(Toolbox(take), "take", json.dumps({"whole": "x" * 100_000}))

    assert len(json.dumps(error.to_model())) < 1_000


async def test_many_problems_do_not_fill_the_answer():
    """A list of 10,000 wrong items must not come back to the model as 10,000 sentences."""
    error = await refused(Toolbox(take), "take", json.dumps({"items": [5] * 10_000}))

    assert len(json.dumps(error.to_model())) < 20_000


# --- texts that are no JSON object -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["{", '{"n"', '{"n":', '{"n": 1', '{"n": 1,', '{"name": "ab', '{"tags": ["a"', '{"n": tru', "{\n"],
    ids=repr,
)
async def test_a_text_that_ends_too_early_is_told_as_cut_off(text):
    box, seen = seen_by()

    error = await refused(box, "keep", text)

    assert error.cut_off
    assert "truncated" in error.message
    assert error.raw == text
    assert seen == []


@pytest.mark.parametrize(
    "text",
    ["{n: 1}", '{"n": 1}}', '{"n": 1,}', "n=1", "{'n': 1}", '{"n": 1} trailing', '```json\n{"n": 1}\n```', "<n>1</n>"],
    ids=repr,
)
async def test_a_malformed_text_is_told_as_malformed_and_where(text):
    box, seen = seen_by()

    error = await refused(box, "keep", text)

    assert not error.cut_off
    assert "not valid JSON" in error.message
    assert seen == []


async def test_a_code_fence_is_named_as_the_mistake():
    box, _ = seen_by()

    error = await refused(box, "keep", '```json\n{"n": 1}\n```')

    assert "fence" in error.message


@pytest.mark.parametrize("text", ["[]", "5", "[null]", '"text"', "true", '"{\\"n\\": 1}"'], ids=repr)
async def test_json_that_is_no_object_is_refused(text):
    """reliability.md F21: also an object inside a text; nothing is repaired silently."""
    box, seen = seen_by()

    error = await refused(box, "keep", text)

    assert "object" in error.problems[0].expected
    assert seen == []


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xfe", b'{"name": "\xff"}', "\udcff", '{"name": "\udcff"}', '{"name": "\\ud800"}'],
    ids=["bytes", "bytes in a text", "lone surrogate", "lone surrogate in a text", "escaped lone surrogate"],
)
async def test_text_that_no_encoding_takes_is_refused(raw):
    box, seen = seen_by()

    error = await refused(box, "keep", raw)

    json.dumps(error.to_model()).encode()
    assert seen == []


@pytest.mark.parametrize(
    "text",
    ['{"n": 1, "n": 2}', '{"n": 1, "n": 2, "more": 3}', '{"n": "1", "n": "2"}', '{"item": {"sku": "a", "sku": "b"}}'],
    ids=["plain", "beside a stranger", "beside a repair", "inside"],
)
async def test_a_key_given_twice_is_refused_because_either_could_be_meant(text):
    """reliability.md §5: duplicate keys are refused."""
    box, seen = seen_by()

    error = await refused(box, "keep", text)

    assert "twice" in error.message
    assert seen == []


# --- validators of the developer's own ---------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("odd number"), InvalidArguments),
        (RuntimeError("broken"), ExecutionError),
        (SystemExit(1), ExecutionError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
async def test_whatever_a_validator_raises_becomes_a_result(raised, kind):
    def check(value: int) -> int:
        raise raised

    @tool
    async def need(n: Annotated[int, pydantic.AfterValidator(check)]) -> None: ...

    result = await Toolbox(need).call("need", '{"n": 1}')

    assert isinstance(result.error, kind)


# --- bounds ------------------------------------------------------------------------------------


async def test_arguments_over_the_limit_are_refused_with_its_name_and_number():
    box = Toolbox(take, settings=EngineSettings(argument_bytes=100))

    error = await refused(box, "take", json.dumps({"text": "x" * 200}))

    assert "argument_bytes" in error.message
    assert "100" in error.message


@pytest.mark.parametrize("depth", [129, 1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["arrays", "objects"])
async def test_nesting_over_the_limit_is_refused(depth, opening, closing):
    @tool
    async def anything(value: Any) -> None: ...

    text = '{"value": ' + opening * depth + "1" + closing * depth + "}"

    error = await refused(Toolbox(anything), "anything", text)

    assert "json_depth" in error.message
    assert "128" in error.message


async def test_nesting_within_the_limit_is_taken():
    @tool
    async def anything(value: Any) -> Any:
        return value

    text = '{"value": ' + "[" * 100 + "]" * 100 + "}"

    assert (await Toolbox(anything).call("anything", text)).ok


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_a_number_that_is_not_finite_is_refused(word):
    result = await Toolbox(take).call("take", f'{{"number": {word}}}')

    assert isinstance(result.error, InvalidArguments)


@pytest.mark.parametrize(
    "text",
    [
        '{"link": "http://a.example", "link": "x"}',
        '{"link": "http://a.example", "link" : "x"}',
        '{"link": "http://a.example", "link"\t: "x"}',
        '{"link" : "a", "link":\n"http://a.example"}',
        '{"link": "a\\":", "link": "b"}',
    ],
)
async def test_a_key_that_appears_twice_is_found_among_colons_in_strings(text):
    async def visit(link: str) -> str:
        return link

    error = await refused(Toolbox(visit), "visit", text)

    assert "the key 'link' appears twice" in str(error)


class Place(pydantic.BaseModel):
    street: str
    zip: str = ""


class Map(pydantic.BaseModel):
    places: dict[str, int]


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Place, '{"street": "a", "street": "b"}'),
        (Place, '{"street": "a", "str\\u0065et": "b"}'),
        (list[Place], '[{"street": "a"}, {"street": "b", "street" : "c"}]'),
        (Map, '{"places": {"x": 1, "x": 2}}'),
        (dict[str, Place], '{"x": {"street": "a"}, "x": {"street": "b"}}'),
        (Any, '{"x": {"y": 1, "y": 2}}'),
    ],
    ids=["model", "escaped", "list", "map", "map of models", "untyped"],
)
async def test_a_key_that_appears_twice_is_found_at_every_depth(hint, text):
    async def visit(place, by: str = "car") -> str:
        return "ran"

    visit.__annotations__["place"] = hint
    schema = {"type": "object", "properties": {"place": {"type": "object", "properties": {"other": {}}}}}
    box = Toolbox(visit, Tool.from_schema("open", "", schema, lambda arguments, context: "ran"))

    assert "appears twice" in str(await refused(box, "visit", f'{{"place": {text}}}'))
    if text.startswith("{"):
        assert "appears twice" in str(await refused(box, "open", f'{{"place": {text}}}'))


@pytest.mark.parametrize("link", ["http://a.example:80/b?c=10:30", "a : b", 'say ":"', "10:30\n:"])
async def test_colons_in_strings_are_no_keys(link):
    async def visit(link: str) -> str:
        return link

    assert (await Toolbox(visit).call("visit", json.dumps({"link": link}))).value == link


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "hint",
    [
        float | None,
        list[float],
        dict[str, float],
        tuple[float, ...],
        Annotated[float, pydantic.Field(gt=-5)],
        Annotated[float, pydantic.AfterValidator(str)],
        Annotated[float, pydantic.BeforeValidator(lambda value: value)],
        Literal["x"] | float,
    ],
    ids=["optional", "list", "dict", "tuple", "bounded", "after", "before", "or a word"],
)
async def test_a_number_that_is_not_finite_is_refused_in_every_type(hint, word):
    async def mark(number, unit: str = "m") -> str:
        return "ran"

    mark.__annotations__["number"] = hint
    origin = get_origin(hint)
    text = f"[{word}]" if origin in (list, tuple) else f'{{"a": {word}}}' if origin is dict else word
    result = await Toolbox(mark).call("mark", f'{{"number": {text}}}')

    assert isinstance(result.error, InvalidArguments)


@pytest.mark.parametrize("word", ["NaN", "Infinity"])
async def test_a_number_that_is_not_finite_is_refused_in_a_nested_model(word):
    class Point(pydantic.BaseModel):
        x: float

    @tool
    async def mark(point: Point) -> float:
        return point.x

    result = await Toolbox(mark).call("mark", f'{{"point": {{"x": {word}}}}}')

    assert isinstance(result.error, InvalidArguments)


@pytest.mark.parametrize("item", ['"x"', '"5"', "true"], ids=["wrong", "repairable", "never right"])
async def test_a_megabyte_of_wrong_items_does_not_hold_up_the_loop(item):
    """Issue 2: no argument text takes a call over a second; the limit of 4 MiB lets 800,000 wrong items in."""

    @tool
    async def count(numbers: list[int]) -> int:
        return len(numbers)

    text = '{"numbers":[' + ",".join([item] * 250_000) + "]}"
    box = Toolbox(count)
    before = time.thread_time()

    result = await box.call("count", text)

    assert result.ok or len(result.text) < 20_000
    assert time.thread_time() - before < 2


async def test_an_integer_of_too_many_digits_is_refused():
    result = await Toolbox(take).call("take", '{"whole": ' + "9" * 5_000 + "}")

    assert isinstance(result.error, InvalidArguments)
    assert len(result.text) < 2_000


# --- null --------------------------------------------------------------------------------------


async def test_null_is_none_where_the_type_admits_it_and_absent_where_it_does_not():
    seen = []

    @tool
    async def keep(a: int | None = 1, b: int = 2) -> None:
        seen.append((a, b))

    box = Toolbox(keep)

    await box.call("keep", '{"a": null, "b": null}')
    await box.call("keep", {"a": None, "b": None})

    assert seen == [(None, 2), (None, 2)]


async def test_null_for_a_required_argument_is_a_problem():
    @tool
    async def need(n: int) -> None: ...

    error = await refused(Toolbox(need), "need", '{"n": null}')

    assert [problem.path for problem in error.problems] == ["$.n"]


async def test_the_text_null_is_a_text():
    @tool
    async def echo(text: str = "default") -> str:
        return text

    assert (await Toolbox(echo).call("echo", '{"text": "null"}')).value == "null"


# --- extra arguments ---------------------------------------------------------------------------


async def test_arguments_that_nobody_asked_for_are_ignored():
    box, seen = seen_by()

    result = await box.call("keep", '{"n": 1, "why": "because"}')

    assert result.ok
    assert seen[0]["n"] == 1


async def test_extra_forbid_refuses_them_by_name():
    box, seen = seen_by(extra="forbid")

    error = await refused(box, "keep", '{"n": 1, "why": "because"}')

    assert [problem.path for problem in error.problems] == ["$.why"]
    assert seen == []


async def test_extra_allow_hands_them_to_a_function_with_keywords():
    @tool(extra="allow")
    async def keep(n: int, **more: Any) -> dict:
        return {"n": n, **more}

    result = await Toolbox(keep).call("keep", '{"n": 1, "why": {"a": [1]}}')

    assert result.value == {"n": 1, "why": {"a": [1]}}


async def test_extra_allow_on_a_function_without_keywords_does_not_break_its_calls():
    """The schema invites what the function cannot take: refuse the definition, or drop what is extra."""

    @tool(extra="allow")
    async def keep(n: int) -> int:
        return n

    try:
        box = Toolbox(keep)
    except DefinitionError:
        return

    assert (await box.call("keep", '{"n": 1, "why": "because"}')).value == 1


async def test_typed_keywords_are_validated():
    @tool
    async def scores(**points: int) -> int:
        return sum(points.values())

    box = Toolbox(scores)

    assert (await box.call("scores", '{"ada": 1, "bob": 2}')).value == 3
    assert [p.path for p in (await refused(box, "scores", '{"ada": "x"}')).problems] == ["$.ada"]


async def test_extra_forbid_holds_for_a_hand_written_schema_too():
    ran = []
    schema = {"properties": {"n": {"type": "integer"}}}
    box = Toolbox(
        Tool.from_schema("keep", "", schema, lambda arguments, context: ran.append(arguments), extra="forbid")
    )

    error = await refused(box, "keep", '{"n": 1, "why": 2}')

    assert "why" in error.message
    assert ran == []


# --- hand-written schemas ----------------------------------------------------------------------


async def test_a_hand_written_schema_is_enforced_with_paths():
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "points": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        },
        "required": ["name", "points"],
    }
    box = Toolbox(Tool.from_schema("keep", "", schema, lambda arguments, context: arguments))

    error = await refused(box, "keep", '{"name": "x", "points": [1, -2]}')
    missing = await refused(box, "keep", '{"name": "xy"}')

    assert sorted(problem.path for problem in error.problems) == ["$.name", "$.points[1]"]
    assert "points" in missing.message


async def test_the_arguments_of_a_hand_written_schema_are_repaired_too():
    seen = []
    schema = {"properties": {"n": {"type": "integer"}, "tags": {"type": "array"}}, "required": ["n"]}

    def handler(arguments: dict, context: ToolContext) -> None:
        seen.append(arguments)

    result = await Toolbox(Tool.from_schema("keep", "", schema, handler)).call("keep", '{"n": "5", "tags": "[1]"}')

    assert result.ok, result.text
    assert seen == [{"n": 5, "tags": [1]}]
    assert {repair.path for repair in result.repairs} == {"$.n", "$.tags"}


# --- mappings ----------------------------------------------------------------------------------


async def test_a_mapping_may_hold_python_values_or_what_json_writes_for_them():
    box, seen = seen_by()

    await box.call("keep", {"item": Item(sku="a"), "colour": Colour.DARK_RED})
    await box.call("keep", {"item": {"sku": "a"}, "colour": "dark-red"})

    assert seen[0] == seen[1]


async def test_a_mapping_that_cannot_be_json_is_refused():
    box, seen = seen_by()
    cycle: list = []
    cycle.append(cycle)

    for bad in (object(), cycle):
        await refused(box, "keep", {"tags": bad})

    assert seen == []


# --- numbers that JSON does not have -----------------------------------------------------------


@tool
def keep(x: Any) -> str:
    """Return what came."""
    return repr(x)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("number", ["1e999", "-1E+400", "1" * 310 + ".5"])
async def test_a_number_that_a_float_cannot_hold_is_refused_wherever_it_stands(number, far):
    async with Toolbox(McpServer.of("s", Toolbox(keep)) if far else keep) as box:
        for text, path in ((f'{{"x": {number}}}', "$.x"), (f'{{"x": {{"y": [0, {number}]}}}}', "$.x.y[1]")):
            for arguments in (text, json.loads(text)):
                error = await refused(box, "keep", arguments)
                assert [problem.path for problem in error.problems] == [path]
        assert (await box.call("keep", f'{{"x": "{number}"}}')).ok


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
async def test_no_value_of_a_program_becomes_null_on_its_way(value, far):
    async with Toolbox(McpServer.of("s", Toolbox(keep)) if far else keep) as box:
        error = await refused(box, "keep", {"x": {"y": [value]}})

    assert [problem.path for problem in error.problems] == ["$.x.y[0]"]


async def test_a_key_that_is_not_a_string_is_dropped_or_reported_as_any_other():
    box, seen = seen_by()

    dropped = await box.call("keep", {1: 2, "n": 3})
    error = await refused(box, "keep", {1: 2, "n": "x"})

    assert ([repair.path for repair in dropped.repairs], seen[0]["n"]) == (["$.1"], 3)
    assert [problem.path for problem in error.problems] == ["$.n"]


async def test_a_key_that_is_not_a_string_is_not_taken_for_a_missing_argument():
    error = await refused(Toolbox(keep), "keep", {1: 2})

    assert [problem.message for problem in error.problems] == ["required but missing"]


@pytest.mark.parametrize("encode", [json.dumps, dict])
@pytest.mark.parametrize("wrap", [Toolbox, lambda box: McpServer.of("s", box)], ids=["local", "remote"])
async def test_an_argument_that_an_override_hides_keeps_its_value_beside_long_ones(encode, wrap):
    @tool
    def search(text: str, tenant: str) -> str:
        return tenant

    box = Toolbox(wrap(Toolbox(search)))
    await box.list()

    view = box.override("search", arguments={"tenant": "a"})
    result = await view.call("search", encode({"text": "x" * 300_000, "tenant": "b"}))

    assert result.value == "a"
