"""One suite for every store: runs, conversations, budgets, decisions, rates, locks and versions."""

import asyncio
import threading
import time
from functools import partial

import pytest

from toolmason import Allow, Chat, Limits, Message, Rate, Toolbox, tool
from toolmason._core.call import approval
from toolmason._core.toolbox.stored_state import ApprovalLedger, StoredDecisions
from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.store import Tables
from toolmason._store.tables import BUDGETS, CONVERSATIONS, DECISIONS, RATES, RUNS, TableGroup
from toolmason.chat import Usage
from toolmason.chat.budget import StoreBudget
from toolmason.chat.durable.effects import Completed, NotExecuted, RunEffect, make_result
from toolmason.chat.durable.journal import StoreRuntime
from toolmason.chat.durable.process_identity import get_process_identity
from toolmason.chat.memory import StoreMemory
from toolmason.chat.run.delegation import CALL_SERIALIZER
from toolmason.errors import Abort, ConfigError, RunTaken
from toolmason.models.scripted import ScriptedModel

NOTES = TableGroup("notes", ("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, at REAL)",))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.scale)])
def make_store(request, tmp_path):
    """A function that opens the same store once more, as another machine would."""
    opened = []
    if request.param == "postgres":
        from toolmason.chat import PostgresStore

        server = request.getfixturevalue("postgres")
        schema = server.make_schema()

    def make():
        found = (
            SqliteStore(tmp_path / "x.db") if request.param == "sqlite" else PostgresStore(server.url, schema=schema)
        )
        opened.append(found)
        return found

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store):
    return make_store()


def select(store, query, *values, group=NOTES):
    return store.read(group, lambda db: db.execute(query, values).fetchall())


# --- transactions ----------------------------------------------------------------------------------


def test_what_a_transaction_wrote_is_seen_by_another_store(make_store):
    make_store().transact(
        NOTES, "k", lambda db: db.execute("INSERT INTO notes (text, at) VALUES (?, ?)", ("ü?%s", 0.1))
    )

    assert select(make_store(), "SELECT id, text, at FROM notes") == [(1, "ü?%s", 0.1)]


def test_a_transaction_that_raises_leaves_nothing(store):
    def work(db):
        db.executemany("INSERT INTO notes (text) VALUES (?)", [("a",), ("b",)])
        raise Abort("stop")

    with pytest.raises(Abort):
        store.transact(NOTES, "k", work)

    assert select(store, "SELECT text FROM notes") == []


