"""What a journal knows: outcomes that nobody knew, leases, limits that go on, runs that are not what they were."""

import asyncio
import json
import time

import pytest

from toolmason import Allow, Chat, Limits, Message, SqliteMemory, Toolbox, ToolCall, WindowMemory, tool
from toolmason.chat.durable.journal import Completed, NotExecuted, SqliteRuntime
from toolmason.chat.durable.process_identity import get_process_identity
from toolmason.errors import ConfigError, ModelError, RunTaken
from toolmason.models.scripted import ScriptedModel
from toolmason.providers.conversation import check_conversation


@pytest.fixture
def runtime(tmp_path):
    made = SqliteRuntime(tmp_path / "runs.db")
    yield made
    made.close()


@tool
def look(n: int = 0) -> str:
    """Look."""
    return f"saw {n}"


LOOP: dict = {}
LOOP["n"] = LOOP


class Bank:
    """Pays, and holds on in the middle of it where it is told to."""

    def __init__(self, **options):
        self.paid = []
        self.hold = True
        self.begun = asyncio.Event()

        @tool(**options)
        async def pay(n: int) -> str:
            """Pay."""
            self.paid.append(n)
            self.begun.set()
            if self.hold:
                await asyncio.Event().wait()
            return f"paid {n}"

        self.box = Toolbox(pay)

    def chat(self, runtime, **words):
        def answer(request):
            last = request.messages[-1]
            return last.results[0].text if last.results else [("pay", {"n": 5})]

        return Chat(ScriptedModel([answer] * 9), self.box, runtime=runtime, **words)

    async def interrupt(self, runtime, **words):
        """Begin a run, and end it in the middle of its call."""
        sending = asyncio.ensure_future(self.chat(runtime, **words).send("go", run="r", conversation="c"))
        await self.begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        self.hold = False


async def test_an_outcome_that_nobody_knows_is_told_to_the_model(runtime):
    bank = Bank()
    await bank.interrupt(runtime)

    [unknown] = runtime.interrupted_calls("r")
    reply = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert (unknown.key, unknown.state, unknown.arguments) == ("1/0/pay", "started", {"n": 5})
    assert bank.paid == [5]
    assert reply.results[0].error.code == "unknown_outcome"
    assert "it is unknown whether it completed" in reply.text
    assert check_conversation(reply.messages) == []


async def test_someone_may_say_that_it_was_done(runtime):
    bank = Bank()
    await bank.interrupt(runtime)

    runtime.reconcile("r", "1/0/pay", Completed("paid 5, says the bank"))
    reply = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert bank.paid == [5]
    assert reply.text == "paid 5, says the bank"
    assert reply.results[0].call_id == reply.calls[0].id


async def test_someone_may_say_that_it_was_not_done(runtime):
    bank = Bank()
    await bank.interrupt(runtime)

    runtime.reconcile("r", "1/0/pay", NotExecuted())
    reply = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert bank.paid == [5, 5]
    assert reply.text == "paid 5"
    assert runtime.effects("r")[1].attempt == 2


@pytest.mark.parametrize(
    ("said", "paid", "text"),
    [
        (lambda arguments: Completed(arguments["n"] * 2), [5], "10"),
        (lambda arguments, context: Completed(f"{arguments['n']} for {context['user']}"), [5], "5 for ada"),
        (lambda arguments: NotExecuted(), [5, 5], "paid 5"),
    ],
    ids=["it was done", "with the context", "it was not done"],
)
async def test_a_tool_may_find_out_itself(runtime, said, paid, text):
    bank = Bank(reconcile=said)
    await bank.interrupt(runtime, context={"user": "ada"})

    reply = await bank.chat(runtime, context={"user": "ada"}).send("go", run="r", conversation="c")

    assert (bank.paid, reply.text) == (paid, text)


async def test_a_tool_may_ask_somebody(runtime):
    async def ask(arguments):
        await asyncio.sleep(0)
        return Completed({"receipt": arguments["n"]})

    bank = Bank(reconcile=ask)
    await bank.interrupt(runtime)

    reply = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert reply.text == '{"receipt":5}'


def fails(arguments):
    raise OSError("the bank is closed")


