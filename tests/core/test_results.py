"""What a tool returns → what the model and the application read (design 01, §4)."""

import base64
import json
import math
import pickle
from collections import deque
from collections.abc import AsyncIterator, Iterator
from copy import copy
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import attrs
import msgspec
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from pydantic_core import to_json
from typing_extensions import TypedDict

from toolmason import (
    Audio,
    EmbeddedResource,
    Image,
    Inject,
    ResourceLink,
    Text,
    Tool,
    Toolbox,
    ToolError,
    ToolReturn,
    converters,
    tool,
)
from toolmason.errors import ResultError

ABSENT = object()


class Colour(Enum):
    RED = "red"


class Price(BaseModel):
    cents: int
    unit: str = Field(default="EUR", alias="currencyUnit")


class Tree(BaseModel):
    value: float = 0.0
    children: list["Tree"] = []


@dataclass
class Point:
    x: float
    y: float = 0.0


@dataclass(slots=True)
class Slotted:
    x: float


class Span(NamedTuple):
    start: int
    end: int


class Person(TypedDict):
    name: str


class OneField(BaseModel):
    result: int


@attrs.define
class Part:
    number: int


@attrs.define
class Machine:
    part: Part
    spares: list[Part]


class Bolt(msgspec.Struct):
    length: int


class Chain(msgspec.Struct):
    link: int
    rest: Optional["Chain"] = None


