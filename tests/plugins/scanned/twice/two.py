"""The second."""

from toolmason import tool


@tool
def same() -> int:
    """Answer."""
    return 2
