"""The first."""

from toolmason import tool


@tool
def same() -> int:
    """Answer."""
    return 1
