"""Duplicate keys, unknown keys and numbers that are not finite are found in typed arguments of every kind.

Usual arguments are judged by the number of their keys alone. Each of these must not pass that way.
"""

import dataclasses
import json
import math
from typing import Annotated, Any, Literal, NotRequired

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from core.takers import refused
from toolmason import Tool, Toolbox, tool
from toolmason._core.arguments.bind import bind_once
from toolmason._core.arguments.key_counts import make_key_counts
from toolmason._core.define.tool import compile_tool
from toolmason.errors import InvalidArguments
from toolmason.extend import EngineSettings


class Point(pydantic.BaseModel):
    x: float
    y: float | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: Annotated[float, pydantic.Field(alias="X")]


class Finite(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(allow_inf_nan=False)
    x: float


class Shape(pydantic.BaseModel):
    name: str = "shape"
    points: list[Point] = []
    first: Point = Point(x=0)
    last: Point | None = None
    finite: Finite | None = None


class Options(TypedDict):
    link: str
    weight: NotRequired[float]


@dataclasses.dataclass
class Line:
    begin: Point
    end: Point
    options: Options


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: float = 0


class Node(pydantic.BaseModel):
    inner: "Node | None" = None


class Swapped(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_by_name=True, validate_by_alias=True)
    a: Annotated[int, pydantic.Field(alias="b")] = 0
    b: Annotated[int, pydantic.Field(alias="a")] = 0


class Either(pydantic.BaseModel):
    a: Annotated[int, pydantic.Field(validation_alias=pydantic.AliasChoices("a", "b"))] = 0
    b: int = 0


class Kept(pydantic.BaseModel):
    x: int = 0

    def model_post_init(self, context: Any, /) -> None:
        self.x = 1


class Wide(pydantic.RootModel[dict[str, float]]):
    pass


HINTS: dict[str, Any] = {
    "model": Point,
    "model with an alias": Strict,
    "nested models": Shape,
    "TypedDict": Options,
    "dataclass": Line,
    "list": list[Point],
    "dict": dict[str, Point],
    "dict of numbers": dict[str, float],
    "number": float,
    "numbers": list[float | None],
    "finite": Finite,
    "literal": Literal["a", "b"],
    "extra": Open,
    "recursive": Node,
    "swapped": Swapped,
    "either": Either,
    "changed": Kept,
    "root": Wide,
    "untyped": Any,
}


def make_tool(hint: Any) -> Tool:
    def visit(place, *, note: str = "", rate: float = 0.5) -> None:
        """Visit a place."""

    visit.__annotations__["place"] = hint
    return Tool.from_function(visit)


@pytest.fixture(scope="module")
def tools():
    return {name: make_tool(hint) for name, hint in HINTS.items()}


@pytest.mark.parametrize(
    "name", ["model", "model with an alias", "nested models", "TypedDict", "list", "dict", "finite"]
)
def test_the_keys_of_usual_types_are_counted(tools, name):
    assert make_key_counts(compile_tool(tools[name]).inputs) is not None


@pytest.mark.parametrize("name", ["extra", "recursive", "swapped", "either", "changed", "root", "untyped"])
def test_no_keys_are_counted_where_values_do_not_show_them(tools, name):
    assert make_key_counts(compile_tool(tools[name]).inputs) is None


def test_a_class_used_in_two_places_is_counted_in_both(tools):
    line = '{"begin": {"x": 1}, "end": {"x": 2%s}, "options": {"link": "a"}}'

    assert bind(tools["dataclass"], '{"place": %s}' % (line % ""))["place"].end == Point(x=2)
    assert "twice" in refuse(tools["dataclass"], '{"place": %s}' % (line % ', "x": 3'))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model", '{"x": 1, "x": 1}'),
        ("model with an alias", '{"X": 1, "X": 2}'),
        ("nested models", '{"name": "a", "name": "b"}'),
        ("nested models", '{"name": "a", "name" :"http://b"}'),
        ("nested models", '{"points": [{"x": 1}, {"x": 1, "x": 2}]}'),
        ("nested models", '{"first": {"x": 1}, "last": {"x": 1, "x": 2}}'),
        ("TypedDict", '{"link": "a", "link": "http://b"}'),
        ("TypedDict", '{"link": "a", "weight": 1, "weight": 1}'),
        ("list", '[{"x": 1}, {"x": 1, "x": 2}]'),
        ("dict", '{"a": {"x": 1}, "a": {"x": 2}}'),
        ("dict", '{"a": {"x": 1, "\\u0078": 2}}'),
        ("dict of numbers", '{"a": 1, "b": 1, "a": 2}'),
    ],
)
def test_a_key_that_appears_twice_is_refused(tools, name, place):
    assert "twice" in refuse(tools[name], f'{{"place": {place}}}')


def test_only_a_validator_that_admits_them_is_searched_for_numbers_that_are_not_finite():
    class Both(pydantic.BaseModel):
        finite: Finite
        x: Annotated[float, pydantic.Field(allow_inf_nan=False)]

    class Outer(pydantic.BaseModel):
        both: Both
        point: Point

    found = [make_key_counts(compile_tool(make_tool(hint)).inputs).checks_floats for hint in (Both, Outer)]

    assert found == [False, True]


