"""A run survives its process: kill -9 at many points, then the same run again; and two processes at one run."""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fork_server import Forked, ForkServer
from toolmason import Message
from toolmason.chat import PostgresStore, StoreMemory, StoreRuntime
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.memory import SqliteMemory
from toolmason.providers.conversation import check_conversation

PROGRAM = str(Path(__file__).with_name("durable_run.py"))
STEPS, POINTS = 6, 205
"""How many turns with calls the run takes, and about how many things happen in it."""
CHATS = str(Path(__file__).with_name("delegated_run.py"))
CHATS_POINTS = 640
TICKETS = str(Path(__file__).with_name("ticket_run.py"))
TICKETS_POINTS = 180


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.scale)])
def place(request, tmp_path):
    """Where runs and conversations are kept."""
    return Files(tmp_path) if request.param == "sqlite" else request.getfixturevalue("database")


@pytest.fixture
def database(postgres):
    made = Database(postgres)
    yield made
    made.store.close()


class Files:
    """Files in the folder of the test."""

    words: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open_runtime(self):
        return SqliteRuntime(self.folder / "runs.db")

    def open_memory(self):
        return SqliteMemory(self.folder / "chat.db", 1000)


class Database:
    """A schema in a PostgreSQL database."""

    def __init__(self, server) -> None:
        self.words = (server.url, server.make_schema())
        self.store = PostgresStore(server.url, schema=self.words[1])

    def open_runtime(self):
        return StoreRuntime(self.store)

    def open_memory(self):
        return StoreMemory(self.store, 1000)


@pytest.fixture
def start(forks: ForkServer, place):
    def start(folder: Path, point: int = 0, program: str = PROGRAM) -> Forked:
        return forks.start([sys.executable, program, str(folder), str(point), *place.words])

    return start


@pytest.fixture
def count_kills(record_property):
    """Add a row to the table that the tests print at their end: kills, calls, and those that ran again."""

    def count(kills: int, begun: Counter[str]) -> None:
        record_property("kills", kills)
        record_property("calls", len(begun))
        record_property("repeatable calls that ran again", sum(times > 1 for times in begun.values()))
        record_property("payments that ran again", sum(n > 1 for call, n in begun.items() if call.startswith("pay")))

    return count


def lines(folder: Path, word: str) -> list[str]:
    log = folder / "log"
    return [line for line in log.read_text().splitlines() if line.startswith(word)] if log.exists() else []


def wait_for_lines(folder: Path, run: Forked, count: int) -> None:
    """Wait until the calls have left so many lines, or the run has ended."""
    while len(lines(folder, "")) < count and run.poll() is None:
        time.sleep(0.001)


def calls_begun(folder: Path) -> Counter[str]:
    return Counter(line.removeprefix("begin ") for line in lines(folder, "begin"))


def calls_done(place) -> set[str]:
    """The calls that the journal knows the result of."""
    runtime = place.open_runtime()
    effects = [effect for record in runtime.runs() for effect in runtime.effects(record.run)]
    runtime.close()
    return {f"{e.name} {e.arguments['n']}" for e in effects if e.state == "done" and "n" in e.arguments}


def conversation(place) -> list[Message]:
    memory = place.open_memory()
    said = asyncio.run(memory.load("c"))
    memory.close()
    return list(said)


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        sizes = int(os.environ.get("KILLS") or 0) // 2 or (60 if metafunc.config.getoption("full") else 6)
        metafunc.parametrize("seed", range(sizes))


@pytest.mark.fuzz
def test_a_run_that_is_killed_does_nothing_twice_that_it_must_not(start, place, tmp_path, seed, count_kills):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    settled: dict[str, int] = {}
    kills = 0
    for _ in range(2):
        ended = start(tmp_path, chance.randint(1, POINTS)).wait(60)
        kills += ended != 0
        settled |= {call: calls_begun(tmp_path)[call] for call in calls_done(place)}

    assert start(tmp_path).wait(60) == 0

    begun = calls_begun(tmp_path)
    count_kills(kills, begun)
    assert all(begun[call] == times for call, times in settled.items()), "what was done is not done again"
    assert all(times <= 1 for call, times in begun.items() if call.startswith("pay"))
    assert all(times <= 1 + kills for times in begun.values())
    [*_, finish] = lines(tmp_path, "finish")
    _, why, text, *results = finish.split()
    told = Counter(results)
    assert (why, text) == ("stop", "done")
    assert told["look:ok"] == 2 * STEPS
    assert told["pay:ok"] + told["pay:unknown_outcome"] == STEPS
    assert told["pay:unknown_outcome"] <= kills
    assert len(lines(tmp_path, "end pay")) >= told["pay:ok"]
    said = conversation(place)
    assert [message.text for message in said if message.role == "user"] == ["go", "and now?"]
    assert check_conversation(said) == []
    assert len(said) == 2 + 2 * STEPS + 2, "nothing is lost, and nothing said twice"
    assert lines(tmp_path, "after")[-1] == "after You said ['go', 'and now?']"


