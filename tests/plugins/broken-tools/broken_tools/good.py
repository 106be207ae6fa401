"""Works beside what does not."""

from toolmason import tool


@tool
def survivor() -> str:
    """Answer all the same."""
    return "still here"
