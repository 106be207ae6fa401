"""Metadata on the fields of classes works as on parameters, at every depth."""

import json
import typing
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, Optional, Required

import attrs
import msgspec
import pytest
from pydantic import BaseModel, Field
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from toolmason import Param, Tool, Toolbox, errors, tool
from toolmason._core.define.field_metadata import apply_field_metadata
from toolmason.errors import DefinitionError


@dataclass
class OrderData:
    item: Annotated[str, Param(description="Article number", examples=["A-1"])]
    count: Annotated[int, "How many"]
    note: Optional[str]  # noqa: UP045 - as the seed writes it
    gift: Annotated[str | None, Param(required=True)]
    shop: Annotated[str, Param(name="store", default="main")]


class OrderDict(TypedDict):
    item: Annotated[str, Param(description="Article number", examples=["A-1"])]
    count: Annotated[int, "How many"]
    note: str | None
    gift: Annotated[str | None, Param(required=True)]
    shop: Annotated[str, Param(name="store", default="main")]


class OrderModel(BaseModel):
    item: Annotated[str, Param(description="Article number", examples=["A-1"])]
    count: Annotated[int, "How many"]
    note: str | None
    gift: Annotated[str | None, Param(required=True)]
    shop: Annotated[str, Param(name="store", default="main")]


@attrs.define
class OrderAttrs:
    item: Annotated[str, Param(description="Article number", examples=["A-1"])]
    count: Annotated[int, "How many"]
    note: str | None
    gift: Annotated[str | None, Param(required=True)]
    shop: Annotated[str, Param(name="store", default="main")]


class OrderStruct(msgspec.Struct):
    item: Annotated[str, Param(description="Article number", examples=["A-1"])]
    count: Annotated[int, "How many"]
    note: str | None
    gift: Annotated[str | None, Param(required=True)]
    shop: Annotated[str, Param(name="store", default="main")]


KINDS = [OrderData, OrderDict, OrderModel, OrderAttrs, OrderStruct]
ARGUMENTS = {"item": "A-1", "count": 2, "gift": None}


def read(order, name):
    return order[name] if isinstance(order, dict) else getattr(order, name)


def taking(kind, hint, **options):
    """A tool that takes one value of a type, and the list of what it got."""
    got = []

    def take(order):
        got.append(order)

    take.__annotations__ = {"order": hint, "return": None}
    return Tool.from_function(take, name=kind.__name__, **options), got


def fields_of(schema, kind):
    return schema["$defs"][kind.__name__]


@pytest.mark.row("SP-11", "SP-27", "SP-28", "CO-21")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("wrap", [False, True], ids=["plain", "in a list"])
def test_the_schema_of_a_field_says_what_its_metadata_says(kind, wrap):
    made, _ = taking(kind, list[kind] if wrap else kind)

    shown = fields_of(made.definition.input_schema, kind)

    assert shown["properties"]["item"] == {"type": "string", "description": "Article number", "examples": ["A-1"]}
    assert shown["properties"]["count"] == {"type": "integer", "description": "How many"}
    assert shown["properties"]["store"] == {"type": "string", "default": "main"}
    assert "shop" not in shown["properties"]
    assert sorted(shown["required"]) == ["count", "gift", "item"]


@pytest.mark.row("SP-11", "SP-28", "CO-21")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_the_values_of_fields_come_by_the_same_rules(kind):
    made, got = taking(kind, list[kind])

    result = await Toolbox(made).call(made.name, {"order": [{**ARGUMENTS, "store": "east"}, ARGUMENTS]})

    assert result.ok, result.text
    assert [(read(o, "note"), read(o, "gift"), read(o, "shop")) for o in got[0]] == [
        (None, None, "east"),
        (None, None, "main"),
    ]


@pytest.mark.row("SP-11", "SP-15", "CO-2")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_flattened_fields_keep_their_metadata(kind):
    made, got = taking(kind, kind, flatten=True)

    result = await Toolbox(made).call(made.name, ARGUMENTS)

    assert result.ok, result.text
    assert read(got[0], "shop") == "main"
    assert made.definition.input_schema["properties"]["count"]["description"] == "How many"
    assert sorted(made.definition.input_schema["required"]) == ["count", "gift", "item"]


@pytest.mark.row("SP-28")
@pytest.mark.parametrize("kind", [*KINDS[:4]], ids=lambda kind: kind.__name__)
async def test_a_field_that_is_required_by_its_metadata_is_missed_by_its_path(kind):
    made, _ = taking(kind, kind)

    result = await Toolbox(made).call(made.name, {"order": {"item": "A-1", "count": 2}})

    assert [problem.path for problem in result.error.problems] == ["$.order.gift"]


