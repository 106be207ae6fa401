"""Processes that drive runs on a Temporal server, and are killed: what has finished is not repeated."""

import asyncio
import contextlib
import os
import random
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from toolmason import Allow, Chat, Toolbox
from toolmason.errors import ConfigError
from toolmason.extend import ApprovalRequest
from toolmason.models.scripted import ScriptedModel
from toolmason.scale import TemporalRuntime, TemporalWorker
from toolmason.scale.temporal_workflow import RunWorkflow

KILLS = int(os.environ.get("KILLS") or 8)
PROGRAM = str(Path(__file__).with_name("temporal_run.py"))
POINTS = 70
"""About how many things happen in the run of the program."""
pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]


async def fetch_history(runtime, run):
    client = runtime.connection.get_session().client
    return await runtime.connection.run(client.get_workflow_handle(f"toolmason/{run}").fetch_history)


async def replay(history):
    """Check that the workflow makes the same commands again."""
    replayer = Replayer(workflows=[RunWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    assert (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure is None


@pytest.fixture
def start(forks, server, tmp_path):
    def start(run, point=0):
        return forks.start([sys.executable, PROGRAM, server.address, run, str(tmp_path), str(point)])

    return start


def lines(folder, word):
    log = folder / "log"
    return [line for line in log.read_text().splitlines() if line.startswith(word)] if log.exists() else []


def count_begun(folder):
    return Counter(line.removeprefix("begin ") for line in lines(folder, "begin"))


async def find_done(runtime, run):
    with contextlib.suppress(KeyError):
        effects = await runtime.effects(run)
        return {f"{e.name} {e.arguments['n']}" for e in effects if e.state == "done" and "n" in e.arguments}
    return set()


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


@pytest.mark.timeout(60 + 20 * KILLS)
async def test_drivers_are_killed_at_random_moments_and_no_finished_call_is_repeated(runtime, start, tmp_path):
    chance = random.Random(7)  # noqa: S311 - the seed is the test
    kills = 0
    while kills < KILLS:
        run = f"killed {uuid.uuid4().hex[:8]}"
        (tmp_path / "log").unlink(missing_ok=True)
        kills_of_run, settled = 0, {}
        for _ in range(2):
            code = await asyncio.to_thread(start(run, chance.randint(1, POINTS)).wait, 60)
            assert code in (0, -signal.SIGKILL)
            kills_of_run += code != 0
            settled |= {call: count_begun(tmp_path)[call] for call in await find_done(runtime, run)}
        assert await asyncio.to_thread(start(run).wait, 60) == 0
        kills += kills_of_run

        begun = count_begun(tmp_path)
        assert all(begun[call] == times for call, times in settled.items()), "finished calls are not repeated"
        assert all(times <= 1 for call, times in begun.items() if call.startswith("pay"))
        assert all(times <= 1 + kills_of_run for times in begun.values())
        await replay(await fetch_history(runtime, run))
        _, why, text, *results = lines(tmp_path, "finish")[-1].split()
        told = Counter(results)
        assert (why, text, told["look:ok"]) == ("stop", "done", 4)
        assert told["pay:ok"] + told["pay:unknown_outcome"] == 2
        assert told["pay:unknown_outcome"] <= kills_of_run


def test_two_processes_at_one_run_make_every_call_once(start, tmp_path, run):
    both = [start(run), start(run)]

    assert [process.wait(60) for process in both] == [0, 0]
    assert set(count_begun(tmp_path).values()) == {1}
    assert len(set(lines(tmp_path, "finish"))) == 1


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
