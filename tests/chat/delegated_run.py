"""Three chats that call each other, which a test kills: `python delegated_run.py FOLDER POINT`; see `durable_run.py`.

The calls `pay` wait for approval. Each time the run waits, it is saved, decided about and resumed.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from durable_run import FOLDER, leave_lines, note, open_stores

from toolmason import Allow, Chat, Limits, Toolbox, tool
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.errors import RunTaken
from toolmason.models.scripted import ScriptedModel


@tool(read_only=True)
def look(n: int) -> int:
    """Look; may be done twice."""
    return leave_lines("look", n)


@tool(approval=True)
def pay(n: int) -> int:
    """Pay; must not be done twice."""
    return leave_lines("pay", n)


def count_replies(request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def clerk_answer(request):
    first = 10 * int(request.messages[0].text)
    steps = [[("look", {"n": first}), ("pay", {"n": first})], [("pay", {"n": first + 1})], f"clerk {first}"]
    return steps[count_replies(request)]


def office_answer(request):
    number = int(request.messages[0].text)
    clerks = [("clerk", {"prompt": str(2 * number)}), ("clerk", {"prompt": str(2 * number + 1)})]
    return [[("look", {"n": 1000 + number})], clerks, f"office {number}"][count_replies(request)]


def outer_answer(request):
    steps = [[("office", {"prompt": "1"}), ("look", {"n": 5000})], [("office", {"prompt": "2"})], "done"]
    return steps[count_replies(request)]


def make_chat(runtime: SqliteRuntime) -> Chat:
    clerk = Chat(ScriptedModel([clerk_answer] * 100), [look, pay])
    office = Chat(ScriptedModel([office_answer] * 100), [look, clerk.as_tool("clerk", "Pay bills.")])
    box = Toolbox(
        look,
        office.as_tool("office", "Ask the office."),
        approval_key="k" * 32,
        approvals_file=str(FOLDER / "approvals.db"),
    )
    # The run has 21 steps: they are counted once, however often it is killed.
    return Chat(ScriptedModel([outer_answer] * 100), box, runtime=runtime, limits=Limits(steps=21))


async def advance(chat: Chat):
    """Start the run, or resume it from the file where it waits."""
    waiting = FOLDER / "waiting.json"
    if not waiting.exists():
        return await chat.send("go", run="r1")
    saved = json.loads(waiting.read_text())
    return await chat.resume(saved["reply"], saved["decisions"])


async def main() -> None:
    runtime, _ = open_stores()
    chat = make_chat(runtime)
    while True:
        try:
            reply = await advance(chat)
        except RunTaken:
            await asyncio.sleep(0.005)
            continue
        if reply.finish != "pending":
            break
        decisions = [chat.box.approvals.decide(request, Allow()).to_dict() for request in reply.pending]
        new_file = FOLDER / "waiting.new"
        new_file.write_text(json.dumps({"reply": reply.save(), "decisions": decisions}))
        new_file.replace(FOLDER / "waiting.json")
    results = [f"{result.name}:{result.text.replace(' ', '_')}" for result in reply.results]
    note(f"finish {reply.finish} {reply.text} {' '.join(results)}")


if __name__ == "__main__":
    asyncio.run(main())
