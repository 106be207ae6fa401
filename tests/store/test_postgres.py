"""PostgreSQL alone: addresses and passwords, lost connections, restarts, interrupted commits, rights and full disks."""

import asyncio
import logging
import os
import signal
import threading
import traceback

import psycopg
import pytest

from postgres_server import PASSWORD
from toolmason import Chat, Message, Toolbox
from toolmason._store.tables import TableGroup
from toolmason.chat import PostgresStore, StoreBudget, StoreMemory, StoreRuntime
from toolmason.errors import ConfigError, StoreUnavailable
from toolmason.models.scripted import ScriptedModel

NOTES = TableGroup("notes", ("CREATE TABLE notes (text TEXT PRIMARY KEY)",))
DEAD = "postgresql://app:pass-word-of-the-tests@127.0.0.1:1/postgres"


def insert(text):
    return lambda db: db.execute("INSERT INTO notes VALUES (?)", (text,))


def read_texts(store):
    return [text for (text,) in store.read(NOTES, lambda db: db.execute("SELECT text FROM notes").fetchall())]


# --- addresses, without a server -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("runs.db", "not a URL of PostgreSQL"),
        ("postgresql://app:se@cret@db/agents", "Encode special characters"),
        ("postgresql://app:se/cret@db/agents", "Encode special characters|the URL is not valid"),
        ("postgresql://app:secret%zz@db/agents", "the URL is not valid"),
        ("postgresql://app:secret@db/agents?nonsense=1", "the URL is not valid"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url, message):
    with pytest.raises(ConfigError, match=message) as caught:
        PostgresStore(url)

    text = "".join(traceback.format_exception(caught.value))
    assert "cret" not in text.replace("test_a_wrong_url_is_refused_without_its_password", "")


@pytest.mark.parametrize(
    "words", [{"schema": "a b"}, {"schema": ""}, {"max_connections": 0}, {"reconnect_seconds": -1}]
)
def test_wrong_options_are_refused(words):
    with pytest.raises(ConfigError, match="PostgresStore"):
        PostgresStore(DEAD, **words)


def test_a_url_in_place_of_a_runtime_is_refused_without_its_password():
    with pytest.raises(ConfigError, match="PostgresStore") as caught:
        StoreRuntime(DEAD)

    assert PASSWORD not in str(caught.value)


async def test_the_password_is_in_no_text(caplog):
    caplog.set_level(logging.DEBUG)
    store = PostgresStore(DEAD, reconnect_seconds=0)
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        store.read(NOTES, lambda db: None)
    runtime, memory = StoreRuntime(store), StoreMemory(store)
    with pytest.raises(StoreUnavailable) as sent:
        await Chat(ScriptedModel(["hi"]), runtime=runtime).send("go", run="r")
    with pytest.raises(StoreUnavailable) as loaded:
        await memory.load("c")

    shown = [repr(store), str(store), store.name, repr(runtime), repr(memory), caplog.text]
    shown += ["".join(traceback.format_exception(error.value)) for error in (caught, sent, loaded)]
    assert PASSWORD not in "".join(shown)
    assert repr(store) == "PostgresStore('postgresql://app@127.0.0.1:1/postgres')"
    memory.close()


def test_a_server_that_was_never_reached_is_not_waited_for():
    store = PostgresStore(DEAD, reconnect_seconds=3600)

    with pytest.raises(StoreUnavailable, match=r"cannot be reached.*Check that the server runs"):
        store.transact(NOTES, "", insert("a"))


# --- a server --------------------------------------------------------------------------------------


@pytest.fixture
def store(postgres):
    made = PostgresStore(postgres.url, schema=postgres.make_schema())
    yield made
    made.close()


@pytest.mark.scale
def test_a_wrong_password_is_reported_at_once(postgres):
    store = PostgresStore(postgres.url.replace(PASSWORD, "wrong-word-1"), reconnect_seconds=3600)

    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        store.read(NOTES, lambda db: None)
    assert "wrong-word-1" not in str(caught.value)


@pytest.mark.scale
@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT])
def test_a_server_that_restarts_loses_no_transaction(postgres, store, how):
    store.transact(NOTES, "", insert("before"))
    postgres.stop(how)
    writer = threading.Thread(target=lambda: store.transact(NOTES, "", insert("after")))
    writer.start()
    postgres.start()
    writer.join(30)

    assert read_texts(store) == ["before", "after"]


@pytest.mark.scale
def test_a_transaction_that_the_server_ended_is_repeated_whole(postgres, store):
    attempts = []

    def work(db):
        insert("a")(db)
        attempts.append(1)
        if len(attempts) == 1:
            postgres.stop()
            postgres.start()
        insert("b")(db)

    store.transact(NOTES, "", work)

    assert len(attempts) == 2
    assert read_texts(store) == ["a", "b"]


class CommitCut:
    """Ends the connection at a commit: before the server gets it, or before its answer arrives."""

    def __init__(self, monkeypatch, *, is_committed):
        self.cut = 0
        execute = psycopg.Connection.execute

        def execute_and_cut(connection, query, *words, **options):
            if not (isinstance(query, bytes) and query.endswith(b"; COMMIT")) or self.cut:
                return execute(connection, query, *words, **options)
            self.cut = 1
            if is_committed:
                execute(connection, query, *words, **options)
            connection.close()
            raise psycopg.OperationalError("the connection was cut")

        monkeypatch.setattr(psycopg.Connection, "execute", execute_and_cut)