@pytest.mark.row("SP-55")
async def test_augmenting_fields_keep_their_metadata():
    @dataclass
    class Thinking:
        reason: Annotated[str, Param(description="Why you call it")]
        doubt: Annotated[str | None, "What may be wrong"]

    heard = []

    def add(a: int) -> int:
        return a

    box = Toolbox(add).augmented(Thinking, on_arguments=lambda event: heard.append(event.arguments))
    result = await box.call("add", {"a": 1, "reason": "asked"})

    schema = box["add"].definition.input_schema
    assert result.value == 1
    assert heard == [Thinking("asked", None)]
    assert schema["properties"]["reason"]["description"] == "Why you call it"
    assert schema["properties"]["doubt"]["description"] == "What may be wrong"
    assert schema["required"] == ["a", "reason"]


@dataclass
class Documented:
    """A place.

    Args:
        town: The name of the town.
        code: Its postal code.
    """

    town: str
    code: Annotated[str, Field(description="Five digits")] = "00000"


@pytest.mark.row("SP-27")
def test_the_docstring_of_a_class_describes_its_fields():
    made, _ = taking(Documented, Documented)

    shown = fields_of(made.definition.input_schema, Documented)

    assert shown["description"] == "A place."
    assert shown["properties"]["town"]["description"] == "The name of the town."
    assert shown["properties"]["code"]["description"] == "Five digits"


class Node(BaseModel):
    """A tree."""

    label: Annotated[str, "What it is"]
    parent: "Node | None"


async def test_a_recursive_model_keeps_its_metadata():
    made, got = taking(Node, Node)

    result = await Toolbox(made).call("Node", {"order": {"label": "leaf", "parent": {"label": "root"}}})

    assert result.ok, result.text
    assert got[0].parent == Node(label="root", parent=None)
    assert fields_of(made.definition.input_schema, Node)["properties"]["label"]["description"] == "What it is"


async def test_a_typed_dict_that_says_required_or_not_is_believed():
    class Choice(TypedDict):
        must: Required[str | None]
        may: NotRequired[str | None]

    made, got = taking(Choice, Choice)

    missing = await Toolbox(made).call("Choice", {"order": {}})
    given = await Toolbox(made).call("Choice", {"order": {"must": None}})

    assert [problem.path for problem in missing.error.problems] == ["$.order.must"]
    assert given.ok
    assert got == [{"must": None}]


async def test_a_model_with_its_own_constructor_is_left_as_it_is():
    class Own(BaseModel):
        n: Annotated[int | None, "A number"]

        def __init__(self, **values):
            super().__init__(**values)

    made, _ = taking(Own, Own)

    assert fields_of(made.definition.input_schema, Own) == {
        "type": "object",
        "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "A number"}},
        "required": ["n"],
    }


def test_output_schemas_describe_fields_under_their_own_names():
    @tool
    def find() -> OrderData:
        raise NotImplementedError

    shown = Tool.from_function(find).definition.output_schema

    assert shown["properties"]["item"]["description"] == "Article number"
    assert set(shown["required"]) == {"item", "count", "note", "gift", "shop"}


async def test_a_schema_on_a_field_replaces_the_derived_one():
    @dataclass
    class Coded:
        code: Annotated[str, Param(schema={"type": "string", "pattern": "^[A-Z]+$"})]
        tags: Annotated[list[str], Param(schema={"type": "array"})] = field(default_factory=list)

    made, _ = taking(Coded, Coded)

    assert fields_of(made.definition.input_schema, Coded)["properties"]["code"] == {
        "type": "string",
        "pattern": "^[A-Z]+$",
    }


@pytest.mark.parametrize(
    ("param", "text"),
    [
        pytest.param(Param(required=True, default=1), "is required but has a default", id="required and default"),
        pytest.param(Param(template=True, default="${x}"), "Only a parameter", id="template"),
        pytest.param(Param(schema={"type": "strng"}), "not valid JSON Schema at $.type", id="schema"),
    ],
)
def test_metadata_that_conflicts_is_refused_with_the_field(param, text):
    @dataclass
    class Broken:
        size: Annotated[int, param]

    with pytest.raises(DefinitionError, match=r"Field 'size' of '.*Broken'") as caught:
        taking(Broken, Broken)

    assert text in str(caught.value)


