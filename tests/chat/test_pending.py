"""Approval that can wait: a run is saved, decided about, and goes on in another process."""

import json

import pytest

from toolwright import Allow, Deny, Edit, Toolbox, tool
from toolwright.chat.chat import Chat
from toolwright.errors import ConfigError
from toolwright.models.scripted import ScriptedModel
from toolwright.providers.conversation import check_conversation

RAN: list[str] = []


@tool(destructive=True)
def erase(name: str) -> str:
    """Erase something."""
    RAN.append(name)
    return f"erased {name}"


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "nothing"


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()


def chat_of(script):
    return Chat(ScriptedModel(script), Toolbox(erase, look, approval_key="k" * 32))


async def paused():
    reply = await chat_of([[("erase", {"name": "a"}), ("look", {}), ("erase", {"name": "b"})]]).send("Erase a and b.")
    return reply, json.loads(json.dumps(reply.save()))


async def test_a_run_waits_for_each_call_by_itself():
    reply, saved = await paused()

    assert reply.finish == "pending"
    assert [request.tool for request in reply.pending] == ["erase", "erase"]
    assert [result.ok for result in reply.results] == [False, True, False]
    assert RAN == []
    assert saved["finish"] == "pending"


async def test_it_goes_on_where_everything_is_decided():
    reply, saved = await paused()
    chat = chat_of(["Erased a; b stays."])
    decisions = [
        chat.box.decide(request, verdict)
        for request, verdict in zip(reply.pending, (Allow(), Deny("not b")), strict=True)
    ]

    done = await chat.resume(saved, decisions)

    assert (done.finish, done.text) == ("stop", "Erased a; b stays.")
    assert RAN == ["a"]
    assert check_conversation(done.messages) == []


async def test_an_edit_is_what_runs():
    reply, saved = await paused()
    chat = chat_of(["ok"])
    decisions = [chat.box.decide(request, Edit({"name": "c"})) for request in reply.pending]

    await chat.resume(saved, decisions)

    assert RAN == ["c", "c"]


async def test_what_is_not_decided_keeps_waiting():
    reply, saved = await paused()
    chat = chat_of(["never"])

    half = await chat.resume(saved, [chat.box.decide(reply.pending[0], Allow())])

    assert half.finish == "pending"
    assert len(half.pending) == 1
    assert RAN == ["a"]
    assert chat.model.requests == []


async def test_a_decision_that_was_tampered_with_does_not_run_anything():
    reply, saved = await paused()
    chat = chat_of(["ok"])
    forged = []
    for request in reply.pending:
        decision = chat.box.decide(request, Allow()).to_dict()
        decision["request"]["arguments"] = {"name": "everything"}
        forged.append(type(chat.box.decide(request, Allow())).from_dict(decision))

    await chat.resume(saved, forged)

    assert RAN == []


async def test_a_decision_is_good_once():
    reply, saved = await paused()
    chat = chat_of(["ok", "ok"])
    decisions = [chat.box.decide(request, Allow()) for request in reply.pending]

    await chat.resume(saved, decisions)
    await chat.resume(saved, decisions)

    assert RAN == ["a", "b"]


@pytest.mark.parametrize("saved", [{}, {"format": "toolwright-run", "version": 1}, {"format": "x"}])
async def test_something_else_is_no_saved_run(saved):
    with pytest.raises(ConfigError):
        await chat_of([]).resume(saved)
