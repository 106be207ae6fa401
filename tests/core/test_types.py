"""Types → schema and value (design 01, §3): what a hint becomes, and what arrives in the function."""

import functools
import importlib.util
import re
import sys
import typing
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union
from uuid import UUID

import attrs
import msgspec
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import NotRequired, TypedDict

from toolwright import Param, Tool, Toolbox, ToolReturn, tool, tools_from
from toolwright.errors import DefinitionError, InvalidArguments, UnsupportedType
from toolwright.lowlevel import ParamSpec

T = TypeVar("T")
Whole = TypeVar("Whole", bound=int)
Sku = NewType("Sku", str)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Reversed(IntEnum):
    """The values of `Level`, under swapped names."""

    HIGH = 1
    LOW = 2


class Mood(StrEnum):
    GOOD = "good"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Frozen:
    x: int


class Span(NamedTuple):
    start: int
    name: str = "whole"


class Person(TypedDict):
    name: str
    age: NotRequired[int]


class Size(BaseModel):
    """How large it is."""

    width: Annotated[int, Field(ge=1, description="In millimetres.", examples=[10])]
    note: str | None = None


class Item(BaseModel):
    size: Size
    tags: list[Annotated[str, Field(max_length=3)]] = []


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    weight: int


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: str


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind_of: str = Field(alias="kindOf")


class Crate(BaseModel, Generic[T]):
    item: T


@dataclass
class Pair(Generic[T]):
    first: T
    second: T


@attrs.define
class Part:
    number: int
    made: date | None = None
    _note: str = "none"


@attrs.define
class Machine:
    part: Part
    spares: list[Part] = attrs.field(factory=list)


class Bolt(msgspec.Struct):
    length: int
    made: date | None = None


class Chain(msgspec.Struct):
    link: int
    rest: Optional["Chain"] = None


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def taking(hint, **options):
    """A toolbox with one tool, `take(value: hint)`; `result.value` is what arrived."""

    async def take(value):
        return ToolReturn(value, content="taken")

    take.__annotations__ = {"value": hint}
    return Toolbox(Tool.from_function(take, **options))


def schema_of(box):
    return box.tools[0].definition.input_schema


def value_schema(box, name="value"):
    """The schema of one parameter, a reference at its root resolved."""
    schema = schema_of(box)
    found = schema["properties"][name]
    return schema["$defs"][found["$ref"].removeprefix("#/$defs/")] if "$ref" in found else found


async def arriving(hint, sent):
    return (await taking(hint).call("take", f'{{"value": {sent}}}')).unwrap()


