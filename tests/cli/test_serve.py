"""`toolmason serve`, as a real process that is told to stop."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolmason.cli.commands.use_tools.serve import command

DESK = """
from toolmason import Toolbox, tool

@tool
def hours() -> str:
    return "9 to 17"

box = Toolbox(hours)
"""
TOKEN = "a-token-of-many-letters"  # noqa: S105 - of a test
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


# New interpreters: the start and the end of the server, and its pipes, are under test.


@contextmanager
def served(folder: Path, *words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (folder / "desk.py").write_text(DESK, "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("toolmason"))
    line = [program, "serve", "desk.py", "--transport", "http", "--port", str(port), *words]
    env = {**os.environ, "TOOLMASON_TOKEN": TOKEN}
    process = subprocess.Popen(line, cwd=folder, env=env, stderr=subprocess.PIPE)
    try:
        ends, tick = time.monotonic() + 30, threading.Event()
        while not listens(port) and time.monotonic() < ends:
            tick.wait(0.05)
        yield port, process
    finally:
        process.kill()
        process.communicate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status(port: int, host: str, token: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
    headers = {"host": host, "content-type": "application/json", "accept": "application/json, text/event-stream"}
    connection.request("POST", "/tools", body, headers | ({"authorization": f"Bearer {token}"} if token else {}))
    found = connection.getresponse()
    found.read()
    connection.close()
    return found.status


def test_over_http_the_token_of_the_environment_and_the_allowed_names_hold(tmp_path: Path):
    words = ("--path", "/tools", "--allowed-host", "tools.example", "--allowed-origin", "https://page.example")
    with served(tmp_path, *words) as (port, process):
        found = [
            status(port, "tools.example", TOKEN),
            status(port, "tools.example"),
            status(port, "evil.example", TOKEN),
        ]
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)

    assert found == [200, 401, 421]
    assert process.returncode == 0
    assert b"Serving 1 tool on http://127.0.0.1:" in said


def test_a_host_that_others_reach_needs_its_names(tmp_path: Path):
    (tmp_path / "desk.py").write_text(DESK, "utf-8")

    words = [str(tmp_path / "desk.py"), "--transport", "http", "--host", "0.0.0.0"]  # noqa: S104 - it is refused
    done = CliRunner(env={"TOOLMASON_TOKEN": ""}).invoke(command, words)

    assert done.exit_code == 2
    assert "Add --allowed-host" in done.output
    assert "allowed_hosts" not in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--transport", "http", "--port", "99999"], "99999 is not in the range 0<=x<=65535"),
        (["--port", "9000"], "--port needs HTTP. Add --transport http."),
        (["--allowed-host", "a"], "--allowed-host needs HTTP"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: list[str], told: str):
    (tmp_path / "desk.py").write_text(DESK, "utf-8")

    done = CliRunner().invoke(command, [str(tmp_path / "desk.py"), *words])

    assert done.exit_code == 2
    assert told in done.output


def test_a_port_that_was_free_is_told(tmp_path: Path):
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    program = str(Path(sys.executable).with_name("toolmason"))
    line = [program, "serve", "desk.py", "--transport", "http", "--port", "0", "--path", "tools"]
    process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        port = int(said.strip().removeprefix("Serving 1 tool on http://127.0.0.1:").removesuffix("/tools"))
        heard = listens(port)
    finally:
        process.kill()
        process.communicate()

    assert port != 0
    assert heard


def test_standard_input_that_is_nothing_ends_it_at_once(tmp_path: Path):
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    program = str(Path(sys.executable).with_name("toolmason"))

    done = subprocess.run(
        [program, "serve", "desk.py"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


NOISY = """
import logging
import os
import subprocess
import sys

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
print("loaded", sys.stdin.read())
os.write(1, b"raw")
subprocess.run([sys.executable, "-c", "print('child')"], check=True)
"""


def test_f56_what_a_target_prints_or_logs_while_it_is_loaded_is_not_for_the_client(tmp_path: Path):
    (tmp_path / "desk.py").write_text(NOISY + DESK, "utf-8")
    program = str(Path(sys.executable).with_name("toolmason"))
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}

    done = subprocess.run(
        [program, "serve", "desk.py"],
        cwd=tmp_path,
        input=json.dumps(asked).encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    assert all(word in done.stderr for word in (b"loaded", b"raw", b"child"))
