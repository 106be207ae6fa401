"""Tools that a worker process can import: what runs in a process must live in a module."""

import asyncio
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from toolmason import Abort, Config, Inject, Tool, ToolCall, ToolContext, ToolDefinition, ToolError, ToolOptions, tool

PATIENCE = 20.0
"""Seconds after which a tool that waits for a file gives up, so that a failed test leaves nothing behind."""


def alive(pid: int) -> bool:
    """Tell whether a process still runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    return True


def gone_within(pid: int, seconds: float) -> bool:
    """Tell whether a process ends in time."""
    ends = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < ends:
        time.sleep(0.005)
    return not alive(pid)


def appears(place: Path, seconds: float = PATIENCE) -> bool:
    """Wait for a file that another process writes."""
    ends = time.monotonic() + seconds
    while not place.exists() and time.monotonic() < ends:
        time.sleep(0.002)
    return place.exists()


def write_whole(place: str | Path, text: str) -> None:
    """Write a file so that nobody sees half of it."""
    half = Path(f"{place}.half")
    half.write_text(text, "utf-8")
    half.replace(place)


@tool(runs_on="process")
def pid() -> int:
    return os.getpid()


@tool(runs_on="process")
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(runs_on="process")
def spin(place: str) -> None:
    write_whole(place, str(os.getpid()))
    while True:
        pass


@tool(runs_on="process")
def spin_with_a_child(place: str) -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    write_whole(place, f"{os.getpid()} {child.pid}")
    while True:
        pass


@tool(runs_on="process")
def hold(begun: str, release: str) -> str:
    write_whole(begun, str(os.getpid()))
    appears(Path(release))
    return "released"


@tool(runs_on="process")
def leave_a_mark(place: str) -> None:
    write_whole(place, "ran")


@tool(runs_on="process")
def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(PATIENCE)


# --- what a tool may raise -----------------------------------------------------------------------


class Rich(Exception):
    """Pickles with its fields."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text, code)
        self.code = code


class Stubborn(Exception):
    """Pickles, and does not come back."""

    def __init__(self, *, text: str) -> None:
        super().__init__(text)


class Clinging(Exception):
    """Does not pickle."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


RAISED: dict[str, BaseException] = {
    "ValueError": ValueError("bad value"),
    "FileNotFoundError": FileNotFoundError(2, "No such file or directory", "data.csv"),
    "PermissionError": PermissionError(13, "Permission denied"),
    "ConnectionError": ConnectionError("reset by peer"),
    "BrokenPipeError": BrokenPipeError("pipe"),
    "TimeoutError": TimeoutError("too slow"),
    "EOFError": EOFError("end of input"),
    "Rich": Rich("rich", 7),
    "Stubborn": Stubborn(text="stubborn words"),
    "Clinging": Clinging("clinging words"),
    "SystemExit": SystemExit(9),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "CancelledError": asyncio.CancelledError(),
    "GeneratorExit": GeneratorExit(),
    "Abort": Abort("stop it all"),
}


@tool(runs_on="process")
def fail(kind: str) -> None:
    raise RAISED[kind]


@tool(runs_on="process")
def fail_for_a_reason() -> None:
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("no such thing") from error


@tool(runs_on="process")
def fail_in_words() -> None:
    raise ToolError("Ask again tomorrow.", retryable=True, data={"day": 2})


@tool(runs_on="process")
def flaky(ctx: ToolContext) -> int:
    if ctx.attempt < 3:
        raise ConnectionError("reset")
    return ctx.attempt


@tool(runs_on="process")
def give_a_lock() -> Any:
    return threading.Lock()


@tool(runs_on="process")
def take_a_lock(lock: Annotated[Any, Inject("lock")], place: str) -> None:
    write_whole(place, str(lock))


# --- shapes of tools -----------------------------------------------------------------------------


@dataclass
class Shelf:
    """A bundle that pickles."""

    books: int

    @tool(runs_on="process")
    def count(self, more: int = 0) -> list[int]:
        return [os.getpid(), self.books + more]

    @tool(runs_on="process")
    @classmethod
    def kind(cls) -> list[Any]:
        return [os.getpid(), cls.__name__]

    @tool(runs_on="process")
    @staticmethod
    def owner() -> list[Any]:
        return [os.getpid(), "Ada"]


class Echo(Tool):
    """A tool by hand."""

    definition = ToolDefinition("echo", "Say it again.", {"type": "object", "properties": {"text": {"type": "string"}}})
    options = ToolOptions(runs_on="process")

    async def invoke(self, arguments: dict[str, Any], context: ToolContext) -> list[Any]:
        return [os.getpid(), arguments["text"]]


def handle(arguments: dict[str, Any], context: ToolContext) -> list[Any]:
    return [os.getpid(), arguments, context.call_id]


@tool(runs_on="process")
async def waits() -> list[Any]:
    await asyncio.sleep(0)
    return [os.getpid(), "async"]


@tool(runs_on="process")
def yields() -> Iterator[int]:
    yield os.getpid()
    yield 2


@tool(runs_on="process")
async def returns_generator() -> Iterator[int]:
    await asyncio.sleep(0)
    return (number for number in (os.getpid(), 2))


@tool(runs_on="process")
async def yields_async() -> AsyncIterator[int]:
    yield os.getpid()
    await asyncio.sleep(0)
    yield 2


@tool(runs_on="process")
def by_position(a: int, /, b: int, *, c: int = 3) -> list[int]:
    return [a, b, c]


@tool(runs_on="process")
def big(size: int) -> str:
    return "x" * size


@dataclass
class Deps:
    """What an application injects."""

    database: str


@tool(runs_on="process")
def everything(
    ctx: ToolContext,
    call: ToolCall,
    config: Config,
    project_dir: Path,
    tenant: Annotated[str, Inject("tenant")],
    deps: Annotated[Deps, Inject],
) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "values": dict(ctx),
        "database": [ctx.deps.database, deps.database],
        "call": [ctx.call_id, ctx.tool_name, call.id, call.arguments],
        "session": ctx.session_id,
        "attempt": ctx.attempt,
        "left": None if ctx.deadline is None else ctx.deadline - time.monotonic(),
        "config": [config.get("example.prefix"), ctx.config.get("example.prefix")],
        "folder": [str(project_dir), str(ctx.project_dir)],
        "tenant": tenant,
    }


# --- progress ------------------------------------------------------------------------------------


@tool(runs_on="process")
def report(ctx: ToolContext, times: int) -> str:
    for number in range(times):
        ctx.progress(number, times, f"step {number}")
    return "done"


@tool(runs_on="process")
async def report_async(ctx: ToolContext) -> str:
    await ctx.progress(1, 2)
    return "done"


@tool(runs_on="process")
def report_afterwards(ctx: ToolContext, release: str, reported: str) -> str:
    def late() -> None:
        appears(Path(release))
        ctx.progress(99, 99, "late")
        write_whole(reported, "yes")

    threading.Thread(target=late, daemon=True).start()
    return "done"


@tool(runs_on="process")
def wait_for(place: str) -> bool:
    return appears(Path(place))


async def leave_async(how: str, key: str = "a") -> str:
    """Leave as a generator does."""
    raise GeneratorExit


def leave(how: str, key: str = "a") -> str:
    """Leave as a generator does."""
    raise GeneratorExit


@tool(runs_on="process")
def current_trace() -> str:
    """Return the trace that spans of this process would belong to."""
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    return f"{found.trace_id:032x}-{found.span_id:016x}"
