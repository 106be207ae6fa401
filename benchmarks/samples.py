"""Functions that every contender turns into a tool, async and sync, with their arguments as JSON and their bars."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from sources import to_async
from typing_extensions import TypedDict

from toolmason import Inject, ToolContext

# --- types -------------------------------------------------------------------------------------------


class Record(TypedDict):
    """Element of a large argument."""

    id: int
    name: str
    score: float
    tags: list[str]


class RecordModel(BaseModel):
    """Element of a large argument, as a model."""

    id: int
    name: str
    score: float
    tags: list[str]


class Guest(BaseModel):
    """Guest of a hotel."""

    name: str
    age: int
    score: float
    languages: list[str]


class Stock(TypedDict):
    """Number of items in a store."""

    sku: str
    count: int


@dataclass
class Point:
    """Point on a map."""

    x: float
    y: float


# --- functions ---------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


def order(item: str, count: int, price: float, gift: bool, notes: list[str]) -> str:  # noqa: FBT001 - a tool parameter
    """Order an item.

    Args:
        item: The item to order.
        count: The number of items.
        price: The price of one item.
        gift: True to wrap it.
        notes: Notes for the parcel.
    """
    return f"{count} x {item} at {price}, {gift}, {len(notes)}"


def book(
    guest: Guest,
    room: Literal["single", "double", "suite"],
    nights: Annotated[int, Field(ge=1, le=30, description="The number of nights.")],
    price: Annotated[float, Field(gt=0, description="The price of a night.")] = 95.0,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """Book a room.

    Args:
        guest: The guest who stays.
        room: The kind of room.
        nights: The number of nights.
        price: The price of a night.
        notes: Notes for the hotel.
    """
    return {"guest": guest.name, "room": room, "nights": nights, "total": nights * price, "notes": notes or []}


def greet(guest: Guest) -> str:
    """Greet a guest.

    Args:
        guest: The guest to greet.
    """
    return guest.name


def reserve(stock: Stock) -> int:
    """Reserve items.

    Args:
        stock: The items to reserve.
    """
    return stock["count"]


def locate(point: Point) -> str:
    """Return the name of a place.

    Args:
        point: The point on the map.
    """
    return f"{point.x}, {point.y}"


def paint(colour: Literal["red", "green", "blue"], coats: int) -> str:
    """Paint a wall.

    Args:
        colour: The colour of the wall.
        coats: The number of coats.
    """
    return f"{coats} x {colour}"


def search(
    query: Annotated[str, Field(max_length=200, description="The words to find.")],
    limit: Annotated[int, Field(ge=1, le=50, description="The number of results.")],
) -> str:
    """Search the catalog.

    Args:
        query: The words to find.
        limit: The number of results.
    """
    return f"{query}: {limit}"


def search_default(
    query: Annotated[str, Field(max_length=200, description="The words to find.")],
    limit: Annotated[int, Field(ge=1, le=50, description="The number of results.")] = 10,
) -> str:
    """Search the catalog.

    Args:
        query: The words to find.
        limit: The number of results.
    """
    return f"{query}: {limit}"


def remind(text: str) -> str:
    """Set a reminder.

    Args:
        text: The text of the reminder.
    """
    return text


def describe(name: str) -> dict[str, Any]:
    """Describe a product.

    Args:
        name: The name of the product.
    """
    return {"name": name, "price": 9.5, "stock": 12, "tags": ["new"]}


def convert(amount: float) -> float:
    """Convert an amount.

    Args:
        amount: The amount to convert.
    """
    return amount * 1.25


def inspect_untyped(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - a tool without a return type
    """Inspect a product.

    Args:
        name: The name of the product.
    """
    return {"name": name, "stock": 12}


def label(name: str, tags: list[str] = []) -> str:  # noqa: B006 - a default that users write
    """Label a product.

    Args:
        name: The name of the product.
        tags: The labels.
    """
    return f"{name}: {len(tags)}"


def audit(name: str, ctx: ToolContext) -> str:
    """Audit a product.

    Args:
        name: The name of the product.
        ctx: The context of the call.
    """
    return f"{name}: {ctx['tenant']}"


def orders_of(name: str, tenant: Annotated[str, Inject("tenant")]) -> str:
    """List the orders of a customer.

    Args:
        name: The name of the customer.
        tenant: The tenant of the application.
    """
    return f"{name}: {tenant}"


def count_records(records: list[Record]) -> int:
    """Count records.

    Args:
        records: The records to count.
    """
    return len(records)


def echo_records(records: list[Record]) -> list[Record]:
    """Return the records.

    Args:
        records: The records to return.
    """
    return records


def count_models(records: list[RecordModel]) -> int:
    """Count records.

    Args:
        records: The records to count.
    """
    return len(records)


def echo_models(records: list[RecordModel]) -> list[RecordModel]:
    """Return the records.

    Args:
        records: The records to return.
    """
    return records


def measure_text(text: str) -> int:
    """Return the length of the text.

    Args:
        text: The text to measure.
    """
    return len(text)


ROWS: dict[int, list[dict[str, Any]]] = {}
"""Results of `make_rows` by size, so that a call does not include making them."""


def make_rows(size: int) -> list[dict[str, Any]]:
    """Return rows.

    Args:
        size: The size of the result as JSON, in bytes.
    """
    return ROWS[size]


def nap(number: int) -> int:
    """Sleep for ten milliseconds.

    Args:
        number: The number to return.
    """
    time.sleep(0.01)
    return number


# --- samples -----------------------------------------------------------------------------------------

USUAL = (2.5, 3.2)
LARGE = (1.2, 1.2)
CONTEXT = {"tenant": "acme"}


@dataclass(frozen=True, slots=True)
class Sample:
    """Function in a sync form, with the arguments of a call and its bars."""

    name: str
    plain: Callable[..., Any]
    text: str
    limits: tuple[float, float] = USUAL
    """Maximum ratio to the floor with `timeout=None`, and with all defaults."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Values of the application for the toolbox."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the caller passes and the model does not see, for the floor."""
    is_wrong: bool = False
    varied: str = ""
    """Arguments with `%d` for a number that differs in each call."""

    @property
    def on_loop(self) -> Callable[..., Any]:
        """Async form of the function, a new one each time."""
        return to_async(self.plain)


def records(size: int) -> str:
    """Return arguments with records, of about this many bytes."""
    record = {"id": 4711, "name": "a name of some length", "score": 0.125, "tags": ["red", "green", "blue"]}
    return json.dumps({"records": [record] * max(1, size // len(json.dumps(record)))})


_GUEST = '{"name": "Ada", "age": 36, "score": 4.5, "languages": ["en", "fr"]}'
TWO_INTS = Sample("2 ints", add, '{"a": 1, "b": 2}', (1.6, 2.5), varied='{"a": 1, "b": %d}')
FIVE = Sample(
    "5 flat parameters",
    order,
    '{"item": "lamp", "count": 3, "price": 9.5, "gift": true, "notes": ["to the door", "thank you"]}',
    (2.0, 3.0),
)
PEERS = Sample(
    "the peers' function (nested model, Literal, Field, default, dict out)",
    book,
    f'{{"guest": {_GUEST}, "room": "double", "nights": 3, "price": 80.5}}',
    (2.6, 3.2),
    varied=f'{{"guest": {_GUEST}, "room": "double", "nights": 3, "price": %d.5}}',
)
WRONG = Sample("invalid arguments, 2 ints", add, '{"a": "one", "b": 2}', (5.0, 5.0), is_wrong=True)
WRONG_NESTED = Sample(
    "invalid arguments, the peers' function",
    book,
    f'{{"guest": {_GUEST.replace("36", "null")}, "room": "attic", "nights": 3}}',
    (5.0, 5.0),
    is_wrong=True,
)
SAMPLES = (
    TWO_INTS,
    FIVE,
    PEERS,
    Sample("nested model", greet, f'{{"guest": {_GUEST}}}'),
    Sample("TypedDict", reserve, '{"stock": {"sku": "lamp", "count": 3}}'),
    Sample("dataclass", locate, '{"point": {"x": 1.5, "y": 2.5}}'),
    Sample("Literal", paint, '{"colour": "red", "coats": 2}'),
    Sample("Field without default", search, '{"query": "lamp", "limit": 5}'),
    Sample("Field with default", search_default, '{"query": "lamp"}'),
    Sample("text with a URL and a time", remind, '{"text": "http://example.com/a?b=c at 10:30"}'),
    Sample("dict out", describe, '{"name": "lamp"}'),
    Sample("float out", convert, '{"amount": 12.5}'),
    Sample("untyped out", inspect_untyped, '{"name": "lamp"}'),
    Sample("default list", label, '{"name": "lamp"}'),
    Sample("ToolContext", audit, '{"name": "lamp"}', context=CONTEXT, given={"ctx": CONTEXT}),
    Sample("injected value", orders_of, '{"name": "lamp"}', context=CONTEXT, given=CONTEXT),
    Sample("100 KB in, int out, TypedDicts", count_records, records(100_000), LARGE),
    Sample("100 KB in, 100 KB out, TypedDicts", echo_records, records(100_000), LARGE),
    Sample("100 KB in, int out, models", count_models, records(100_000), LARGE),
    Sample("100 KB in, 100 KB out, models", echo_models, records(100_000), LARGE),
    WRONG,
    WRONG_NESTED,
)
MAIN = (TWO_INTS, PEERS, *SAMPLES[9:15], WRONG)
"""Samples of which `--instructions` counts the instructions."""
