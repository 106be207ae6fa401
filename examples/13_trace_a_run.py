"""Record a run with a server, a retry, an approval and a delegated chat, and show it as a tree; argument: a page."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from toolmason import Chat, McpServer, Retry, Toolbox, tool
from toolmason.extend import ApprovalRequest
from toolmason.observe import SpanRecord, print_tree, record, to_html
from toolmason.testing import ScriptedModel

attempts = iter([True, False])


@tool(retry=Retry(attempts=3, delay=0.05), read_only=True)
async def read_prices(city: Annotated[str, "Name of the city"]) -> dict[str, int]:
    """Read the prices of a city."""
    await asyncio.sleep(0.03)
    if next(attempts):
        raise TimeoutError
    return {f"Hotel {city}": 120}


@tool(read_only=True)
async def find_hotels(city: Annotated[str, "Name of the city"]) -> list[str]:
    """Find hotels in a city."""
    await asyncio.sleep(0.08)
    return [f"Hotel {city}"]


@tool(destructive=True)
async def book(hotel: Annotated[str, "Name of the hotel"]) -> str:
    """Book a room."""
    await asyncio.sleep(0.02)
    return f"booked {hotel}"


async def approve(_: ApprovalRequest) -> bool:
    """Stand in for a person."""
    return await asyncio.sleep(0.1, result=True)


async def main() -> list[SpanRecord]:
    """Plan a stay, and return its spans."""
    scout = Chat(ScriptedModel([[("read_prices", {"city": "Prague"})], "120 euros."]), [read_prices])
    server = McpServer.of("hotels", Toolbox(find_hotels))
    box = Toolbox(server, book, scout.as_tool("scout", "Find prices."), approver=approve, name="planner")
    first = [("find_hotels", {"city": "Prague"}), ("scout", {"prompt": "What does it cost?"})]
    script = [first, [("book", {"hotel": "Hotel Prague"})], "It is booked."]
    with record() as recorder:
        reply = await Chat(ScriptedModel(script, name="scripted:planner"), box).send("I need a room in Prague.")
    return recorder.select(reply)


if __name__ == "__main__":
    spans = asyncio.run(main())
    print_tree(spans)
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(to_html(spans, "A room in Prague"), "utf-8")
