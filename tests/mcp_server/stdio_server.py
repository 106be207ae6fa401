"""A server on standard streams, for tests: `python stdio_server.py`."""

import asyncio
import logging
import os
import subprocess
import sys
import time

from toolmason import Toolbox, ToolContext, serve, tool

logging.basicConfig(level=logging.DEBUG)


@tool
async def echo(text: str) -> str:
    return text


@tool(scopes=["notes:write"])
async def guarded() -> str:
    return "written"


@tool
def noisy() -> str:
    print("stray")  # noqa: T201 - it must not reach the wire
    os.write(1, b"raw bytes\n")
    subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    logging.getLogger("library").info("a record")
    return "quiet"


@tool(timeout=100)
def stuck() -> str:
    time.sleep(60)
    return "late"


@tool
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


@tool
async def ask(ctx: ToolContext) -> str:
    answer = await ctx.client.elicit("Name?", {"type": "object", "properties": {"n": {"type": "string"}}})
    return str(dict(answer.content))


@tool
def surrogate() -> str:
    return "\ud800"


@tool
async def leave(kind: str) -> str:
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "base": BaseException}[kind](7)


if __name__ == "__main__":
    serve(Toolbox(echo, guarded, noisy, stuck, nap, ask, surrogate, leave), grace=float(os.environ.get("GRACE", "4")))
