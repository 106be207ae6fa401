"""The second."""

from toolwright import tool


@tool
def same() -> int:
    """Answer."""
    return 2
