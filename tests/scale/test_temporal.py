"""Runs on a Temporal server on this machine: what the SQLite journal does, and what only a server can do."""

import asyncio
import contextlib

import pytest
from temporalio.client import AsyncActivityHandle
from temporalio.service import RPCError, RPCStatusCode

from scale.temporal_server import Server
from toolmason import Allow, Chat, Limits, Toolbox, WindowMemory, tool
from toolmason.chat import Completed, NotExecuted
from toolmason.errors import ConfigError, RunTaken
from toolmason.models.scripted import ScriptedModel
from toolmason.scale import TemporalRuntime

pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]


class Bank:
    """Pays, and stops in the middle of it if `hold` is set."""

    def __init__(self, run, **options):
        self.run, self.paid, self.hold = run, [], True
        self.begun, self.proceed = asyncio.Event(), asyncio.Event()

        @tool(**options)
        async def pay(n: int) -> str:
            """Pay."""
            self.paid.append(n)
            self.begun.set()
            if self.hold:
                await self.proceed.wait()
            return f"paid {n}"

        self.box = Toolbox(pay)

    async def send(self, runtime, text="go", **options):
        def answer(request):
            last = request.messages[-1]
            return last.results[0].text if last.results else [("pay", {"n": 5})]

        return await Chat(ScriptedModel([answer] * 9), self.box, runtime=runtime, **options).send(text, run=self.run)

    async def interrupt(self, runtime):
        sending = asyncio.ensure_future(self.send(runtime))
        await self.begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        self.hold = False


async def test_a_run_is_a_workflow_and_its_turns_and_calls_are_activities(runtime, run):
    bank = Bank(run)
    bank.hold = False

    reply = await bank.send(runtime)

    assert (reply.text, bank.paid) == ("paid 5", [5])
    record = await runtime.run(run)
    assert (record.state, record.effects, record.facts["text"]) == ("stop", 3, "paid 5")
    history = await fetch_history(runtime, run)
    scheduled = [e.activity_task_scheduled_event_attributes for e in history.events]
    names = [event.activity_type.name for event in scheduled if event.activity_id]
    assert names == ["hold", "model scripted", "tool pay", "model scripted"]


async def fetch_history(runtime, run):
    client = runtime.connection.get_session().client
    return await runtime.connection.run(client.get_workflow_handle(f"toolmason/{run}").fetch_history)


async def test_a_run_that_ended_is_read_from_its_workflow(runtime, run):
    bank = Bank(run)
    bank.hold = False
    first = await bank.send(runtime)
    events = len((await fetch_history(runtime, run)).events)

    second = await bank.send(runtime)

    assert (first.text, bank.paid) == (second.text, [5])
    assert len((await fetch_history(runtime, run)).events) == events


async def test_an_interrupted_call_is_reported_to_the_model_once(runtime, run):
    bank = Bank(run)
    await bank.interrupt(runtime)

    before = [(effect.key, effect.state) for effect in await runtime.effects(run)]
    first = await bank.send(runtime)
    second = await bank.send(runtime)

    assert before == [("1/model", "done"), ("1/0/pay", "started")]
    assert bank.paid == [5]
    assert first.results[0].error.code == "unknown_outcome"
    assert first.text == second.text
    with pytest.raises(ConfigError, match="is 'unknown', not interrupted"):
        await runtime.reconcile(run, "1/0/pay", NotExecuted())


@pytest.mark.parametrize(
    ("said", "paid", "text"),
    [(Completed("paid 5, says the bank"), [5], "paid 5, says the bank"), (NotExecuted(), [5, 5], "paid 5")],
    ids=["completed", "not executed"],
)
async def test_an_operator_may_reconcile_a_call(runtime, run, said, paid, text):
    bank = Bank(run)
    await bank.interrupt(runtime)

    await runtime.reconcile(run, "1/0/pay", said)
    reply = await bank.send(runtime)

    assert (bank.paid, reply.text) == (paid, text)
    assert (await runtime.effects(run))[1].attempt == len(paid)


@pytest.mark.parametrize(
    ("said", "paid", "text"),
    [
        (lambda arguments: Completed(arguments["n"] * 2), [5], "10"),
        (lambda arguments: NotExecuted(), [5, 5], "paid 5"),
    ],
    ids=["completed", "not executed"],
)
async def test_a_tool_may_reconcile_its_call(runtime, run, said, paid, text):
    bank = Bank(run, reconcile=said)
    await bank.interrupt(runtime)

    reply = await bank.send(runtime)

    assert (bank.paid, reply.text) == (paid, text)


