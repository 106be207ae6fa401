"""What the tests of the command share: a project as a user has it, the command in it, and a terminal around it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.sample_tools import COMMAND, OFFICE, Terminal, environment


@pytest.fixture(scope="session")
def office(tmp_path_factory) -> Path:
    """A folder with an application."""
    folder = tmp_path_factory.mktemp("office")
    (folder / "office.py").write_text(OFFICE, "utf-8")
    (folder / ".git").mkdir()
    return folder


@pytest.fixture
def run(office, forks):
    """Run the command in the office; nothing of it is a terminal."""

    def run(*words: str, stdin: str = "", cwd: Path = office, **more: str) -> subprocess.CompletedProcess[str]:
        return forks.run([COMMAND, *words], cwd=cwd, env=environment(**more), stdin=stdin)

    return run


@pytest.fixture
def run_new(office):
    """Run the command in the office, in a new interpreter and with pipes."""

    def run(*words: str, stdin: str = "", cwd: Path = office, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *words],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment(**more),
        )

    return run


@pytest.fixture
def terminal(office, forks):
    """Start the command in a terminal."""
    opened = []

    def start(
        *words: str, cwd: Path = office, output: Path | None = None, program: Sequence[str] = (COMMAND,), **more: str
    ) -> Terminal:
        opened.append(Terminal(forks, [*program, *words], cwd, environment(**more), output))
        return opened[-1]

    yield start
    for item in opened:
        item.close()
