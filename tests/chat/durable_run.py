"""A run that a test kills: `python durable_run.py JOURNAL LOG RUN`. Each call leaves a line before and after it."""

import asyncio
import os
import sys
import time

from toolwright import Toolbox, tool
from toolwright.chat.chat import Chat
from toolwright.chat.journal import SqliteRuntime
from toolwright.models.scripted import ScriptedModel

JOURNAL, LOG, RUN = sys.argv[1:4]


def note(line: str) -> None:
    handle = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


@tool(read_only=True)
def look(n: int) -> int:
    """Look; may be done twice."""
    note(f"begin look {n}")
    time.sleep(0.01)
    note(f"end look {n}")
    return n


@tool
def pay(n: int) -> int:
    """Pay; must not be done twice."""
    note(f"begin pay {n}")
    time.sleep(0.01)
    note(f"end pay {n}")
    return n


def script():
    for step in range(6):
        yield [("look", {"n": step * 10 + place}) for place in range(2)] + [("pay", {"n": step})]
    yield "done"


async def main() -> None:
    chat = Chat(ScriptedModel(_Following()), Toolbox(look, pay), runtime=SqliteRuntime(JOURNAL))
    reply = await chat.send("go", run=RUN)
    note(f"finish {reply.finish} {reply.text}")
    for result in reply.results:
        note(f"result {result.name} {result.ok} {'' if result.ok else result.error.code}")


class _Following(list):
    """A script that answers by what was said, so that it is the same in every process."""

    def __init__(self):
        turns = list(script())
        super().__init__(
            [lambda request: turns[sum(m.role == "assistant" for m in request.messages)]] * (len(turns) + 1)
        )


asyncio.run(main())
