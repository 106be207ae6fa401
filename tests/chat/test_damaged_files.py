"""Full disks and damaged journals and memories: an error of ours that says what to do, and nothing runs twice."""

import asyncio
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing, suppress

import pytest

from toolmason import Chat, Limits, Message, SqliteMemory, Toolbox, ToolContext, tool
from toolmason.chat import SqliteBudget
from toolmason.chat.durable.export import export_journal
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.errors import Abort, ConfigError, ToolmasonError
from toolmason.models.scripted import ScriptedModel
from toolmason.testing import lock

PAYMENTS = 4


@tool(max_result_bytes=500)
def long() -> str:
    """Give a long text."""
    return "x" * 9000


class Shop:
    """Makes payments, one in each turn, and stops after some of them."""

    def __init__(self):
        self.paid = []

    def chat(self, path, stops_after=PAYMENTS):
        @tool
        def pay(n: int) -> str:
            """Pay."""
            self.paid.append(n)
            return f"paid {n}"

        def answer(request):
            done = sum(len(message.results) for message in request.messages)
            if done == stops_after < PAYMENTS:
                raise Abort("killed")
            return [("pay", {"n": done})] if done < PAYMENTS else "all paid"

        self.runtime = SqliteRuntime(path)
        return Chat(ScriptedModel([answer] * 20), Toolbox(pay), runtime=self.runtime)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A journal with a run that made two of four payments, and one that is finished."""
    path = tmp_path_factory.mktemp("journal") / "runs.db"

    async def make():
        shop = Shop()
        await shop.chat(path).send("go", run="done")
        shop.runtime.close()
        with pytest.raises(Abort):
            await shop.chat(path, 2).send("go", run="half")
        shop.runtime.close()

    asyncio.run(make())
    return path.read_bytes()


async def resume(path):
    """Resume the run that was interrupted; return the payments made and the error of ours, if any."""
    shop = Shop()
    chat = shop.chat(path)
    error = None
    try:
        await chat.send("go", run="half")
    except ToolmasonError as raised:
        error = raised
    finally:
        shop.runtime.close()
    return shop.paid, error


def damages(data):
    """Yield the bytes of journals that were cut, overwritten or zeroed."""
    rng = random.Random(17)  # noqa: S311 - the same each time
    for size in (0, 1, 15, 16, 99, 100, 512, 4095, 4096, 4097, len(data) // 2, len(data) - 4096, len(data) - 1):
        yield f"cut to {size}", data[:size]
    for begin in range(0, len(data), 4096):
        yield f"page {begin} zeroed", data[:begin] + bytes(4096) + data[begin + 4096 :]
        yield f"page {begin} random", data[:begin] + rng.randbytes(4096) + data[begin + 4096 :]
    for number in range(20):
        place = rng.randrange(len(data) - 64)
        yield f"overwritten {number}", data[:place] + rng.randbytes(64) + data[place + 64 :]


async def test_a_damaged_journal_makes_no_payment_again(journal, tmp_path):
    path = tmp_path / "runs.db"
    for name, data in damages(journal):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(f"runs.db{suffix}").unlink(missing_ok=True)
        path.write_bytes(data)

        paid, error = await resume(path)

        assert paid in ([], [2, 3]), name
        assert error is None or str(path) in str(error), name
        exported = tmp_path / "exported.db"
        exported.unlink(missing_ok=True)
        try:
            export_journal(path, exported)
        except ConfigError:
            continue
        again, _ = await resume(exported)
        assert not set(again) & {0, 1}, name


COLUMNS = [
    ("runs", "state"),
    ("effects", "arguments"),
    ("effects", "outcome"),
    ("effects", "name"),
    ("effects", "state"),
    ("effects", "ended"),
]


@pytest.mark.parametrize(
    "value", ["", "{", "null", "[]", "7", '"x"', '{"message": 5}', b"\xff\xfe", 5, None, '{"asked": 3}']
)
@pytest.mark.parametrize(("table", "column"), COLUMNS)
async def test_a_damaged_row_makes_no_payment_again(journal, tmp_path, table, column, value):
    path = tmp_path / "runs.db"
    path.write_bytes(journal)
    with closing(sqlite3.connect(path)) as db:
        try:
            db.execute(f"UPDATE {table} SET {column}=? WHERE run='half'", (value,))  # noqa: S608 - constant
        except sqlite3.IntegrityError:
            return
        db.commit()

    paid, error = await resume(path)

    assert not set(paid) & {0, 1}
    assert error is not None or paid == [2, 3]
    for read in (SqliteRuntime(path).runs, lambda: SqliteRuntime(path).effects("half")):
        with suppress(ToolmasonError):
            read()
    export_journal(path, tmp_path / "exported.db")
    again, _ = await resume(tmp_path / "exported.db")
    assert not set(again) & {0, 1}


async def test_an_export_keeps_what_is_readable(journal, tmp_path):
    (tmp_path / "runs.db").write_bytes(journal)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        db.execute("UPDATE effects SET outcome='{' WHERE run='half' AND kind='tool'")
        db.commit()

    report = export_journal(tmp_path / "runs.db", tmp_path / "new.db")

    runtime = SqliteRuntime(tmp_path / "new.db")
    ends = [effect.ended for effect in runtime.effects("done")]
    assert ends == [effect.ended for effect in SqliteRuntime(tmp_path / "runs.db").effects("done")]
    assert None not in ends
    assert {record.run: record.state for record in runtime.runs()} == {"done": "stop", "half": "interrupted"}
    assert report.closed == ("half",)
    assert len(runtime.effects("done")) == 9
    runtime.close()
    paid, error = await resume(tmp_path / "new.db")
    assert paid == []
    assert "comes from a damaged journal" in str(error)


def test_an_export_writes_over_no_file(journal, tmp_path):
    (tmp_path / "runs.db").write_bytes(journal)

    with pytest.raises(ConfigError, match="Name a new file"):
        export_journal(tmp_path / "runs.db", tmp_path / "runs.db")


@pytest.mark.parametrize("kind", ["journal", "memory"])
async def test_an_empty_file_is_not_taken_for_a_new_one(tmp_path, kind):
    path = tmp_path / "x.db"
    path.touch()

    read = SqliteRuntime(path).execute("r").__aenter__() if kind == "journal" else SqliteMemory(path).load("c")
    with pytest.raises(ConfigError, match="is empty: it was truncated"):
        await read


USER = ToolContext(user="u")
OPEN = {
    "journal": lambda path: SqliteRuntime(path).runs(),
    "memory": lambda path: asyncio.run(SqliteMemory(path).load("c")),
    "budget": lambda path: asyncio.run(SqliteBudget(path, per_user=Limits(tokens=5)).find_limit(USER, None)),
}


@pytest.mark.parametrize("opens", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize("size", [1, 6, 354, 511, 512, 4096])
def test_a_file_of_another_kind_is_not_called_empty_and_stays_as_it_is(tmp_path, opens, size):
    path = tmp_path / "slow.py"
    path.write_bytes(b"#" * size)

    with pytest.raises(ConfigError, match="cannot be opened as a SQLite file: file is not a database"):
        opens(path)

    assert path.read_bytes() == b"#" * size


@pytest.mark.parametrize("size", [1, 16, 100, 511])
def test_the_beginning_of_a_sqlite_file_is_one_that_was_truncated(tmp_path, journal, size):
    path = tmp_path / "x.db"
    path.write_bytes(journal[:size])

    with pytest.raises(ConfigError, match="is empty: it was truncated"):
        SqliteRuntime(path).runs()


@pytest.mark.parametrize("opens", OPEN.values(), ids=OPEN)
def test_a_folder_that_does_not_exist_is_the_reason_and_no_temporary_name(tmp_path, opens):
    with pytest.raises(ConfigError) as caught:
        opens(tmp_path / "missing" / "x.db")

    path = str(tmp_path / "missing" / "x.db")
    assert str(caught.value) == (
        f"{path!r} cannot be opened as a SQLite file: its folder does not exist. Use another path."
    )


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"format": 1}', b"\x00" * 4096])
def test_a_damaged_lock_file_is_an_error_that_names_it(tmp_path, data):
    path = tmp_path / "toolmason.lock"
    path.write_bytes(data)

    with pytest.raises(ConfigError, match=r"toolmason\.lock"):
        lock.load(path)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
async def test_files_with_data_of_users_are_private(tmp_path, umask):
    previous = os.umask(umask)
    try:
        runtime, memory = SqliteRuntime(tmp_path / "runs.db"), SqliteMemory(tmp_path / "memory.db")
        runtime.add_facts("r", {"a": 1})
        await memory.append("c", [Message("user", "hi")])
        box = Toolbox(long, results_dir=tmp_path / "results")
        await box.call("long")
    finally:
        os.umask(previous)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name.partition(".")[0] for path in files} > {"runs", "memory"}
    assert len(files) >= 7
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    runtime.close()
    memory.close()


FULL = """
    import asyncio, resource, signal, sys
    from toolmason import Chat, Message, SqliteMemory, Toolbox, tool
    from toolmason.chat.durable.journal import SqliteRuntime
    from toolmason.errors import ConfigError
    from toolmason.models.scripted import ScriptedModel

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    paid = []

    @tool
    def pay(n: int) -> str:
        paid.append(n)
        return "x" * 9000

    def answer(request):
        done = sum(len(message.results) for message in request.messages)
        return [("pay", {"n": done})] if done < 15 else "all paid"

    async def main():
        runtime = SqliteRuntime(sys.argv[1])
        chat = Chat(ScriptedModel([answer] * 99), Toolbox(pay), runtime=runtime)
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            await chat.send("go", run="r")
        except ConfigError as error:
            assert "cannot be written" in str(error) or "cannot be opened" in str(error), error
        else:
            raise SystemExit("the disk was not full")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        reply = await chat.send("go", run="r")
        assert len(paid) == len(set(paid)), paid
        print(reply.finish)

    asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit of the size of files")
@pytest.mark.parametrize("limit", [4096, 20_000, 60_000, 100_000])
def test_a_full_disk_is_an_error_of_ours_and_the_run_goes_on_when_there_is_space(tmp_path, limit):
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "runs.db"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "stop"


async def test_a_long_result_stays_readable_if_its_folder_cannot_hold_it(tmp_path, caplog):
    (tmp_path / "results").write_text("a file in the way")
    box = Toolbox(long, results_dir=tmp_path / "results")

    result = await box.call("long")
    rest = await box.call("read_result", {"handle": result.meta["handle"], "length": 9000})

    assert result.ok
    assert rest.text.startswith("x" * 9000)
    assert "is kept in memory" in caplog.text
