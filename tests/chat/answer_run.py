"""A run with a typed answer, in processes of their own: `python answer_run.py FOLDER KIND POINT`.

KIND is `text` or `call`, the way the model answers: wrong, refused by a check, then right. At the POINT-th turn
or check the process kills itself; POINT 0 is never. What ran is in FOLDER/log.
"""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from toolmason import Chat, SqliteMemory, ToolError
from toolmason.chat import SqliteRuntime
from toolmason.models import ScriptedModel

FOLDER, KIND, POINT = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
_points = count(1)


@dataclass
class Trip:
    city: str
    days: int


def note(line):
    with (FOLDER / "log").open("a") as log:
        log.write(f"{line}\n")
    if next(_points) == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def answer(number, data):
    def turn(request):
        note(f"model {number}")
        return json.dumps(data) if KIND == "text" else [("final_answer", data)]

    return turn


class Turns(ScriptedModel):
    """The answer to a request follows from the number of wrong answers before it."""

    async def respond(self, request):
        wrong = sum(message.role == "assistant" for message in request.messages)
        turn = self.script[wrong](request)
        return await ScriptedModel([turn]).respond(request)


async def main():
    model = Turns(
        [answer(1, {"city": "Oslo"}), answer(2, {"city": "Rome", "days": 1}), answer(3, {"city": "Oslo", "days": 3})]
    )
    memory = SqliteMemory(FOLDER / "chat.db")
    chat = Chat(model, output=Trip, runtime=SqliteRuntime(FOLDER / "runs.db", lease=0.2), memory=memory)

    @chat.check
    async def is_north(trip):
        note(f"check {trip.city}")
        if trip.city != "Oslo":
            raise ToolError("too far south")

    reply = await chat.send("Where to?", run="r", conversation="c")
    print(json.dumps([repr(reply.output), reply.answer.attempts, reply.finish]))  # noqa: T201 - the test reads it
    history = await chat.load_history("c")
    print(json.dumps([message.role for message in history]))  # noqa: T201 - as above


asyncio.run(main())
