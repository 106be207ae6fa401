"""A run that waits for approval, in processes of their own: `python approval_run.py FOLDER pause|resume KIND`.

What a tool did is in FOLDER/log, what was saved in FOLDER/saved.json, what was decided in FOLDER/decisions.json. Each
decision there is tried by itself.
"""

import asyncio
import json
import sys
from pathlib import Path

from toolmason import Allow, Chat, Toolbox, tool
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.errors import ToolmasonError
from toolmason.extend import ApprovalRequest, Decision
from toolmason.models.scripted import ScriptedModel

FOLDER, WHAT, KIND = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
NOTE = "Erase something." if KIND != "another tool" else "Erase something, and more."
KEY = "another key of this size" if KIND == "another key" else "a key of a decent size"


@tool(destructive=True, description=NOTE)
def erase(name: str) -> str:
    with (FOLDER / "log").open("a") as log:
        log.write(f"{name}\n")
    return f"erased {name}"


def chat(script):
    runtime = {"runtime": SqliteRuntime(FOLDER / "runs.db")} if (FOLDER / "durable").exists() else {}
    return Chat(ScriptedModel(script), Toolbox(erase, approval_key=KEY), **runtime)


async def pause():
    made = chat([[("erase", {"name": "a"})]])
    reply = await made.send("Erase a.", run="r", context={"user": "ada"})
    (FOLDER / "saved.json").write_text(json.dumps(reply.save()))
    decision = made.box.approvals.decide(reply.pending[0], Allow())
    (FOLDER / "decisions.json").write_text(json.dumps([decision.to_dict()]))


async def resume():
    saved = json.loads((FOLDER / "saved.json").read_text())
    for data in json.loads((FOLDER / "decisions.json").read_text()):
        print(json.dumps(await resumed(saved, Decision.from_dict(data))))  # noqa: T201 - the test reads it


async def resumed(saved, decision):
    made = chat([lambda request: request.messages[-1].results[0].text])
    user = "eve" if KIND == "another user" else "ada"
    try:
        reply = await made.resume(saved, [decision], context={"user": user})
    except ToolmasonError as error:
        return {"raised": str(error)}
    return {"finish": reply.finish, "text": reply.text}


async def decide():
    saved = json.loads((FOLDER / "saved.json").read_text())
    try:
        chat([]).box.approvals.decide(ApprovalRequest.from_dict(saved["pending"][0]), Allow())
    except ToolmasonError as error:
        print(json.dumps({"raised": str(error)}))  # noqa: T201 - the test reads it


asyncio.run({"pause": pause, "resume": resume, "decide": decide}[WHAT]())
