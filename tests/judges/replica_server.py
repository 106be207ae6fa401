"""One of several replicas: `python replica_server.py PORT LOG`. Each run of a tool adds a line with its tag to LOG."""

import asyncio
import os
import sys
from pathlib import Path

from toolmason import Toolbox, ToolContext, serve, tool

LOG = Path(sys.argv[2])


def note(word: str, tag: str) -> None:
    """Add a line to the log: one write, so that processes do not mix their lines."""
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{word} {tag}\n".encode())
    os.close(file)


@tool
async def pay(tag: str) -> str:
    """Pay; must not run twice."""
    note("pay", tag)
    await asyncio.sleep(0.02)
    return tag


@tool(read_only=True)
async def look(tag: str) -> str:
    """Look; may run again."""
    note("look", tag)
    await asyncio.sleep(0.02)
    return tag


@tool
async def ask(question: str, ctx: ToolContext) -> str:
    """Ask the user."""
    answer = await ctx.client.elicit(question, {"type": "object", "properties": {"word": {"type": "string"}}}, key="q")
    return f"{answer.content['word']} from {os.getpid()}"


if __name__ == "__main__":
    key = os.environ.get("TOOLMASON_STATE_KEY")
    words = {"state_key": key, "replicas": True} if key else {}
    serve(Toolbox(pay, look, ask, name="replicas"), "http", port=int(sys.argv[1]), **words)
