"""The tools of the parity suite: one package, so that it can be served, nested and built into a manifest alike."""

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolmason import (
    Audio,
    Deny,
    EmbeddedResource,
    Image,
    Rate,
    ResourceLink,
    Retry,
    Toolbox,
    ToolContext,
    ToolError,
    ToolReturn,
    tool,
)
from toolmason.extend import ApprovalRequest

AT_ONCE = Retry(3, delay=0)
LEFT = threading.Event()
"""Set when `hang` was cancelled."""


class Color(Enum):
    """A color."""

    RED = "red"
    GREEN = "green"


class Size(BaseModel):
    """A size."""

    width: int
    height: float = 1.5


class Order(BaseModel):
    """An order, with a field that has another name in JSON."""

    id: UUID
    placed: dt.date
    price: Decimal
    sizes: list[Size] = []
    note: str | None = Field(default=None, alias="remark")


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0


class Movie(TypedDict):
    """A movie."""

    title: str
    year: int


@dataclass
class Outcome:
    """An object whose only field is named as the field of a wrapped value."""

    result: int


class SoldOutError(ToolError):
    """An error with a code of the application."""

    code = "sold_out"


# --- types -----------------------------------------------------------------------------------------


@tool(title="Sum", read_only=True)
def add(a: int, b: Annotated[int, "Second number.", Field(ge=0)] = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def halve(x: float) -> float:
    """Halve a number."""
    return x / 2


@tool
def negate(flag: bool) -> bool:
    """Negate a flag."""
    return not flag


@tool
def word(text: str) -> str:
    """Return a text."""
    return text


@tool
def paint(color: Color) -> Color:
    """Return a color."""
    return color


@tool
def choose(level: Literal["low", "high", 3]) -> Literal["low", "high", 3]:
    """Return a level."""
    return level


@tool
def day(date: dt.date) -> dt.date:
    """Return the next day."""
    return date + dt.timedelta(days=1)


@tool
def moment(at: dt.datetime) -> dt.datetime:
    """Return a moment."""
    return at


@tool
def wait_for(span: dt.timedelta) -> dt.timedelta:
    """Return a span."""
    return span


@tool
def ident(key: UUID) -> UUID:
    """Return a key."""
    return key


@tool
def price(amount: Decimal) -> Decimal:
    """Double a price."""
    return amount * 2


@tool
def blob(data: bytes) -> bytes:
    """Return bytes, reversed."""
    return data[::-1]


@tool
def order(order: Order) -> Order:
    """Return a model."""
    return order


@tool
def move(point: Point) -> Point:
    """Return a dataclass."""
    return Point(point.x + 1, point.y)


@tool
def movie(movie: Movie) -> Movie:
    """Return a typed dict."""
    return movie


@tool
def names(names: list[str]) -> list[str]:
    """Return a list."""
    return sorted(names)


@tool
def either(value: int | str | None) -> int | str | None:
    """Return any of three types."""
    return value


@tool
def nothing() -> None:
    """Return nothing, as declared."""


@tool
def silence():
    """Return nothing, without a declaration."""


@tool
def nested(orders: list[Order], by: dict[str, list[Point]]) -> dict[str, list[Point]]:
    """Return points, shifted by the number of orders."""
    return {key: [Point(point.x + len(orders), point.y) for point in points] for key, points in by.items()}


@tool
def ranks(by: dict[int, str]) -> dict[int, str]:
    """Return names by their rank, one rank lower."""
    return {rank + 1: name for rank, name in by.items()}


@tool
def pair() -> tuple[int, str]:
    """Return a tuple."""
    return 1, "a"


@tool
def unique() -> set[int]:
    """Return a set."""
    return {7}


@tool
def outcome() -> Outcome:
    """Return an object whose only field is `result`."""
    return Outcome(3)


@tool
def anything(kind: str) -> Any:
    """Return JSON of no declared type."""
    return {"dict": {"a": [1, None]}, "text": "7", "number": 7, "none": None, "list": [1, "a"]}[kind]


@tool
def count() -> Iterator[int]:
    """Yield numbers."""
    yield from (1, 2, 3)


# --- errors ------------------------------------------------------------------------------------------


@tool
def complain() -> str:
    """Fail in words of its own."""
    raise ToolError("No such order.", retryable=True, data={"order": 7})


@tool
def sell() -> str:
    """Fail with a code of the application."""
    raise SoldOutError("The book is sold out.")


@tool
def explode() -> str:
    """Raise an exception."""
    raise RuntimeError("no disk")


@tool
def disconnect() -> str:
    """Raise an exception after which another attempt may help."""
    raise ConnectionError("reset by peer")


@tool
def mumble() -> float:
    """Return what JSON cannot say."""
    return float("nan")


@tool(timeout=0.02)
async def stay() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


@tool(retry=AT_ONCE, idempotent=True)
def recover(ctx: ToolContext) -> str:
    """Succeed at the third attempt."""
    if ctx.attempt < AT_ONCE.attempts:
        raise ConnectionError("reset by peer")
    return "recovered"


@tool(retry=AT_ONCE, idempotent=True)
def give_up() -> str:
    """Fail at every attempt."""
    raise ConnectionError("reset by peer")


@tool
def redact_me() -> str:
    """Fail with a secret."""
    raise ValueError("password=hunter2")


# --- content -----------------------------------------------------------------------------------------


@tool
def picture() -> Image:
    """Return an image."""
    return Image(b"\x89PNG")


@tool
def sound() -> Audio:
    """Return a sound."""
    return Audio(b"RIFF", "audio/mpeg")


@tool
def mixed() -> list[Any]:
    """Return parts of every kind."""
    return ["look", Image(b"a", "image/jpeg"), ResourceLink("shop://a", "a"), EmbeddedResource("shop://b", "inside")]


@tool
def link() -> ResourceLink:
    """Return a link."""
    return ResourceLink("shop://a", "a", "text/plain", "A page.")


@tool
def embedded() -> EmbeddedResource:
    """Return bytes of a resource."""
    return EmbeddedResource("shop://b", data=b"\0\1", mime_type="application/zip")


@tool
def summarize() -> ToolReturn:
    """Return a value, other words for the model, and data for the application."""
    return ToolReturn([{"id": 1}], content="1 row", meta={"sql": "select 1"})


@tool
def locate() -> Annotated[Any, Point]:
    """Return nothing typed, with an image of it."""
    return ToolReturn({"x": 1}, content=["a map", Image(b"map")])


@tool(converter=lambda value, hint: f"<{value}>")
def convert(number: int) -> int:
    """Return a number, converted to text."""
    return number


# --- policy ------------------------------------------------------------------------------------------


@tool
async def report(ctx: ToolContext) -> str:
    """Report progress."""
    await ctx.progress(1, 2, "half")
    await ctx.progress(2, 2)
    return "done"


@tool(approval=True)
def approved(amount: int) -> str:
    """Pay what the approver allows."""
    return f"paid {amount}"


@tool(approval=True)
def denied(amount: int) -> str:
    """Pay what the approver denies."""
    return f"paid {amount}"


@tool(approval=True)
def undecided(amount: int) -> str:
    """Pay what nobody decides about."""
    return f"paid {amount}"


@tool(max_calls=1)
def once() -> str:
    """Run once."""
    return "ran"


@tool(rate=Rate(1, per=1000))
def seldom() -> str:
    """Run once in a while."""
    return "ran"


_running: list[int] = []


@tool(max_concurrency=1)
async def alone() -> int:
    """Count the calls that run at once."""
    _running.append(1)
    try:
        await asyncio.sleep(0.005)
        return len(_running)
    finally:
        _running.pop()


@tool(max_result_bytes=400)
def long_text() -> str:
    """Return a long text."""
    return "\n".join(f"line {number}" for number in range(200))


@tool(max_result_bytes=400)
def long_rows() -> list[int]:
    """Return many rows."""
    return list(range(300))


@tool
async def hang(ctx: ToolContext) -> str:
    """Wait until cancelled."""
    LEFT.clear()
    await ctx.progress(0)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        LEFT.set()
        raise
    return ""


@tool
def was_cancelled() -> bool:
    """Return whether `hang` was cancelled, after a moment at most."""
    return LEFT.wait(5)


@tool
def tenant(ctx: ToolContext) -> str:
    """Say for whom the call is made."""
    return str(ctx["tenant"])


@tool(return_direct=True)
def direct() -> str:
    """Return a result that goes to the user."""
    return "for the user"


TOOLS: list[Any] = [value for value in list(vars().values()) if hasattr(value, "__tool__")]


def decide(request: ApprovalRequest) -> bool | Deny:
    """Answer for the tools that have an approver."""
    return Deny("not today") if request.tool == "denied" else True


def make_shelf(box: Toolbox) -> Toolbox:
    """Return the toolbox of the suite, given one with the tools."""
    decided = ("approved", "denied")
    return Toolbox(box.exclude(*decided), Toolbox(box.select(*decided), approver=decide), context={"tenant": "acme"})