@pytest.mark.row("CO-16", "P18")
def test_a_schema_on_a_parameter_is_checked_when_the_tool_is_defined():
    def find(code: Annotated[str, Param(schema={"type": "strng"})]) -> str:
        return code

    with pytest.raises(
        errors.DefinitionError, match=r"parameter 'code': `Param\(schema=...\)` is not valid JSON Schema"
    ):
        Toolbox(find)


class Place(typing.TypedDict):
    """Where."""

    town: Annotated[str, "Its name"]
    code: NotRequired[Annotated[int, Param(description="Its code")]]


@dataclass
class Trip:
    stops: list[Place]


async def test_a_typed_dict_of_the_standard_library_is_an_argument():
    """Pydantic refuses it on Python 3.11."""
    made, got = taking(Place, Place)

    result = await Toolbox(made).call("Place", {"order": {"town": "Brno"}})

    assert result.ok, result.text
    assert got == [{"town": "Brno"}]
    assert fields_of(made.definition.input_schema, Place) == {
        "type": "object",
        "description": "Where.",
        "properties": {
            "town": {"type": "string", "description": "Its name"},
            "code": {"type": "integer", "description": "Its code"},
        },
        "required": ["town"],
        "additionalProperties": False,
    }


async def test_such_a_typed_dict_works_inside_a_dataclass_and_as_a_result():
    def plan(trip: Trip) -> Place:
        return trip.stops[0]

    box = Toolbox(plan)
    result = await box.call("plan", {"trip": {"stops": [{"town": "Brno", "code": 1}]}})

    assert json.loads(result.text) == {"town": "Brno", "code": 1}
    assert box["plan"].definition.output_schema["properties"]["town"]["description"] == "Its name"


# --- values that fit -----------------------------------------------------------------------------


def takes(kind):
    def act(value: kind) -> str:
        """Act."""
        return repr(value)

    act.__annotations__["value"] = kind
    return Toolbox(Tool.from_function(act))


def make_kind(form, hint):
    """Return a class of one form with one field `n` of a type."""
    if form == "dataclass":
        made = type("Made", (), {"__annotations__": {"n": hint}})
        return dataclass(made)
    if form == "model":
        return type("Made", (BaseModel,), {"__annotations__": {"n": hint}, "__module__": __name__})
    if form == "typed dict":
        return TypedDict("Made", {"n": hint})
    if form == "named tuple":
        return typing.NamedTuple("Made", [("n", hint)])
    return msgspec.defstruct("Made", [("n", hint)])


FORMS = ["dataclass", "model", "typed dict", "named tuple", "struct"]


@pytest.mark.row("SP-11")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("hint", "default"), [(int, "five"), (int, 5.5), (list[int], ["a"]), (Annotated[int, Field(ge=10)], 5)], ids=str
)
def test_a_default_on_a_field_must_match_its_type(form, hint, default):
    with pytest.raises(DefinitionError, match=r"Field 'n' of 'Made': the default .* does not match its type"):
        takes(make_kind(form, Annotated[hint, Param(default=default)]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("hint", "default"), [(int, 5), (int | None, None), (list[int], [1])], ids=str)
async def test_a_default_on_a_field_that_matches_is_used(form, hint, default):
    box = takes(make_kind(form, Annotated[hint, Param(default=default)]))

    result = await box.call("act", {"value": [] if form == "named tuple" else {}})

    assert result.ok
    assert repr(default) in result.text


@pytest.mark.row("AJ-3", "CO-16")
@pytest.mark.parametrize("form", ["dataclass", "model", "named tuple", "struct"])
def test_an_optional_field_needs_a_value(form):
    with pytest.raises(DefinitionError, match=r"is optional but has no default, and its type does not admit None"):
        takes(make_kind(form, Annotated[int, Param(required=False)]))


@pytest.mark.row("AJ-3")
async def test_an_optional_key_of_a_typed_dict_may_be_absent():
    box = takes(make_kind("typed dict", Annotated[int, Param(required=False)]))

    assert (await box.call("act", {"value": {}})).text == "{}"
    assert (await box.call("act", {"value": {"n": 5}})).text == "{'n': 5}"


@pytest.mark.row("AJ-3", "CO-16")
@pytest.mark.parametrize("hint", [int, list[str], typing.Literal["a"]], ids=str)
def test_an_optional_parameter_needs_a_value(hint):
    def act(n) -> None: ...

    act.__annotations__["n"] = Annotated[hint, Param(required=False)]

    with pytest.raises(DefinitionError, match=r"parameter 'n' is optional but has no default, and its type does not"):
        Tool.from_function(act)


@pytest.mark.row("CO-6")
@pytest.mark.parametrize("hint", [int | None, typing.Any, object], ids=str)
async def test_an_optional_parameter_that_may_be_none_arrives_as_none(hint):
    def act(n) -> bool:
        return n is None

    act.__annotations__["n"] = Annotated[hint, Param(required=False)]
    box = Toolbox(Tool.from_function(act))

    assert box["act"].definition.input_schema["required"] == []
    assert (await box.call("act")).value is True


# --- fields of a NamedTuple -----------------------------------------------------------------------


class Box(typing.NamedTuple):
    """A box.

    Args:
        depth: How deep.
    """

    width: Annotated[int, "How wide"]
    height: Annotated[int, Param(description="How high", examples=[3])]
    depth: int = 1
    label: Annotated[str | None, Param(description="What is in it")] = None


@pytest.mark.row("SP-11", "SP-27")
async def test_the_fields_of_a_named_tuple_are_described():
    box = takes(Box)

    items = box["act"].definition.input_schema["$defs"]["Box"]
    result = await box.call("act", {"value": [2, 3]})

    assert items["prefixItems"] == [
        {"type": "integer", "description": "How wide"},
        {"type": "integer", "description": "How high", "examples": [3]},
        {"type": "integer", "default": 1, "description": "How deep."},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "What is in it"},
    ]
    assert (items["minItems"], items["description"]) == (2, "A box.")
    assert result.text == "Box(width=2, height=3, depth=1, label=None)"


