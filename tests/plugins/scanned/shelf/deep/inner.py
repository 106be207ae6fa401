"""A module far down."""

from toolwright import tool


@tool
async def far_down() -> str:
    """Answer from far down."""
    return "deep"
