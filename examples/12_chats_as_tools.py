"""A chat that asks two other chats, under one budget, and waits before money is spent."""

import asyncio

from toolmason import Allow, Chat, Limits, Toolbox, tool
from toolmason.testing import ScriptedModel


@tool(read_only=True)
def find_hotels(city: str) -> list[str]:
    """Find hotels in a city.

    Args:
        city: Name of the city, such as Prague.
    """
    return [f"Hotel {city}, 120 euros"]


@tool(destructive=True, approval=True)
def book(hotel: str) -> str:
    """Book a room.

    Args:
        hotel: Name of the hotel.
    """
    return f"booked {hotel}"


# Scripts stand in for models here. Pass names such as "openai:gpt-5" instead.
scout = Chat(ScriptedModel([[("find_hotels", {"city": "Prague"})], "Hotel Prague costs 120 euros."]), [find_hotels])
clerk = Chat(ScriptedModel([[("book", {"hotel": "Hotel Prague"})], "Hotel Prague is booked."]), [book])
planner = Chat(
    ScriptedModel(
        [
            [("scout", {"prompt": "Find a hotel in Prague."})],
            [("clerk", {"prompt": "Book Hotel Prague."})],
            "Your room in Hotel Prague is booked for 120 euros.",
        ]
    ),
    Toolbox(scout.as_tool("scout", "Find places to stay."), clerk.as_tool("clerk", "Book rooms.")),
    limits=Limits(steps=20, calls=20, seconds=60),
)


async def main() -> None:
    """Ask for a room, and allow what needs approval."""
    reply = await planner.send("I need a room in Prague.")
    while reply.pending:
        for request in reply.pending:
            print("allowed:", request.path, dict(request.arguments))
        decisions = [planner.box.approvals.decide(request, Allow()) for request in reply.pending]
        reply = await planner.resume(reply, decisions)
    print(reply.text)
    for run in reply.delegations:
        print(f"{run.name}: {run.steps} steps, {run.calls} calls")


if __name__ == "__main__":
    asyncio.run(main())
