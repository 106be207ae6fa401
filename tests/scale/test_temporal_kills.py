"""Workers and other processes with runs on a Temporal server. `chat/test_durable.py` kills those that drive runs."""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from toolmason import Allow, Chat, Toolbox
from toolmason.errors import ConfigError
from toolmason.extend import ApprovalRequest
from toolmason.models.scripted import ScriptedModel
from toolmason.scale import TemporalRuntime, TemporalWorker

PROGRAM = str(Path(__file__).with_name("temporal_run.py"))
pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]


@pytest.fixture
def start(forks, server, tmp_path):
    def start(run, role):
        return forks.start([sys.executable, PROGRAM, server.address, run, str(tmp_path), role])

    return start


def lines(folder, word):
    log = folder / "log"
    return [line for line in log.read_text().splitlines() if line.startswith(word)] if log.exists() else []


def count_begun(folder):
    return Counter(line.removeprefix("begin ") for line in lines(folder, "begin"))


async def test_a_run_that_a_worker_cannot_drive_says_why_and_can_be_started_again(server, run):
    runtime = TemporalRuntime(server.address, lease=3, queue=f"queue of {run}")
    worker = TemporalWorker(Chat(ScriptedModel([]), runtime=runtime), runtime)
    working = asyncio.ensure_future(worker.run())

    await runtime.start(run, "go")
    while (error := (await runtime.run(run)).facts.get("error")) is None:  # noqa: ASYNC110 - the server reports it later
        await asyncio.sleep(0.05)
    worker.chat = Chat(ScriptedModel(["yes"]), runtime=runtime)
    await runtime.start(run, "go")
    await until_state(runtime, run, "stop")

    assert "the script has 0 turns" in error
    assert "error" not in (await runtime.run(run)).facts
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    runtime.close()


def test_a_worker_for_no_runs_is_refused(runtime):
    with pytest.raises(ConfigError, match="max_runs=0"):
        TemporalWorker(Chat(ScriptedModel([])), runtime, max_runs=0)


def test_a_pending_approval_is_decided_and_resumed_in_another_process(start, tmp_path, run):
    codes = [start(run, what).wait(60) for what in ("pause", "resume", "resume")]

    assert codes == [0, 0, 0]
    assert lines(tmp_path, "erase") == ["erase a"]
    assert lines(tmp_path, "finish")[1:] == ["finish stop erased a"] * 2


async def until_state(runtime, run, state):
    while (await runtime.run(run)).state != state:  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.05)


async def test_another_worker_goes_on_with_the_run_of_a_worker_that_was_killed(start, server, tmp_path, run):
    queue = f"queue of {run}"
    workers = [start(queue, "first"), start(queue, "second")]
    runtime = TemporalRuntime(server.address, lease=3, queue=queue)

    await runtime.start(run, "go")
    await runtime.start(run, "go")
    while not (begun := lines(tmp_path, "begin wait")):  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.02)
    os.kill(int(begun[0].split()[-1]), signal.SIGKILL)
    await until_state(runtime, run, "stop")

    assert count_begun(tmp_path)["pay 1"] == 1
    assert len({line.split()[2] for line in lines(tmp_path, "begin wait")}) == 2
    runtime.close()
    end(workers)


async def test_a_worker_resumes_a_run_after_a_decision(start, server, tmp_path, run):
    queue = f"queue of {run}"
    workers = [start(queue, "first")]
    runtime = TemporalRuntime(server.address, lease=3, queue=queue)

    await runtime.start(run, "Erase a.")
    await until_state(runtime, run, "pending")
    box = Toolbox(approval_key="a key of a decent size")
    [pending] = (await runtime.run(run)).facts["saved"]["pending"]
    await runtime.decide(run, [box.approvals.decide(ApprovalRequest.from_dict(pending), Allow())])
    await until_state(runtime, run, "stop")

    assert lines(tmp_path, "erase") == ["erase a"]
    with pytest.raises(ConfigError, match="does not wait for approval"):
        await runtime.decide(run, [])
    runtime.close()
    end(workers)


def end(processes):
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(10)