def test_transactions_of_one_key_run_one_after_another(make_store):
    stores = [make_store() for _ in range(4)]
    stores[0].read(NOTES, lambda db: None)

    def add(db):
        [count] = db.execute("SELECT count(*) FROM notes").fetchone()
        db.execute("INSERT INTO notes (text) VALUES (?)", (str(count),))

    threads = [
        threading.Thread(target=lambda store=store: [store.transact(NOTES, "k", add) for _ in range(10)])
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    texts = [text for (text,) in select(stores[0], "SELECT text FROM notes ORDER BY id")]
    assert texts == [str(number) for number in range(40)]


def test_stores_that_create_the_tables_at_the_same_time_agree(make_store):
    stores = [make_store() for _ in range(4)]
    found = []
    threads = [
        threading.Thread(target=lambda s=s: found.append(s.read(RUNS, lambda db: db.execute("SELECT 1").fetchone())))
        for s in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [(1,)] * 4


def test_text_is_ordered_by_code_points(store):
    store.transact(
        NOTES, "k", lambda db: db.executemany("INSERT INTO notes (text) VALUES (?)", [(each,) for each in "aBäb_"])
    )

    assert select(store, "SELECT text FROM notes ORDER BY text") == [("B",), ("_",), ("a",), ("b",), ("ä",)]


def test_a_store_of_an_earlier_version_is_brought_up_to_date(make_store):
    make_store().read(TableGroup("runs", RUNS.migrations[:1]), lambda db: None)

    assert select(make_store(), "SELECT ended FROM effects", group=RUNS) == []


def test_a_store_of_a_later_version_is_left_alone(make_store):
    make_store().read(TableGroup("runs", (*RUNS.migrations, "SELECT 1")), lambda db: None)

    with pytest.raises(ConfigError, match=r"written by a newer version.*runs have version 3.*Update Toolmason"):
        make_store().read(RUNS, lambda db: None)


@pytest.mark.parametrize("group", [RUNS, CONVERSATIONS, BUDGETS, DECISIONS, RATES], ids=lambda group: group.name)
def test_a_store_holds_every_group(store, group):
    assert store.read(group, lambda db: db.execute("SELECT 1").fetchone()) == (1,)


def test_the_time_is_that_of_now(store):
    assert abs(store.read(NOTES, store.get_time) - time.time()) < 60


async def test_a_write_that_is_cancelled_is_undone(store):
    tables, begun, proceed = Tables(store, NOTES), threading.Event(), threading.Event()

    def insert(db):
        begun.set()
        proceed.wait(30)
        db.execute("INSERT INTO notes (text) VALUES ('a')")

    writing = asyncio.ensure_future(tables.write("k", insert, lambda db, _: db.execute("DELETE FROM notes")))
    await asyncio.to_thread(begun.wait, 30)
    writing.cancel()
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert select(store, "SELECT text FROM notes") == []
    tables.close()


# --- runs --------------------------------------------------------------------------------------------


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def answer(request):
    done = sum(len(message.results) for message in request.messages)
    return [("pay", {"n": done})] if done < 3 else "all paid"


async def test_a_run_of_one_machine_is_read_by_another(make_store):
    chat = Chat(ScriptedModel([answer] * 4), Toolbox(pay), runtime=StoreRuntime(make_store()))
    await chat.send("go", run="r")
    other = StoreRuntime(make_store())

    again = await Chat(ScriptedModel([]), Toolbox(pay), runtime=other).send("go", run="r")

    assert again.text == "all paid"
    calls = [effect for effect in other.effects("r") if effect.kind == "tool"]
    assert [(effect.arguments, effect.state) for effect in calls] == [({"n": n}, "done") for n in range(3)]
    assert [record.run for record in await other.find_runs("r")] == ["r"]
    assert await other.find_runs("s") == []


async def test_a_run_has_one_driver(make_store):
    first, second = StoreRuntime(make_store()), StoreRuntime(make_store())

    async with first.execute("r"):
        with pytest.raises(RunTaken):
            await second.execute("r").__aenter__()
        assert second.run("r").state == "running"
    async with second.execute("r"):
        pass


async def test_a_driver_that_was_overtaken_cannot_write(make_store):
    slow, fast = StoreRuntime(make_store()), StoreRuntime(make_store())

    async def work():
        slow.tables.transact("r", lambda db: db.execute("UPDATE runs SET until=0"))
        async with fast.execute("r"):
            pass
        return make_result("pay", "paid")

    with pytest.raises(RunTaken):
        async with slow.execute("r") as run:
            await run.perform(RunEffect("r", "1/0/pay", "tool", "pay", {}, repeatable=False), work, CALL_SERIALIZER)
    assert [effect.state for effect in fast.effects("r")] == ["started"]


async def test_the_clock_of_the_store_decides_about_a_lease(make_store, monkeypatch):
    first, second = StoreRuntime(make_store()), StoreRuntime(make_store())
    async with first.execute("r"):
        holder = get_process_identity().replace("/", "-other/", 1)
        first.tables.transact("r", lambda db: db.execute("UPDATE runs SET holder=?", (holder,)))
        if first.tables.store.max_threads > 1:  # a store of several machines, whose clocks may differ
            monkeypatch.setattr(time, "time", lambda: 9e9)
        with pytest.raises(RunTaken):
            await second.execute("r").__aenter__()


async def test_an_interrupted_call_is_reconciled(make_store):
    runtime = StoreRuntime(make_store())
    for key, outcome in (("a", Completed("yes")), ("b", NotExecuted())):
        effect = RunEffect("r", key, "tool", "pay", {"n": 1}, repeatable=False)

        async def die():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            async with runtime.execute("r") as run:
                await run.perform(effect, die, CALL_SERIALIZER)
        runtime.reconcile("r", key, outcome)

    assert [(effect.key, effect.state, effect.repeatable) for effect in runtime.effects("r")] == [
        ("a", "done", False),
        ("b", "again", False),
    ]
    assert runtime.interrupted_calls("r") == []


async def test_the_key_of_a_repeated_call_is_the_same_on_every_machine(make_store):
    keys = []

    @tool(idempotent=True)
    def charge(ctx: approval.ToolContext) -> str:
        """Charge."""
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            raise Abort("killed")
        return "charged"

    def script(request):
        return "done" if request.messages[-1].results else [("charge", {})]

    with pytest.raises(Abort):
        await Chat(ScriptedModel([script] * 2), [charge], runtime=StoreRuntime(make_store())).send("go", run="r")
    await Chat(ScriptedModel([script] * 2), [charge], runtime=StoreRuntime(make_store())).send("go", run="r")

    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.parametrize("value", [None, "runs.db", 5, object()])
@pytest.mark.parametrize("kind", [StoreRuntime, StoreMemory, partial(StoreBudget, per_user=Limits(tokens=1))])
def test_what_is_no_store_is_refused(kind, value):
    with pytest.raises(ConfigError, match="store="):
        kind(value)


# --- conversations and budgets ---------------------------------------------------------------------


async def test_a_conversation_is_shared_and_a_key_counts_once(make_store):
    first, second = StoreMemory(make_store()), StoreMemory(make_store())

    await first.append("c", [Message("user", "a")])
    await second.append_once("c", "k", [Message("assistant", "b")])
    await first.append_once("c", "k", [Message("assistant", "b")])

    assert [message.text for message in await first.load("c")] == ["a", "b"]
    await first.replace_once("c", "s", [Message("user", "a")], Message("user", "summary"))
    assert [message.text for message in await second.load_all("c")] == ["summary", "b"]
    second.forget("c")
    assert await first.load("c") == []


async def test_only_the_last_turns_of_a_long_conversation_are_read(make_store):
    memory = StoreMemory(make_store(), 4)
    await memory.append("c", [Message(role, f"{n}") for n in range(100) for role in ("user", "assistant")])

    assert [message.text for message in await memory.load("c")] == ["98", "98", "99", "99"]


async def test_a_budget_counts_the_requests_of_all_machines(make_store):
    budgets = [
        StoreBudget(make_store(), per_user=Limits(tokens=100, cost=5), per_conversation=Limits(tokens=1000))
        for _ in range(2)
    ]
    context = approval.ToolContext().merge({"user": "ann"})

    for budget, cost in zip((*budgets, *budgets), (1.0, None, None, 2.0), strict=True):
        assert await budget.find_limit(context, "c") == ""
        await budget.add(context, "c", Usage(20, 10), cost)

    assert budgets[0].used(user="ann") == (Usage(80, 40), 3.0)
    assert await budgets[1].find_limit(context, "c") == "limit of 100 tokens for this user"


# --- decisions and rates ---------------------------------------------------------------------------


def test_a_decision_is_used_once_by_all_machines(make_store):
    ledgers = [ApprovalLedger(make_store()) for _ in range(2)]

    assert ledgers[0].add("t", time.time() + 60, "run")
    assert not ledgers[1].add("t", time.time() + 60)
    assert ledgers[1].add("t", time.time() + 60, "run"), "the run that used it may use it again"
    assert ledgers[1].add("old", time.time() - 60)
    assert ledgers[0].add("old", time.time() + 60), "what has expired is forgotten"


def test_remembered_decisions_are_shared(make_store):
    first, second = StoredDecisions(make_store()), StoredDecisions(make_store())

    first.save({"id": "1", "tool": "pay", "x": 1})
    second.save({"id": "1", "tool": "pay", "x": 2})
    first.save({"id": "2", "tool": "look"})

    assert second.load("pay") == [{"id": "1", "tool": "pay", "x": 2}]
    assert len(first.load(None)) == 2
    assert second.remove("1")
    assert not first.remove("1")


async def test_a_toolbox_shares_its_decisions(make_store):
    boxes = [Toolbox(pay, approve="all", approval_key="k" * 32, store=make_store()) for _ in range(2)]
    request = (await boxes[0].call("pay", {"n": 1})).error.request
    decision = boxes[1].approvals.decide(request, Allow())

    assert (await boxes[1].approvals.resume(decision)).text == "paid 1"
    approval.USED_DECISIONS.__init__()
    assert "already used" in (await boxes[0].approvals.resume(decision)).text


async def test_a_rate_counts_the_calls_of_all_machines(make_store):
    def box():
        return Toolbox(tool(rate=Rate(3, 60), name="look")(lambda: "seen"), store=make_store())

    results = [await each.call("look") for each in (box(), box(), box(), box())]

    assert [result.ok for result in results] == [True, True, True, False]
    assert "rate of 3 calls per 60 s" in results[3].text
    assert "Try again in" in results[3].text


async def test_a_rate_that_cannot_be_counted_refuses_the_call(tmp_path, caplog):
    (tmp_path / "x.db").mkdir()
    box = Toolbox(tool(rate=Rate(3, 60), name="look")(lambda: "seen"), store=SqliteStore(tmp_path / "x.db"))

    result = await box.call("look")

    assert not result.ok
    assert "cannot be counted now" in result.text
    assert "x.db" not in result.text
    assert "the rate of look cannot be counted" in caplog.text
