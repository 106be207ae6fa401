"""The example that the browser tests and the pictures use: a small shop with every kind of tool."""

import asyncio
import datetime as dt
import io
import os
import struct
import sys
import time
import wave
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Base64Bytes, Base64UrlBytes

from toolmason import Audio, Image, Limits, Message, ResourceLink, Toolbox, ToolContext, ToolError, tool
from toolmason.chat import Chat, Price, Usage
from toolmason.mcp import McpServer
from toolmason.models import ModelReply
from toolmason.testing import ScriptedModel

PRICES = {"TEA-01": 4.5, "TEA-02": 6.0, "CUP-01": 12.0}


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Address:
    """Where an order goes."""

    street: str
    city: str = "Oslo"


@dataclass
class Line:
    """One line of an order."""

    sku: Annotated[str, "Article number"]
    quantity: int = 1


@dataclass
class Card:
    """Pay by card."""

    number: str
    kind: Literal["card"] = "card"


@dataclass
class Invoice:
    """Pay by invoice."""

    company: str
    kind: Literal["invoice"] = "invoice"


class Shop:
    """Tools for customers."""

    @tool(read_only=True, tags={"catalog"})
    def find_products(self, text: Annotated[str, "Part of the article number"] = "") -> list[str]:
        """List the articles on sale."""
        return [sku for sku in PRICES if text.upper() in sku]

    @tool(read_only=True, tags={"catalog"})
    async def quote_price(
        self, sku: Annotated[str, "Article number"], quantity: Annotated[int, "How many"] = 1
    ) -> float:
        """Quote the price of an article in euros."""
        if sku not in PRICES:
            raise ToolError(f"No article {sku!r}. On sale: {', '.join(PRICES)}.")
        return PRICES[sku] * quantity

    @tool(tags={"orders"})
    def place_order(
        self,
        lines: list[Line],
        address: Address,
        payment: Card | Invoice,
        *,
        size: Size = Size.SMALL,
        deliver_on: dt.date | None = None,
        gift: bool = False,
        note: str | None = None,
    ) -> dict[str, object]:
        """Place an order."""
        total = sum(PRICES.get(line.sku, 0) * line.quantity for line in lines)
        return {
            "order": "A-1",
            "total": total,
            "city": address.city,
            "size": size.value,
            "pays": type(payment).__name__,
            "on": None if deliver_on is None else deliver_on.isoformat(),
            "gift": gift,
            "note": note,
        }

    @tool(destructive=True, approval=True, tags={"orders"}, preview=lambda a: f"Cancel order {a['order']}")
    def cancel_order(self, order: Annotated[str, "Order number, as on the receipt"]) -> str:
        """Cancel an order."""
        return f"Order {order} is cancelled."

    @tool
    async def pack(self, parcels: int, ctx: ToolContext) -> str:
        """Pack parcels, one after the other."""
        for number in range(parcels):
            await ctx.progress(number + 1, parcels, f"parcel {number + 1} of {parcels}")
            if number == 1:
                await asyncio.to_thread(wait_for, Path("go"))
        return f"Packed {parcels} parcels."

    @tool(read_only=True)
    def label(self, text: str = "TEA") -> list[Image | Audio | ResourceLink | str]:
        """Draw a label, with its sound and a link."""
        return [
            f"Label {text}",
            Image(make_picture(), "image/png"),
            Audio(make_sound(), "audio/wav"),
            ResourceLink("https://example.com/label", name="The label"),
            ResourceLink("javascript:alert(1)", name="No link"),
        ]

    @tool
    def weigh(self, file: Annotated[Base64Bytes, "Any file"]) -> int:
        """Count the bytes of a file."""
        return len(file)

    @tool(max_result_bytes=20_000_000)
    def export(self, megabytes: int = 5) -> list[dict[str, str]]:
        """Export the archive, which is large."""
        return [{"row": str(number), "text": "x" * 1000} for number in range(megabytes * 1000)]

    @tool
    def strange(self, text: str = "") -> str:
        """Read \u202eletters backwards\u202c, with \x1b[31mescapes."""
        return f"before \u202ehidden\u202c after \x1b[31m{text}<script>document.title='broken'</script>"