async def test_a_call_that_may_be_repeated_is_made_again(runtime, run):
    bank = Bank(run, idempotent=True)
    await bank.interrupt(runtime)

    reply = await bank.send(runtime)

    assert (bank.paid, reply.text) == ([5, 5], "paid 5")


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "idempotent now"])
async def test_an_interrupted_call_of_a_tool_that_has_changed_is_not_repeated(runtime, run, is_removed):
    bank, later = Bank(run), Bank(run, idempotent=True)
    await bank.interrupt(runtime)
    later.box, later.hold = Toolbox() if is_removed else later.box, False

    reply = await later.send(runtime)

    assert (bank.paid, later.paid) == ([5], [])
    assert reply.results[0].error.code == "unknown_outcome"


async def test_a_call_that_is_cancelled_before_it_starts_does_not_look_interrupted(runtime, run, monkeypatch):
    bank, scheduled, loop = Bank(run), asyncio.Event(), asyncio.get_running_loop()
    bank.hold = False
    expect = runtime.connection.expect

    @contextlib.asynccontextmanager
    async def hold_back(activity_id):
        async with expect(activity_id) as arrival:
            if "pay" in activity_id:
                arrival.add_done_callback(lambda _: loop.call_soon_threadsafe(scheduled.set))
            yield asyncio.get_running_loop().create_future() if "pay" in activity_id else arrival

    monkeypatch.setattr(runtime.connection, "expect", hold_back)
    sending = asyncio.ensure_future(bank.send(runtime))
    await scheduled.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    monkeypatch.undo()
    reply = await bank.send(runtime)

    assert (bank.paid, reply.text) == ([5], "paid 5")


async def test_an_outcome_that_the_server_recorded_without_an_answer_is_kept(runtime, run, monkeypatch):
    bank, complete, lost = Bank(run), AsyncActivityHandle.complete, []
    bank.hold = False

    async def complete_without_an_answer(self, result):
        await complete(self, result)
        if result is not None and not lost:
            lost.append(result)
            raise RPCError("the connection was lost", RPCStatusCode.UNAVAILABLE, b"")

    monkeypatch.setattr(AsyncActivityHandle, "complete", complete_without_an_answer)
    reply = await bank.send(runtime)

    assert (len(lost), bank.paid, reply.text) == (1, [5], "paid 5")


async def test_work_in_the_background_goes_on_after_its_process_was_lost(runtime, run):
    begun, made = asyncio.Event(), []

    @tool(background=True, idempotent=True)
    async def dig() -> str:
        """Dig."""
        made.append("dig")
        begun.set()
        if len(made) == 1:
            await asyncio.Event().wait()
        return "gold"

    def make_chat():
        return Chat(ScriptedModel([[("dig", {})], *["yes"] * 9]), [dig], runtime=runtime, memory=memory)

    memory = WindowMemory(50)
    first = make_chat()
    await first.send("go", run=run, conversation=run)
    await begun.wait()
    await first.box.aclose()  # ends the work, as the end of the process would
    later = make_chat()
    later.model.script.pop(0)
    await find_when_listed(runtime, "ticket/", lambda record: record.facts.get("conversation") == run)
    await later.send("again", run=f"{run} later", conversation=run)
    await later.wait_for_tickets(run)
    reply = await later.send("and now?", run=f"{run} last", conversation=run)

    texts = [result.text for message in reply.messages for result in message.results]
    assert (made, sum("gold" in text for text in texts)) == (["dig", "dig"], 1)


async def test_what_cannot_be_reconciled_is_named(runtime, run):
    bank = Bank(run)
    bank.hold = False
    await bank.send(runtime)

    with pytest.raises(KeyError, match="Unknown run 'x'"):
        await runtime.reconcile("x", "1/0/pay", NotExecuted())
    with pytest.raises(KeyError, match="Unknown call '9/9/pay'"):
        await runtime.reconcile(run, "9/9/pay", NotExecuted())


async def test_another_message_or_call_is_refused(runtime, run):
    bank = Bank(run)
    bank.hold = False
    await bank.send(runtime)

    async def other(turn, following):
        reply = await following(turn)
        calls = [(call.name, {"n": 6}) for call in reply.calls]
        return reply if not calls else (await ScriptedModel([calls]).respond(turn.request))

    with pytest.raises(ConfigError, match="started with another message"):
        await bank.send(runtime, "stop")
    with pytest.raises(ConfigError, match="made another call at '1/0/pay' before: pay"):
        await bank.send(runtime, advisors=[other])


async def test_a_run_is_driven_by_one_process_at_a_time(runtime, run, server):
    other = TemporalRuntime(server.address, lease=5)

    async with runtime.execute(run):
        with pytest.raises(RunTaken):
            async with other.execute(run):
                pass
        with pytest.raises(RunTaken):
            async with runtime.execute(run):
                pass
        assert (await other.run(run)).state == "running"
    async with other.execute(run):
        pass
    other.close()


