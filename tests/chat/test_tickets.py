"""Calls whose work goes on in the background: tickets, their delivery, their tools and their rules (issue 19)."""

import asyncio

import pytest

from chat.ticket_bench import CALL, WAIT, Bench, ticket_of
from toolmason import Allow, Chat, Deny, McpServer, Toolbox, tool
from toolmason.chat import CallFinished, CallProgress, SqliteMemory
from toolmason.chat.run import ticket_store
from toolmason.errors import DefinitionError
from toolmason.testing import ScriptedModel


@pytest.fixture
def memory(tmp_path):
    return SqliteMemory(tmp_path / "chats.db")


# --- delivery --------------------------------------------------------------------------------------


async def test_the_result_arrives_at_the_next_turn_without_being_asked_for(memory):
    bench = Bench()

    async def finish() -> str:
        """Let the work end."""
        bench.may_end.set()
        await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
        return "ok"

    chat = bench.chat([CALL, [("finish", {})], "Done."], tool(finish), memory=memory)
    reply = await chat.send("Go.", conversation="a")

    assert [result.name for result in reply.results] == ["work", "finish", "check_ticket"]
    assert reply.results[2].text.endswith("work has finished.]\nmade 1")
    assert (reply.text, reply.tickets) == ("Done.", ())
    assert [call.id for call in reply.calls] == [result.call_id for result in reply.results]