@pytest.mark.parametrize(
    ("name", "place", "path"),
    [
        ("model", '{"x": WORD}', "$.place.x"),
        ("model", '{"x": 1, "y": WORD}', "$.place.y"),
        ("model", '{"x": WORD, "y": "wrong"}', "$.place.x"),
        ("nested models", '{"points": [{"x": 1}, {"x": WORD}]}', "$.place.points[1].x"),
        ("nested models", '{"first": {"x": WORD}, "points": [{}]}', "$.place.first.x"),
        ("TypedDict", '{"link": "http://a.example", "weight": WORD}', "$.place.weight"),
        ("TypedDict", '{"link": 5, "weight": WORD}', "$.place.weight"),
        ("dict of numbers", '{"a": 1, "b": WORD}', "$.place.b"),
        ("numbers", "[null, WORD]", "$.place[1]"),
        ("number", "WORD", "$.place"),
    ],
)
@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_refused_at_every_depth(tools, name, place, path, word):
    text = f'{{"place": {place.replace("WORD", word)}}}'

    with pytest.raises(InvalidArguments) as caught:
        bind(tools[name], text)

    assert "finite" in str(caught.value) or "JSON" in str(caught.value)
    assert path in [problem.path for problem in caught.value.problems] or word[-1] != "9"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("TypedDict", '{"link": "a", "weigth": 5}'),
        ("dataclass", '{"begin": {"x": 1}, "end": {"x": 1}, "options": {"link": "a", "more": 1}}'),
    ],
)
def test_an_unknown_key_of_a_typed_dict_is_still_a_problem(tools, name, place):
    assert "unknown" in refuse(tools[name], f'{{"place": {place}}}')


def test_an_unknown_key_of_a_typed_dict_is_named_beside_another_problem(tools):
    message = refuse(tools["TypedDict"], '{"place": {"link": 5, "more": 1}}')

    assert "$.place.link" in message
    assert "$.place.more" in message


@pytest.mark.parametrize("size", [1, 4_000, 30_000])
@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_a_number_that_is_not_finite_is_found_in_long_arguments(tools, size, number):
    points = ", ".join(['{"x": 1.5}'] * size)

    assert refuse(tools["list"], f'{{"place": [{points}, {{"x": {number}}}]}}')


# --- any text ----------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["x", "y", "X", "a", "b", "link", "weight", "name", "points", "first", "begin", "end", "options"]
)
STRINGS = ['"a"', '"http://a.example/b?c=1"', '"10:30"', '"a : b"', r'"\":"', r'"\u0022:"', r'"x\":1"']
SCALARS = st.sampled_from(["1", "2.5", "NaN", "1e999", "[]", "{}", "null", "true", *STRINGS])
SPACES = st.sampled_from(["", "", "", " ", "\n", "\t"])


@st.composite
def objects(draw, values):
    pairs = [
        f"{json.dumps(draw(NAMES))}{draw(SPACES)}:{draw(SPACES)}{draw(values)}" for _ in range(draw(st.integers(0, 3)))
    ]
    return f"{{{', '.join(pairs)}}}"


PLACES = st.recursive(
    SCALARS, lambda values: objects(values) | st.lists(values, max_size=3).map(lambda found: f"[{', '.join(found)}]")
)
USUAL = {
    "model": st.sampled_from(['{"x": 1', '{"x" :1.5, "y": null', '{"y":2, "x":3']),
    "nested models": st.sampled_from(
        ['{"name": "http://x"', '{"points": [{"x": 1}, {"x": 2, "y": 1}]', '{"first": {"x": 1}']
    ),
    "TypedDict": st.sampled_from(['{"link": "http://a.example"', '{"link": "a:b", "weight": 1']),
    "dict of numbers": st.sampled_from(['{"a": 1, "b:": 2', '{"\\u0061": 1']),
}


@st.composite
def nearly_valid(draw):
    name = draw(st.sampled_from(sorted(USUAL)))
    begin = draw(USUAL[name])
    more = [f"{json.dumps(draw(NAMES))}{draw(SPACES)}: {draw(PLACES)}" for _ in range(draw(st.integers(0, 1)))]
    return name, ", ".join([begin, *more]) + "}"


def read(text: str) -> tuple[Any, bool]:
    """Return parsed JSON, and True if a key appears twice."""
    found = []

    def keep(pairs):
        found.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    return json.loads(text, object_pairs_hook=keep), any(found)


def has_non_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_non_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def bind(tool: Tool, text: str) -> dict[str, Any]:
    return bind_once(compile_tool(tool).inputs, text, "visit", EngineSettings())[0]


def refuse(tool: Tool, text: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        bind(tool, text)
    return str(caught.value)


@settings(max_examples=1_500, deadline=None)
@given(
    st.one_of(nearly_valid(), st.tuples(st.sampled_from(sorted(HINTS)), PLACES)),
    st.sampled_from(["", ', "note": "a:b"']),
)
def test_no_text_passes_that_an_independent_parser_objects_to(tools, found, more):
    name, place = found
    text = f'{{"place": {place}{more}}}'
    data, is_repeated = read(text)

    try:
        values = bind(tools[name], text)
    except InvalidArguments:
        return

    assert not is_repeated
    assert not has_non_finite(to_jsonable_python(values, inf_nan_mode="constants"))
    assert values == bind(tools[name], json.dumps(data)), "the same arguments, written by another"
    assert compile_tool(tools[name]).inputs.validate_python(data, strict=False)["place"] == values["place"]


class Place(pydantic.BaseModel):
    x: float


@tool
def plot(point: Place, whole: int = 0) -> str:
    """Plot."""
    return f"{point.x} {len(str(whole))}"


@pytest.mark.parametrize("kind", [str, dict])
async def test_an_integer_that_a_float_of_a_model_cannot_hold_is_refused(kind):
    box, long = Toolbox(plot), "9" * 400

    def make(text):
        return text if kind is str else json.loads(text)

    error = await refused(box, "plot", make(f'{{"point": {{"x": {long}}}}}'))
    assert [problem.path for problem in error.problems] == ["$.point.x"]
    result = await box.call("plot", make(f'{{"point": {{"x": 1.5}}, "whole": {long}}}'))
    assert result.text == "1.5 400"