async def test_a_driver_that_is_silent_loses_its_run_and_records_nothing_more(runtime, run, server, monkeypatch):
    silent, bank = TemporalRuntime(server.address, lease=1), Bank(run)
    monkeypatch.setattr(silent.connection, "_beat", lambda session: asyncio.sleep(3600))
    sending = asyncio.ensure_future(bank.send(silent))
    await bank.begun.wait()
    bank.hold = False

    reply = await send_when_free(bank, runtime)
    before = await runtime.effects(run)
    bank.proceed.set()
    with pytest.raises(RunTaken):
        await sending

    assert (bank.paid, reply.results[0].error.code) == ([5], "unknown_outcome")
    assert await runtime.effects(run) == before
    silent.close()


async def send_when_free(bank, runtime):
    while True:
        try:
            return await bank.send(runtime)
        except RunTaken:
            await asyncio.sleep(0.05)


async def test_a_batch_of_many_calls_runs_at_once(runtime, run):
    everything, started = asyncio.Event(), []

    @tool
    async def wait(n: int) -> int:
        """Wait for all others."""
        started.append(n)
        if len(started) == 40:
            everything.set()
        await everything.wait()
        return n

    model = ScriptedModel([[("wait", {"n": n}) for n in range(40)], "done"])
    box = Toolbox(wait, max_concurrency=40)
    reply = await Chat(model, box, runtime=runtime).send("go", run=run)

    assert [result.value for result in reply.results] == list(range(40))


async def test_a_run_goes_on_after_its_workflow_has_ended(runtime, run):
    """A limit ends the run. With a higher one it goes on in a second workflow, and repeats nothing."""
    made = []

    @tool
    def step(n: int) -> str:
        """Take a step."""
        made.append(n)
        return "x" * 300_000  # three of them do not fit into one page

    def answer(request):
        turn = sum(message.role == "assistant" for message in request.messages)
        return "done" if turn == 5 else [("step", {"n": turn})]

    replies = []
    for steps in (3, 20, 20):
        chat = Chat(ScriptedModel([answer] * 9), [step], runtime=runtime, limits=Limits(steps=steps))
        replies.append(await chat.send("go", run=run))

    assert [reply.finish for reply in replies] == ["limit", "stop", "stop"]
    assert made == [0, 1, 2, 3, 4]
    assert (await runtime.run(run)).state == "stop"


async def test_data_that_temporal_would_reject_is_named(runtime, run):
    with pytest.raises(ConfigError, match=r"The outcome of 'scripted' in run .* more than the 2,000,000"):
        await Chat(ScriptedModel(["x" * 3_000_000]), runtime=runtime).send("go", run=run)
    with pytest.raises(ConfigError, match="The messages and facts in run"):
        await Chat(ScriptedModel(["yes"]), runtime=runtime).send("x" * 3_000_000, run=f"{run} b")


async def test_a_server_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"TemporalRuntime\(address='127.0.0.1:1'\): cannot connect"):
        await Chat(ScriptedModel(["yes"]), runtime=TemporalRuntime("127.0.0.1:1")).send("go")


def test_a_lease_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="lease must be positive"):
        TemporalRuntime(lease=0)


async def test_approval_comes_to_a_run_that_waits(runtime, run):
    erased = []

    @tool(destructive=True)
    def erase(name: str) -> str:
        """Erase."""
        erased.append(name)
        return "erased"

    chat = Chat(ScriptedModel([[("erase", {"name": "a"})], "done"]), Toolbox(erase), runtime=runtime)
    first = await chat.send("go", run=run)
    state = (await runtime.run(run)).state
    done = await chat.resume(first, [chat.box.approvals.decide(first.pending[0], Allow())])
    again = await chat.send("go", run=run)

    assert (first.finish, state, done.finish, again.text) == ("pending", "pending", "stop", "done")
    assert erased == ["a"]


async def test_a_delegated_chat_is_a_run_of_its_own(runtime, run):
    clerk = Chat(ScriptedModel(["the clerk digs"])).as_tool("clerk", "Ask the clerk.")
    model = ScriptedModel([[("clerk", {"prompt": "dig"})], "done"])
    reply = await Chat(model, [clerk], runtime=runtime).send("go", run=run)

    delegated = await find_when_listed(runtime, f"{run}/", lambda record: True)

    assert (reply.results[0].text, delegated.state) == ("the clerk digs", "stop")


async def find_when_listed(runtime, prefix, is_wanted):
    """Return a run as soon as the server lists it, which it does with a delay."""
    while True:
        for record in await runtime.find_runs(prefix):
            if is_wanted(record):
                return record
        await asyncio.sleep(0.05)


async def test_a_run_goes_on_after_the_server_was_killed(tmp_path, run):
    server = Server(tmp_path)
    server.wait()
    runtime, bank = TemporalRuntime(server.address, lease=30), Bank(run)
    sending = asyncio.ensure_future(bank.send(runtime))
    await bank.begun.wait()

    server.kill()
    server.start()
    bank.proceed.set()
    reply = await sending

    assert (reply.text, bank.paid) == ("paid 5", [5])
    assert {effect.state for effect in await runtime.effects(run)} == {"done"}
    runtime.close()
    server.kill()