async def test_only_the_last_fields_of_a_named_tuple_can_be_omitted():
    class Mixed(typing.NamedTuple):
        first: int | None
        second: int
        third: str | None

    box = takes(Mixed)

    assert box["act"].definition.input_schema["$defs"]["Mixed"]["minItems"] == 2
    assert (await box.call("act", {"value": [None, 3]})).ok
    assert not (await box.call("act", {"value": [3]})).ok


# --- blank texts ----------------------------------------------------------------------------------


@pytest.mark.row("CO-16")
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_blank_text_is_no_description(blank):
    @dataclass
    class Order:
        """An order.

        Args:
            item: What.
        """

        item: Annotated[str, Param(description=blank)]

    @tool(description=blank)
    def act(n: Annotated[int, Param(description=blank)], m: Annotated[int, blank], order: Order) -> None:
        """Act on it.

        Args:
            n: How many.
        """

    definition = Toolbox(act)["act"].definition

    assert definition.description == "Act on it."
    assert definition.input_schema["properties"]["n"] == {"type": "integer", "description": "How many."}
    assert definition.input_schema["properties"]["m"] == {"type": "integer"}
    assert definition.input_schema["$defs"]["Order"]["properties"]["item"]["description"] == "What."


def test_a_blank_description_of_a_schema_tool_is_its_name_in_words():
    made = Tool.from_schema("count_orders", " ", {"type": "object"}, lambda arguments, context: 1)

    assert made.definition.description == Tool.from_schema("count_orders", "", {}, lambda a, c: 1).description


@pytest.mark.row("CO-16")
@pytest.mark.parametrize("param", [Param(description="It"), Param(name="it"), Param(required=True)], ids=repr)
def test_metadata_on_a_flattened_parameter_is_refused(param):
    def act(order) -> None: ...

    act.__annotations__["order"] = Annotated[OrderData, param]

    with pytest.raises(DefinitionError, match=r"the fields of 'order' are the arguments, so its `Param\(...\)` has no"):
        Tool.from_function(act, flatten=True)


def test_a_named_tuple_is_described_with_the_core_schema_of_older_pydantic():
    """Before pydantic 2.14 a NamedTuple was a call of its class."""
    arguments = [
        {"name": name, "mode": "positional_or_keyword", "schema": {"type": "int"}} for name in ("width", "height")
    ]
    core: typing.Any = {
        "type": "call",
        "arguments_schema": {
            "type": "arguments",
            "arguments_schema": arguments,
            "metadata": {"pydantic_js_prefer_positional_arguments": True},
        },
        "function": Box,
    }

    schema = GenerateJsonSchema().generate(apply_field_metadata(core, sets_values=True))

    assert [item["description"] for item in schema["prefixItems"]] == ["How wide", "How high"]
    assert schema["description"] == "A box."
