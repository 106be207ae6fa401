"""A toolbox whose calls end in every way: a value, an error, a denial, a wait for approval, a time-out."""

import asyncio

from toolmason import Toolbox, ToolError, tool


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail(word: str) -> str:
    """Fail."""
    raise ToolError(f"cannot do {word}")


@tool
async def crash() -> str:
    """Raise an exception."""
    raise RuntimeError("broken inside")


@tool(timeout=0.05)
async def stall() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "late"


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def make_box(**options):
    return Toolbox(add, fail, crash, stall, pay, **options)


STEPS = [
    ("add", {"a": 1, "b": 2}, "3"),
    ("add", {"a": "one", "b": 2}, "invalid_arguments"),
    ("fail", {"word": "x"}, "cannot do x"),
    ("crash", {}, "execution_error"),
    ("stall", {}, "timeout"),
    ("pay", {"amount": 5}, "approval"),
]
"""Calls of one run, and a part of the text that the model reads."""
