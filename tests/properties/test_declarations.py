"""Functions → tools (design 01, §3): ways to write one, what its parameters say, and what cannot be a tool.

The types themselves are in tests/core/test_types.py; these are the signatures around them.
"""

import functools
import importlib
import re
import sys
import typing
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import pytest
from pydantic import Field

from toolmason import Param, Tool, Toolbox, ToolReturn, tool, tools_from
from toolmason.errors import DefinitionError, UnsupportedType
from toolmason.extend import ParamSpec

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def schema_of(box):
    return box.tools[0].definition.input_schema


# --- ways to write a function -------------------------------------------------------------------


FUTURE_MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from toolmason import tool

@tool
def total(prices: list[Price], tax: float | None = None) -> int:
    return sum(price.cents for price in prices)

@dataclass
class Price:
    cents: int
"""


async def test_annotations_of_a_module_with_the_future_import_are_read(tmp_path, monkeypatch):
    (tmp_path / "future_tools.py").write_text(FUTURE_MODULE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with patch.dict(sys.modules):
        box = Toolbox(importlib.import_module("future_tools"))
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


PARTIALS = {
    "keyword": (functools.partial(order, count=2), ["sku", "express"], {"sku": "a"}, ("a", 2, False)),
    "position": (functools.partial(order, "a"), ["count", "express"], {"count": 3}, ("a", 3, False)),
    "twice": (functools.partial(functools.partial(order, count=1), "a"), ["express"], {}, ("a", 1, False)),
}


@pytest.mark.parametrize(("made", "seen", "sent", "value"), PARTIALS.values(), ids=PARTIALS)
async def test_what_a_partial_fixes_is_hidden_from_the_model_and_stays_fixed(made, seen, sent, value):
    box = Toolbox(made)

    result = await box.call("order", {"count": 99, **sent})

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
    [("inner_static", 5), ("outer_static", 5), ("inner_class", "Shop 5"), ("outer_class", "Shop 5")],
    ids=["tool-under-static", "tool-over-static", "tool-under-class", "tool-over-class"],
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


DEFAULTS = {
    "plain": (int, 3, {**INTEGER, "default": 3}, 3),
    "field": (int, Field(default=3, ge=1), {**INTEGER, "minimum": 1, "default": 3}, 3),
    "annotated-field": (Annotated[int, Field(default=3)], ..., {**INTEGER, "default": 3}, 3),
    "param": (Annotated[int, Param(default=3)], ..., {**INTEGER, "default": 3}, 3),
    "factory": (list[int], Field(default_factory=list), {"type": "array", "items": INTEGER}, []),
    "optional": (int | None, ..., {"anyOf": [INTEGER, {"type": "null"}]}, None),
    "decimal": (Decimal, Decimal("1.5"), {**NUMBER, "default": 1.5}, Decimal("1.5")),
    "path": (Path, Path("a"), {**STRING, "format": "path", "default": "a"}, Path("a")),
    "bytes-that-are-no-text": (bytes, b"\xff", {**STRING, "format": "binary"}, b"\xff"),
}


@pytest.mark.parametrize(("hint", "default", "expected", "arrives"), DEFAULTS.values(), ids=DEFAULTS)
async def test_a_parameter_that_is_left_out_takes_its_default(hint, default, expected, arrives):
    async def take(value):
        return ToolReturn(value, content="taken")

    take.__annotations__ = {"value": hint}
    take.__defaults__ = None if default is ... else (default,)
    box = Toolbox(take)
    result = await box.call("take", "{}")

    assert result.unwrap() == arrives
    assert schema_of(box)["properties"]["value"] == expected
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

    assert schema_of(box)["properties"]["value"] == {"type": "string", "format": "date", "description": "When."}
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


REFUSED = {
    "untyped": (untyped, "`value: str`"),
    "no-schema": (unsupported, "Inject"),
    "no-schema-inside": (callback, "Inject"),
    "required-with-default": (contradiction, "Remove one of the two"),
    "default-of-another-type": (text_for_a_number, "Change the default or the type"),
    "default-none": (none_for_a_number, "| None = None"),
    "default-out-of-bounds": (below_the_bound, "Change the default or the type"),
    "star-args": (starred, "`value: list[...]`"),
}


@pytest.mark.parametrize(("fn", "fix"), REFUSED.values(), ids=REFUSED)
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