@pytest.mark.scale
@pytest.mark.parametrize("is_committed", [True, False])
def test_an_interrupted_commit_takes_effect_once(store, monkeypatch, is_committed):
    store.read(NOTES, lambda db: None)
    attempts = []

    def work(db):
        attempts.append(1)
        insert(f"note {len(attempts)}")(db)
        return len(attempts)

    cut = CommitCut(monkeypatch, is_committed=is_committed)

    result = store.transact(NOTES, "", work)

    assert cut.cut == 1
    assert result == (1 if is_committed else 2)
    assert read_texts(store) == [f"note {result}"]


@pytest.mark.scale
def test_a_commit_that_the_server_refuses_is_not_taken_for_done(store):
    group = TableGroup("strict", ("CREATE TABLE strict (text TEXT, UNIQUE (text) DEFERRABLE INITIALLY DEFERRED)",))

    def work(db):
        db.executemany("INSERT INTO strict VALUES (?)", [("a",), ("a",)])

    for _ in range(2):
        with pytest.raises(psycopg.IntegrityError):
            store.transact(group, "", work)

    assert store.read(group, lambda db: db.execute("SELECT count(*) FROM strict").fetchone()) == (0,)


@pytest.mark.scale
def test_a_server_that_stays_away_is_an_error_and_the_store_goes_on_later(postgres):
    store = PostgresStore(postgres.url, schema=postgres.make_schema(), reconnect_seconds=0.2)
    store.transact(NOTES, "", insert("a"))
    postgres.stop()

    with pytest.raises(StoreUnavailable, match="Resume runs that it interrupted"):
        store.transact(NOTES, "", insert("b"))

    postgres.start()
    assert read_texts(store) == ["a"]
    store.close()


@pytest.mark.scale
def test_a_lock_that_is_held_too_long_is_an_error(postgres, store):
    other = PostgresStore(postgres.url, schema=store.schema, reconnect_seconds=1)
    begun, proceed = threading.Event(), threading.Event()

    def hold(db):
        begun.set()
        proceed.wait(30)

    other.read(NOTES, lambda db: None)
    holder = threading.Thread(target=lambda: store.transact(NOTES, "k", hold))
    holder.start()
    begun.wait(30)
    with pytest.raises(StoreUnavailable, match=r"cannot be written.*lock timeout"):
        other.transact(NOTES, "k", insert("a"))
    other.transact(NOTES, "another key", insert("b"))
    proceed.set()
    holder.join()

    assert read_texts(store) == ["b"]
    other.close()


@pytest.fixture
def admin(postgres):
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        yield connection


@pytest.mark.scale
def test_a_user_without_rights_is_told_which_to_grant(postgres, store, admin):
    admin.execute("DROP ROLE IF EXISTS guest")
    admin.execute(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    guest = PostgresStore(postgres.url.replace("//app", "//guest"), schema=store.schema)

    with pytest.raises(ConfigError, match=r"refuses this user: .*Grant it the right to create the schema 't_"):
        guest.transact(NOTES, "", insert("a"))
    store.transact(NOTES, "", insert("b"))
    admin.execute(f"GRANT USAGE ON SCHEMA {store.schema} TO guest")
    admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {store.schema} TO guest")
    guest.transact(NOTES, "", insert("c"))

    assert read_texts(store) == ["b", "c"]
    guest.close()
    admin.execute("DROP OWNED BY guest")


@pytest.mark.scale
@pytest.mark.parametrize("setting", ["default_transaction_read_only=on", "temp_file_limit=0"])
def test_a_server_that_cannot_write_is_an_error_that_says_what_to_do(postgres, store, setting):
    store.transact(NOTES, "", insert("a"))
    limited = PostgresStore(f"{postgres.url}?options=-c%20{setting.replace('=', '%3D')}", schema=store.schema)

    def work(db):
        insert("b")(db)
        # A sort beyond the memory needs a file: with a limit of 0, the server reports what it does for a full disk.
        db.execute("SELECT count(*) FROM (SELECT n FROM generate_series(1, 2000000) n ORDER BY -n) x").fetchone()

    with pytest.raises(StoreUnavailable, match=r"cannot be written: .*try again. Nothing was recorded"):
        limited.transact(NOTES, "", work)

    assert read_texts(store) == ["a"]
    limited.close()


@pytest.mark.scale
@pytest.mark.parametrize("text", ["a\0b", "\ud800"], ids=["nul", "surrogate"])
async def test_a_name_that_the_server_cannot_store_is_an_error(store, text):
    with pytest.raises(ConfigError, match="cannot store a value"):
        await StoreMemory(store).append(text, [Message("user", "hi")])


@pytest.mark.scale
async def test_any_text_of_a_message_is_kept(store):
    memory = StoreMemory(store)
    await memory.append("c", [Message("user", "a\0b ü 😀")])

    assert [message.text for message in await memory.load("c")] == ["a\0b ü 😀"]
    memory.close()


@pytest.mark.scale
def test_a_fork_opens_its_own_connections(store):
    store.transact(NOTES, "", insert("parent"))
    child = os.fork()
    if child == 0:
        try:
            store.transact(NOTES, "", insert("child"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    store.transact(NOTES, "", insert("parent again"))

    assert sorted(read_texts(store)) == ["child", "parent", "parent again"]


@pytest.mark.scale
async def test_one_store_serves_everything_of_a_chat(store, postgres):
    from toolmason import Limits

    chat = Chat(
        ScriptedModel(["Hello."]),
        Toolbox(store=store),
        runtime=StoreRuntime(store),
        memory=StoreMemory(store),
        budget=StoreBudget(store, per_conversation=Limits(tokens=1000)),
    )

    replies = await asyncio.gather(*(chat.send("hi", run=f"r{n}", conversation="c") for n in range(1)))

    assert replies[0].text == "Hello."
    with psycopg.connect(postgres.url) as db:
        assert db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name='toolmason'").fetchone()[0] <= 8
