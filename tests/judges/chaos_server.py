"""A server for the chaos soak: `python chaos_server.py stdio|PORT LOG [SERVER…]`.

With servers, it is a gateway: `name=command` starts `command` over stdio, `name=http://…` connects. Each call of a tool
that must not run twice adds a line with its tag to LOG.
"""

import asyncio
import ctypes
import gc
import itertools
import os
import shlex
import sys
import time
from pathlib import Path

from toolmason import McpServer, Tool, Toolbox, serve, tool

LOG = Path(sys.argv[2])
_versions = itertools.count()


def note(tag: str) -> None:
    """Add a tag to the log: one write, so that processes do not mix their lines."""
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{tag}\n".encode())
    os.close(file)


@tool
async def echo(tag: str) -> str:
    """Return the tag."""
    note(tag)
    return tag


@tool
def echo_sync(tag: str, seconds: float = 0) -> str:
    """Return the tag after some time, in a thread."""
    time.sleep(min(seconds, 5))
    note(tag)
    return tag


@tool
async def slow(tag: str, seconds: float) -> str:
    """Return the tag after some time."""
    await asyncio.sleep(seconds)
    note(tag)
    return tag


@tool
async def fail(tag: str) -> str:
    """Raise one of many exceptions."""
    note(tag)
    kinds = (ValueError, KeyError, OSError, RecursionError, SystemExit, KeyboardInterrupt, GeneratorExit, BaseException)
    raise kinds[len(tag) * 7 % len(kinds)](tag)


@tool(timeout=1)
async def hang(tag: str) -> str:
    """Never return."""
    note(tag)
    await asyncio.Event().wait()
    return tag


@tool
async def die(tag: str) -> str:
    """End the process."""
    note(tag)
    os._exit(1)


class MallocInfo(ctypes.Structure):
    """Figures of the C library about its memory; `mallinfo2` returns them."""

    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in names]


@tool
async def count_memory() -> list[int]:
    """Return how many objects and how many blocks of Python are alive, and the bytes in use beside those blocks."""
    gc.collect()
    in_use = 0
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = MallocInfo
        library.malloc_trim(0)  # the library keeps what a peak has freed
        info = library.mallinfo2()
        in_use = info.uordblks + info.hblkhd
    return [len(gc.get_objects()), sys.getallocatedblocks(), in_use]


@tool
async def drift(tag: str) -> str:
    """Change the definition of another tool, and so the list."""
    note(tag)
    text = f"Version {next(_versions)}."
    schema = {"type": "object", "properties": {"tag": {"type": "string", "description": text}}}
    BOX.add(Tool.from_schema("drifting", text, schema, lambda arguments, context: arguments["tag"]), replace=True)
    return tag


def make_server(text: str) -> McpServer:
    """Return the server of an argument."""
    name, _, place = text.partition("=")
    if place.startswith("http"):
        return McpServer.http(name, place, timeout=3, connect_timeout=5)
    command, *words = shlex.split(place)
    return McpServer.stdio(name, command, words, timeout=3, connect_timeout=5)


SERVERS = [make_server(text) for text in sys.argv[3:]]
TOOLS = [echo, echo_sync, slow, fail, hang, drift, count_memory]
# A gateway itself is not to be ended by a call.
BOX = Toolbox(*TOOLS, *SERVERS, timeout=4, on_conflict="prefix") if SERVERS else Toolbox(*TOOLS, die)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve(BOX)
    else:
        serve(BOX, "http", port=int(sys.argv[1]))
