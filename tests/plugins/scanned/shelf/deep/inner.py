"""A module far down."""

from toolmason import tool


@tool
async def far_down() -> str:
    """Answer from far down."""
    return "deep"
