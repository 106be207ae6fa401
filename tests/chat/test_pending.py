"""Approval that can wait: a run is saved, decided about, and goes on in another process."""

import json

import pytest

from toolmason import Allow, Deny, Edit, ProjectDir, Toolbox, ToolContext, tool
from toolmason.chat.chat import Chat
from toolmason.errors import ConfigError
from toolmason.models.scripted import ScriptedModel
from toolmason.providers.conversation import check_conversation

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
        chat.box.approvals.decide(request, verdict)
        for request, verdict in zip(reply.pending, (Allow(), Deny("not b")), strict=True)
    ]

    done = await chat.resume(saved, decisions)

    assert (done.finish, done.text) == ("stop", "Erased a; b stays.")
    assert RAN == ["a"]
    assert check_conversation(done.messages) == []


async def test_a_call_that_was_decided_gets_the_context_of_the_chat():
    @tool(destructive=True)
    def erase_there(ctx: ToolContext) -> str:
        """Erase something in a region."""
        return f"erased in {ctx['region']}"

    chat = Chat(ScriptedModel([[("erase_there", {})], "done"]), Toolbox(erase_there), context={"region": "north"})
    reply = await chat.send("Erase it.")

    done = await chat.resume(reply, [chat.box.approvals.decide(reply.pending[0], Allow())])

    assert [result.text for result in done.results] == ["erased in north"]


async def test_an_edit_is_what_runs():
    reply, saved = await paused()
    chat = chat_of(["ok"])
    decisions = [chat.box.approvals.decide(request, Edit({"name": "c"})) for request in reply.pending]

    await chat.resume(saved, decisions)

    assert RAN == ["c", "c"]


async def test_what_is_not_decided_keeps_waiting():
    reply, saved = await paused()
    chat = chat_of(["never"])

    half = await chat.resume(saved, [chat.box.approvals.decide(reply.pending[0], Allow())])

    assert half.finish == "pending"
    assert len(half.pending) == 1
    assert RAN == ["a"]
    assert chat.model.requests == []


async def test_a_decision_that_was_tampered_with_does_not_run_anything():
    reply, saved = await paused()
    chat = chat_of(["ok"])
    forged = []
    for request in reply.pending:
        decision = chat.box.approvals.decide(request, Allow()).to_dict()
        decision["request"]["arguments"] = {"name": "everything"}
        forged.append(type(chat.box.approvals.decide(request, Allow())).from_dict(decision))

    reply = await chat.resume(saved, forged)

    assert reply.finish == "pending"
    assert RAN == []


@pytest.mark.parametrize("given", [[Allow()], {"a": Allow()}, ["yes"]])
async def test_what_cannot_be_a_decision_is_an_error_and_not_a_longer_wait(given):
    _, saved = await paused()

    with pytest.raises(ConfigError, match="is not a decision"):
        await chat_of(["ok"]).resume(saved, given)


async def test_one_decision_need_not_be_in_a_list():
    reply, saved = await paused()
    chat = chat_of(["ok"])

    half = await chat.resume(saved, chat.box.approvals.decide(reply.pending[0], Allow()))

    assert len(half.pending) == len(reply.pending) - 1


async def test_a_decision_is_good_once():
    reply, saved = await paused()
    chat = chat_of(["ok", "ok"])
    decisions = [chat.box.approvals.decide(request, Allow()) for request in reply.pending]

    await chat.resume(saved, decisions)
    await chat.resume(saved, decisions)

    assert RAN == ["a", "b"]


@pytest.mark.parametrize("saved", [{}, {"format": "toolmason-run", "version": 1}, {"format": "x"}])
async def test_something_else_is_no_saved_run(saved):
    with pytest.raises(ConfigError):
        await chat_of([]).resume(saved)


async def test_whoever_decides_for_a_chat_leaves_the_rules_of_its_toolbox_alone():
    seen, hooked = [], []

    async def hook(call, following):
        hooked.append(call.name)
        return await following(call)

    box = Toolbox(look, approve="all", timeout=5.0, name="mine")
    box.use(hook)
    script = [[("look", {})], "done"]

    reply = await Chat(ScriptedModel(script), box, approver=lambda request: seen.append(request.tool) or Allow()).send(
        "x"
    )

    assert (seen, hooked, reply.text) == (["look"], ["look"], "done")
    assert "mine" in repr(Chat(ScriptedModel(script), box, approver=lambda request: Allow()).box)
    assert (await box.call("look")).error.code == "approval_required"


async def test_whoever_decides_for_a_chat_decides_about_the_tools_of_a_request_too():
    chat = Chat(ScriptedModel([[("erase", {"name": "a"})], "done"] * 2), (), approver=lambda request: Allow())

    await chat.send("x", tools=[erase])
    await chat.send("x", tools=Toolbox(erase))

    assert RAN == ["a", "a"]


async def test_a_configuration_for_a_chat_leaves_the_rules_of_its_toolbox_alone(tmp_path):
    @tool
    def where(project_dir: ProjectDir) -> str:
        """Say where."""
        return str(project_dir)

    box = Toolbox(where, approve="all")
    chat = Chat(ScriptedModel([[("where", {})]]), box, config={"project_dir": str(tmp_path)})

    reply = await chat.send("x")

    assert reply.finish == "pending"
    assert (await chat.box.approvals.resume(chat.box.approvals.decide(reply.pending[0], Allow()))).text == str(tmp_path)


async def test_a_saved_run_without_calls_is_damaged():
    _, saved = await paused()
    saved["messages"][1]["calls"] = []

    with pytest.raises(ConfigError, match="its last turn has no calls"):
        await chat_of(["x"]).resume(saved)


async def test_decisions_may_come_as_plain_data_and_nonsense_counts_for_nothing():
    reply, saved = await paused()
    chat = chat_of(["ok"])
    plain = [chat.box.approvals.decide(request, Allow()).to_dict() for request in reply.pending]

    waiting = await chat.resume(saved, [{"verdict": "allow"}, {}])
    done = await chat.resume(saved, json.loads(json.dumps(plain)))

    assert (waiting.finish, done.finish) == ("pending", "stop")
    assert RAN == ["a", "b"]
