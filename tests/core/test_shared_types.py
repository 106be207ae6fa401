"""Tools that use the same types share their compiled form, which must not show."""

from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict

from toolmason import Tool, Toolbox


class Level(Enum):
    LOW = 1
    HIGH = 2


class Guest(BaseModel):
    name: str
    level: Level = Level.LOW


class Node(BaseModel):
    name: str
    children: "list[Node]" = []


class Place(TypedDict):
    city: str


def make_tool(hint: Any, name: str = "use") -> Tool:
    def use(value):
        return repr(value)

    use.__annotations__ = {"value": hint, "return": str}
    return Tool.from_function(use, name=name)


def test_constraints_and_descriptions_stay_with_their_own_tools():
    first = make_tool(Annotated[int, Field(ge=1, description="First.")])
    second = make_tool(Annotated[int, Field(ge=2, description="Second.")])
    third = make_tool(Annotated[int, Field(ge=1, description="Third.")])

    shown = [tool.definition.input_schema["properties"]["value"] for tool in (first, second, third)]

    assert shown == [
        {"type": "integer", "minimum": 1, "description": "First."},
        {"type": "integer", "minimum": 2, "description": "Second."},
        {"type": "integer", "minimum": 1, "description": "Third."},
    ]


@pytest.mark.parametrize("constraint", [None, 1], ids=["plain", "constrained"])
def test_unions_in_another_order_keep_their_order(constraint):
    hints = [int | list[str], list[str] | int, int | list[str]]
    if constraint:
        hints = [Annotated[hint, Field(ge=1) if index else Field(ge=1.0)] for index, hint in enumerate(hints)]

    shown = [make_tool(hint).definition.input_schema["properties"]["value"]["anyOf"] for hint in hints]

    assert [[branch["type"] for branch in branches] for branches in shown] == [
        ["integer", "array"],
        ["array", "integer"],
        ["integer", "array"],
    ]


async def test_two_parameters_of_one_model_get_a_value_each():
    def pair(first: Guest, second: list[Guest], third: Guest) -> str:
        return f"{first.name} {second[0].name} {third.name}"

    result = await Toolbox(make_tool(Guest), pair).call(
        "pair", '{"first": {"name": "a"}, "second": [{"name": "b"}], "third": {"name": "c"}}'
    )

    assert result.text == "a b c"


async def test_two_recursive_parameters_work_in_one_tool():
    def depth(left: Node, right: Node | None) -> int:
        return len(left.children) + (len(right.children) if right else 0)

    box = Toolbox(make_tool(Node), depth)
    tree = '{"name": "a", "children": [{"name": "b", "children": []}]}'

    result = await box.call("depth", f'{{"left": {tree}, "right": {tree}}}')

    assert result.text == "2"
    assert list(box["depth"].definition.input_schema["$defs"]) == ["Node"]


def test_two_classes_of_one_name_keep_apart_in_a_tool_that_uses_both():
    one, other = create_model("Thing", x=(int, ...)), create_model("Thing", y=(str, ...))
    alone = [make_tool(one), make_tool(other)]

    def both(first: one, second: other) -> str:
        return f"{first} {second}"

    definitions = Tool.from_function(both).definition.input_schema["$defs"]

    assert [list(tool.definition.input_schema["$defs"]) for tool in alone] == [["Thing"], ["Thing"]]
    assert sorted(list(part["properties"]) for part in definitions.values()) == [["x"], ["y"]]


def test_a_tool_gets_the_fields_of_a_model_that_was_built_again():
    kind = create_model("Changing", x=(int, ...))
    make_tool(kind)

    kind.__pydantic_fields__["x"].description = "The new text."
    kind.model_rebuild(force=True)
    shown = make_tool(kind).definition.input_schema["$defs"]["Changing"]["properties"]["x"]

    assert shown == {"type": "integer", "description": "The new text."}


async def test_the_names_of_an_enum_are_accepted_in_every_tool_that_uses_it():
    box = Toolbox(make_tool(Guest, "first"), make_tool(Guest, "second"))

    results = [await box.call(name, {"value": {"name": "a", "level": "HIGH"}}) for name in ("first", "second")]

    assert ["Level.HIGH" in result.text for result in results] == [True, True]


async def test_unknown_keys_of_a_typed_dict_follow_the_setting_of_each_tool():
    def closed(place: Place) -> str:
        return str(place)

    def open_(place: Place, **others: Any) -> str:
        return f"{place} {others}"

    box = Toolbox(closed, Tool.from_function(open_, name="open"))
    arguments = {"place": {"city": "Brno", "country": "CZ"}}

    results = [await box.call(name, arguments) for name in ("closed", "open", "closed")]

    assert [result.ok for result in results] == [False, True, False]


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        pytest.param(Decimal, 1.5, "1.5x", id="decimal"),
        pytest.param(list[Decimal], [1.5], ["1.5x"], id="list of decimals"),
        pytest.param(Annotated[str, Field(pattern="^(?!x)y$")], "y", "x", id="pattern with look-ahead"),
    ],
)
async def test_a_type_with_settings_of_its_own_keeps_them_beside_shared_types(hint, good, bad):
    def use(guest: Guest, value: hint) -> str:
        return repr(value)

    box = Toolbox(make_tool(Guest, "warm"), use)

    results = [await box.call("use", {"guest": {"name": "a"}, "value": value}) for value in (good, bad)]

    assert [result.ok for result in results] == [True, False]
