"""SQLite files of ours: shared, of several versions, or no such file at all."""

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing, contextmanager

import pytest

from toolmason import Chat, Message
from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.tables import CONVERSATIONS, RUNS, TableGroup
from toolmason.chat.durable.effects import RunEffect
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.memory import SqliteMemory
from toolmason.chat.run.delegation import CALL_SERIALIZER
from toolmason.errors import ConfigError
from toolmason.models.scripted import ScriptedModel


async def test_a_journal_and_a_memory_may_share_a_file(tmp_path):
    runtime, memory = SqliteRuntime(tmp_path / "all.db"), SqliteMemory(tmp_path / "all.db")

    runtime.add_facts("r", {"a": 1})
    await memory.append("c", [Message("user", "hello")])

    assert runtime.run("r").facts == {"a": 1}
    assert [message.text for message in await memory.load("c")] == ["hello"]
    runtime.close()
    memory.close()


async def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path):
    old = SqliteStore(tmp_path / "chat.db")
    insert = """INSERT INTO messages (conversation, message) VALUES ('c', '{"role": "user", "content": []}')"""
    old.transact(TableGroup("conversations", CONVERSATIONS.migrations[:1]), "c", lambda db: db.execute(insert))
    old.close()

    memory = SqliteMemory(tmp_path / "chat.db")
    await memory.append_once("c", "k", [Message("user", "hello")])
    await memory.append_once("c", "k", [Message("user", "hello")])

    assert len(await memory.load("c")) == 2
    memory.close()


def test_a_file_of_a_later_version_is_left_alone(tmp_path):
    new = SqliteStore(tmp_path / "runs.db")
    new.read(TableGroup("runs", (*RUNS.migrations, "SELECT 1")), lambda db: None)
    new.close()

    with pytest.raises(ConfigError, match="written by a newer version"):
        SqliteRuntime(tmp_path / "runs.db").runs()


@pytest.mark.parametrize("path", ["folder", "text.db", "missing/runs.db"])
def test_what_is_no_such_file_is_said(tmp_path, path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("This is no SQLite file, and it is longer than a header. " * 20)

    with pytest.raises(ConfigError, match="cannot be opened as a SQLite file"):
        SqliteRuntime(tmp_path / path).runs()


def test_a_write_that_fails_leaves_nothing(tmp_path):
    store, group = SqliteStore(tmp_path / "x.db"), TableGroup("x", ("CREATE TABLE a (b UNIQUE)",))

    with pytest.raises(sqlite3.IntegrityError):
        store.transact(group, "", lambda db: db.executemany("INSERT INTO a VALUES (?)", [(1,), (1,)]))

    assert store.read(group, lambda db: db.execute("SELECT count(*) FROM a").fetchone()) == (0,)
    store.close()


# --- while another process writes -----------------------------------------------------------------


async def turns_of_the_loop(most=30):
    for _ in range(most):
        await asyncio.sleep(0.002)


@contextmanager
def written_by_another(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def cancelled_while_it_waits(path, work, times):
    with written_by_another(path):
        doing = asyncio.ensure_future(work)
        await turns_of_the_loop()
        for _ in range(times):
            doing.cancel()
            await turns_of_the_loop(3)
        assert not doing.done()
    with pytest.raises(asyncio.CancelledError):
        await doing


@pytest.fixture
def runtime(tmp_path):
    made = SqliteRuntime(tmp_path / "all.db")
    made.add_facts("other", {})
    yield made
    made.close()


async def test_a_file_that_another_process_writes_to_holds_up_nobody_else(runtime):
    memory = SqliteMemory(runtime.path)
    chat = Chat(ScriptedModel(["Hello."]), (), runtime=runtime, memory=memory)

    with written_by_another(runtime.path):
        sending = asyncio.ensure_future(chat.send("Hi", run="r", conversation="c"))
        await turns_of_the_loop()
        assert not sending.done()

    assert (await sending).text == "Hello."
    assert [message.text for message in await memory.load("c")] == ["Hi", "Hello."]
    memory.close()


@pytest.mark.parametrize("times", [1, 3])
async def test_whoever_is_cancelled_before_a_call_is_written_down_has_not_begun_it(runtime, times):
    made = []

    async def pay():
        made.append(1)

    async with runtime.execute("r") as driven:
        effect = RunEffect("r", "1/0/pay", "tool", "pay", {"n": 1}, repeatable=False)
        await cancelled_while_it_waits(runtime.path, driven.perform(effect, pay, CALL_SERIALIZER), times)

    assert (made, runtime.effects("r"), runtime.interrupted_calls("r")) == ([], [], [])


async def test_an_attempt_that_was_not_begun_is_not_counted(runtime):
    effect = RunEffect("r", "1/0/look", "tool", "look", {})

    async def dies():
        raise KeyboardInterrupt

    async with runtime.execute("r") as driven:
        with pytest.raises(KeyboardInterrupt):
            await driven.perform(effect, dies, CALL_SERIALIZER)
        await cancelled_while_it_waits(runtime.path, driven.perform(effect, dies, CALL_SERIALIZER), 1)

    assert [(known.state, known.attempt) for known in runtime.effects("r")] == [("started", 1)]


async def test_a_run_that_is_given_up_while_it_is_taken_is_free(runtime):
    async def drive():
        async with runtime.execute("r"):
            raise AssertionError

    await cancelled_while_it_waits(runtime.path, drive(), 1)

    assert not runtime.run("r").held


def test_a_forked_process_opens_the_file_for_itself(tmp_path):
    script = """
        import asyncio, os, sys
        from toolmason import Message, SqliteMemory

        memory = SqliteMemory(sys.argv[1])
        asyncio.run(memory.append("c", [Message("user", "from the parent")]))
        child = os.fork()
        asyncio.run(memory.append("c", [Message("user", "from " + ("the parent again" if child else "the child"))]))
        if child:
            os.waitpid(child, 0)
            print(sorted(message.text for message in asyncio.run(memory.load("c"))))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), str(tmp_path / "chat.db")]

    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "['from the child', 'from the parent', 'from the parent again']"