class Hostile:
    """An object that fails whatever is asked of it."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __getattr__(self, name):
        raise RuntimeError("no attributes")


def giving(make, returns=ABSENT, **options):
    """A toolbox with one tool, `give() -> returns`, that returns `make()`."""

    async def give():
        return make()

    if returns is not ABSENT:
        give.__annotations__ = {"return": returns}
    return Toolbox(Tool.from_function(give, **options))


async def result_of(value, returns=ABSENT, **options):
    return await giving(lambda: value, returns, **options).call("give")


def nested(levels):
    outer = inner = []
    for _ in range(levels):
        inner.append([])
        inner = inner[0]
    return outer


def cycle():
    found = {}
    found["self"] = [found]
    return found


# --- text ---------------------------------------------------------------------------------------

TEXTS = {
    "str": ("Prague: 21 °C", ABSENT, "Prague: 21 °C"),
    "annotated-str": ('{"not": "parsed"}', str, '{"not": "parsed"}'),
    "void": (None, None, "Success"),
    "nothing-unannotated": (None, ABSENT, "Success"),
    "null": (None, int | None, "null"),
    "empty-str": ("", str, "(no output)"),
    "empty-list": ([], list[int], "[]"),
    "empty-list-unannotated": ([], ABSENT, "[]"),
    "empty-dict": ({}, dict[str, int], "{}"),
    "int": (5, int, "5"),
    "bool": (True, bool, "true"),
    "compact": ({"a": [1, 2], "b": {"c": None}}, ABSENT, '{"a":[1,2],"b":{"c":null}}'),
    "not-escaped": ({"city": "Žďár 🌧"}, ABSENT, '{"city":"Žďár 🌧"}'),
    "model": (Price(cents=5, currencyUnit="CZK"), Price, '{"cents":5,"currencyUnit":"CZK"}'),
    "model-unannotated": (Price(cents=5), ABSENT, '{"cents":5,"currencyUnit":"EUR"}'),
    "models": ([Price(cents=5)], list[Price], '[{"cents":5,"currencyUnit":"EUR"}]'),
    "dataclass": (Point(1.5), Point, '{"x":1.5,"y":0.0}'),
    "dataclass-unannotated": (Slotted(1.5), ABSENT, '{"x":1.5}'),
    "typed-dict": ({"name": "Ada"}, Person, '{"name":"Ada"}'),
    "named-tuple": (Span(1, 2), Span, "[1,2]"),
    "enum": (Colour.RED, Colour, '"red"'),
    "literal": ("on", Literal["on", "off"], "on"),
    "datetime": (datetime(2024, 1, 2, 3, 4, tzinfo=UTC), datetime, '"2024-01-02T03:04:00Z"'),
    "date-unannotated": (date(2024, 1, 2), ABSENT, '"2024-01-02"'),
    "timedelta": (timedelta(seconds=90), timedelta, '"PT1M30S"'),
    "uuid": (UUID(int=1), UUID, '"00000000-0000-0000-0000-000000000001"'),
    "path": (Path("a/b"), Path, '"a/b"'),
    "set": ({1}, set[int], "[1]"),
    "deque": (deque([1, 2]), deque[int], "[1,2]"),
    "tuple-for-a-list": ((1, 2), list[int], "[1,2]"),
    "dict-for-a-model": ({"cents": 5}, Price, '{"cents":5,"currencyUnit":"EUR"}'),
    "attrs": (Machine(Part(1), [Part(2)]), Machine, '{"part":{"number":1},"spares":[{"number":2}]}'),
    "attrs-unannotated": ({"a": Part(1)}, ABSENT, '{"a":{"number":1}}'),
    "attrs-in-list": ([Part(1)], list[Part], '[{"number":1}]'),
    "struct": (Bolt(1), Bolt, '{"length":1}'),
    "struct-in-list": ([Bolt(1)], list[Bolt], '[{"length":1}]'),
    "recursive-struct": (Chain(1, Chain(2)), Chain, '{"link":1,"rest":{"link":2,"rest":null}}'),
    "int-as-key": ({1: "a"}, dict[int, str], '{"1":"a"}'),
}


@pytest.mark.row("MA-7", "CO-9")
@pytest.mark.parametrize(("value", "returns", "text"), TEXTS.values(), ids=TEXTS)
async def test_a_value_reads_as_this_text(value, returns, text):
    result = await result_of(value, returns)

    assert result.error is None
    assert result.text == text
    assert result.content == (Text(text),)
    assert result.value is value


@pytest.mark.parametrize("returns", [ABSENT, bytes], ids=["unannotated", "annotated"])
async def test_bytes_are_base64_of_the_standard_alphabet(returns):
    data = b"\xfb\xff\x00plain"

    result = await result_of(data, returns)

    assert json.loads(result.text) == base64.b64encode(data).decode()


async def test_bytes_inside_a_value_are_base64_too():
    result = await result_of({"data": b"\xff\xfe"}, dict[str, bytes])

    assert json.loads(result.text) == {"data": base64.b64encode(b"\xff\xfe").decode()}


# --- streams ------------------------------------------------------------------------------------


async def test_a_generator_function_gives_the_list_of_its_items():
    def count(upto: int) -> Iterator[int]:
        yield from range(upto)

    result = await Toolbox(count).call("count", {"upto": 3})

    assert (result.value, result.text, result.structured) == ([0, 1, 2], "[0,1,2]", {"result": [0, 1, 2]})


async def test_an_async_generator_function_gives_the_list_of_its_items():
    async def count(upto: int) -> AsyncIterator[str]:
        for number in range(upto):
            yield str(number)

    result = await Toolbox(count).call("count", {"upto": 2})

    assert (result.value, result.text, result.structured) == (["0", "1"], '["0","1"]', {"result": ["0", "1"]})


async def test_a_generator_that_a_plain_function_returns_is_read_to_its_end():
    result = await giving(lambda: (number for number in (1, 2)), Iterator[int]).call("give")

    assert result.text == "[1,2]"


async def test_a_generator_that_fails_half_way_is_an_error_result():
    def broken():
        yield 1
        raise ValueError("half way")

    result = await Toolbox(broken).call("broken")

    assert result.ok is False
    assert "half way" in result.text


async def test_an_async_generator_that_a_plain_function_returns_is_a_text_or_a_result_error():
    async def items():
        yield 1

    result = await giving(items).call("give")

    assert result.text == "[1]" or isinstance(result.error, ResultError)


# --- content ------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n"


async def test_an_image_file_is_a_part_of_its_type(tmp_path):
    (tmp_path / "chart.jpeg").write_bytes(PNG)

    result = await result_of(Image.from_file(tmp_path / "chart.jpeg"), Image)

    assert result.content == (Image(PNG, "image/jpeg"),)
    assert result.text == "[image: image/jpeg, 6 bytes]"
    assert result.structured is None


@pytest.mark.parametrize(
    ("part", "note"),
    [
        (Text("hello"), "hello"),
        (Image(PNG), "[image: image/png, 6 bytes]"),
        (Audio(PNG, "audio/mpeg"), "[audio: audio/mpeg, 6 bytes]"),
        (ResourceLink("file:///a", "a"), "[resource a: file:///a]"),
        (EmbeddedResource("file:///a", text="inside"), "inside"),
        (EmbeddedResource("file:///a", data=PNG), "[resource file:///a: binary, 6 bytes]"),
    ],
    ids=["text", "image", "audio", "link", "embedded-text", "embedded-bytes"],
)
async def test_a_part_stays_a_part_and_has_a_text_for_readers_of_text(part, note):
    result = await result_of(part)

    assert result.content == (part,)
    assert result.text == note


async def test_a_list_of_text_contents_and_values_is_a_result_of_several_parts():
    result = await result_of(["chart:", Image(PNG), {"a": 1}])

    assert result.content == (Text("chart:"), Image(PNG), Text('{"a":1}'))
    assert result.text == 'chart:\n[image: image/png, 6 bytes]\n{"a":1}'


async def test_a_list_of_texts_is_a_value_and_not_parts():
    assert (await result_of(["a", "b"])).text == '["a","b"]'


# --- structured ---------------------------------------------------------------------------------

STRUCTURED = {
    "str": ("a", str, {"result": "a"}),
    "empty-str": ("", str, {"result": ""}),
    "str-or-none": ("a", str | None, {"result": "a"}),
    "literal": ("on", Literal["on", "off"], {"result": "on"}),
    "int": (5, int, {"result": 5}),
    "null": (None, int | None, {"result": None}),
    "list": ([1], list[int], {"result": [1]}),
    "empty-list": ([], list[int], {"result": []}),
    "model": (Price(cents=5), Price, {"cents": 5, "currencyUnit": "EUR"}),
    "models": ([OneField(result=1)], list[OneField], {"result": [{"result": 1}]}),
    "model-with-a-result": (OneField(result=5), OneField, {"result": 5}),
    "recursive-model": (Tree(), Tree, {"value": 0.0, "children": []}),
    "dict": ({"a": 1}, dict[str, int], {"a": 1}),
    "dict-or-none": ({"a": 1}, dict[str, int] | None, {"result": {"a": 1}}),
    "model-or-none": (OneField(result=5), OneField | None, {"result": {"result": 5}}),
    "dict-or-list": ({"a": 1}, dict[str, int] | list[int], {"result": {"a": 1}}),
    "date": (date(2024, 1, 2), date, {"result": "2024-01-02"}),
    "decimal": (Decimal("1.5"), Decimal, {"result": "1.5"}),
    "bytes": (b"\xff", bytes, {"result": "/w=="}),
    "struct": (Bolt(1), Bolt, {"length": 1}),
    "attrs": (Part(1), Part, {"number": 1}),
}


@pytest.mark.parametrize(("value", "returns", "structured"), STRUCTURED.values(), ids=STRUCTURED)
async def test_structured_is_the_value_as_json_and_fits_the_output_schema(value, returns, structured):
    box = giving(lambda: value, returns)

    result = await box.call("give")

    schema = box["give"].definition.output_schema
    assert result.error is None
    assert result.structured == structured
    assert schema["type"] == "object"
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(result.structured)


@pytest.mark.parametrize("returns", [ABSENT, None, Any, Image, list[Image | str], ToolReturn])
def test_a_return_type_that_says_nothing_about_json_has_no_output_schema(returns):
    assert giving(lambda: None, returns)["give"].definition.output_schema is None


def test_an_output_schema_can_be_left_out_or_written_by_hand():
    @tool(output_schema=False)
    def plain() -> int:
        return 5

    @tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    def written() -> dict[str, int]:
        return {"n": 5}

    box = Toolbox(plain, written)

    assert box["plain"].definition.output_schema is None
    assert box["written"].definition.output_schema == {"type": "object", "properties": {"n": {"type": "integer"}}}


MISMATCHES = {
    "text-for-int": ("many", int),
    "text-for-list": ("[1]", list[int]),
    "int-for-str": (5, str),
    "dict-for-str": ({"a": 1}, str),
    "none-for-str": (None, str),
    "none-for-int": (None, int),
    "none-for-model": (None, Price),
    "wrong-model": ({"cents": "many"}, Price),
    "wrong-item": ([1, "x"], list[int]),
    "hostile": (Hostile(), dict[str, int]),
}


@pytest.mark.parametrize(("value", "returns"), MISMATCHES.values(), ids=MISMATCHES)
async def test_a_value_of_another_type_is_a_result_error_or_fits_the_output_schema_all_the_same(value, returns):
    box = giving(lambda: value, returns)

    result = await box.call("give")

    schema = box["give"].definition.output_schema
    fits = result.error is None and Draft202012Validator(schema).is_valid(result.structured)
    assert fits or isinstance(result.error, ResultError)


async def test_a_wrong_value_is_told_with_the_place_where_it_does_not_fit():
    result = await result_of({"cents": "many"}, Price)

    assert isinstance(result.error, ResultError)
    assert "cents" in result.error.message


# --- what JSON has no words for -----------------------------------------------------------------

ODD = {
    "nan": lambda: math.nan,
    "infinity": lambda: [1.0, -math.inf],
    "nan-in-a-model": lambda: Tree(children=[Tree(value=math.nan)]),
    "nan-in-a-dataclass": lambda: Point(math.nan),
    "nan-in-slots": lambda: Slotted(math.nan),
    "nan-in-a-struct": lambda: msgspec.defstruct("Odd", [("x", float)])(math.nan),
    "nan-in-a-deque": lambda: deque([math.nan]),
    "nan-as-key": lambda: {math.nan: 1},
    "nan-decimal": lambda: Decimal("NaN"),
    "lone-surrogate": lambda: "a\ud800b",
    "lone-surrogate-inside": lambda: {"a": ["\udfff"]},
    "lone-surrogate-as-key": lambda: {"\ud800": 1},
    "lone-surrogate-in-text": lambda: Text("\ud800"),
    "lone-surrogate-in-a-part": lambda: ["ok", Text("\ud800")],
    "lone-surrogate-in-a-link": lambda: ResourceLink("file:///\ud800"),
    "lone-surrogate-in-a-resource": lambda: EmbeddedResource("file:///a", text="\ud800"),
    "lone-surrogate-as-content": lambda: ToolReturn(1, content="\ud800"),
    "cycle": cycle,
    "huge-int": lambda: 10**5000,
    "huge-int-inside": lambda: {"n": [10**5000]},
    "object": object,
    "hostile": Hostile,
    "function": lambda: print,
    "exception": lambda: ValueError("as a value"),
    "tuple-as-key": lambda: {(1, 2): 3},
    "range": lambda: range(3),
    "300-deep": lambda: nested(300),
    "10000-deep": lambda: nested(10_000),
    "deep-content": lambda: ["ok", Text("a"), nested(10_000)],
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("returns", [ABSENT, Any, dict, list[Any]], ids=["unannotated", "any", "dict", "list"])
async def test_an_odd_value_is_a_text_that_can_be_sent_or_a_result_error(make, returns):
    result = await giving(make, returns).call("give")

    assert result.text.encode()
    assert result.error is None or (isinstance(result.error, ResultError) and json.loads(result.text)["error"]["code"])
    assert to_json(result.structured)


@pytest.mark.parametrize("name", [name for name in ODD if name.startswith(("nan", "infinity"))])
@pytest.mark.parametrize("returns", [ABSENT, dict, list[Any]], ids=["unannotated", "dict", "list"])
async def test_a_number_that_is_not_finite_never_gets_into_a_json_text(name, returns):
    result = await giving(ODD[name], returns).call("give")

    def refuse(word):
        pytest.fail(f"{word} is not JSON")

    assert result.error or json.loads(result.text, parse_constant=refuse)


async def test_the_error_says_where_the_number_is_that_is_not_finite():
    result = await result_of({"rows": [{"share": math.inf}]})

    assert isinstance(result.error, ResultError)
    assert "$.rows[0].share" in result.error.message


async def test_an_error_with_half_a_surrogate_pair_still_has_a_text():
    def fail():
        raise ToolError("bad name: \ud800")

    result = await Toolbox(fail).call("fail")

    assert json.loads(result.text.encode())["error"]["code"] == "tool_error"


# --- ToolReturn, converters, placeholders -------------------------------------------------------


async def test_a_tool_return_keeps_value_and_meta_from_the_model():
    result = await result_of(ToolReturn({"rows": 1000}, content="1000 rows", meta={"cost": 5}))

    assert (result.value, result.text, result.meta) == ({"rows": 1000}, "1000 rows", {"cost": 5})


async def test_a_tool_return_without_content_reads_as_its_value():
    result = await result_of(ToolReturn(5, meta={"cost": 5}), int)

    assert (result.text, result.structured, result.meta) == ("5", {"result": 5}, {"cost": 5})


@pytest.mark.parametrize(
    ("returned", "text"),
    [(ToolReturn(), "Success"), (ToolReturn(5, content=[]), "(no output)"), (ToolReturn(5, content=""), "(no output)")],
    ids=["nothing", "no-parts", "empty-text"],
)
async def test_a_tool_return_is_never_empty_for_the_model(returned, text):
    assert (await result_of(returned)).text == text


async def test_a_tool_return_may_carry_several_parts():
    result = await result_of(ToolReturn(None, content=["seen:", Image(PNG)]))

    assert result.content == (Text("seen:"), Image(PNG))


CONVERTED = {
    "text": (converters.text, Colour.RED, "Colour.RED"),
    "text-empty": (converters.text, "", "(no output)"),
    "as-json": (converters.as_json, {"a": [1]}, '{\n  "a": [\n    1\n  ]\n}'),
    "as-json-str": (converters.as_json, "a", "a"),
    "as-json-attrs": (converters.as_json, Part(1), '{\n  "number": 1\n}'),
    "quoted-str": (converters.quoted_json, "a", '"a"'),
    "quoted-nothing": (converters.quoted_json, None, '"Done"'),
    "quoted-model": (converters.quoted_json, Price(cents=5), '{"cents":5,"currencyUnit":"EUR"}'),
    "own-parts": (lambda value, kind: ["a", Text("b")], 5, "a\nb"),
    "own-nothing": (lambda value, kind: [], 5, "(no output)"),
}


@pytest.mark.row("SP-31")
@pytest.mark.parametrize(("converter", "value", "text"), CONVERTED.values(), ids=CONVERTED)
async def test_a_converter_decides_what_the_model_reads(converter, value, text):
    result = await result_of(value, converter=converter)

    assert result.error is None
    assert result.text == text
    assert result.value == value


async def test_a_converter_is_given_the_return_type_and_takes_the_place_of_the_output_schema():
    box = giving(lambda: 5, int, converter=lambda value, kind: f"{value}: {kind.__name__}")

    assert (await box.call("give")).text == "5: int"
    assert box["give"].definition.output_schema is None


@pytest.mark.parametrize(
    "value", [math.nan, "\ud800", object(), cycle()], ids=["nan", "lone-surrogate", "object", "cycle"]
)
@pytest.mark.parametrize("converter", [converters.as_json, converters.quoted_json], ids=["as_json", "quoted_json"])
async def test_a_preset_that_cannot_write_a_value_is_a_result_error(converter, value):
    result = await result_of(value, converter=converter)

    assert isinstance(result.error, ResultError)


async def test_placeholders_in_a_text_result_are_filled_only_where_asked():
    async def greet(name: str, style: str = "Dear") -> str:
        return "${style} ${name}, $${name} ${unknown} ${unknown:-friend}"

    plain, asked = Toolbox(greet), Toolbox(Tool.from_function(greet, substitute_result=True))

    assert (await plain.call("greet", {"name": "Ada"})).text == await greet("Ada")
    assert (await asked.call("greet", {"name": "Ada"})).text == "Dear Ada, ${name} ${unknown} friend"


async def test_a_placeholder_in_a_result_never_tells_what_the_application_injected():
    """Design 01, §7: nothing of the context reaches a model, not even one that says `${token}`."""

    @tool(substitute_result=True)
    async def echo(text: str, token: Annotated[str, Inject]) -> str:
        return text

    result = await Toolbox(echo, context={"token": "s3cret"}).call("echo", {"text": "${token}"})

    assert "s3cret" not in result.text


# --- the result itself --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["text", "value", "ok", "error", "anything"])
async def test_a_result_is_frozen(name):
    result = await result_of(5, int)

    with pytest.raises(FrozenInstanceError):
        setattr(result, name, 1)
    with pytest.raises(FrozenInstanceError):
        delattr(result, name)


PICKLED = {
    "text": ("a", str),
    "model": (Price(cents=5), Price),
    "image": (["a", Image(PNG)], ABSENT),
    "return": (ToolReturn(5, content="five", meta={"cost": 1}), ABSENT),
    "error": (math.nan, float),
}


@pytest.mark.parametrize(("value", "returns"), PICKLED.values(), ids=PICKLED)
async def test_a_result_survives_pickling_and_copying(value, returns):
    result = await result_of(value, returns)

    for twin in (pickle.loads(pickle.dumps(result)), copy(result)):
        assert twin == result
        assert (twin.text, twin.content, twin.structured) == (result.text, result.content, result.structured)
        assert (twin.ok, twin.meta, twin.duration) == (result.ok, result.meta, result.duration)


async def test_unwrap_gives_the_value_or_raises_the_error():
    good, bad = await result_of(5), await result_of(math.nan)

    assert good.unwrap() == 5
    with pytest.raises(ResultError):
        bad.unwrap()
