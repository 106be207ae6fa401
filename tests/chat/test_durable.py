"""A run survives its process: kill -9 at many points, then the same run again."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from toolwright import Toolbox, tool
from toolwright.chat.chat import Chat
from toolwright.chat.journal import SqliteRuntime
from toolwright.errors import RunTaken
from toolwright.models.scripted import ScriptedModel

RUN = str(Path(__file__).with_name("durable_run.py"))
KILLS = 8


def started(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, RUN, str(folder / "runs.db"), str(folder / "log"), "r1"])


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_run_that_is_killed_goes_on_and_does_nothing_twice_that_it_must_not(tmp_path, seed):
    chance = random.Random(seed)  # noqa: S311 - the seed is the test
    for _ in range(3):
        process = started(tmp_path)
        enough = len(lines(tmp_path)) + chance.randint(1, 14)
        while len(lines(tmp_path)) < enough and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        process.wait(30)

    before = len(lines(tmp_path))
    assert started(tmp_path).wait(60) == 0

    seen = Counter(line for line in lines(tmp_path) if line.startswith("begin"))
    assert all(count == 1 for line, count in seen.items() if " pay " in line)
    ended = {line for line in lines(tmp_path) if line.startswith("end pay")}
    last = lines(tmp_path)[before:]  # the one before may have come as far as its results
    results = [line for line in last if line.startswith("result pay")]
    assert len(results) == 6
    told = sum("unknown_outcome" in line for line in results)
    assert len(ended) >= 6 - told
    assert "finish stop done" in last


async def test_a_run_is_driven_by_one_at_a_time(tmp_path):
    first, second = SqliteRuntime(tmp_path / "runs.db"), SqliteRuntime(tmp_path / "runs.db")

    async with first.drive("r"):
        with pytest.raises(RunTaken):
            async with second.drive("r"):
                pass
    async with second.drive("r"):
        pass
    first.close()
    second.close()


async def test_what_was_done_is_read_from_the_journal(tmp_path):
    ran = []

    @tool
    def once(n: int) -> int:
        """Run once."""
        ran.append(n)
        return n

    def chat():
        model = ScriptedModel([[("once", {"n": 1})], "done"])
        return Chat(model, Toolbox(once), runtime=SqliteRuntime(tmp_path / "runs.db"))

    first = await chat().send("go", run="r")
    again = chat()
    second = await again.send("go", run="r")

    assert ran == [1]
    assert first.text == second.text == "done"
    assert again.model.requests == []
    [record] = SqliteRuntime(tmp_path / "runs.db").runs()
    assert (record.run, record.effects, record.held) == ("r", 3, False)