@pytest.mark.parametrize("said", [fails, lambda arguments: None, lambda arguments: "done?"])
async def test_what_a_tool_cannot_find_out_stays_unknown(runtime, said):
    bank = Bank(reconcile=said)
    await bank.interrupt(runtime)

    reply = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert bank.paid == [5]
    assert reply.results[0].error.code == "unknown_outcome"


async def test_what_the_model_was_told_is_not_changed_afterwards(runtime):
    bank = Bank()
    await bank.interrupt(runtime)
    first = await bank.chat(runtime).send("go", run="r", conversation="c")

    with pytest.raises(ConfigError, match="is 'unknown', not interrupted"):
        runtime.reconcile("r", "1/0/pay", NotExecuted())
    second = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert first.text == second.text
    assert bank.paid == [5]


async def test_what_cannot_be_reconciled_is_said(runtime):
    bank = Bank()
    bank.hold = False
    await bank.chat(runtime).send("go", run="r")

    with pytest.raises(KeyError, match="Unknown run 'x'"):
        runtime.reconcile("x", "1/0/pay", NotExecuted())
    with pytest.raises(KeyError, match="Unknown call '9/9/pay'"):
        runtime.reconcile("r", "9/9/pay", NotExecuted())
    with pytest.raises(ConfigError, match="is 'done', not interrupted"):
        runtime.reconcile("r", "1/0/pay", NotExecuted())
    async with runtime.execute("r"):
        with pytest.raises(RunTaken):
            runtime.reconcile("r", "1/0/pay", NotExecuted())


async def test_a_call_that_may_be_repeated_is_made_again(runtime):
    bank = Bank(idempotent=True)
    await bank.interrupt(runtime)

    reply = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert (bank.paid, reply.text) == ([5, 5], "paid 5")


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "idempotent now"])
async def test_an_interrupted_call_of_a_tool_that_has_changed_is_not_repeated(runtime, is_removed):
    bank, later = Bank(), Bank(idempotent=True)
    await bank.interrupt(runtime)
    later.box, later.hold = Toolbox() if is_removed else later.box, False

    reply = await later.chat(runtime).send("go", run="r", conversation="c")

    assert (bank.paid, later.paid) == ([5], [])
    assert reply.results[0].error.code == "unknown_outcome"


async def test_a_finished_call_of_a_tool_that_has_changed_keeps_its_result(runtime):
    bank = Bank()
    bank.hold = False
    first = await bank.chat(runtime).send("go", run="r", conversation="c")

    @tool(name="pay")
    def pay_differently(n: int, currency: str) -> str:
        """Pay, with another parameter."""
        raise AssertionError("it has been paid")

    bank.box = Toolbox(pay_differently)
    again = await bank.chat(runtime).send("go", run="r", conversation="c")

    assert (first.text, again.text, bank.paid) == ("paid 5", "paid 5", [5])


async def test_what_was_done_is_read_from_the_journal(runtime):
    bank = Bank()
    bank.hold = False
    first = await bank.chat(runtime).send("go", run="r")
    again = bank.chat(runtime)

    second = await again.send("go", run="r")

    assert bank.paid == [5]
    assert first.text == second.text == "paid 5"
    assert again.model.requests == []
    record = runtime.run("r")
    assert (record.effects, record.held, record.state, record.facts["text"]) == (3, False, "stop", "paid 5")


@pytest.mark.parametrize("memory", [WindowMemory(50), None], ids=["window", "sqlite"])
async def test_a_memory_is_told_once_by_a_run_that_is_driven_twice(runtime, memory, tmp_path):
    kept = memory or SqliteMemory(tmp_path / "chat.db", 50)
    bank = Bank()
    await kept.append("c", [Message("user", "before"), Message("assistant", "yes")])
    await bank.interrupt(runtime, memory=kept)

    reply = await bank.chat(runtime, memory=kept).send("go", run="r", conversation="c")

    said = await kept.load("c")
    assert [message.text for message in said if message.role == "user"] == ["before", "go"]
    assert check_conversation(said) == []
    assert said[-1].text == reply.text
    assert reply.messages == (*said,)


