"""`toolmason worker`: drives runs of a Temporal server, and ends well."""

import asyncio
import signal
import subprocess

import pytest

from fork_server import COMMAND
from toolmason.scale import TemporalRuntime

pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]
APP = """
import time
from pathlib import Path

from toolmason import Toolbox, tool

HERE = Path(__file__).parent


@tool(idempotent=True)
def wait_for(name: str) -> str:
    '''Wait for a name.'''
    with (HERE / "begun").open("a") as stream:
        stream.write(f"{name}\\n")
    while not (HERE / name).exists():
        time.sleep(0.02)
    return f"waited for {name}"


box = Toolbox(wait_for)
"""


@pytest.fixture
def start(tmp_path, server, run):
    """Start the command, in a process of its own because it gets signals. Return it once it drives runs."""
    (tmp_path / "app.py").write_text(APP)
    started = []

    def start(*words):
        command = [COMMAND, "worker", "app.py:box", "--temporal", server.address, "--queue", run, "--model", "offline"]
        process = subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        started.append(process)
        line = process.stderr.readline()
        assert line == f"Driving runs of the queue {run!r} at {server.address} with 1 tool. Press Ctrl-C to stop.\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def until_begun(folder, count=1):
    file = folder / "begun"
    while not file.exists() or len(file.read_text().splitlines()) < count:  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.02)


async def until_ended(runtime, run):
    while (await runtime.run(run)).state != "stop":  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
async def test_a_signal_ends_the_command_after_its_runs(start, server, run, tmp_path, number):
    runtime = TemporalRuntime(server.address, queue=run)
    process = start("--grace", "30")
    await runtime.start(run, "wait for the name 'go'")
    await until_begun(tmp_path)

    process.send_signal(number)
    (tmp_path / "go").touch()
    _, errors = await asyncio.to_thread(process.communicate, timeout=60)

    assert (process.returncode, errors) == (0, "")
    assert (await runtime.run(run)).state == "stop"
    runtime.close()


async def test_another_worker_goes_on_after_the_grace(start, server, run, tmp_path):
    runtime = TemporalRuntime(server.address, queue=run)
    first = start("--grace", "0.1")
    await runtime.start(run, "wait for the name 'go'")
    await until_begun(tmp_path)

    first.send_signal(signal.SIGTERM)
    await asyncio.to_thread(first.communicate, timeout=60)
    second = start()
    await until_begun(tmp_path, 2)
    (tmp_path / "go").touch()
    await until_ended(runtime, run)
    second.send_signal(signal.SIGTERM)
    await asyncio.to_thread(second.communicate, timeout=60)

    assert (first.returncode, second.returncode) == (0, 0)
    assert (await runtime.run(run)).facts["text"] == "wait_for: waited for go"
    runtime.close()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--temporal", "127.0.0.1:1"), 2, "Error: --temporal 127.0.0.1:1: cannot connect"),
        (("--temporal", "nowhere"), 2, "cannot connect"),
        (("--max-runs", "0"), 2, "Invalid value for '--max-runs'"),
    ],
)
def test_a_wrong_option_is_named(forks, tmp_path, words, code, text):
    (tmp_path / "app.py").write_text(APP)

    done = forks.run([COMMAND, "worker", "app.py:box", "--model", "offline", *words], cwd=tmp_path)

    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr
