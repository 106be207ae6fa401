"""A run that a test kills: `python durable_run.py FOLDER POINT [URL SCHEMA]`.

Each call leaves a line before and after it.

At the POINT-th thing that happens (a transaction or a request begins or ends, a call begins or ends) the process kills
itself, as `kill -9` would. POINT 0 is never. Where another process drives the run, this one waits for it. The URL is
that of a PostgreSQL database, or the address of a Temporal server; SCHEMA is then the prefix of the runs.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

from toolmason import Chat, SqliteMemory, Toolbox, tool
from toolmason._store.sqlite_store import SqliteStore
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.errors import RunTaken
from toolmason.models.scripted import ScriptedModel

FOLDER, POINT = Path(sys.argv[1]), int(sys.argv[2])
STEPS = 6
_points = count(1)
_lock = threading.Lock()


def point() -> None:
    with _lock:
        number = next(_points)
    if number == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def add_points(store_class) -> None:
    """Make each transaction three points: before it, before its commit, and after it."""
    transact = store_class.transact

    def transact_with_points(self, group, key, work):
        def work_with_point(db):
            result = work(db)
            point()
            return result

        point()
        result = transact(self, group, key, work_with_point)
        point()
        return result

    store_class.transact = transact_with_points


def open_stores(**options):
    """Return a runtime and a memory: in files, or in the database that the command line names."""
    if len(sys.argv) == 3:
        add_points(SqliteStore)
        return SqliteRuntime(FOLDER / "runs.db", **options), SqliteMemory(FOLDER / "chat.db", 1000)
    if not sys.argv[3].startswith("postgres"):
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from scale.temporal_server import make_runtime

        return make_runtime(*sys.argv[3:], point), SqliteMemory(FOLDER / "chat.db", 1000)
    from toolmason.chat import PostgresStore, StoreMemory, StoreRuntime

    add_points(PostgresStore)
    # Longer than a server needs to restart, also on a busy machine: the tests are about runs that survive it.
    store = PostgresStore(sys.argv[3], schema=sys.argv[4], reconnect_seconds=120)
    return StoreRuntime(store, **options), StoreMemory(store, 1000)


def note(line: str) -> None:
    handle = os.open(FOLDER / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def leave_lines(kind: str, n: int) -> int:
    point()
    note(f"begin {kind} {n}")
    point()
    time.sleep(0.002)
    note(f"end {kind} {n}")
    point()
    return n


@tool(read_only=True)
def look(n: int) -> int:
    """Look; may be done twice."""
    return leave_lines("look", n)


@tool
def pay(n: int) -> int:
    """Pay; must not be done twice."""
    return leave_lines("pay", n)


def answer(request):
    """Answer by what was said, so that it is the same in every process."""
    asked = max(place for place, message in enumerate(request.messages) if message.role == "user")
    step = sum(message.role == "assistant" for message in request.messages[asked:])
    if request.messages[asked].text != "go":
        return f"You said {[m.text for m in request.messages if m.role == 'user']}"
    if step == STEPS:
        return "done"
    return [("look", {"n": step * 10}), ("look", {"n": step * 10 + 1}), ("pay", {"n": step})]


async def sent(chat, text, run):
    while True:
        try:
            return await chat.send(text, run=run, conversation="c")
        except RunTaken:
            await asyncio.sleep(0.005)


async def main() -> None:
    model = ScriptedModel([answer] * 20)
    runtime, memory = open_stores()
    chat = Chat(model, Toolbox(look, pay), runtime=runtime, memory=memory)
    reply = await sent(chat, "go", "r1")
    results = [f"{r.name}:{'ok' if r.ok else r.error.code}" for m in reply.new for r in m.results]
    note(f"finish {reply.finish} {reply.text} {' '.join(results)}")
    after = await sent(chat, "and now?", "r2")
    note(f"after {after.text}")


if __name__ == "__main__":
    asyncio.run(main())