TYPES = [
    pytest.param(str, {"type": "string"}, '"a"', "a", id="str"),
    pytest.param(int, {"type": "integer"}, "5", 5, id="int"),
    pytest.param(float, {"type": "number"}, "0.5", 0.5, id="float"),
    pytest.param(bool, {"type": "boolean"}, "true", True, id="bool"),
    pytest.param(Decimal, {"type": "number"}, "1.5", Decimal("1.5"), id="decimal"),
    pytest.param(date, {"type": "string", "format": "date"}, '"2024-02-29"', date(2024, 2, 29), id="date"),
    pytest.param(time, {"type": "string", "format": "time"}, '"09:30:00"', time(9, 30), id="time"),
    pytest.param(
        datetime,
        {"type": "string", "format": "date-time"},
        '"2024-02-29T09:30:00Z"',
        datetime(2024, 2, 29, 9, 30, tzinfo=UTC),
        id="datetime",
    ),
    pytest.param(timedelta, {"type": "string", "format": "duration"}, '"PT90S"', timedelta(seconds=90), id="timedelta"),
    pytest.param(UUID, {"type": "string", "format": "uuid"}, f'"{UUID(int=7)}"', UUID(int=7), id="uuid"),
    pytest.param(Path, {"type": "string", "format": "path"}, '"a/b.txt"', Path("a/b.txt"), id="path"),
    pytest.param(bytes, {"type": "string", "format": "binary"}, '"ab"', b"ab", id="bytes"),
    pytest.param(Colour, {"type": "string", "enum": ["red", "blue"]}, '"red"', Colour.RED, id="enum"),
    pytest.param(Level, {"type": "integer", "enum": [1, 2]}, "2", Level.HIGH, id="int-enum"),
    pytest.param(Mood, {"type": "string", "const": "good"}, '"good"', Mood.GOOD, id="enum-of-one"),
    pytest.param(Literal["C", "F"], {"type": "string", "enum": ["C", "F"]}, '"F"', "F", id="literal"),
    pytest.param(Literal[1, "a"], {"enum": [1, "a"]}, "1", 1, id="mixed-literal"),
    pytest.param(Sku, {"type": "string"}, '"s1"', "s1", id="new-type"),
    pytest.param(list[int], {"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2], id="list"),
    pytest.param(Sequence[int], {"type": "array", "items": {"type": "integer"}}, "[1]", [1], id="sequence"),
    pytest.param(deque[int], {"type": "array", "items": {"type": "integer"}}, "[1]", deque([1]), id="deque"),
    pytest.param(
        set[str], {"type": "array", "uniqueItems": True, "items": {"type": "string"}}, '["a"]', {"a"}, id="set"
    ),
    pytest.param(
        frozenset[int],
        {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
        "[1]",
        frozenset({1}),
        id="frozenset",
    ),
    pytest.param(
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        '[1, "a"]',
        (1, "a"),
        id="tuple",
    ),
    pytest.param(tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, "[1, 2]", (1, 2), id="long-tuple"),
    pytest.param(
        dict[str, float],
        {"type": "object", "additionalProperties": {"type": "number"}},
        '{"a": 0.5}',
        {"a": 0.5},
        id="dict",
    ),
    pytest.param(
        Mapping[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        '{"a": 1}',
        {"a": 1},
        id="mapping",
    ),
    pytest.param(
        OrderedDict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        '{"a": 1}',
        OrderedDict(a=1),
        id="ordered-dict",
    ),
    pytest.param(int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, '"5"', "5", id="union"),
    pytest.param(Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", 5, id="typing-union"),  # noqa: UP007 - the old spelling is what is tested
    pytest.param(
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
            "additionalProperties": False,
        },
        '{"x": 1}',
        Point(1),
        id="dataclass",
    ),
    pytest.param(
        Frozen,
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        '{"x": 1}',
        Frozen(1),
        id="frozen-dataclass",
    ),
    pytest.param(
        Span,
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string", "default": "whole"}],
            "minItems": 1,
            "maxItems": 2,
        },
        "[3]",
        Span(3),
        id="named-tuple",
    ),
    pytest.param(
        Person,
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        '{"name": "Ada"}',
        {"name": "Ada"},
        id="typed-dict",
    ),
    pytest.param(Any, {}, '[1, {"a": null}]', [1, {"a": None}], id="any"),
    pytest.param(T, {}, '"a"', "a", id="type-variable"),
    pytest.param(Whole, {"type": "integer"}, "5", 5, id="bound-type-variable"),
]


@pytest.mark.parametrize(("hint", "schema", "sent", "value"), TYPES)
def test_a_type_becomes_this_schema(hint, schema, sent, value):
    box = taking(hint)

    assert value_schema(box) == schema
    assert schema_of(box)["required"] == ["value"]
    assert schema_of(box)["additionalProperties"] is False
    Draft202012Validator.check_schema(schema_of(box))


@pytest.mark.parametrize(("hint", "schema", "sent", "value"), TYPES)
async def test_a_value_arrives_with_this_type(hint, schema, sent, value):
    found = await arriving(hint, sent)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("hint", "schema", "sent", "value"), TYPES)
async def test_a_value_that_is_right_already_arrives_as_it_is(hint, schema, sent, value):
    result = await taking(hint).call("take", {"value": value})

    assert result.unwrap() == value
    assert type(result.value) is type(value)
    assert result.repairs == ()


@pytest.mark.parametrize(
    ("hint", "sent", "value"),
    [
        pytest.param(Item, '{"size": {"width": 2}, "tags": ["a"]}', Item(size=Size(width=2), tags=["a"]), id="nested"),
        pytest.param(
            Node, '{"value": 1, "children": [{"value": 2}]}', Node(value=1, children=[Node(value=2)]), id="recursive"
        ),
        pytest.param(Pet, '{"kind": "dog", "weight": "5"}', Dog(kind="dog", weight="5"), id="discriminated"),
        pytest.param(Aliased, '{"kindOf": "a"}', Aliased(kind_of="a"), id="aliased"),
        pytest.param(Crate[int], '{"item": 1}', Crate[int](item=1), id="generic-model"),
        pytest.param(
            Crate[list[Point]], '{"item": [{"x": 1}]}', Crate[list[Point]](item=[Point(1)]), id="generic-of-list"
        ),
        pytest.param(Pair[str], '{"first": "a", "second": "b"}', Pair("a", "b"), id="generic-dataclass"),
        pytest.param(list[Point | None], '[{"x": 1}, null]', [Point(1), None], id="optional-in-list"),
        pytest.param(dict[str, list[Colour]], '{"a": ["red"]}', {"a": [Colour.RED]}, id="enum-in-list-in-dict"),
        pytest.param(dict[int, str], '{"1": "a"}', {1: "a"}, id="number-as-key"),
        pytest.param(
            dict[UUID, date], f'{{"{UUID(int=7)}": "2024-01-01"}}', {UUID(int=7): date(2024, 1, 1)}, id="uuid-as-key"
        ),
        pytest.param(tuple[Span, ...], '[[1], [2, "b"]]', (Span(1), Span(2, "b")), id="named-tuples"),
    ],
)
async def test_a_composed_value_arrives_whole(hint, sent, value):
    assert await arriving(hint, sent) == value
    Draft202012Validator.check_schema(schema_of(taking(hint)))


def test_a_recursive_model_refers_to_itself():
    assert value_schema(taking(Node))["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_discriminated_union_is_one_of_with_its_tag():
    schema = value_schema(taking(Pet))

    assert schema["oneOf"] == [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]
    assert schema["discriminator"]["propertyName"] == "kind"


async def test_a_decimal_text_is_a_recorded_repair_and_refused_under_strict_types():
    """Design 01, §3: every repair is recorded, and off with `strict_types`; the schema says `number`."""
    lenient = await taking(Decimal).call("take", '{"value": "1.50"}')
    strict = await taking(Decimal, strict_types=True).call("take", '{"value": "1.50"}')

    assert lenient.unwrap() == Decimal("1.50")
    assert [repair.path for repair in lenient.repairs] == ["$.value"]
    assert isinstance(strict.error, InvalidArguments)


async def test_enums_with_equal_values_keep_their_own_names():
    async def take(first: Level, second: Reversed):
        return ToolReturn((first, second), content="taken")

    result = await Toolbox(take).call("take", '{"first": "LOW", "second": "LOW"}')

    assert result.unwrap() == (Level.LOW, Reversed.LOW)


# --- nested: descriptions, constraints, examples ------------------------------------------------


def test_descriptions_constraints_and_examples_are_kept_at_every_depth():
    schema = schema_of(taking(list[Item]))

    assert schema["$defs"]["Size"]["description"] == "How large it is."
    assert schema["$defs"]["Size"]["properties"]["width"] == {
        "type": "integer",
        "minimum": 1,
        "description": "In millimetres.",
        "examples": [10],
    }
    assert schema["$defs"]["Item"]["properties"]["tags"]["items"] == {"type": "string", "maxLength": 3}
    assert schema["$defs"]["Item"]["required"] == ["size"]


def test_no_title_repeats_a_name():
    assert (
        '"title"' not in msgspec.json.encode(schema_of(taking(dict[str, tuple[Item, Point, Person, Colour]]))).decode()
    )


@pytest.mark.parametrize(
    ("hint", "kept"),
    [
        pytest.param(
            Annotated[int, Field(ge=1, le=9, multiple_of=2)], {"minimum": 1, "maximum": 9, "multipleOf": 2}, id="int"
        ),
        pytest.param(Annotated[float, Field(gt=0, lt=1)], {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, id="float"),
        pytest.param(Annotated[Decimal, Field(gt=0, le=5)], {"exclusiveMinimum": 0, "maximum": 5}, id="decimal"),
        pytest.param(
            Annotated[str, Field(min_length=1, max_length=3, pattern="^a")],
            {"minLength": 1, "maxLength": 3, "pattern": "^a"},
            id="str",
        ),
        pytest.param(
            Annotated[list[int], Field(min_length=1, max_length=2)], {"minItems": 1, "maxItems": 2}, id="list"
        ),
        pytest.param(Annotated[dict[str, int], Field(min_length=1)], {"minProperties": 1}, id="dict"),
    ],
)
def test_constraints_are_in_the_schema(hint, kept):
    schema = value_schema(taking(hint))

    assert {key: schema.get(key) for key in kept} == kept


@pytest.mark.parametrize(
    ("hint", "sent", "path"),
    [
        pytest.param(Annotated[int, Field(ge=1)], "0", "$.value", id="number"),
        pytest.param(Annotated[str, Field(pattern="^a")], '"b"', "$.value", id="pattern"),
        pytest.param(list[Annotated[int, Field(ge=1)]], "[1, 0]", "$.value[1]", id="in-a-list"),
        pytest.param(Item, '{"size": {"width": 0}}', "$.value.size.width", id="in-a-model-in-a-model"),
    ],
)
async def test_a_constraint_holds_at_every_depth_and_the_error_says_where(hint, sent, path):
    result = await taking(hint).call("take", f'{{"value": {sent}}}')

    assert isinstance(result.error, InvalidArguments)
    assert [problem.path for problem in result.error.problems] == [path]


async def test_a_validator_of_the_developer_is_an_argument_error_with_its_words():
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("give an even number")  # noqa: TRY004 - what pydantic asks for
            return number

    result = await taking(Even).call("take", '{"value": {"number": 3}}')

    assert isinstance(result.error, InvalidArguments)
    assert "give an even number" in result.text


# --- attrs and msgspec --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "sent", "value"),
    [
        pytest.param(
            Part, '{"number": 1, "made": "2024-01-01", "note": "new"}', Part(1, date(2024, 1, 1), "new"), id="attrs"
        ),
        pytest.param(
            Machine,
            '{"part": {"number": 1}, "spares": [{"number": 2}]}',
            Machine(Part(1), [Part(2)]),
            id="attrs-in-attrs",
        ),
        pytest.param(list[Part], '[{"number": 1}]', [Part(1)], id="attrs-in-list"),
        pytest.param(dict[str, Part], '{"a": {"number": 1}}', {"a": Part(1)}, id="attrs-in-dict"),
        pytest.param(Part | None, '{"number": 1}', Part(1), id="attrs-or-none"),
        pytest.param(Part | None, "null", None, id="none-for-attrs"),
        pytest.param(Bolt, '{"length": 1, "made": "2024-01-01"}', Bolt(1, date(2024, 1, 1)), id="struct"),
        pytest.param(list[Bolt], '[{"length": 1}]', [Bolt(1)], id="struct-in-list"),
        pytest.param(dict[str, Bolt], '{"a": {"length": 1}}', {"a": Bolt(1)}, id="struct-in-dict"),
        pytest.param(Bolt | None, '{"length": 1}', Bolt(1), id="struct-or-none"),
        pytest.param(Chain, '{"link": 1, "rest": {"link": 2}}', Chain(1, Chain(2)), id="recursive-struct"),
        pytest.param(tuple[Part, Bolt], '[{"number": 1}, {"length": 2}]', (Part(1), Bolt(2)), id="both"),
    ],
)
async def test_attrs_classes_and_structs_arrive_wherever_they_stand(hint, sent, value):
    found = await arriving(hint, sent)

    assert found == value
    assert type(found) is type(value)
    Draft202012Validator.check_schema(schema_of(taking(hint)))


@pytest.mark.parametrize(
    ("hint", "required", "optional"),
    [
        pytest.param(Part, "number", "made", id="attrs"),
        pytest.param(Bolt, "length", "made", id="struct"),
    ],
)
def test_attrs_classes_and_structs_have_their_fields_in_the_schema(hint, required, optional):
    schema = value_schema(taking(hint))

    assert schema["type"] == "object"
    assert schema["required"] == [required]
    assert schema["properties"][required]["type"] == "integer"
    assert optional in schema["properties"]


@pytest.mark.parametrize(
    ("hint", "sent", "path"),
    [
        pytest.param(Part, '{"number": "many"}', "$.value", id="attrs"),
        pytest.param(Bolt, '{"length": "long"}', "$.value", id="struct"),
        pytest.param(list[Bolt], '[{"length": 1}, {}]', "$.value[1]", id="struct-in-list"),
    ],
)
async def test_a_wrong_value_for_a_foreign_class_is_an_argument_error(hint, sent, path):
    result = await taking(hint).call("take", f'{{"value": {sent}}}')

    assert isinstance(result.error, InvalidArguments)
    assert result.error.problems[0].path.startswith(path)


async def test_an_attrs_validator_that_raises_a_type_error_is_an_argument_error():
    @attrs.define
    class Checked:
        number: Any = attrs.field(validator=attrs.validators.instance_of(int))

    result = await taking(Checked).call("take", '{"value": {"number": "a"}}')

    assert isinstance(result.error, InvalidArguments)


async def test_two_structs_of_one_name_keep_their_own_fields():
    first = msgspec.defstruct("Same", [("a", int)])
    second = msgspec.defstruct("Same", [("b", str)])

    result = await taking(tuple[first, second]).call("take", '{"value": [{"a": 1}, {"b": "x"}]}')

    assert result.unwrap() == (first(1), second("x"))
    Draft202012Validator(schema_of(taking(tuple[first, second]))).validate({"value": [{"a": 1}, {"b": "x"}]})


# --- ways to write a function -------------------------------------------------------------------


async def test_annotations_of_a_module_with_the_future_import_are_read(tmp_path):
    path = tmp_path / "future_tools.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from toolwright import tool\n"
        "@tool\n"
        "def total(prices: list[Price], tax: float | None = None) -> int:\n"
        "    return sum(price.cents for price in prices)\n"
        "@dataclass\n"
        "class Price:\n"
        "    cents: int\n",
        "utf-8",
    )
    spec = importlib.util.spec_from_file_location("future_tools", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    box = Toolbox(module)
    result = await box.call("total", '{"prices": [{"cents": 5}, {"cents": 6}]}')

    assert result.value == 11
    assert schema_of(box)["properties"]["prices"] == {"type": "array", "items": {"$ref": "#/$defs/Price"}}


async def test_a_string_annotation_finds_a_class_of_the_function_around_it():
    @dataclass
    class Local:
        x: int

    @tool
    async def take(value: "list[Local]"):
        return ToolReturn(value, content="taken")

    result = await Toolbox(take).call("take", '{"value": [{"x": 1}]}')

    assert result.unwrap() == [Local(1)]


def test_a_string_annotation_that_names_nothing_is_a_definition_error():
    def take(value: "Nowhere"):  # noqa: F821 - the name that is missing is the test
        pass

    with pytest.raises(DefinitionError, match="'Nowhere'"):
        Toolbox(take)


async def order(sku: str, count: int, *, express: bool = False):
    """Order something."""
    return ToolReturn((sku, count, express), content="ordered")


@pytest.mark.parametrize(
    ("made", "seen", "sent", "value"),
    [
        pytest.param(
            functools.partial(order, count=2), ["sku", "express"], {"sku": "a"}, ("a", 2, False), id="keyword"
        ),
        pytest.param(functools.partial(order, "a"), ["count", "express"], {"count": 3}, ("a", 3, False), id="position"),
        pytest.param(
            functools.partial(functools.partial(order, express=True), "a"),
            ["count"],
            {"count": 1},
            ("a", 1, True),
            id="twice",
        ),
    ],
)
async def test_what_a_partial_fixes_is_hidden_from_the_model_and_stays_fixed(made, seen, sent, value):
    box = Toolbox(made)

    result = await box.call("order", {**sent, "count": 99} if "count" not in seen else sent)

    assert list(schema_of(box)["properties"]) == seen
    assert box["order"].description == "Order something."
    assert result.unwrap() == value


async def test_a_callable_object_is_a_tool():
    class Adder:
        def __init__(self, base):
            self.base = base

        async def __call__(self, number: int) -> int:
            """Add a number."""
            return self.base + number

    box = Toolbox(Adder(10))

    assert (box.tools[0].name, box.tools[0].description) == ("Adder", "Add a number.")
    assert (await box.call("Adder", {"number": 5})).value == 15


class Shop:
    @staticmethod
    @tool
    async def inner_static(number: int) -> int:
        return number

    @tool
    @staticmethod
    async def outer_static(number: int) -> int:
        return number

    @classmethod
    @tool
    async def inner_class(cls, number: int) -> str:
        return f"{cls.__name__} {number}"

    @tool
    @classmethod
    async def outer_class(cls, number: int) -> str:
        return f"{cls.__name__} {number}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("inner_static", 5, id="static-method-of-a-tool"),
        pytest.param("outer_static", 5, id="tool-of-a-static-method"),
        pytest.param("inner_class", "Shop 5", id="class-method-of-a-tool"),
        pytest.param("outer_class", "Shop 5", id="tool-of-a-class-method"),
    ],
)
async def test_static_and_class_methods_are_tools_in_either_order_of_decorators(name, value):
    box = Toolbox(*tools_from(Shop))

    assert list(box[name].definition.input_schema["properties"]) == ["number"]
    assert (await box.call(name, {"number": 5})).value == value


async def test_positional_only_parameters_are_called_by_name():
    async def divide(top: int, bottom: int = 2, /, *, up: bool = False):
        return ToolReturn((top, bottom, up), content="divided")

    assert (await Toolbox(divide).call("divide", {"top": 7, "up": True})).value == (7, 2, True)


async def test_keywords_of_a_type_are_taken_by_any_name_and_checked():
    async def label(sku: str, **counts: int):
        return ToolReturn((sku, counts), content="labelled")

    box = Toolbox(label)
    good = await box.call("label", '{"sku": "a", "red": 1, "blue": 2}')
    bad = await box.call("label", '{"sku": "a", "red": "many"}')

    assert schema_of(box)["additionalProperties"] == {"type": "integer"}
    assert good.unwrap() == ("a", {"red": 1, "blue": 2})
    assert [problem.path for problem in bad.error.problems] == ["$.red"]


# --- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "default", "expected", "arrives"),
    [
        pytest.param(int, 3, {"type": "integer", "default": 3}, 3, id="plain"),
        pytest.param(int, Field(default=3, ge=1), {"type": "integer", "minimum": 1, "default": 3}, 3, id="field"),
        pytest.param(Annotated[int, Field(default=3)], ..., {"type": "integer", "default": 3}, 3, id="annotated-field"),
        pytest.param(Annotated[int, Param(default=3)], ..., {"type": "integer", "default": 3}, 3, id="param"),
        pytest.param(
            list[int], Field(default_factory=list), {"type": "array", "items": {"type": "integer"}}, [], id="factory"
        ),
        pytest.param(int | None, ..., {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, id="optional"),
        pytest.param(Decimal, Decimal("1.5"), {"type": "number", "default": 1.5}, Decimal("1.5"), id="decimal"),
        pytest.param(Path, Path("a"), {"type": "string", "format": "path", "default": "a"}, Path("a"), id="path"),
        pytest.param(bytes, b"\xff", {"type": "string", "format": "binary"}, b"\xff", id="bytes-that-are-no-text"),
    ],
)
async def test_a_parameter_that_is_left_out_takes_its_default(hint, default, expected, arrives):
    async def take(value):
        return ToolReturn(value, content="taken")

    take.__annotations__ = {"value": hint}
    take.__defaults__ = None if default is ... else (default,)
    box = Toolbox(take)
    result = await box.call("take", "{}")

    assert result.unwrap() == arrives
    assert value_schema(box) == expected
    assert schema_of(box)["required"] == []


async def test_a_mutable_default_is_a_fresh_one_for_each_call():
    @tool
    async def collect(item: str, into: list[str] = [], more: list[str] = Field(default_factory=list)) -> list[str]:  # noqa: B006, B008 - the test
        into.append(item)
        more.append(item)
        return into + more

    box = Toolbox(collect)
    await box.call("collect", {"item": "a"})

    assert (await box.call("collect", {"item": "b"})).value == ["b", "b"]


async def test_param_says_name_description_examples_and_schema():
    async def take(
        class_: Annotated[str, Param(name="class", description="Which class.", examples=["a", "b"])],
        code: Annotated[Any, Param(schema={"type": "string", "pattern": "^[A-Z]+$"})] = "X",
    ):
        return ToolReturn((class_, code), content="taken")

    box = Toolbox(take)
    result = await box.call("take", '{"class": "c", "class_": "not this"}')

    assert schema_of(box)["properties"] == {
        "class": {"type": "string", "description": "Which class.", "examples": ["a", "b"]},
        "code": {"type": "string", "pattern": "^[A-Z]+$", "default": "X"},
    }
    assert result.unwrap() == ("c", "X")


def test_descriptions_come_from_the_first_place_that_gives_one():
    """Design 01, §3: Param, a bare string, Field, the docstring."""

    def take(
        a: Annotated[int, Param(description="from Param"), "from text", Field(description="from Field")],
        b: Annotated[int, Field(description="from Field"), "from text"],
        c: Annotated[int, Field(description="from Field")],
        d: int,
    ):
        """Take.

        Args:
            a: from the docstring
            c: from the docstring
            d: from the docstring
        """

    found = {name: schema["description"] for name, schema in schema_of(Toolbox(take))["properties"].items()}

    assert found == {"a": "from Param", "b": "from text", "c": "from Field", "d": "from the docstring"}


async def test_params_describe_a_function_whose_signature_says_too_little():
    async def take(value, times=1):
        return ToolReturn((value, times), content="taken")

    specs = [ParamSpec("value", type=date, description="When."), ParamSpec("times", type=int)]
    box = Toolbox(Tool.from_function(take, params=specs))

    assert value_schema(box) == {"type": "string", "format": "date", "description": "When."}
    assert (await box.call("take", {"value": "2024-01-01"})).value == (date(2024, 1, 1), 1)


# --- what cannot be a tool ----------------------------------------------------------------------


class Connection:
    """A type that has no schema."""


def untyped(value):
    pass


def unsupported(value: Connection):
    pass


def callback(value: list[typing.Callable[[], int]]):
    pass


def contradiction(value: Annotated[int, Param(required=True)] = 3):
    pass


def text_for_a_number(value: int = "5"):
    pass


def none_for_a_number(value: int = None):  # noqa: RUF013 - the mistake is the test
    pass


def below_the_bound(value: Annotated[int, Field(ge=5)] = 1):
    pass


def starred(*value: int):
    pass


@pytest.mark.parametrize(
    ("fn", "fix"),
    [
        pytest.param(untyped, "`value: str`", id="untyped"),
        pytest.param(unsupported, "Inject", id="no-schema"),
        pytest.param(callback, "Inject", id="no-schema-inside"),
        pytest.param(contradiction, "Drop one of the two", id="required-with-default"),
        pytest.param(text_for_a_number, "change the default or the type", id="default-of-another-type"),
        pytest.param(none_for_a_number, "| None = None", id="default-none"),
        pytest.param(below_the_bound, "change the default or the type", id="default-out-of-bounds"),
        pytest.param(starred, "`value: list[...]`", id="star-args"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_told_where_and_how_to_mend_it(fn, fix):
    with pytest.raises(DefinitionError) as caught:
        Toolbox(fn)

    message = str(caught.value)
    assert f"'{fn.__name__}'" in message
    assert f"{Path(__file__).name}:{fn.__code__.co_firstlineno}" in message
    assert re.search(r"[`'*]value[`':]", message)
    assert fix in message


def test_a_type_without_a_schema_has_its_own_error():
    with pytest.raises(UnsupportedType):
        Toolbox(unsupported)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes typing.TypedDict from 3.12 on")
def test_a_typed_dict_of_the_standard_library_is_refused_with_the_one_to_use():
    hint = typing.TypedDict("Old", {"a": int})

    with pytest.raises(DefinitionError, match="typing_extensions.TypedDict"):
        taking(hint)


@dataclass
class Bag:
    items: list[int] = field(default_factory=list)


async def test_flatten_makes_the_fields_of_one_model_the_arguments():
    @tool(flatten=True)
    async def pack(bag: Bag):
        return ToolReturn(bag, content="packed")

    box = Toolbox(pack)

    assert list(schema_of(box)["properties"]) == ["items"]
    assert (await box.call("pack", '{"items": [1]}')).value == Bag([1])