async def test_the_result_arrives_at_the_next_send_before_the_new_message(memory):
    bench = Bench()
    chat = bench.chat([CALL, "Started.", "Done."], memory=memory)
    first = await chat.send("Go.", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    second = await chat.send("And?", conversation="a")

    assert len(first.tickets) == 1
    assert [message.role for message in second.new] == ["assistant", "tool", "user", "assistant"]
    assert "made 1" in second.new[1].results[0].text
    assert second.tickets == ()


async def test_a_result_is_delivered_once(memory):
    bench = Bench()
    chat = bench.chat([CALL, "Started.", "Done.", "Yes."], memory=memory)
    await chat.send("Go.", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    await chat.send("And?", conversation="a")
    third = await chat.send("Sure?", conversation="a")

    assert third.results == ()
    assert sum("made 1" in result.text for message in third.messages for result in message.results) == 1


async def test_two_runs_of_a_conversation_deliver_a_result_once(memory):
    bench = Bench()
    chat = bench.chat([CALL, "Started.", "Done.", "Done."], memory=memory)
    await chat.send("Go.", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    replies = await asyncio.gather(*(chat.send("And?", conversation="a") for _ in range(2)))

    assert sum(len(reply.results) for reply in replies) == 1


async def test_without_a_conversation_the_run_waits_for_its_tickets():
    bench = Bench()

    def answer(request):
        bench.may_end.set()
        return "Started."

    reply = await bench.chat([CALL, answer, "Done."]).send("Go.")

    assert (reply.text, reply.finish, reply.tickets) == ("Done.", "stop", ())
    assert "made 1" in reply.results[1].text


async def test_a_failure_in_the_background_is_a_result_too(memory):
    may_end = asyncio.Event()

    @tool(background=True)
    async def fail() -> str:
        """Fail."""
        await may_end.wait()
        raise ValueError("broken")

    chat = Chat(ScriptedModel([[("fail", {})], "Started.", "It failed."]), [fail], memory=memory)
    await chat.send("Go.", conversation="a")
    may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    reply = await chat.send("And?", conversation="a")

    assert reply.results[0].error.code == "execution_error"
    assert "broken" in reply.results[0].text


# --- ticket_after ----------------------------------------------------------------------------------


async def test_a_call_that_is_fast_enough_has_no_ticket():
    bench = Bench(background=False, ticket_after=WAIT)
    bench.may_end.set()

    reply = await bench.chat([CALL, "Done."]).send("Go.")

    assert [result.text for result in reply.results] == ["made 1"]


async def test_a_call_that_passes_its_seconds_gets_a_ticket(memory):
    bench = Bench(background=False, ticket_after=0.01)

    reply = await bench.chat([CALL, "Started."], memory=memory).send("Go.", conversation="a")

    assert "goes on in the background as ticket tk_" in reply.results[0].text
    bench.may_end.set()


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_seconds_that_make_no_sense_are_refused(seconds):
    with pytest.raises(DefinitionError, match=r"ticket_after=.*: must be at least 0"):
        Bench(ticket_after=seconds)


async def test_without_a_chat_the_work_is_awaited():
    bench = Bench()
    bench.may_end.set()

    plain = await Toolbox(bench.tool).call("work", {"n": 2})
    in_run = await Toolbox(bench.tool).run().call("work", {"n": 3})

    assert (plain.text, in_run.text) == ("made 2", "made 3")


# --- the tools of the model ------------------------------------------------------------------------


async def test_the_tools_are_offered_while_there_are_tickets(memory):
    bench = Bench()
    chat = bench.chat([CALL, "Started.", "Working.", "Done.", "Yes."], memory=memory)
    await chat.send("Go.", conversation="a")
    await chat.send("And?", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    await chat.send("And now?", conversation="a")
    await chat.send("Sure?", conversation="a")

    names = [{tool.name for tool in request.tools} - {"work"} for request in chat.model.requests]
    both = {"check_ticket", "cancel_ticket"}
    assert names == [set(), both, both, set(), set()]


async def test_the_model_can_see_the_progress_and_wait_for_the_result(memory):
    bench = Bench()

    def look(request):
        return [("check_ticket", {"ticket": ticket_of(request)})]

    def wait(request):
        bench.may_end.set()
        return [("check_ticket", {"ticket": ticket_of(request), "wait": WAIT})]

    reply = await bench.chat([CALL, look, wait, "Done."], memory=memory).send("Go.", conversation="a")

    assert reply.results[1].text == "work is still at work. Progress: 1 of 10: so far"
    assert reply.results[2].text.endswith("has finished.]\nmade 1")
    assert len(reply.results) == 3


async def test_the_model_can_poll_as_often_as_it_likes(memory):
    bench = Bench()
    polls = [lambda request: [("check_ticket", {"ticket": ticket_of(request)})]] * 6

    reply = await bench.chat([CALL, *polls, "Enough."], memory=memory).send("Go.", conversation="a")

    assert len({result.text for result in reply.results[1:]}) == 1
    assert reply.finish == "stop"
    bench.may_end.set()


async def test_the_model_can_cancel_the_work(memory):
    bench = Bench()

    def cancel(request):
        return [("cancel_ticket", {"ticket": ticket_of(request)})]

    chat = bench.chat([CALL, cancel, "Cancelled.", "Yes."], memory=memory)
    first = await chat.send("Go.", conversation="a")
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    second = await chat.send("Sure?", conversation="a")

    delivered = [result for result in (*first.results, *second.results) if result.error is not None]
    assert first.results[1].text == "work is being cancelled."
    assert [result.error.code for result in delivered] == ["cancelled"]
    assert bench.cancelled == [1]


async def test_an_unknown_ticket_is_an_error_that_lists_the_known_ones(memory):
    bench = Bench()

    reply = await bench.chat([CALL, [("check_ticket", {"ticket": "tk_0"})], "?"], memory=memory).send(
        "Go.", conversation="a"
    )

    assert f"No open ticket 'tk_0' in this conversation. Open tickets: {reply.tickets[0]}." in reply.results[1].text
    bench.may_end.set()


async def test_a_tool_of_the_application_keeps_its_name(memory):
    bench = Bench()

    @tool(repeats="allow")
    def check_ticket(ticket: str) -> str:
        """Look at a ticket of the help desk."""
        return f"{ticket} is assigned"

    script = [CALL, [("check_ticket", {"ticket": "HELP-1"})], "Fine."]
    reply = await bench.chat(script, check_ticket, memory=memory).send("Go.", conversation="a")

    assert reply.results[1].text == "HELP-1 is assigned"
    bench.may_end.set()


# --- owners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conversation", "user"), [("b", "ada"), ("a", "eve")], ids=["another conversation", "another user"]
)
async def test_others_cannot_check_cancel_or_get_a_ticket(memory, conversation, user):
    bench = Bench()
    stolen = []

    def steal(request):
        return [("check_ticket", {"ticket": stolen[0]}), ("cancel_ticket", {"ticket": stolen[0]})]

    script = [CALL, "Started.", [("work", {"n": 2})], steal, "No.", "Still no.", "Done."]
    chat = bench.chat(script, memory=memory)
    first = await chat.send("Go.", conversation="a", context={"user": "ada"})
    stolen.append(first.tickets[0])
    other = await chat.send("Steal.", conversation=conversation, context={"user": user})
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    await asyncio.wait_for(chat.wait_for_tickets(conversation), WAIT)
    third = await chat.send("And?", conversation=conversation, context={"user": user})

    assert ["No open ticket" in result.text for result in other.results] == [False, True, True]
    assert [result.text.partition("\n")[2] for result in third.results] == ["made 2"]
    owner = await chat.send("And?", conversation="a", context={"user": "ada"})
    assert [result.text.partition("\n")[2] for result in owner.results] == ["made 1"]


# --- policy ----------------------------------------------------------------------------------------


async def test_invalid_arguments_get_no_ticket():
    reply = await Bench().chat([[("work", {"n": "many"})], "Oh."]).send("Go.")

    assert reply.results[0].error.code == "invalid_arguments"


async def test_a_call_is_approved_before_it_gets_a_ticket(memory):
    bench = Bench(approval=True)
    asked = asyncio.Event()
    verdict = asyncio.get_running_loop().create_future()

    async def approver(request):
        asked.set()
        return await verdict

    chat = bench.chat([CALL, "Started."], memory=memory, approver=approver)
    sending = asyncio.ensure_future(chat.send("Go.", conversation="a"))
    await asyncio.wait_for(asked.wait(), WAIT)
    assert not bench.runs
    assert not sending.done()
    verdict.set_result(Allow())
    reply = await asyncio.wait_for(sending, WAIT)

    assert len(reply.tickets) == 1
    bench.may_end.set()


async def test_a_call_that_is_denied_gets_no_ticket():
    bench = Bench(approval=True)

    reply = await bench.chat([CALL, "Oh."], approver=lambda request: Deny("no")).send("Go.")

    assert reply.results[0].error.code == "approval_denied"
    assert bench.runs == []


async def test_a_call_that_waits_for_approval_gets_its_ticket_when_it_is_resumed(memory):
    bench = Bench(approval=True)
    chat = bench.chat([CALL, "Started."], memory=memory)
    waiting = await chat.send("Go.", conversation="a")
    decisions = [chat.box.approvals.decide(request, Allow()) for request in waiting.pending]

    reply = await chat.resume(waiting.save(), decisions)

    assert "goes on in the background" in reply.messages[-2].results[0].text
    assert len(reply.tickets) == 1
    bench.may_end.set()


async def test_the_time_out_of_the_tool_ends_the_work(memory):
    chat = Bench(timeout=0.02).chat([CALL, "Started.", "It failed."], memory=memory)
    first = await chat.send("Go.", conversation="a")
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    second = await chat.send("And?", conversation="a")

    # On a slow machine the time is over before the first run is.
    assert [result.error.code for result in (*first.results, *second.results) if result.error] == ["timeout"]


async def test_the_work_of_two_tickets_shares_the_slots_of_the_tool(memory):
    bench = Bench(max_concurrency=1)
    chat = bench.chat([[("work", {"n": 1}), ("work", {"n": 2})], "Started."], memory=memory)

    reply = await chat.send("Go.", conversation="a")

    assert len(reply.tickets) == 2
    assert bench.runs == [1]
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
    assert bench.runs == [1, 2]


async def test_hooks_see_the_result_of_the_work(memory):
    bench = Bench()
    seen = []
    box = Toolbox(bench.tool)

    async def watch(call, call_next):
        result = await call_next(call)
        seen.append(result.text)
        return result

    box.use(watch)
    chat = Chat(ScriptedModel([CALL, "Started."]), box, memory=memory)
    await chat.send("Go.", conversation="a")
    bench.may_end.set()
    await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)

    assert seen == ["made 1"]


async def test_the_calls_of_tickets_are_counted_in_the_run(memory):
    bench = Bench(max_calls=1)
    reply = await bench.chat([CALL, [("work", {"n": 2})], "Oh."], memory=memory).send("Go.", conversation="a")

    assert reply.results[1].error.code == "limit_exceeded"
    bench.may_end.set()


async def test_progress_and_delivery_are_events(memory):
    bench = Bench()

    async def finish() -> str:
        """Let the work end."""
        bench.may_end.set()
        await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
        return "ok"

    chat = bench.chat([CALL, [("finish", {})], "Done."], tool(finish), memory=memory)
    events = [event async for event in chat.stream("Go.", conversation="a")]

    assert [event.progress.message for event in events if isinstance(event, CallProgress)] == ["so far"]
    finished = [event.result.name for event in events if isinstance(event, CallFinished)]
    assert finished == ["work", "finish", "check_ticket"]


# --- limits ----------------------------------------------------------------------------------------


async def test_a_conversation_has_a_limited_number_of_tickets(memory, monkeypatch):
    monkeypatch.setattr(ticket_store, "MAX_OPEN_TICKETS", 2)
    bench = Bench()
    calls = [("work", {"n": number}) for number in range(3)]

    reply = await bench.chat([calls, "Started."], memory=memory).send("Go.", conversation="a")

    assert len(reply.tickets) == 2
    assert reply.results[2].error.code == "limit_exceeded"
    assert (
        "limit of 2 open tickets in this conversation has been reached. Wait for one of them, or cancel it."
        in reply.results[2].text
    )
    bench.may_end.set()


async def test_with_all_tickets_taken_a_slow_call_is_awaited(memory, monkeypatch):
    monkeypatch.setattr(ticket_store, "MAX_OPEN_TICKETS", 0)
    bench = Bench(background=False, ticket_after=0.0)
    bench.may_end.set()

    reply = await bench.chat([CALL, "Done."], memory=memory).send("Go.", conversation="a")

    assert reply.results[0].text == "made 1"


async def test_the_results_that_wait_are_limited_in_size(memory):
    store = ticket_store.TicketStore()
    store._sizes.max_client_bytes = 1000  # noqa: SLF001 - 16 MiB take long
    owned = [ticket_store.Ticket(str(number), "a", "a", ticket_store.ToolCall("1", "work")) for number in range(3)]
    for ticket in owned:
        store.tickets[ticket.id] = ticket
        store.finish(ticket, ticket_store.ToolResult("1", "work", text="x" * 400))

    assert [ticket.result.ok for ticket in owned] == [False, True, True]
    assert "its result was dropped" in owned[0].result.text


async def test_a_tool_of_a_server_can_work_in_the_background(memory):
    bench = Bench(background=False)
    async with Toolbox(McpServer.of("far", Toolbox(bench.tool)), eager=True) as box:
        chat = Chat(ScriptedModel([CALL, "Started.", "Done."]), box.override("work", background=True), memory=memory)
        first = await chat.send("Go.", conversation="a")
        bench.may_end.set()
        await asyncio.wait_for(chat.wait_for_tickets("a"), WAIT)
        second = await chat.send("And?", conversation="a")

    assert len(first.tickets) == 1
    assert "made 1" in second.results[0].text
