"""Serve a toolbox over MCP and call it through an in-memory client; `serve(box)` serves it to other processes."""

import asyncio
from typing import Annotated

from toolmason import McpServer, Toolbox, ToolContext, resource, tool

ROOM = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}


@tool
async def book(ctx: ToolContext, guest: Annotated[str, "Name of the guest"]) -> str:
    """Book a room. Asks the user which one."""
    answer = await ctx.client.elicit(f"Which room for {guest}?", ROOM, key="room")
    return f"room {answer.content['room']} for {guest}" if answer else "nothing booked"


@resource("rooms://{floor}")
def rooms(floor: Annotated[int, "Floor number"]) -> list[int]:
    """The rooms of a floor."""
    return [floor * 10 + number for number in range(3)]


box = Toolbox(book, rooms, name="hotel")


async def main() -> None:
    """Run a client whose user always chooses room 12."""
    async with Toolbox(McpServer.of("hotel", box), on_elicit=lambda _: {"room": "12"}) as client:
        print((await client.call("book", {"guest": "Ada"})).text)
        print((await client.read("rooms://2"))[0])


if __name__ == "__main__":
    asyncio.run(main())
