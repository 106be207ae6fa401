"""A program that is started by the path of `forks.python` behaves as in an interpreter of its own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def start(tmp_path, forks):
    def start(text):
        (tmp_path / "program.py").write_text(text, "utf-8")
        pipe = subprocess.PIPE
        return subprocess.Popen([forks.python, "program.py", "word"], cwd=tmp_path, stdin=pipe, stdout=pipe, text=True)

    return start


def test_it_has_the_words_the_folder_and_the_streams_and_its_exit_code_is_passed_on(start):
    with start("import sys, os\nprint(sys.argv[1], os.listdir(), input())\nsys.exit(3)") as process:
        shown, _ = process.communicate("given\n", 30)

    assert shown == "word ['program.py'] given\n"
    assert process.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_it_ends_with_its_launcher(start, number):
    with start("import signal\nprint('up', flush=True)\nsignal.pause()") as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)

        # The end of the stream is the end of the fork: the launcher has closed its own.
        assert process.stdout.read() == ""
        assert process.wait(30) == -number


@pytest.mark.parametrize("sent", [[], [b"+"]], ids=["before its request", "after the first byte"])
def test_the_server_survives_a_launcher_that_is_killed_early(forks, sent):
    os.kill(forks.process.pid, signal.SIGSTOP)
    with socket.socket(socket.AF_UNIX) as launcher, Path(os.devnull).open() as nothing:
        launcher.connect(forks.address)
        for part in sent:
            socket.send_fds(launcher, [part], [nothing.fileno()] * 4)
    os.kill(forks.process.pid, signal.SIGCONT)

    assert forks.run([sys.executable, "-c", "print('up')"]).stdout == "up\n"


def test_other_words_are_for_an_interpreter(forks):
    done = subprocess.run([forks.python, "-c", "import sys; print(sys.executable)"], capture_output=True, check=True)

    assert done.stdout.decode().strip() == sys.executable
