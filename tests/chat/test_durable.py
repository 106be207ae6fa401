"""A run survives its process: kill -9 at many points, then the same run again; and two processes at one run."""

import asyncio
import os
import random
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from fork_server import Forked, ForkServer
from toolmason import Message
from toolmason.chat import PostgresStore, StoreMemory, StoreRuntime
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.memory import SqliteMemory
from toolmason.providers.conversation import check_conversation

PROGRAM = str(Path(__file__).with_name("durable_run.py"))
STEPS = 6
"""How many turns with calls the run takes."""
CHATS = str(Path(__file__).with_name("delegated_run.py"))
TICKETS = str(Path(__file__).with_name("ticket_run.py"))
WAIT_SECONDS = 180
"""How long a run may take: three chats on Temporal need 17 s on a machine that has nothing else to do."""
MAX_TEMPORAL_SEEDS = 25
"""A run on Temporal takes seconds, so that `--full` has fewer of them: 50 kills."""


@pytest.fixture
def place(request, tmp_path):
    """Where runs and conversations are kept."""
    if request.param == "sqlite":
        return Files(tmp_path)
    if request.param == "postgres":
        return request.getfixturevalue("database")
    return Workflows(tmp_path, request.getfixturevalue("temporal"))


@pytest.fixture(scope="session")
def temporal(tmp_path_factory):
    from scale.temporal_server import Server

    server = Server(tmp_path_factory.mktemp("temporal"))
    server.wait()
    yield server
    server.kill()


@pytest.fixture
def database(postgres):
    made = Database(postgres)
    yield made
    made.store.close()


