"""What happens to work in the background when its run, its chat, its toolbox or its process ends (issue 19)."""

import asyncio

import pytest

from chat.ticket_bench import CALL, WAIT, Bench, ticket_of
from toolmason import Chat, Limits, Toolbox, tool
from toolmason.chat import SqliteMemory, SqliteRuntime
from toolmason.testing import ScriptedModel


@pytest.fixture
def memory(tmp_path):
    return SqliteMemory(tmp_path / "chats.db")


# --- ends ------------------------------------------------------------------------------------------


async def test_the_deadline_of_a_run_leaves_the_work_of_a_conversation_alone(memory):
    bench = Bench()

    async def stall() -> str:
        """Stall."""
        return await asyncio.Event().wait()

    chat = bench.chat([CALL, [("stall", {})], "Done."], tool(stall), memory=memory, limits=Limits(seconds=0.2))
    first = await chat.send("Go.", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    second = await chat.send("And?", conversation="a", limits=Limits())

    assert first.finish == "limit"
    assert bench.cancelled == []
    assert "made 1" in second.results[0].text


async def test_the_deadline_of_a_run_without_a_conversation_cancels_its_work():
    bench = Bench()
    chat = bench.chat([CALL, "Started."], limits=Limits(seconds=0.1))

    reply = await chat.send("Go.")
    await asyncio.wait_for(bench.is_cancelled.wait(), WAIT)

    assert (reply.finish, reply.limit) == ("limit", "limit of 0.1 seconds")
    assert bench.cancelled == [1]


async def test_to_cancel_a_conversation_cancels_its_work(memory):
    bench = Bench()
    chat = bench.chat([CALL, "Started.", "I see."], memory=memory)
    await chat.send("Go.", conversation="a")
    chat.cancel("a")
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    reply = await chat.send("And?", conversation="a")

    assert reply.results[0].error.code == "cancelled"
    assert bench.cancelled == [1]


@pytest.mark.parametrize("which", ["chat", "toolbox", "toolbox, sync"])
async def test_closing_ends_the_work(memory, which):
    bench = Bench()
    box = Toolbox(bench.tool)
    chat = Chat(ScriptedModel([CALL, "Started."]), box, memory=memory)
    await chat.send("Go.", conversation="a")
    await asyncio.wait_for(bench.has_begun.wait(), WAIT)

    if which == "chat":
        await chat.__aexit__()
    elif which == "toolbox":
        await box.aclose()
    else:
        box.close_sync()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    assert bench.cancelled == [1]


async def test_a_run_that_is_cancelled_before_the_ticket_ends_the_work():
    bench = Bench(background=False, ticket_after=WAIT)
    sending = asyncio.ensure_future(bench.chat([CALL]).send("Go."))
    await asyncio.wait_for(bench.has_begun.wait(), WAIT)

    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert bench.cancelled == [1]


# --- chats as tools --------------------------------------------------------------------------------


async def test_a_chat_that_another_one_calls_waits_for_its_tickets():
    bench = Bench()

    def answer(request):
        bench.may_end.set()
        return "Started."

    inner = bench.chat([CALL, answer, "It is made."])
    outer = Chat(ScriptedModel([[("helper", {"prompt": "Go."})], "Done."]), [inner.as_tool("helper", "Help.")])
    reply = await outer.send("Go.")

    assert reply.results[0].text == "It is made."
    assert reply.finish == "stop"


async def test_a_chat_can_be_called_in_the_background(memory):
    inner = Chat(ScriptedModel(["I looked."]))
    helper = inner.as_tool("helper", "Help.", background=True)
    outer = Chat(ScriptedModel([[("helper", {"prompt": "Go."})], "Started.", "Done."]), [helper])

    reply = await outer.send("Go.")

    assert any("I looked." in result.text for result in reply.results)
    assert reply.finish == "stop"


# --- the journal -----------------------------------------------------------------------------------


def durable(bench, script, tmp_path, memory):
    return bench.chat(script, memory=memory, runtime=SqliteRuntime(tmp_path / "runs.db"))


async def interrupt(chat, bench):
    """Start work in the background, and end its process, as far as the journal can see."""
    await chat.send("Go.", conversation="a", run="first")
    await asyncio.wait_for(bench.has_begun.wait(), WAIT)
    await chat.__aexit__()


async def test_a_repeatable_tool_is_run_again_after_a_crash(tmp_path, memory):
    bench = Bench(read_only=True)
    await interrupt(durable(bench, [CALL, "Started."], tmp_path, memory), bench)

    chat = durable(bench, ["Working.", "Done."], tmp_path, memory)
    second = await chat.send("And?", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    third = await chat.send("And?", conversation="a")

    assert len(second.tickets) == 1
    assert "made 1" in third.results[0].text
    assert bench.runs == [1, 1]


async def test_any_other_tool_is_not_run_again_and_its_outcome_is_unknown(tmp_path, memory):
    bench = Bench()
    await interrupt(durable(bench, [CALL, "Started."], tmp_path, memory), bench)

    chat = durable(bench, ["I do not know.", "Still not."], tmp_path, memory)
    reply = await chat.send("And?", conversation="a")
    again = await chat.send("And?", conversation="a")

    assert reply.results[0].error.code == "unknown_outcome"
    assert again.results == ()
    assert bench.runs == [1]


async def test_a_result_of_an_earlier_process_is_delivered_once(tmp_path, memory):
    bench = Bench()
    chat = durable(bench, [CALL, "Started."], tmp_path, memory)
    await chat.send("Go.", conversation="a", run="first")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    second = await durable(bench, ["Done."], tmp_path, memory).send("And?", conversation="a", run="second")
    third = await durable(bench, ["Yes."], tmp_path, memory).send("Sure?", conversation="a")

    assert "made 1" in second.results[0].text
    assert third.results == ()
    assert bench.runs == [1]


async def test_a_run_that_is_executed_again_delivers_the_same_at_the_same_turn(tmp_path, memory):
    bench = Bench()
    chat = durable(bench, [CALL, "Started."], tmp_path, memory)
    await chat.send("Go.", conversation="a", run="first")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    second = await durable(bench, ["Done."], tmp_path, memory).send("And?", conversation="a", run="second")

    again = await durable(bench, [], tmp_path, memory).send("And?", conversation="a", run="second")
    first = await durable(bench, [], tmp_path, memory).send("Go.", conversation="a", run="first")
    last = await durable(bench, ["Yes."], tmp_path, memory).send("Sure?", conversation="a")

    assert [message.to_dict() for message in again.new] == [message.to_dict() for message in second.new]
    assert [result.name for result in first.results] == ["work"]
    assert last.results == ()
    assert bench.runs == [1]


async def test_a_ticket_that_another_process_works_on_is_left_to_it(tmp_path, memory):
    bench = Bench()
    chat = durable(bench, [CALL, "Started."], tmp_path, memory)
    await chat.send("Go.", conversation="a")

    def look(request):
        return [("check_ticket", {"ticket": ticket_of(chat.model.requests[1])})]

    other = durable(bench, [look, "Working.", "Done."], tmp_path, memory)
    second = await other.send("And?", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    third = await other.send("And?", conversation="a")

    assert second.results[0].text == "work is still at work in another process."
    assert "made 1" in third.results[0].text
    assert bench.runs == [1]
