"""A run whose disk becomes full: `python full_disk_run.py FOLDER tmpfs|limit`. Prints what happened, as JSON.

With `tmpfs`, FOLDER is a small file system of its own, mostly taken by another file. With `limit`, no file of this
process may grow beyond a size.
"""

import asyncio
import json
import resource
import sys
from pathlib import Path

from toolmason import Chat, Limits, tool
from toolmason.chat import SqliteStore, StoreRuntime
from toolmason.errors import StoreUnavailable
from toolmason.models.scripted import ScriptedModel

FOLDER, MODE = Path(sys.argv[1]), sys.argv[2]
STEPS = 40
paid = []


@tool
def pay(n: int) -> str:
    """Pay."""
    paid.append(n)
    return f"paid {n} " + "x" * 10_000


def answer(request):
    turn = sum(message.role == "assistant" for message in request.messages)
    return "done" if turn == STEPS else [("pay", {"n": turn})]


def make_chat(store: SqliteStore) -> Chat:
    return Chat(ScriptedModel([answer] * 99), [pay], runtime=StoreRuntime(store), limits=Limits(steps=99))


async def main() -> None:
    other = FOLDER / "other"
    if MODE == "tmpfs":
        other.write_bytes(bytes(3_400_000))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    store = SqliteStore(FOLDER / "runs.db")
    try:
        await make_chat(store).send("go", run="r")
        error = None
    except StoreUnavailable as full:
        error = str(full)
    before = len(paid)
    other.unlink(missing_ok=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    reply = await make_chat(store).send("go", run="r")
    results = [result for message in reply.new for result in message.results]
    unknown = [result.error.code for result in results if not result.ok]
    found = {"error": error, "before": before, "paid": paid, "text": reply.text, "unknown": unknown}
    sys.stdout.write(json.dumps(found))


asyncio.run(main())
