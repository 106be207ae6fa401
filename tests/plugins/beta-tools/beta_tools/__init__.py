"""A plugin whose entry points name a toolbox, one of its functions again, and a plain function."""

from toolmason import Toolbox, tool


@tool
def echo(text: str) -> str:
    """Say it again."""
    return f"beta: {text}"


@tool
def hidden_until_boxed() -> str:
    """Answer from inside the box."""
    return "boxed"


def plain(number: int) -> int:
    """Add one."""
    return number + 1


box = Toolbox(echo, hidden_until_boxed)
