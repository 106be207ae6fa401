"""Tools that take all kinds of things, and one that keeps what it was given.

Lives here: what the tests of arguments and of repairs share. Not here: any test.
"""

import enum
from typing import Any, Literal

import pydantic

from toolmason import Toolbox, tool
from toolmason.errors import InvalidArguments


class Item(pydantic.BaseModel):
    sku: str
    count: int = 1


class Colour(enum.Enum):
    DARK_RED = "dark-red"
    GREEN = "green"


@tool
async def take(
    *,
    text: str = "",
    whole: int = 0,
    number: float = 0.0,
    flag: bool = False,
    words: list[str] = [],  # noqa: B006 - a tool's mutable default is copied for each call
    table: dict[str, int] = {},  # noqa: B006 - as above
    colour: Colour = Colour.GREEN,
    unit: Literal["C", "F"] = "C",
    items: list[Item] = [],  # noqa: B006 - as above
    maybe: int | None = 5,
) -> None:
    """Take all kinds of things."""


def seen_by(**options):
    """Return a toolbox whose one tool keeps what it was given, and the list where it does."""
    seen: list[dict[str, Any]] = []

    @tool(**options)
    async def keep(
        n: int = 0,
        name: str = "",
        tags: list[str] = [],  # noqa: B006 - as above
        item: Item | None = None,
        colour: Colour = Colour.GREEN,
    ) -> None:
        seen.append({"n": n, "name": name, "tags": tags, "item": item, "colour": colour})

    return Toolbox(keep), seen


async def refused(box: Toolbox, name: str, arguments: Any) -> InvalidArguments:
    result = await box.call(name, arguments)
    assert isinstance(result.error, InvalidArguments), result
    return result.error
