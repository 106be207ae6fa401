"""What the tests of the core share: a process of its own, for what would take the test run down with it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.fixture
def run_script(tmp_path: Path):
    """Run a program in a process of its own; a program that hangs fails the test after 20 seconds."""

    def run(text: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text), "utf-8")
        return subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path
        )

    return run
