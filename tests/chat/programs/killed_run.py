"""A run with a program that a test kills: `python killed_run.py FOLDER`. It dies before each but the first step."""

import asyncio
import os
import sys
from pathlib import Path

from toolmason import Chat, tool
from toolmason.chat import SqliteRuntime
from toolmason.testing import ScriptedModel

FOLDER = Path(sys.argv[1])
CODE = "total = 0\nfor i in range(4):\n    total += step(i)\nprint(total)"


@tool(idempotent=True)
def step(n: int) -> int:
    """Take a step."""
    died = FOLDER / f"died-{n}"
    if n and not died.exists():
        died.touch()
        os._exit(9)
    with (FOLDER / "steps.txt").open("a") as file:
        file.write(f"{n}\n")
    return n * 10


def answer(request):
    return "done" if request.messages[-1].role == "tool" else [("run_code", {"code": CODE})]


runtime = SqliteRuntime(FOLDER / "runs.db")
reply = asyncio.run(Chat(ScriptedModel([answer] * 9), [step], code=True, runtime=runtime).send("go", run="r"))
(FOLDER / "reply.txt").write_text(reply.results[0].text)
