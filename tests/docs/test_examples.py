"""Every example is short, and runs as it is."""

import os
import sys

import pytest

from house.source import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(example, forks):
    done = forks.run([sys.executable, str(example)], cwd=ROOT, env=os.environ)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_has_at_most_60_lines(example):
    assert len(example.read_text("utf-8").splitlines()) <= 60
