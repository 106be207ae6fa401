"""A run with work in the background, which a test kills: `python ticket_run.py FOLDER POINT`; see `durable_run.py`."""

import asyncio
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from durable_run import leave_lines, note, open_stores

from toolmason import Chat, tool
from toolmason.errors import RunTaken
from toolmason.models.scripted import ScriptedModel


@tool(read_only=True, background=True)
def look(n: int) -> str:
    """Look; may be done twice."""
    return f"result-{leave_lines('look', n)}"


@tool(background=True)
def pay(n: int) -> str:
    """Pay; must not be done twice."""
    return f"result-{leave_lines('pay', n)}"


def answer(request):
    results = [result.text for message in request.messages for result in message.results]
    opened = [found for text in results for found in re.findall(r"as ticket (tk_\w+)", text)]
    ended = {found for text in results for found in re.findall(r"\[Ticket (tk_\w+):", text)}
    called = [call.arguments.get("n") for message in request.messages for call in message.calls]
    if 1 not in called:
        return [("look", {"n": 1}), ("pay", {"n": 2})]
    if 3 not in called:
        return [("pay", {"n": 3})]
    # One is left to arrive by itself.
    waiting = [ticket for ticket in opened if ticket not in ended][:-1]
    return [("check_ticket", {"ticket": ticket, "wait": 10}) for ticket in waiting] or "done"


async def main() -> None:
    runtime, memory = open_stores(lease=2)
    chat = Chat(ScriptedModel([answer] * 100), [look, pay], memory=memory, runtime=runtime)
    for run, text in (("r", "go"), ("after", "and now?")):
        while True:
            try:
                reply = await chat.send(text, conversation="c", run=run)
                break
            except RunTaken as taken:
                await asyncio.sleep(min(taken.seconds, 0.05))
        await chat.wait_for_tickets("c")
    reply = await chat.send("all?", conversation="c", run="last")
    note(f"finish {reply.finish} {reply.text} {len(reply.tickets)}")


asyncio.run(main())
