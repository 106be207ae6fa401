"""Support desk of a tea shop: own tools, two MCP servers, approval, memory, a typed answer, a trace.

python examples/desk/desk.py                       # answers from a script, so that it needs no key
python examples/desk/desk.py --model openai:gpt-5  # asks a model
toolmason ui examples/desk/desk.py:box             # the page: tools, calls, chats, servers
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from toolmason import Allow, Chat, Deny, Limits, McpServer, SqliteMemory, Toolbox
from toolmason.extend import ApprovalRequest
from toolmason.models import Model, ModelRequest
from toolmason.observe import print_tree, record
from toolmason.testing import ScriptedModel

HERE = Path(__file__).parent
DATA = Path(os.environ.get("DESK_DATA", HERE / "data"))
DATA.mkdir(exist_ok=True)
sys.path.insert(0, str(HERE))

from orders import Orders  # noqa: E402 - beside this file, also if the page loads it

SYSTEM = """\
You work at the desk of a tea shop. Look the order up, ask the carrier about its parcel, and refund a lost order.
Be brief, and never promise what no tool has done."""


class Ticket(BaseModel):
    """Answer of the desk."""

    answer: str = Field(description="What the customer reads")
    outcome: Literal["answered", "refunded", "handed over"]
    order: str | None = None


box = Toolbox(
    Orders(DATA / "shop.db"),
    McpServer.stdio("warehouse", sys.executable, [str(HERE / "stock_server.py")]),
    McpServer.stdio("carrier", sys.executable, [str(HERE / "carrier_server.py")]),
    timeout=20,
    name="desk",
)


def make_chat(model: Model | str) -> Chat[Ticket]:
    """Return the chat of the desk."""
    memory = SqliteMemory(DATA / "chats.db")
    return Chat(model, box, system=SYSTEM, output=Ticket, memory=memory, limits=Limits(steps=10, seconds=60))


def answer(request: ModelRequest) -> str:
    """Return the last turn: what the refund has come to."""
    if request.messages[-1].results[0].ok:
        ticket = Ticket(answer="A-17 was lost. You get 13.50 euros back.", outcome="refunded", order="A-17")
    else:
        ticket = Ticket(answer="A-17 was lost. A colleague will call you.", outcome="handed over", order="A-17")
    return ticket.model_dump_json()


def make_script() -> ScriptedModel:
    """Return a model that does what it should."""
    refund = {"number": "A-17", "reason": "The carrier lost the parcel."}
    return ScriptedModel(
        [
            [("find_order", {"number": "A-17"})],
            [("track_parcel", {"parcel": "P-100"}), ("count_stock", {"sku": "TEA-01"})],
            [("refund", refund)],
            answer,
        ]
    )


def decide(request: ApprovalRequest, *, is_allowed: bool | None) -> Allow | Deny:
    """Ask the person at the desk, or take the option."""
    if is_allowed is None:
        is_allowed = input(f"{request.preview}\nAllow it? [y/N] ").strip().lower() == "y"
    return Allow() if is_allowed else Deny("The desk decided otherwise.")


async def main(model: str, question: str, *, is_allowed: bool | None) -> None:
    """Answer one customer."""
    chat = make_chat(make_script() if model == "scripted" else model)
    async with box:
        with record() as recorder:
            reply = await chat.send(question, conversation="ada", context={"customer": "ada"})
            while reply.finish == "pending":
                verdicts = [(request, decide(request, is_allowed=is_allowed)) for request in reply.pending]
                decisions = [chat.box.approvals.decide(request, verdict) for request, verdict in verdicts]
                reply = await chat.resume(reply.save(), decisions, context={"customer": "ada"})
    print_tree(recorder.spans)
    ticket = reply.output
    print(f"{ticket.outcome}: {ticket.answer}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("question", nargs="?", default="Where is my order A-17?")
    options.add_argument("--model", default="scripted")
    options.add_argument("--allow", action=argparse.BooleanOptionalAction, help="decide without a question")
    given = options.parse_args()
    asyncio.run(main(given.model, given.question, is_allowed=given.allow))