@pytest.mark.scale
@pytest.mark.fuzz
def test_a_database_server_that_is_stopped_repeats_no_call(forks, postgres, database, tmp_path, seed, count_kills):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    command = [sys.executable, PROGRAM, str(tmp_path), "0", *database.words]
    codes = []
    for _ in range(2):
        run = forks.start(command)
        wait_for_lines(tmp_path, run, len(lines(tmp_path, "")) + chance.randint(0, 12 * STEPS))
        postgres.stop()
        postgres.start()
        codes.append(run.wait(60))

    if codes[-1] != 0:  # it began while the server was away
        assert forks.start(command).wait(60) == 0

    begun = calls_begun(tmp_path)
    count_kills(2, begun)
    assert set(begun.values()) == {1}, "a restart that a run survives repeats nothing"
    assert lines(tmp_path, "finish")[-1].split()[1:3] == ["stop", "done"]
    assert len(conversation(database)) == 2 + 2 * STEPS + 2


def test_two_processes_at_one_run_make_every_call_once(start, tmp_path):
    both = [start(tmp_path), start(tmp_path)]

    codes = [process.wait(60) for process in both]

    assert codes == [0, 0]
    begun = calls_begun(tmp_path)
    assert len(begun) == 3 * STEPS
    assert set(begun.values()) == {1}
    assert len(set(lines(tmp_path, "finish"))) == 1


def test_one_that_waits_goes_on_as_soon_as_the_other_is_killed(start, tmp_path):
    first = start(tmp_path, POINTS // 2)
    second = start(tmp_path)

    assert {first.wait(60), second.wait(60)} <= {-9, 0}

    assert start(tmp_path).wait(60) == 0
    assert all(times == 1 for call, times in calls_begun(tmp_path).items() if call.startswith("pay"))


@pytest.mark.fuzz
def test_three_chats_that_are_killed_repeat_no_finished_call(start, place, tmp_path, seed, count_kills):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    settled: dict[str, int] = {}
    kills = 0
    for _ in range(2):
        ended = start(tmp_path, chance.randint(1, CHATS_POINTS), CHATS).wait(60)
        kills += ended != 0
        settled |= {call: calls_begun(tmp_path)[call] for call in calls_done(place)}

    assert start(tmp_path, 0, CHATS).wait(60) == 0

    begun = calls_begun(tmp_path)
    count_kills(kills, begun)
    assert all(begun[call] == times for call, times in settled.items()), "what was done is not done again"
    assert all(times <= 1 for call, times in begun.items() if call.startswith("pay"))
    assert len([call for call in begun if call.startswith("pay")]) <= 8
    [*_, finish] = lines(tmp_path, "finish")
    _, why, text, *results = finish.split()
    assert (why, text) == ("stop", "done")
    assert results == ["office:office_1", "look:5000", "office:office_2"]


def test_work_in_the_background_survives_kills_and_each_result_arrives_once(start, place, tmp_path, seed, count_kills):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    kills = sum(start(tmp_path, chance.randint(1, TICKETS_POINTS), TICKETS).wait(60) != 0 for _ in range(2))

    assert start(tmp_path, 0, TICKETS).wait(60) == 0

    begun = calls_begun(tmp_path)
    count_kills(kills, begun)
    assert all(times <= 1 for call, times in begun.items() if call.startswith("pay"))
    assert begun["look 1"] <= 1 + kills
    assert lines(tmp_path, "finish")[-1] == "finish stop done 0"
    said = conversation(place)
    assert check_conversation(said) == []
    results = [result.text for message in said for result in message.results]
    unknown = sum("unknown_outcome" in text for text in results)
    arrived = Counter(text.partition("result-")[2] for text in results if "result-" in text)
    assert set(arrived.values()) == {1}, "nothing arrives twice"
    assert arrived["1"] == 1
    assert sum(arrived.values()) + unknown == 3
    assert unknown <= kills
    assert [message.text for message in said if message.role == "user"] == ["go", "and now?", "all?"]