class Files:
    """Tools that take files."""

    @tool
    def count_all(self, files: list[Base64Bytes]) -> list[int]:
        """Count the bytes of each file."""
        return [len(file) for file in files]

    @tool
    def decode(self, file: Base64UrlBytes | None = None) -> list[int]:
        """List the bytes of a file."""
        return list(file or b"")

    @tool
    def measure(self, data: Annotated[bytes, "Any text"]) -> int:
        """Count the bytes of a text."""
        return len(data)


class Bank:
    """A tool that must not run twice."""

    @tool
    def pay(self, to: str) -> str:
        """Pay a bill."""
        with Path("payments").open("a", encoding="utf-8") as log:
            log.write(f"{to}\n")
        wait_for(Path("go"))
        return f"Paid {to}."


def wait_for(path: Path) -> None:
    """Wait until a file exists, so that a test sees a call in progress."""
    while not path.exists():
        time.sleep(0.05)


def make_picture(width: int = 160, height: int = 60) -> bytes:
    """Return a PNG with a gradient."""
    rows = b"".join(b"\0" + b"".join(bytes((40 + x, 90 + 2 * y, 200 - x)) for x in range(width)) for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make_sound() -> bytes:
    """Return a tenth of a second of silence."""
    target = io.BytesIO()
    with wave.open(target, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 800)
    return target.getvalue()


def make_server(name: str = "library", **options: object) -> McpServer:
    """Return a real MCP server, which writes its process ID beside this file."""
    program = str(Path(__file__).with_name("library_server.py"))
    return McpServer.stdio(name, sys.executable, [program], env={"LIBRARY_FOLDER": os.getcwd()}, **options)  # type: ignore[arg-type]


def make_many(count: int) -> list[object]:
    """Return many tools."""

    def make(number: int) -> object:
        @tool(name=f"tool_{number:04}", read_only=number % 2 == 0, tags={f"group {number % 7}"})
        def numbered(text: str, limit: int = 10) -> str:
            """Look up records of one kind, and return the first of them as text."""
            return f"{number} {text} {limit}"

        return numbered

    return [make(number) for number in range(count)]


files = Toolbox(Files())
bank = Toolbox(Bank())
box = Toolbox(Shop())
"""The shop without servers."""
served = Toolbox(Shop(), make_server(trust=True))
"""The shop with a server."""
pinned = Toolbox(Shop(), make_server(pin="lock"))
"""The shop with a server whose definitions must be approved."""
many = Toolbox(*make_many(1000))

helper = Chat(ScriptedModel([[("find_products", {"text": "tea"})], "Two teas are on sale."] * 50), Toolbox(Shop()))


@dataclass
class Offer:
    """A typed answer."""

    sku: str
    price: float


priced = Chat(
    ScriptedModel([ModelReply(Message("assistant", "Hello."), usage=Usage(1000, 100))] * 9),
    box,
    price=Price(input=2.5, output=10),
)
unpriced = Chat(ScriptedModel(["Hello."] * 9), box)
typed = Chat(ScriptedModel(['{"sku": "TEA-01", "price": 4.5}'] * 50), box, output=Offer)
delegating = Chat(
    ScriptedModel([[("ask_catalog", {"prompt": "Which teas?"})], "The catalog has two teas."] * 50),
    Toolbox(helper.as_tool("ask_catalog", "Ask the catalog.")),
)
long_chat = Chat(
    ScriptedModel([[("quote_price", {"sku": "TEA-01", "quantity": number}) for number in range(1, 501)], "Done."]),
    box,
    limits=Limits(calls=None, per_tool=None),
)