async def test_a_memory_of_ones_own_needs_no_more_than_two_methods(runtime):
    class Plain:
        def __init__(self):
            self.kept = []

        async def load(self, conversation):
            return tuple(self.kept)

        async def append(self, conversation, messages):
            self.kept.extend(messages)

    bank, memory = Bank(), Plain()
    bank.hold = False

    await bank.chat(runtime, memory=memory).send("go", run="r")

    assert [message.role for message in memory.kept] == ["user", "assistant", "tool", "assistant"]


async def test_a_run_is_not_taken_for_another(runtime):
    bank = Bank()
    bank.hold = False
    await bank.chat(runtime).send("go", run="r")

    with pytest.raises(ConfigError, match="started with another message"):
        await bank.chat(runtime).send("stop", run="r")


async def test_a_call_that_is_another_than_before_is_not_answered_with_its_result(runtime):
    bank = Bank()
    bank.hold = False
    await bank.chat(runtime).send("go", run="r")

    async def other(turn, following):
        reply = await following(turn)
        calls = [(call.name, {"n": 6}) for call in reply.calls]
        return reply if not calls else (await ScriptedModel([calls]).respond(turn.request))

    with pytest.raises(ConfigError, match="made another call at '1/0/pay'"):
        await bank.chat(runtime, advisors=[other]).send("go", run="r")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall("1", "pay", [1, 2]), "invalid_arguments"),
        (ToolCall("1", "pay", 5), "invalid_arguments"),
        (ToolCall("1", "pay", [["n", 5]]), "invalid_arguments"),
        (ToolCall("1", "look", []), "invalid_arguments"),
        (ToolCall("1", "look", ["7"]), "invalid_arguments"),
        (ToolCall("1", "look", 10**12), "invalid_arguments"),
        (ToolCall("\udc00", "nope\ud800", {}), "unknown_tool"),
        (ToolCall("1", "pay", {"n": object()}), "invalid_arguments"),
        (ToolCall("1", "pay", {"\ud800": 1}), "invalid_arguments"),
        (ToolCall("1", "pay", {("n",): 5}), "invalid_arguments"),
        (ToolCall("1", "pay", {"n": LOOP}), "invalid_arguments"),
        (ToolCall("1", "pay", b'{"n": "\xff"}'), "invalid_arguments"),
    ],
    ids=[
        *("list", "number", "pairs", "empty", "strings", "large number", "surrogates"),
        *("object", "surrogate as a key", "tuple as a key", "loop", "not UTF-8"),
    ],
)
async def test_a_malformed_call_ends_alike_with_a_journal_and_without(runtime, call, code):
    bank = Bank()
    bank.box.add(look)

    for each in (runtime, runtime, None):
        reply = await Chat(ScriptedModel([[call], "done"]), bank.box, runtime=each).send("go", run="r")
        assert (reply.text, [result.error.code for result in reply.results]) == ("done", [code])
    assert bank.paid == []


@pytest.mark.parametrize(
    "arguments", [{"n": 10**5000}, {"n": 1, "more": [10**5000]}, [10**5000]], ids=["n", "more", "list"]
)
async def test_an_integer_with_too_many_digits_does_not_end_a_run(runtime, tmp_path, arguments):
    def grow(n: int = 0) -> int:
        """Grow."""
        return 10**5000 + n

    memory = SqliteMemory(tmp_path / "memory.db")
    calls = [ToolCall("1", "grow", arguments), ToolCall("2", "grow", {})]

    for _ in range(2):
        reply = await Chat(ScriptedModel([calls, "done"]), [grow], runtime=runtime, memory=memory).send("go", run="r")
        assert (reply.text, reply.results[1].ok) == ("done", True)
        assert json.dumps(reply.save())


async def test_calls_of_another_process_count_towards_the_limits(runtime):
    made = []

    @tool
    def step(n: int) -> int:
        """Take a step."""
        made.append(n)
        return n

    def endless(request):
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn == 3 and len(made) == 3:
            raise ModelError("scripted", "cut off")
        return [("step", {"n": turn})]

    def chat():
        limits = Limits(steps=20, calls=5)
        return Chat(ScriptedModel([endless] * 30), Toolbox(step), runtime=runtime, limits=limits)

    with pytest.raises(ModelError):
        await chat().send("go", run="r")
    made.append("another process")
    reply = await chat().send("go", run="r")
    again = await chat().send("go", run="r")

    assert reply.finish == again.finish == "limit"
    assert made == [0, 1, 2, "another process", 3, 4]


