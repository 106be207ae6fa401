"""SQLite files of ours: shared, of several versions, or no such file at all."""

import sqlite3

import pytest

from toolwright import Message
from toolwright.chat.journal import SqliteRuntime
from toolwright.chat.ledger import MEMORY, Ledger
from toolwright.chat.memory import SqliteMemory
from toolwright.errors import ConfigError


async def test_a_journal_and_a_memory_may_share_a_file(tmp_path):
    runtime, memory = SqliteRuntime(tmp_path / "all.db"), SqliteMemory(tmp_path / "all.db")

    runtime.note("r", {"a": 1})
    await memory.append("c", [Message("user", "hello")])

    assert runtime.run("r").facts == {"a": 1}
    assert [message.text for message in await memory.load("c")] == ["hello"]
    runtime.close()
    memory.close()


async def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path):
    old = Ledger(tmp_path / "chat.db", "conversations", MEMORY[:1])
    with old.writing() as db:
        db.execute("""INSERT INTO messages (conversation, message) VALUES ('c', '{"role": "user", "content": []}')""")
    old.close()

    memory = SqliteMemory(tmp_path / "chat.db")
    await memory.append_once("c", "k", [Message("user", "hello")])
    await memory.append_once("c", "k", [Message("user", "hello")])

    assert len(await memory.load("c")) == 2
    memory.close()


def test_a_file_of_a_later_version_is_left_alone(tmp_path):
    new = Ledger(tmp_path / "runs.db", "runs", ("CREATE TABLE a (b)", "CREATE TABLE c (d)"))
    with new.writing():
        pass
    new.close()

    with pytest.raises(ConfigError, match="written by a later version"):
        SqliteRuntime(tmp_path / "runs.db").runs()


@pytest.mark.parametrize("path", ["folder", "text.db", "missing/runs.db"])
def test_what_is_no_such_file_is_said(tmp_path, path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("This is no SQLite file, and it is longer than a header. " * 20)

    with pytest.raises(ConfigError, match="cannot be used as a SQLite file"):
        SqliteRuntime(tmp_path / path).runs()


def test_a_write_that_fails_leaves_nothing(tmp_path):
    ledger = Ledger(tmp_path / "x.db", "x", ("CREATE TABLE a (b UNIQUE)",))

    with pytest.raises(sqlite3.IntegrityError), ledger.writing() as db:
        db.executemany("INSERT INTO a VALUES (?)", [(1,), (1,)])

    with ledger.reading() as db:
        assert db.execute("SELECT count(*) FROM a").fetchone() == (0,)
    ledger.close()
