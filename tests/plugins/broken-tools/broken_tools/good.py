"""Works beside what does not."""

from toolwright import tool


@tool
def survivor() -> str:
    """Answer all the same."""
    return "still here"
