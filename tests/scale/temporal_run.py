"""A process with runs on Temporal: `python temporal_run.py ADDRESS RUN FOLDER ROLE`.

ROLE `pause` asks for approval; `resume` gets it. `first` and `second` are workers that drive the runs of the queue RUN.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from toolmason import Allow, Chat, Toolbox, tool
from toolmason.models.scripted import ScriptedModel
from toolmason.scale import TemporalRuntime, TemporalWorker

ADDRESS, RUN, FOLDER, ROLE = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]


def note(line: str) -> None:
    handle = os.open(FOLDER / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


@tool
def pay(n: int) -> int:
    """Pay; must not be done twice."""
    note(f"begin pay {n}")
    return n


@tool(destructive=True)
def erase(name: str) -> str:
    """Erase; needs approval."""
    note(f"erase {name}")
    return f"erased {name}"


async def approve(runtime: TemporalRuntime) -> None:
    script = [lambda request: request.messages[-1].results[0].text] * 2
    if ROLE == "pause":
        script.insert(0, [("erase", {"name": "a"})])
    chat = Chat(ScriptedModel(script), Toolbox(erase, approval_key="a key of a decent size"), runtime=runtime)
    saved = FOLDER / "saved.json"
    if ROLE == "pause":
        reply = await chat.send("Erase a.", run=RUN)
        decision = chat.box.approvals.decide(reply.pending[0], Allow())
        saved.write_text(json.dumps([reply.save(), decision.to_dict()]))
    else:
        paused, decision = json.loads(saved.read_text())
        reply = await chat.resume(paused, [decision])
    note(f"finish {reply.finish} {reply.text}")


async def serve(runtime: TemporalRuntime) -> None:
    """Drive the runs of a queue, as worker ROLE. The first worker that pays for a run holds until it is killed."""

    @tool(read_only=True)
    def wait(n: int) -> str:
        """Wait."""
        note(f"begin wait {ROLE} {os.getpid()}")
        while len(lines_of("begin wait")) < n:
            time.sleep(0.05)
        return "waited"

    def serve_answer(request):
        done = [result.name for message in request.messages for result in message.results]
        if "erase" in done:
            return "erased"
        if "Erase" in request.messages[0].text:
            return [("erase", {"name": "a"})]
        return [[("pay", {"n": 1})], [("wait", {"n": 2})], "done"][len(done)]

    box = Toolbox(pay, wait, erase, approval_key="a key of a decent size")
    chat = Chat(ScriptedModel([serve_answer] * 99), box, runtime=runtime)
    await TemporalWorker(chat, runtime).run()


def lines_of(word: str) -> list[str]:
    return [line for line in (FOLDER / "log").read_text().splitlines() if line.startswith(word)]


async def main() -> None:
    queue = RUN if ROLE in ("first", "second") else "toolmason"
    runtime = TemporalRuntime(ADDRESS, lease=3, queue=queue)
    await (approve if ROLE in ("pause", "resume") else serve)(runtime)
    runtime.close()


if __name__ == "__main__":
    asyncio.run(main())
