"""Tools that the workers of Ray load by their names."""

import os
import time
from pathlib import Path

from toolmason import Image, ToolContext, ToolError, tool


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def add_later(a: int, b: int) -> int:
    """Add, as a coroutine."""
    return a + b


@tool
def where() -> int:
    """Return the process."""
    return os.getpid()


@tool(runs_on="ray")
def where_on_ray() -> int:
    """Return the process."""
    return os.getpid()


@tool(runs_on="thread")
def where_here() -> int:
    """Return the process."""
    return os.getpid()


@tool
def refuse(reason: str) -> str:
    """Refuse."""
    raise ToolError(f"refused: {reason}")


@tool
def fail() -> str:
    """Fail with a cause."""
    try:
        return {}["inner"]
    except KeyError as error:
        raise ValueError("outer") from error


@tool
def draw() -> Image:
    """Return an image."""
    return Image(b"\x89PNG\r\n\x1a\n" + bytes(16), mime_type="image/png")


@tool
def repeat_text(size: int) -> str:
    """Return a long text."""
    return "x" * size


@tool
def hang(folder: str) -> str:
    """Write the process, then never end."""
    Path(folder, f"{os.getpid()}.pid").touch()
    while True:
        pass


@tool
def report_steps(steps: int, ctx: ToolContext[None]) -> str:
    """Report progress."""
    for step in range(steps):
        ctx.progress(step + 1, steps, f"step {step + 1}")
    return "done"


@tool
def mark(folder: str, name: str, seconds: float = 0.0) -> str:
    """Count the start of a call, then wait."""
    with Path(folder, name).open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return name


@tool(idempotent=True)
def mark_again(folder: str, name: str, seconds: float = 0.0) -> str:
    """Count the start of a call that may be repeated, then wait."""
    with Path(folder, name).open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return name


@tool(cpus=1)
def burn(rounds: int) -> int:
    """Use a CPU."""
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return total


@tool
def current_trace() -> str:
    """Return the trace that spans of this process would belong to."""
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    return f"{found.trace_id:032x}-{found.span_id:016x}"


@tool(cpus=64)
def too_large() -> str:
    """Need more CPUs than there are."""
    return "never"