async def test_a_run_is_driven_by_one_at_a_time(tmp_path):
    first, second = SqliteRuntime(tmp_path / "runs.db"), SqliteRuntime(tmp_path / "runs.db")

    async with first.execute("r"):
        with pytest.raises(RunTaken):
            async with second.execute("r"):
                pass
        assert second.run("r").state == "running"
    async with second.execute("r"):
        pass
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("holder", "until"),
    [
        pytest.param(get_process_identity, -1.0, id="the lease ran out"),
        pytest.param(lambda: get_process_identity().rpartition(" ")[0] + " 1", 1000.0, id="its number was given again"),
    ],
)
async def test_a_run_whose_driver_is_gone_is_taken_over(runtime, holder, until):
    runtime.add_facts("r", {})
    runtime.tables.transact(
        "r", lambda db: db.execute("UPDATE runs SET holder=?, until=?", (holder(), time.time() + until))
    )

    async with runtime.execute("r"):
        assert runtime.run("r").held


async def test_a_driver_that_was_overtaken_writes_nothing_more(runtime, tmp_path):
    other = SqliteRuntime(tmp_path / "runs.db")
    bank = Bank()
    sending = asyncio.ensure_future(bank.chat(runtime).send("go", run="r"))
    await bank.begun.wait()
    runtime.tables.transact("r", lambda db: db.execute("UPDATE runs SET until=0"))
    bank.hold = False

    reply = await bank.chat(other).send("go", run="r")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert bank.paid == [5]
    assert reply.results[0].error.code == "unknown_outcome"
    other.close()


async def test_a_call_that_ends_after_its_run_was_taken_over_changes_no_record(runtime, tmp_path):
    other, begun, proceed = SqliteRuntime(tmp_path / "runs.db"), asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        await proceed.wait()
        return "paid"

    def answer(request):
        return "done" if request.messages[-1].results else [("pay", {})]

    def chat(runtime):
        return Chat(ScriptedModel([answer] * 2), Toolbox(pay), runtime=runtime)

    sending = asyncio.ensure_future(chat(runtime).send("go", run="r"))
    await begun.wait()
    runtime.tables.transact("r", lambda db: db.execute("UPDATE runs SET until=0"))
    await chat(other).send("go", run="r")
    before = other.effects("r")

    proceed.set()
    with pytest.raises(RunTaken):
        await sending

    assert other.effects("r") == before
    other.close()


async def test_a_lease_is_renewed_while_a_run_goes_on(tmp_path):
    runtime, other = SqliteRuntime(tmp_path / "runs.db", lease=0.2), SqliteRuntime(tmp_path / "runs.db")
    async with runtime.execute("r"):
        [before] = until(other)
        while until(other) == [before]:  # noqa: ASYNC110 - the file tells of it, and the test's time-out bounds it
            await asyncio.sleep(0)

        assert until(other)[0] > before
    runtime.close()
    other.close()


def until(runtime):
    rows = runtime.tables.query(lambda db: db.execute("SELECT until FROM runs").fetchall())
    return [moment for (moment,) in rows]


async def test_a_run_that_waits_is_asked_about_again(runtime):
    """The request is signed anew: the process that signed the first one may be gone, and its key with it."""
    ran = []

    @tool(destructive=True)
    def erase(name: str) -> str:
        """Erase."""
        ran.append(name)
        return "erased"

    def chat():
        return Chat(ScriptedModel([[("erase", {"name": "a"})], "done"]), Toolbox(erase), runtime=runtime)

    first = await chat().send("go", run="r")
    later = chat()
    later.model.script.pop(0)
    second = await later.send("go", run="r")
    done = await later.resume(second, [later.box.approvals.decide(second.pending[0], Allow())])
    again = await chat().send("go", run="r")

    assert (first.finish, second.finish, done.finish, again.finish) == ("pending", "pending", "stop", "stop")
    assert ran == ["a"]
    assert done.text == again.text == "done"


def test_a_lease_of_nothing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="lease must be positive"):
        SqliteRuntime(tmp_path / "runs.db", lease=0)


def test_a_run_that_is_none_is_said(runtime):
    with pytest.raises(KeyError, match="Unknown run 'x'"):
        runtime.run("x")
