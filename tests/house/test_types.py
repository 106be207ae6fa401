"""The files of tests/typing are checked, never run; `make check` checks them and the source with both checkers."""

import subprocess
import sys

import pytest

from house.source import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["mypy", "tests/typing"], id="mypy"),
        pytest.param(["pyright", "--pythonpath", sys.executable, "tests/typing"], id="pyright"),
    ],
)
def test_decorated_functions_keep_their_signature(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
