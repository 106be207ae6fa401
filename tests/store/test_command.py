"""The command with a journal in PostgreSQL: it never prints the password."""

import pytest

from fork_server import COMMAND
from postgres_server import PASSWORD

APP = '''
from toolmason import Toolbox, tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

box = Toolbox(add)
'''


@pytest.mark.scale
def test_a_run_in_a_database_is_listed_and_shown(forks, postgres, tmp_path):
    (tmp_path / "app.py").write_text(APP)

    def run(*words):
        return forks.run([COMMAND, *words], cwd=tmp_path)

    started = run("run", "app.py:box", "add 2 and 3", "--model", "offline", "--durable", postgres.url, "--run", "r1")
    listed = run("runs", "list", postgres.url)
    shown = run("runs", "show", postgres.url, "r1")
    missing = run("runs", "show", postgres.url, "r2")

    assert started.returncode == 0, started.stderr
    assert "Run r1 in postgresql://app@127.0.0.1" in started.stderr
    assert "r1" in listed.stdout
    assert "add" in shown.stdout
    assert "No run 'r2' in 'postgresql://app@127.0.0.1" in missing.stderr
    everything = [done.stdout + done.stderr for done in (started, listed, shown, missing)]
    assert PASSWORD not in "".join(everything)


def test_a_database_that_cannot_be_reached_is_an_error(forks, tmp_path):
    url = f"postgresql://app:{PASSWORD}@127.0.0.1:1/x"
    done = forks.run([COMMAND, "runs", "list", url], cwd=tmp_path)

    assert done.returncode != 0
    assert "cannot be reached" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
