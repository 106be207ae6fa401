"""Functions that every contender turns into a tool, async and sync, with their arguments as JSON."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict


class Record(TypedDict):
    """Element of a large argument."""

    id: int
    name: str
    score: float
    tags: list[str]


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


def add_plain(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


async def order(item: str, count: int, price: float, gift: bool, notes: list[str]) -> str:  # noqa: FBT001 - a tool parameter
    """Order an item.

    Args:
        item: The item to order.
        count: The number of items.
        price: The price of one item.
        gift: True to wrap it.
        notes: Notes for the parcel.
    """
    return f"{count} x {item} at {price}, {gift}, {len(notes)}"


def order_plain(item: str, count: int, price: float, gift: bool, notes: list[str]) -> str:  # noqa: FBT001 - a tool parameter
    """Order an item.

    Args:
        item: The item to order.
        count: The number of items.
        price: The price of one item.
        gift: True to wrap it.
        notes: Notes for the parcel.
    """
    return f"{count} x {item} at {price}, {gift}, {len(notes)}"


async def count(records: list[Record]) -> int:
    """Count records.

    Args:
        records: The records to count.
    """
    return len(records)


def count_plain(records: list[Record]) -> int:
    """Count records.

    Args:
        records: The records to count.
    """
    return len(records)


async def echo(records: list[Record]) -> list[Record]:
    """Return the records.

    Args:
        records: The records to return.
    """
    return records


def echo_plain(records: list[Record]) -> list[Record]:
    """Return the records.

    Args:
        records: The records to return.
    """
    return records


def nap(number: int) -> int:
    """Sleep for ten milliseconds.

    Args:
        number: The number to return.
    """
    time.sleep(0.01)
    return number


@dataclass(frozen=True, slots=True)
class Sample:
    """Function in an async and a sync form, with the arguments of a call."""

    name: str
    on_loop: Callable[..., Any]
    plain: Callable[..., Any]
    text: str


def _records(size: int) -> str:
    record = {"id": 4711, "name": "a name of some length", "score": 0.125, "tags": ["red", "green", "blue"]}
    return json.dumps({"records": [record] * (size // len(json.dumps(record)))})


TWO_INTS = Sample("2 ints", add, add_plain, '{"a": 1, "b": 2}')
FIVE = Sample(
    "5 typed parameters",
    order,
    order_plain,
    '{"item": "lamp", "count": 3, "price": 9.5, "gift": true, "notes": ["to the door", "thank you"]}',
)
LARGE_IN = Sample("100 KB in, int out", count, count_plain, _records(100_000))
LARGE_BOTH = Sample("100 KB in, 100 KB out", echo, echo_plain, _records(100_000))
WRONG = Sample("invalid arguments", add, add_plain, '{"a": "one", "b": 2}')
