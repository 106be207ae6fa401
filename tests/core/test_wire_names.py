"""A field or parameter with `Param(name=...)` is known by that name only, whatever the kind of its class."""

from dataclasses import dataclass
from typing import Annotated

import attrs
import msgspec
import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from toolmason import Param, Tool, Toolbox

Count = Annotated[int, Param(name="count")]


@dataclass
class OrderData:
    number: Count


class OrderDict(TypedDict):
    number: Count


class OrderModel(BaseModel):
    number: Count


@attrs.define
class OrderAttrs:
    number: Count


class OrderStruct(msgspec.Struct):
    number: Count


class StrictStruct(msgspec.Struct, forbid_unknown_fields=True):
    number: Count


class TaggedStruct(msgspec.Struct, tag="order"):
    number: Count


class OtherStruct(msgspec.Struct, tag="other"):
    other: int = 0


class SwappedStruct(msgspec.Struct):
    a: Annotated[int, Param(name="b")]
    b: Annotated[int, Param(name="a")]


KINDS = [OrderData, OrderDict, OrderModel, OrderAttrs, OrderStruct, StrictStruct]
SHAPES = {
    "plain": (lambda kind: kind, lambda order: order),
    "list": (lambda kind: list[kind], lambda order: [order]),
    "optional list": (lambda kind: list[kind] | None, lambda order: [order]),
    "dict": (lambda kind: dict[str, kind], lambda order: {"number": order}),
}


def make_box(hint, **options):
    def take(order) -> str:
        return str(order)

    take.__annotations__ = {"order": hint, "return": str}
    return Toolbox(Tool.from_function(take, **options))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_only_the_wire_name_of_a_field_is_accepted(kind, shape):
    wrap, put = SHAPES[shape]
    box = make_box(wrap(kind))

    right = await box.call("take", {"order": put({"count": 2})})
    wrong = await box.call("take", {"order": put({"number": 1})})
    both = await box.call("take", {"order": put({"count": 2, "number": 1})})

    assert "2" in right.text
    assert wrong.error.code == "invalid_arguments"
    assert "count" in wrong.error.message
    assert both.error or ("2" in both.text and "1" not in both.text)
    assert both.error or kind in (OrderModel, OrderStruct)  # which ignore unknown fields


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_only_the_wire_name_of_a_flattened_field_is_accepted(kind):
    box = make_box(kind, flatten=True)

    assert (await box.call("take", {"count": 2})).ok
    assert "count" in (await box.call("take", {"number": 2})).error.message


async def test_only_the_wire_name_of_a_parameter_is_accepted():
    box = make_box(Count)

    assert (await box.call("take", {"count": 2})).text == "2"
    assert (await box.call("take", {"order": 2})).error.code == "invalid_arguments"


@pytest.mark.parametrize(
    ("hint", "order", "path"),
    [
        (OrderStruct, {"count": []}, "$.count"),
        (list[OrderStruct], [{"count": 1}, {"count": []}], "$.count"),
        (msgspec.defstruct("Cart", [("items", list[OrderStruct])]), {"items": [{"count": []}]}, "$.items[0].count"),
        (msgspec.defstruct("Map", [("items", dict[str, OrderStruct])]), {"items": {"x": {"count": []}}}, "[...].count"),
    ],
    ids=["plain", "list", "list in a field", "dict in a field"],
)
async def test_a_problem_in_a_struct_has_the_names_of_the_model(hint, order, path):
    result = await make_box(hint).call("take", {"order": order})

    assert f"{path}`" in result.error.message


async def test_a_tagged_union_of_structs_knows_the_wire_names():
    cart = msgspec.defstruct("Cart", [("item", TaggedStruct | OtherStruct)])
    box = make_box(cart)

    right = await box.call("take", {"order": {"item": {"type": "order", "count": 2}}})
    wrong = await box.call("take", {"order": {"item": {"type": "order", "number": 2}}})

    assert "number=2" in right.text
    assert "count" in wrong.error.message


async def test_two_fields_may_have_the_names_of_each_other():
    assert (await make_box(SwappedStruct).call("take", {"order": {"a": 1, "b": 2}})).text == "SwappedStruct(a=2, b=1)"
