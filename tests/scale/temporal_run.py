"""A run on Temporal that a test kills: `python temporal_run.py ADDRESS RUN FOLDER POINT`, as `chat/durable_run.py`.

At the POINT-th thing that happens (a request begins or ends, a call begins or ends) the process kills itself. POINT 0
is never. If another process drives the run, this one waits for it. POINT `pause` asks for approval; `resume` gets it.
POINT `first` and `second` are workers that drive the runs of the queue RUN.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

from toolmason import Allow, Chat, Toolbox, tool
from toolmason.errors import RunTaken
from toolmason.models.scripted import ScriptedModel
from toolmason.scale import TemporalRuntime, TemporalWorker
from toolmason.scale.temporal_connection import TemporalConnection

ADDRESS, RUN, FOLDER, POINT = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
STEPS = 2
_points = count(1)
_lock = threading.Lock()
_request = TemporalConnection.request


def point() -> None:
    with _lock:
        number = next(_points)
    if str(number) == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


async def request(self, send):
    point()
    answer = await _request(self, send)
    point()
    return answer


def note(line: str) -> None:
    handle = os.open(FOLDER / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def leave_lines(kind: str, n: int) -> int:
    point()
    note(f"begin {kind} {n}")
    point()
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


@tool(destructive=True)
def erase(name: str) -> str:
    """Erase; needs approval."""
    note(f"erase {name}")
    return f"erased {name}"


def answer(request):
    """Answer by what was said, so that it is the same in every process."""
    step = sum(message.role == "assistant" for message in request.messages)
    if step == STEPS:
        return "done"
    return [("look", {"n": step * 10}), ("look", {"n": step * 10 + 1}), ("pay", {"n": step})]


async def drive(runtime: TemporalRuntime) -> None:
    chat = Chat(ScriptedModel([answer] * 20), Toolbox(look, pay), runtime=runtime)
    while True:
        try:
            reply = await chat.send("go", run=RUN)
            break
        except RunTaken:
            await asyncio.sleep(0.05)
    results = [f"{r.name}:{'ok' if r.ok else r.error.code}" for m in reply.new for r in m.results]
    note(f"finish {reply.finish} {reply.text} {' '.join(results)}")


async def approve(runtime: TemporalRuntime) -> None:
    script = [lambda request: request.messages[-1].results[0].text] * 2
    if POINT == "pause":
        script.insert(0, [("erase", {"name": "a"})])
    chat = Chat(ScriptedModel(script), Toolbox(erase, approval_key="a key of a decent size"), runtime=runtime)
    saved = FOLDER / "saved.json"
    if POINT == "pause":
        reply = await chat.send("Erase a.", run=RUN)
        decision = chat.box.approvals.decide(reply.pending[0], Allow())
        saved.write_text(json.dumps([reply.save(), decision.to_dict()]))
    else:
        paused, decision = json.loads(saved.read_text())
        reply = await chat.resume(paused, [decision])
    note(f"finish {reply.finish} {reply.text}")


async def serve(runtime: TemporalRuntime) -> None:
    """Drive the runs of a queue, as worker POINT. The first worker that pays for a run holds until it is killed."""

    @tool(read_only=True)
    def wait(n: int) -> str:
        """Wait."""
        note(f"begin wait {POINT} {os.getpid()}")
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
    TemporalConnection.request = request
    queue = RUN if POINT in ("first", "second") else "toolmason"
    runtime = TemporalRuntime(ADDRESS, lease=3, queue=queue)
    if POINT in ("first", "second"):
        await serve(runtime)
    await (approve if POINT in ("pause", "resume") else drive)(runtime)
    runtime.close()


if __name__ == "__main__":
    asyncio.run(main())
