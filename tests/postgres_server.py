"""A PostgreSQL server of Debian's packages for the tests: its data in a temporary folder, on loopback, not as root."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PASSWORD = "pass-word-of-the-tests"  # noqa: S105 - of a server that lives as long as the tests
USER = "nobody"
WAIT_SECONDS = 60


class PostgresServer:
    """A server that can be stopped, killed and started again."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            raise FileNotFoundError("No PostgreSQL server. Install it: apt-get install postgresql, or make test-scale.")
        self.bin = found[-1].parent
        self.folder = Path(tempfile.mkdtemp(prefix="toolmason-postgres-"))
        self.data = self.folder / "data"
        self.log = (self.folder / "log").open("ab")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://app:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        # PostgreSQL refuses to run as root.
        self._as_user = (
            {"user": USER, "group": pwd.getpwnam(USER).pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
        )
        password_file = self.folder / "password"
        password_file.write_text(PASSWORD)
        if self._as_user:
            for path in (self.folder, password_file):
                shutil.chown(path, USER)
        self._run(
            "initdb", "-D", self.data, "-U", "app", "-A", "scram-sha-256", "--pwfile", password_file, "-E", "UTF8"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, name: str, *words: object) -> None:
        command = [str(self.bin / name), *map(str, words)]
        subprocess.run(command, check=True, stdout=self.log, stderr=self.log, cwd=self.folder, **self._as_user)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder}
        words = [f"-c{name}={value}" for name, value in options.items()]
        # The server ends with the tests, also if those are killed.
        command = ["setpriv", "--pdeathsig", "QUIT", str(self.bin / "postgres"), "-D", str(self.data), *words]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.folder, **self._as_user)
        deadline = time.monotonic() + WAIT_SECONDS
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT at once, so that the next start recovers as after a crash; SIGINT in order."""
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.wait(WAIT_SECONDS)
        self.process = None

    def read_cpu_seconds(self) -> float:
        """Return the CPU time of the server and its running children."""
        assert self.process is not None
        ticks = 0
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                pid, _, fields = status.read_text().replace(") ", " (", 1).split(" (", 2)
                parts = fields.split()
                if self.process.pid in (int(pid), int(parts[1])):
                    ticks += int(parts[11]) + int(parts[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the server, and remove its data."""
        self.stop()
        self.log.close()
        shutil.rmtree(self.folder)

    @staticmethod
    def make_schema() -> str:
        """Return the name of a schema that no other test has."""
        return f"t_{secrets.token_hex(6)}"
