"""A disk that is really full: what was recorded stays, nothing runs twice, and the run goes on when there is space."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("full_disk_run.py"))
MOUNT = 'mount -t tmpfs -o size=4m none "$1" && exec "$2" "$3" "$1" tmpfs'
"""In a mount namespace of its own, so that the file system ends with the process."""


def test_a_run_goes_on_after_its_file_could_not_grow(tmp_path):
    check(subprocess.run([sys.executable, PROGRAM, tmp_path, "limit"], capture_output=True, text=True, check=False))


def test_a_run_goes_on_after_its_disk_was_full(tmp_path):
    command = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", tmp_path, sys.executable, PROGRAM]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("this user may not mount a file system")
    check(done)


def check(done):
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "cannot be written" in found["error"]
    assert "Nothing was recorded." in found["error"]
    assert 0 < found["before"] < 40
    assert sorted(set(found["paid"])) == sorted(found["paid"]), "no payment is made twice"
    assert found["text"] == "done"
    assert found["unknown"] in ([], ["unknown_outcome"])
