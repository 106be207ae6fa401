"""The functions that every contender turns into a tool, and the arguments they are called with.

Lives here: plain typed functions, each as `async def` and as `def`, with arguments as JSON text.
Not here: any library that runs them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict


class Record(TypedDict):
    """One of the many values in a large argument."""

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


async def order(item: str, count: int, price: float, gift: bool, notes: list[str]) -> str:  # noqa: FBT001 - a tool's
    """Order something.

    Args:
        item: What to order.
        count: How many.
        price: The price of one.
        gift: Whether to wrap it.
        notes: What to write on the parcel.
    """
    return f"{count} x {item} at {price}, {gift}, {len(notes)}"


def order_plain(item: str, count: int, price: float, gift: bool, notes: list[str]) -> str:  # noqa: FBT001 - a tool's
    """Order something.

    Args:
        item: What to order.
        count: How many.
        price: The price of one.
        gift: Whether to wrap it.
        notes: What to write on the parcel.
    """
    return f"{count} x {item} at {price}, {gift}, {len(notes)}"


async def count(records: list[Record]) -> int:
    """Count records.

    Args:
        records: What to count.
    """
    return len(records)


def count_plain(records: list[Record]) -> int:
    """Count records.

    Args:
        records: What to count.
    """
    return len(records)


async def echo(records: list[Record]) -> list[Record]:
    """Give records back.

    Args:
        records: What to give back.
    """
    return records


def echo_plain(records: list[Record]) -> list[Record]:
    """Give records back.

    Args:
        records: What to give back.
    """
    return records


def nap(number: int) -> int:
    """Sleep for ten milliseconds.

    Args:
        number: What to return.
    """
    time.sleep(0.01)
    return number


@dataclass(frozen=True, slots=True)
class Sample:
    """A function in both colours, and the text of a call."""

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
