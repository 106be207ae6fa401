"""The support desk in examples/desk: its run, and its tools without a model."""

import os
import sqlite3
import sys
from contextlib import closing

import pytest

from fork_server import COMMAND
from house.source import ROOT

DESK = ROOT / "examples" / "desk" / "desk.py"


@pytest.fixture
def run_desk(tmp_path, forks):
    def run(*words):
        done = forks.run([sys.executable, str(DESK), *words], cwd=ROOT, env={**os.environ, "DESK_DATA": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            states = dict(database.execute("select number, state from orders"))
        return done.stdout, states

    return run


def test_a_lost_order_is_refunded_if_the_desk_agrees(run_desk):
    output, states = run_desk("--allow")

    assert output.splitlines()[-1] == "refunded: A-17 was lost. You get 13.50 euros back."
    assert states == {"A-17": "refunded", "A-18": "sent"}
    for name in ("find_order", "track_parcel", "count_stock", "refund"):
        assert f"execute_tool {name}" in output


def test_a_refund_that_is_denied_changes_nothing(run_desk):
    output, states = run_desk("--no-allow")

    assert output.splitlines()[-1] == "handed over: A-17 was lost. A colleague will call you."
    assert "approval_denied" in output
    assert states == {"A-17": "sent", "A-18": "sent"}


def test_the_tools_of_the_desk_are_listed_by_the_command(forks, tmp_path):
    environment = {**os.environ, "DESK_DATA": str(tmp_path), "NO_COLOR": "1", "COLUMNS": "120"}
    done = forks.run([COMMAND, "list", f"{DESK}:box"], cwd=tmp_path, env=environment)

    assert [line.partition("(")[0] for line in done.stdout.splitlines()] == [
        "count_stock",
        "find_order",
        "refund",
        "track_parcel",
    ]
    assert "customer:" not in done.stdout
