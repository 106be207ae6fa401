"""Whatever a model sends as arguments, one call gives one result that can be sent on, and soon."""

import json
import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from itertools import islice
from time import process_time
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from toolmason import Tool, Toolbox, ToolResult, tool
from toolmason.errors import InvalidArguments

pytestmark = pytest.mark.fuzz

SLOWEST = 1.0
"""Seconds of our own that one call may take; a hundred times what the slowest one needs on an idle machine."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    weight: float


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: str


class Node(BaseModel):
    value: int | str
    children: list["Node"] = []


class Query(BaseModel):
    text: Annotated[str, Field(max_length=50)]
    limits: dict[str, int] = {}
    colour: Colour = Colour.RED


class Row(TypedDict, total=False):
    id: int
    tags: set[str]


@dataclass
class Order:
    sku: str
    price: Decimal
    rows: list[Row] = field(default_factory=list)


@tool
async def typed(a: int, b: str = "x", c: float | None = None, d: bool = False, e: list[int] = []) -> str:  # noqa: B006 - as users write
    return f"{a} {b} {c} {d} {e}"


@tool
async def anything(a: Any, b: Any = None) -> Any:
    return [a, b]


@tool
async def recursive(a: Node, b: int = 0) -> Node:
    return a


@tool
async def mapping(a: dict[str, list[float]], b: dict[int, Colour] | None = None) -> dict[str, list[float]]:
    return a


@tool(flatten=True)
async def flattened(query: Query) -> Query:
    return query


@tool
async def unions(a: Annotated[Cat | Dog, Field(discriminator="kind")] | int, b: list[int] | list[str] | None = None):
    return [a, b]


@tool(extra="allow", runs_on="loop")
def open_ended(a: date | datetime | None = None, **rest: Any) -> dict[str, Any]:
    return {"a": a, **rest}


@tool
def threaded(a: Order, b: tuple[int, ...] = ()) -> str:
    return repr((a, b))


class Shelf:
    """A bundle with an instance method and a class method."""

    @tool(strict_types=True)
    async def put(self, a: int, b: Literal["low", "high"] = "low") -> int:
        return a

    @tool(extra="forbid", runs_on="loop")
    @classmethod
    def find(cls, a: str, b: Colour = Colour.RED) -> str:
        return a


def by_hand(arguments, context):
    return arguments


SCHEMA = {
    "properties": {"a": {"type": ["integer", "string"]}, "b": {"$ref": "#/$defs/list"}},
    "required": ["a"],
    "$defs": {"list": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/list"}]}}},
}

BOX = Toolbox(
    typed,
    anything,
    recursive,
    mapping,
    flattened,
    unions,
    open_ended,
    Shelf(),
    threaded,
    Tool.from_schema("by_hand", "Takes what the schema says.", SCHEMA, by_hand, runs_on="loop"),
)
ON_LOOP = [found.name for found in BOX.tools if found.name != "threaded"]

SEEDS = [
    '{"a": 1}',
    '{"a": "5", "b": "5", "c": "0.5", "d": "TRUE", "e": "[1, 2]"}',
    '{"a": {"value": 1, "children": [{"value": "x", "children": []}, {"value": 2}]}, "b": 3.0}',
    '{"a": {"x": [1.5, 2], "y": []}, "b": {"1": "red", "2": "BLUE"}}',
    '{"text": "weather", "limits": {"n": 5}, "colour": "RED"}',
    '{"a": {"kind": "dog", "weight": "5"}, "b": ["1", "2"]}',
    '{"a": {"kind": "cat", "weight": "5"}, "b": "[1]"}',
    '{"a": "2024-02-29T10:00:00Z", "b": null, "more": {"deep": [[[{}]]]}}',
    '{"a": {"sku": "s", "price": "9.90", "rows": [{"id": 1, "tags": ["x", "x"]}, {}]}, "b": [1, 2, 3]}',
    '{"a": "\\u00e9\\ud83d\\ude00 \\"q\\" \\\\ \\n", "b": "low"}',
    '{"a": [{"b": [{"c": [{"d": null}]}]}], "b": {"": {"": {"": ""}}}}',
    "{}",
]
NUMBERS = ["1e400", "-1e400", "1E+999999999", "0.1e-999999999", "-0", "-0.0", "01", "+1", ".5", "5.", "1_000", "0x1F"]
NUMBERS += ["9" * 400, "9" * 4299, "9" * 4301, "-" + "9" * 20_000, "0." + "9" * 20_000, "1" + "0" * 5_000 + "e-5000"]
NUMBERS += ["NaN", "Infinity", "-Infinity", "nan", "9007199254740993", "18446744073709551616", "1e309", "5e-324"]
ODD_TEXTS = [
    "\ud800",
    "\udfff\ud800",
    "\x00",
    "\u202e\u2066evil\u2069",
    "👩‍👩‍👧‍👦",
    "e\u0301" * 50,
    "\ufeff",
    "\u2028",
    "\x7f\x1b[2J",
    "İ",
]
ODD_ESCAPES = ["\\ud800", "\\udc00\\ud800", "\\u0000", "\\u12", "\\x41", "\\", "\\ud83d\\ude00", "\\u0061"]
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\\",
    "null",
    "true",
    "tru",
    "//",
    "/*",
    "'",
    "\n",
    "\t",
    "{}",
    "[]",
    '""',
    " ",
]
DEPTHS = [10, 127, 128, 129, 199, 201, 1_000, 10_000, 100_000]


def nested(rng: random.Random) -> str:
    """Arguments that nest, closed or not, inside every kind of bracket."""
    depth = rng.choice(DEPTHS)
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('{"value":1,"children":[', "]}"), ('[{"b":', "}]")])
    middle = rng.choice(["", "1", '"x"', "null", "{}", '{"value":1}'])
    ends = rng.choice([depth, depth, 0, depth - 1, depth + 1])
    return f'{{"{rng.choice("ab")}": {opening * depth}{middle}{closing * ends}}}'


def with_number(rng: random.Random) -> str:
    return re.sub(r"\d+(\.\d+)?", lambda _: rng.choice(NUMBERS), rng.choice(SEEDS), count=rng.randint(1, 3))


def with_odd_text(rng: random.Random) -> str:
    seed, odd = rng.choice(SEEDS), rng.choice(ODD_TEXTS + ODD_ESCAPES)
    place = rng.choice([match.start() + 1 for match in re.finditer('"', seed)] or [1])
    return seed[:place] + odd * rng.choice([1, 1, 3, 1000]) + seed[place:]


def cut_off(rng: random.Random) -> str:
    seed = rng.choice(SEEDS)
    return seed[: rng.randrange(len(seed) + 1)]


def twice(rng: random.Random) -> str:
    """The same key more than once, at the top or inside."""
    seed, key = rng.choice(SEEDS), rng.choice(["a", "b", "text", "value", "kind", "more", ""])
    again = f'"{key}": {rng.choice(["1", "null", NUMBERS[0], "[]", "{}"])}'
    return seed.replace("{", "{" + again + ", ", rng.randint(1, 3)).replace(", }", "}")


def mangled(rng: random.Random) -> str:
    """A seed with pieces put in, taken out and swapped."""
    text = list(rng.choice(SEEDS))
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(text) + 1)
        how = rng.random()
        if how < 0.4:
            text.insert(place, rng.choice(PIECES))
        elif how < 0.7 and text:
            del text[min(place, len(text) - 1)]
        elif text:
            text[min(place, len(text) - 1)] = rng.choice([*PIECES, chr(rng.randrange(0x110000))])
    return "".join(text)


def wrapped(rng: random.Random) -> str:
    """Arguments as models send them by mistake: fenced, encoded twice, in a list, with words around them."""
    seed = rng.choice(SEEDS)
    twice_encoded = json.dumps(json.dumps(seed)) if rng.random() < 0.3 else json.dumps(seed)
    inside = json.dumps({"a": seed, "b": json.dumps([seed])})
    fences = [
        f"```json\n{seed}\n```",
        f"```\n{seed}```",
        f"Sure! {seed}",
        f"{seed}\n{seed}",
        f"[{seed}]",
        f"\ufeff{seed}",
    ]
    return rng.choice(
        [twice_encoded, inside, *fences, seed.replace('"', "'"), f"<tool>{seed}</tool>", "", "  \n", "null"]
    )


def large(rng: random.Random) -> str:
    size = rng.choice([1_000, 30_000])
    bodies = [f'"{"x" * size}"', f"[{'1,' * size}1]", "{" + ",".join(f'"k{i}":{i}' for i in range(size // 10)) + "}"]
    return f'{{"a": {rng.choice(bodies)}}}'


KINDS = [with_number, with_odd_text, cut_off, twice, mangled, mangled, mangled, wrapped]


def texts(count: int, seed: int) -> Iterator[str | bytes]:
    """Yield argument texts: mostly mutated JSON, now and then deep, large, or bytes that are no UTF-8."""
    rng = random.Random(seed)  # noqa: S311 - the same texts in every run
    for number in range(count):
        rare = number % 50
        make = nested if rare == 0 else large if rare == 1 else rng.choice(KINDS)
        text = make(rng)
        if number % 7 == 0:
            data = bytearray(text.encode("utf-8", "surrogatepass"))
            for _ in range(rng.randint(0, 2)):
                data.insert(rng.randrange(len(data) + 1), rng.choice([0xFF, 0xC0, 0x80, 0xED]))
            yield bytes(data)
        else:
            yield text


def flaw_in(result: object, seconds: float) -> str | None:
    """Return what is wrong with the outcome of a call, or `None`."""
    if not isinstance(result, ToolResult):
        return f"it gave {type(result).__name__}"
    try:
        result.text.encode()
        result.structured  # noqa: B018 - made when asked for, and may not fail then
        if result.error is not None and not json.loads(result.text)["error"]["code"]:
            return "the error has no code"
    except Exception as error:  # noqa: BLE001 - whatever fails here is the finding
        return f"its text cannot be used: {error!r}"
    if result.error is not None and result.error.code == "execution_error":
        return f"a tool was run with something that it cannot take: {result.error}"
    return f"it took more than {SLOWEST} s" if seconds > SLOWEST else None


async def flaws_of(names: list[str], arguments: Iterable[str | bytes]) -> str:
    """Throw arguments at tools in turn; return each flaw, with the shortest arguments that show it."""
    flaws: dict[str, str] = {}
    for number, raw in enumerate(arguments):
        name = names[number % len(names)]
        started = process_time()
        try:
            flaw = flaw_in(await BOX.call(name, raw), process_time() - started)
        except Exception as error:  # noqa: BLE001 - nothing may come out of a call
            flaw = f"it raised {type(error).__name__}: {str(error)[:60]!a}"
        if flaw is not None:
            example = f"{name}({raw!a})"
            flaws[flaw] = min(flaws.get(flaw, example), example, key=len)
    return "\n".join(f"{flaw}: {example[:200]} ({len(example)} characters)" for flaw, example in flaws.items())


async def test_no_argument_text_breaks_a_call_or_holds_it_up(fuzz_count):
    assert await flaws_of(ON_LOOP, texts(fuzz_count, seed=20240229)) == ""


async def test_no_argument_text_breaks_a_call_in_a_thread(fuzz_count):
    assert await flaws_of(["threaded"], texts(fuzz_count // 20, seed=7)) == ""


LONG = {
    "digits": "9" * 8_000,
    "nearly-digits": "9" * 8_000 + "x",
    "small-exponent": "9" * 8_000 + "e-8000",
    "points": "9." * 8_000,
    "blanks": " " * 8_000 + "5",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_a_long_text_is_read_in_time_whatever_the_tool_wants(text):
    raw = json.dumps({"a": text, "b": text, "c": text, "text": text, "colour": text})

    assert await flaws_of(ON_LOOP, [raw] * len(ON_LOOP)) == ""


MANY = {
    "strangers": ("typed", {"a": 1, **{f"k{number}": number for number in range(10_000)}}),
    "wrong-items": ("typed", {"a": 1, "e": ["x"] * 10_000}),
    "nearly-right-items": ("typed", {"a": 1, "e": ["5"] * 10_000}),
    "wrong-values": ("mapping", {"a": {f"k{number}": ["x"] for number in range(10_000)}}),
    "wrong-nodes": ("recursive", {"a": {"value": 1, "children": [{"value": None}] * 10_000}}),
    "wrong-by-hand": ("by_hand", {"a": 1, "b": ["x"] * 10_000}),
}


@pytest.mark.parametrize(("name", "arguments"), MANY.values(), ids=MANY)
async def test_many_mistakes_are_told_in_time(name, arguments):
    assert await flaws_of([name], [json.dumps(arguments)]) == ""


async def test_a_text_cut_off_anywhere_is_told_apart_from_a_malformed_one():
    for seed in SEEDS:
        for end in range(1, len(seed)):
            result = await BOX.call("anything", seed[:end])

            assert isinstance(result.error, InvalidArguments)
            assert result.error.cut_off, seed[:end]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["anything", "recursive", "typed", "by_hand"])
async def test_nesting_of_any_depth_is_a_result(name, depth):
    opening, closing = ('{"value":1,"children":[', "]}") if name == "recursive" else ("[", "]")

    texts = [f'{{"a":{opening * depth}{closing * depth}}}', f'{{"a":{opening * depth}']

    assert await flaws_of([name], texts) == ""


@pytest.mark.parametrize(
    "raw",
    ['{"a": 1, "a": 2}', '{"a": "1", "a": "2"}', '{"a": 1, "a": 2, "stranger": 0}', '{"a": 1, "e": [], "e": [1]}'],
    ids=["clean", "with-a-repair", "with-a-stranger", "another-key"],
)
async def test_a_key_that_is_given_twice_is_refused(raw):
    result = await BOX.call("typed", raw)

    assert isinstance(result.error, InvalidArguments)
    assert "twice" in result.text


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(item)
    elif isinstance(value, float):
        yield value


NOT_FINITE = ["NaN", "-Infinity", "1e400", '{"kind": "cat", "weight": 1e999}', '{"x": [1e400]}', '{"x": [-1e400]}']
IN_TEXTS = ['"[NaN]"', '"{\\"x\\": [Infinity]}"', '{"x": "[NaN]"}', '"{\\"kind\\": \\"cat\\", \\"weight\\": NaN}"']


@pytest.mark.parametrize("word", [*NOT_FINITE, *IN_TEXTS])
@pytest.mark.parametrize("name", ["anything", "recursive", "mapping", "unions", "open_ended", "by_hand"])
async def test_no_number_that_is_not_finite_gets_into_a_tool(name, word):
    result = await BOX.call(name, f'{{"a": {word}}}')

    # A text stays a text where the tool takes one.
    assert result.error is not None or word in IN_TEXTS
    assert all(map(math.isfinite, numbers_in(to_jsonable_python(result.value))))


BLANK = {"empty": "", "blank": "  \n", "object": "{}", "none": None, "bytes": b"", "dict": {}}


@pytest.mark.parametrize("raw", BLANK.values(), ids=BLANK)
async def test_no_arguments_at_all_are_an_empty_object(raw):
    assert (await BOX.call("open_ended", raw)).unwrap() == {"a": None}


def test_the_texts_are_the_same_in_every_run():
    first, second = (list(islice(texts(300, seed=1), 300)) for _ in range(2))

    assert first == second
    assert len({str(text) for text in first}) > 250
