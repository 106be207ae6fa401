"""Source text of sample functions, and functions made from source as `inspect` can read them."""

import inspect
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Template of a function with a `{number}` in its name, the code before it, and arguments for a call.

    Two of five parameters differ between the tools, as does the description: a catalog has parts in common, but no
    two tools with one schema.
    """

    name: str
    prelude: str
    template: str
    text: str

    def module(self, numbers: range) -> str:
        """Return a module in which these functions are tools."""
        tools = "".join("\n@tool" + self.template.replace("{number}", str(number)) for number in numbers)
        return f"{self.prelude}from toolmason import tool\n{tools}"


FLAT = Source(
    "flat types",
    "",
    '''
async def tool_{number}(
    city: str, days: int = 3, ratio: float = 0.5, exact: bool = False, tags: list[str] | None = None
) -> str:
    """Forecast the weather, variant {number}.

    Args:
        city: The city of variant {number}, optionally with its country.
        days: The number of days ahead, variant {number}.
        ratio: The minimum confidence.
        exact: True to reject cities with a similar name.
        tags: The parts to report.
    """
    return city
''',
    '{"city": "Prague", "days": 2, "tags": ["wind"]}',
)
NESTED = Source(
    "nested model, Literal, Field",
    '''from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


class Guest(BaseModel):
    """Guest of a hotel."""

    name: str
    age: int
    score: float
    languages: list[str]


''',
    '''
async def tool_{number}(
    guest: Guest,
    room: Literal["single", "double", "suite"],
    nights: Annotated[int, Field(ge=1, le=30, description="The number of nights, variant {number}.")],
    price: Annotated[float, Field(gt=0, description="The price of a night.")] = 95.0,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """Book a room, variant {number}.

    Args:
        guest: The guest who stays, variant {number}.
        room: The kind of room.
        notes: Notes for the hotel.
    """
    return {"guest": guest.name, "room": room, "nights": nights, "total": nights * price, "notes": notes or []}
''',
    '{"guest": {"name": "Ada", "age": 36, "score": 4.5, "languages": ["en", "fr"]}, "room": "double", "nights": 3}',
)
SOURCES = {source.name: source for source in (FLAT, NESTED)}
ALONE = Source(
    "nested model, no type in common",
    NESTED.prelude.partition("\n\n\n")[0] + "\n",
    NESTED.prelude.partition("\n\n\n")[2].rstrip().replace("Guest(", "Guest{number}(")
    + "\n\n"
    + NESTED.template.replace("Guest,", "Guest{number},")
    .replace('"suite"', '"suite {number}"')
    .replace("ge=1,", "ge=-{number},")
    .replace("gt=0,", "gt=-{number},"),
    NESTED.text,
)
"""The same with types that no two tools share, apart from `list[str] | None`."""


def functions(count: int, source: Source = FLAT) -> Iterator[Function]:
    """Make distinct functions."""
    shared = {"__name__": "tools"}
    _execute(source.prelude, "<prelude of the tools>", shared)
    for number in range(count):
        code = source.template.replace("{number}", str(number))
        yield _execute(code, f"<tool {number}>", dict(shared))[f"tool_{number}"]


def to_async(function: Function) -> Function:
    """Make the async form of a sync function from its source."""
    code = inspect.getsource(function).replace("def ", "async def ", 1)
    made: Function = _execute(code, f"<async {function.__name__}>", dict(vars(inspect.getmodule(function))))[
        function.__name__
    ]
    return made


def _execute(code: str, file: str, space: dict[str, Any]) -> dict[str, Any]:
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec", dont_inherit=True), space)  # noqa: S102 - the source is in this folder
    return space
