"""Types → schema and value (design 01, §3): what a hint becomes, and what arrives in the function."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypeVar, Union
from uuid import UUID

import attrs
import msgspec
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from toolmason import Tool, Toolbox, ToolReturn
from toolmason.errors import InvalidArguments

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


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
ID = UUID(int=7)


def array(items, **more):
    return {"type": "array", "items": items, **more}


def fields(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


TYPES = {
    "str": (str, STRING, '"a"', "a"),
    "int": (int, INTEGER, "5", 5),
    "float": (float, NUMBER, "0.5", 0.5),
    "bool": (bool, {"type": "boolean"}, "true", True),
    "decimal": (Decimal, NUMBER, "1.5", Decimal("1.5")),
    "date": (date, {**STRING, "format": "date"}, '"2024-02-29"', date(2024, 2, 29)),
    "time": (time, {**STRING, "format": "time"}, '"09:30:00"', time(9, 30)),
    "datetime": (
        datetime,
        {**STRING, "format": "date-time"},
        '"2024-02-29T00:00:00Z"',
        datetime(2024, 2, 29, tzinfo=UTC),
    ),
    "timedelta": (timedelta, {**STRING, "format": "duration"}, '"PT90S"', timedelta(seconds=90)),
    "uuid": (UUID, {**STRING, "format": "uuid"}, f'"{ID}"', ID),
    "path": (Path, {**STRING, "format": "path"}, '"a/b.txt"', Path("a/b.txt")),
    "bytes": (bytes, {**STRING, "format": "binary"}, '"ab"', b"ab"),
    "enum": (Colour, {**STRING, "enum": ["red", "blue"]}, '"red"', Colour.RED),
    "int-enum": (Level, {**INTEGER, "enum": [1, 2]}, "2", Level.HIGH),
    "enum-of-one": (Mood, {**STRING, "enum": ["good"]}, '"good"', Mood.GOOD),
    "literal": (Literal["C", "F"], {**STRING, "enum": ["C", "F"]}, '"F"', "F"),
    "mixed-literal": (Literal[1, "a"], {"enum": [1, "a"]}, "1", 1),
    "new-type": (Sku, STRING, '"s1"', "s1"),
    "list": (list[int], array(INTEGER), "[1, 2]", [1, 2]),
    "sequence": (Sequence[int], array(INTEGER), "[1]", [1]),
    "deque": (deque[int], array(INTEGER), "[1]", deque([1])),
    "set": (set[str], array(STRING, uniqueItems=True), '["a"]', {"a"}),
    "frozenset": (frozenset[int], array(INTEGER, uniqueItems=True), "[1]", frozenset({1})),
    "long-tuple": (tuple[int, ...], array(INTEGER), "[1, 2]", (1, 2)),
    "tuple": (
        tuple[int, str],
        {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2},
        '[1, "a"]',
        (1, "a"),
    ),
    "named-tuple": (
        Span,
        {"type": "array", "prefixItems": [INTEGER, {**STRING, "default": "whole"}], "minItems": 1, "maxItems": 2},
        "[3]",
        Span(3),
    ),
    "dict": (dict[str, float], {"type": "object", "additionalProperties": NUMBER}, '{"a": 0.5}', {"a": 0.5}),
    "mapping": (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}, '{"a": 1}', {"a": 1}),
    "union": (int | str, {"anyOf": [INTEGER, STRING]}, '"5"', "5"),
    "typing-union": (Union[int, str], {"anyOf": [INTEGER, STRING]}, "5", 5),  # noqa: UP007 - the old spelling is tested
    "dataclass": (Point, fields(["x"], x=INTEGER, y={**INTEGER, "default": 0}), '{"x": 1}', Point(1)),
    "frozen-dataclass": (Frozen, fields(["x"], x=INTEGER), '{"x": 1}', Frozen(1)),
    "typed-dict": (Person, fields(["name"], name=STRING, age=INTEGER), '{"name": "Ada"}', {"name": "Ada"}),
    "any": (Any, {}, '[1, {"a": null}]', [1, {"a": None}]),
    "type-variable": (T, {}, '"a"', "a"),
    "bound-type-variable": (Whole, INTEGER, "5", 5),
}


@pytest.mark.row("MA-16", "SP-24", "CO-21")
@pytest.mark.parametrize(("hint", "schema", "sent", "value"), TYPES.values(), ids=TYPES)
def test_a_type_becomes_this_schema(hint, schema, sent, value):
    box = taking(hint)

    assert value_schema(box) == schema
    assert schema_of(box)["required"] == ["value"]
    assert schema_of(box)["additionalProperties"] is False
    Draft202012Validator.check_schema(schema_of(box))


@pytest.mark.row("SP-9")
@pytest.mark.parametrize(("hint", "schema", "sent", "value"), TYPES.values(), ids=TYPES)
async def test_a_value_arrives_with_this_type(hint, schema, sent, value):
    found = await arriving(hint, sent)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("hint", "schema", "sent", "value"), TYPES.values(), ids=TYPES)
async def test_a_value_that_is_right_already_arrives_as_it_is(hint, schema, sent, value):
    result = await taking(hint).call("take", {"value": value})

    assert result.unwrap() == value
    assert type(result.value) is type(value)
    assert result.repairs == ()


COMPOSED = {
    "nested": (Item, '{"size": {"width": 2}, "tags": ["a"]}', Item(size=Size(width=2), tags=["a"])),
    "recursive": (Node, '{"value": 1, "children": [{"value": 2}]}', Node(value=1, children=[Node(value=2)])),
    "discriminated": (Pet, '{"kind": "dog", "weight": "5"}', Dog(kind="dog", weight="5")),
    "aliased": (Aliased, '{"kindOf": "a"}', Aliased(kind_of="a")),
    "generic-model": (Crate[int], '{"item": 1}', Crate[int](item=1)),
    "generic-of-list": (Crate[list[Point]], '{"item": [{"x": 1}]}', Crate[list[Point]](item=[Point(1)])),
    "generic-dataclass": (Pair[str], '{"first": "a", "second": "b"}', Pair("a", "b")),
    "optional-in-list": (list[Point | None], '[{"x": 1}, null]', [Point(1), None]),
    "enum-in-list-in-dict": (dict[str, list[Colour]], '{"a": ["red"]}', {"a": [Colour.RED]}),
    "number-as-key": (dict[int, str], '{"1": "a"}', {1: "a"}),
    "uuid-as-key": (dict[UUID, date], f'{{"{ID}": "2024-01-01"}}', {ID: date(2024, 1, 1)}),
    "named-tuples": (tuple[Span, ...], '[[1], [2, "b"]]', (Span(1), Span(2, "b"))),
}


@pytest.mark.parametrize(("hint", "sent", "value"), COMPOSED.values(), ids=COMPOSED)
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


NUMERIC = {"int": int, "float": float, "decimal": Decimal, "int-enum": Level, "literal": Literal[1, 2]}


@pytest.mark.parametrize("hint", NUMERIC.values(), ids=NUMERIC)
async def test_a_bool_is_never_a_number(hint):
    for raw in ('{"value": true}', {"value": True}):
        result = await taking(hint).call("take", raw)

        assert isinstance(result.error, InvalidArguments)


async def test_enums_with_equal_values_keep_their_own_names():
    async def take(first: Level, second: Reversed):
        return ToolReturn((first, second), content="taken")

    result = await Toolbox(take).call("take", '{"first": "LOW", "second": "LOW"}')

    assert result.unwrap() == (Level.LOW, Reversed.LOW)


# --- nested: descriptions, constraints, examples ------------------------------------------------


@pytest.mark.row("SP-27")
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
    schema = schema_of(taking(dict[str, tuple[Item, Point, Person, Colour]]))

    assert '"title"' not in json.dumps(schema)


BOUNDS = {
    "int": (Annotated[int, Field(ge=1, le=9, multiple_of=2)], {"minimum": 1, "maximum": 9, "multipleOf": 2}),
    "float": (Annotated[float, Field(gt=0, lt=1)], {"exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    "decimal": (Annotated[Decimal, Field(gt=0, le=5)], {"exclusiveMinimum": 0, "maximum": 5}),
    "str": (Annotated[str, Field(min_length=1, pattern="^a")], {"minLength": 1, "pattern": "^a"}),
    "list": (Annotated[list[int], Field(min_length=1, max_length=2)], {"minItems": 1, "maxItems": 2}),
    "dict": (Annotated[dict[str, int], Field(min_length=1)], {"minProperties": 1}),
}


@pytest.mark.parametrize(("hint", "kept"), BOUNDS.values(), ids=BOUNDS)
def test_constraints_are_in_the_schema(hint, kept):
    schema = value_schema(taking(hint))

    assert {key: schema.get(key) for key in kept} == kept


OUT_OF_BOUNDS = {
    "number": (Annotated[int, Field(ge=1)], "0", "$.value"),
    "pattern": (Annotated[str, Field(pattern="^a")], '"b"', "$.value"),
    "in-a-list": (list[Annotated[int, Field(ge=1)]], "[1, 0]", "$.value[1]"),
    "in-a-model-in-a-model": (Item, '{"size": {"width": 0}}', "$.value.size.width"),
}


@pytest.mark.parametrize(("hint", "sent", "path"), OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
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
                raise ValueError("give an even number")
            return number

    result = await taking(Even).call("take", '{"value": {"number": 3}}')

    assert isinstance(result.error, InvalidArguments)
    assert "give an even number" in result.text


# --- attrs and msgspec --------------------------------------------------------------------------


FOREIGN = {
    "attrs": (Part, '{"number": 1, "made": "2024-01-01", "note": "new"}', Part(1, date(2024, 1, 1), "new")),
    "attrs-in-attrs": (Machine, '{"part": {"number": 1}, "spares": [{"number": 2}]}', Machine(Part(1), [Part(2)])),
    "attrs-in-list": (list[Part], '[{"number": 1}]', [Part(1)]),
    "attrs-in-dict": (dict[str, Part], '{"a": {"number": 1}}', {"a": Part(1)}),
    "attrs-or-none": (Part | None, '{"number": 1}', Part(1)),
    "none-for-attrs": (Part | None, "null", None),
    "struct": (Bolt, '{"length": 1, "made": "2024-01-01"}', Bolt(1, date(2024, 1, 1))),
    "struct-in-list": (list[Bolt], '[{"length": 1}]', [Bolt(1)]),
    "struct-in-dict": (dict[str, Bolt], '{"a": {"length": 1}}', {"a": Bolt(1)}),
    "struct-or-none": (Bolt | None, '{"length": 1}', Bolt(1)),
    "recursive-struct": (Chain, '{"link": 1, "rest": {"link": 2}}', Chain(1, Chain(2))),
    "both": (tuple[Part, Bolt], '[{"number": 1}, {"length": 2}]', (Part(1), Bolt(2))),
}


@pytest.mark.parametrize(("hint", "sent", "value"), FOREIGN.values(), ids=FOREIGN)
async def test_attrs_classes_and_structs_arrive_wherever_they_stand(hint, sent, value):
    found = await arriving(hint, sent)

    assert found == value
    assert type(found) is type(value)
    Draft202012Validator.check_schema(schema_of(taking(hint)))


@pytest.mark.parametrize(("hint", "required"), [(Part, "number"), (Bolt, "length")], ids=["attrs", "struct"])
def test_attrs_classes_and_structs_have_their_fields_in_the_schema(hint, required):
    schema = value_schema(taking(hint))

    assert schema["type"] == "object"
    assert schema["required"] == [required]
    assert schema["properties"][required]["type"] == "integer"
    assert "made" in schema["properties"]


WRONG_FOREIGN = {
    "attrs": (Part, '{"number": "many"}', "$.value"),
    "struct": (Bolt, '{"length": "long"}', "$.value"),
    "struct-in-list": (list[Bolt], '[{"length": 1}, {}]', "$.value[1]"),
}


@pytest.mark.parametrize(("hint", "sent", "path"), WRONG_FOREIGN.values(), ids=WRONG_FOREIGN)
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
