"""The first."""

from toolwright import tool


@tool
def same() -> int:
    """Answer."""
    return 1