class Files:
    """Files in the folder of the test."""

    words: tuple[str, ...] = ()
    points: ClassVar = {PROGRAM: 205, CHATS: 640, TICKETS: 180}
    """About how many things happen in each program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_effects(self):
        runtime = self.open_runtime()
        found = [effect for record in runtime.runs() for effect in runtime.effects(record.run)]
        runtime.close()
        return found

    def open_runtime(self):
        return SqliteRuntime(self.folder / "runs.db")

    def open_memory(self):
        return SqliteMemory(self.folder / "chat.db", 1000)


class Database(Files):
    """A schema in a PostgreSQL database."""

    def __init__(self, server) -> None:
        self.words = (server.url, server.make_schema())
        self.store = PostgresStore(server.url, schema=self.words[1])

    def open_runtime(self):
        return StoreRuntime(self.store)

    def open_memory(self):
        return StoreMemory(self.store, 1000)


class Workflows(Files):
    """Runs on a Temporal server whose names begin alike, and conversations in a file."""

    points: ClassVar = {PROGRAM: 180, CHATS: 560, TICKETS: 290}

    def __init__(self, folder: Path, server) -> None:
        super().__init__(folder)
        self.words = (server.address, f"{uuid.uuid4().hex[:8]} ")

    def find_effects(self):
        from scale.temporal_server import PrefixedRuntime

        async def find():
            runs = [record.run for record in await runtime.find_runs("")]
            for run in runs:
                await runtime.replay(run)
            return [effect for run in runs for effect in await runtime.effects(run)]

        runtime = PrefixedRuntime(*self.words)
        try:
            return asyncio.run(find())
        finally:
            runtime.close()


@pytest.fixture
def start(forks: ForkServer, place):
    def start(folder: Path, point: int = 0, program: str = PROGRAM) -> Forked:
        return forks.start([sys.executable, program, str(folder), str(point), *place.words])

    return start


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
    return {f"{e.name} {e.arguments['n']}" for e in place.find_effects() if e.state == "done" and "n" in e.arguments}


def conversation(place) -> list[Message]:
    memory = place.open_memory()
    said = asyncio.run(memory.load("c"))
    memory.close()
    return list(said)


def pytest_generate_tests(metafunc):
    size = int(os.environ.get("KILLS") or 0) // 2 or (60 if metafunc.config.getoption("full") else 6)
    has_place, has_seed = "place" in metafunc.fixturenames, "seed" in metafunc.fixturenames
    if has_place:
        seeds = {"sqlite": size, "postgres": size, "temporal": min(size, MAX_TEMPORAL_SEEDS)}
        cases = [
            pytest.param(name, *([seed] if has_seed else []), marks=[] if name == "sqlite" else pytest.mark.scale)
            for name, count in seeds.items()
            for seed in range(count if has_seed else 1)
        ]
        metafunc.parametrize(["place", "seed"] if has_seed else ["place"], cases, indirect=["place"])
    elif has_seed:
        metafunc.parametrize("seed", range(size))


@pytest.mark.fuzz
def test_a_run_that_is_killed_does_nothing_twice_that_it_must_not(start, place, tmp_path, seed, count_kills):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    settled: dict[str, int] = {}
    kills = 0
    for _ in range(2):
        ended = start(tmp_path, chance.randint(1, place.points[PROGRAM])).wait(WAIT_SECONDS)
        kills += ended != 0
        settled |= {call: calls_begun(tmp_path)[call] for call in calls_done(place)}

    assert start(tmp_path).wait(WAIT_SECONDS) == 0

    begun = calls_begun(tmp_path)
    [*_, finish] = lines(tmp_path, "finish")
    _, why, text, *results = finish.split()
    told = Counter(results)
    count_kills(kills, begun, told["pay:unknown_outcome"])
    assert all(begun[call] == times for call, times in settled.items()), "what was done is not done again"
    assert all(times <= 1 for call, times in begun.items() if call.startswith("pay"))
    assert all(times <= 1 + kills for times in begun.values())
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
        codes.append(run.wait(WAIT_SECONDS))

    if codes[-1] != 0:  # it began while the server was away
        assert forks.start(command).wait(WAIT_SECONDS) == 0

    begun = calls_begun(tmp_path)
    count_kills(2, begun)
    assert set(begun.values()) == {1}, "a restart that a run survives repeats nothing"
    assert lines(tmp_path, "finish")[-1].split()[1:3] == ["stop", "done"]
    assert len(conversation(database)) == 2 + 2 * STEPS + 2


def test_two_processes_at_one_run_make_every_call_once(start, tmp_path):
    both = [start(tmp_path), start(tmp_path)]

    codes = [process.wait(WAIT_SECONDS) for process in both]

    assert codes == [0, 0]
    begun = calls_begun(tmp_path)
    assert len(begun) == 3 * STEPS
    assert set(begun.values()) == {1}
    assert len(set(lines(tmp_path, "finish"))) == 1


def test_one_that_waits_goes_on_as_soon_as_the_other_is_killed(start, place, tmp_path):
    first = start(tmp_path, place.points[PROGRAM] // 2)
    second = start(tmp_path)

    assert {first.wait(WAIT_SECONDS), second.wait(WAIT_SECONDS)} <= {-9, 0}

    assert start(tmp_path).wait(WAIT_SECONDS) == 0
    assert all(times == 1 for call, times in calls_begun(tmp_path).items() if call.startswith("pay"))


@pytest.mark.fuzz
def test_three_chats_that_are_killed_repeat_no_finished_call(start, place, tmp_path, seed, count_kills):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    settled: dict[str, int] = {}
    kills = 0
    for _ in range(2):
        ended = start(tmp_path, chance.randint(1, place.points[CHATS]), CHATS).wait(WAIT_SECONDS)
        kills += ended != 0
        settled |= {call: calls_begun(tmp_path)[call] for call in calls_done(place)}

    assert start(tmp_path, 0, CHATS).wait(WAIT_SECONDS) == 0

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
    kills = sum(
        start(tmp_path, chance.randint(1, place.points[TICKETS]), TICKETS).wait(WAIT_SECONDS) != 0 for _ in range(2)
    )

    assert start(tmp_path, 0, TICKETS).wait(WAIT_SECONDS) == 0

    begun = calls_begun(tmp_path)
    said = conversation(place)
    results = [result.text for message in said for result in message.results]
    unknown = sum("unknown_outcome" in text for text in results)
    count_kills(kills, begun, unknown)
    assert all(times <= 1 for call, times in begun.items() if call.startswith("pay"))
    assert begun["look 1"] <= 1 + kills
    assert lines(tmp_path, "finish")[-1] == "finish stop done 0"
    assert check_conversation(said) == []
    arrived = Counter(text.partition("result-")[2] for text in results if "result-" in text)
    assert set(arrived.values()) == {1}, "nothing arrives twice"
    assert arrived["1"] == 1
    assert sum(arrived.values()) + unknown == 3
    assert unknown <= kills
    assert [message.text for message in said if message.role == "user"] == ["go", "and now?", "all?"]
