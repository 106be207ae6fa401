"""Run Python in fresh processes, with compiled files as every installation has them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Without compiled files a figure would measure the compiler."""


def run_python(*arguments: str, **environment: str) -> Any:
    """Run Python with these arguments, and return the last line of its output, parsed as JSON."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def explain(failed: subprocess.CalledProcessError, name: str) -> str:
    """Return a note for a report: the last line of the error output."""
    lines: Sequence[str] = (failed.stderr or "").strip().splitlines() or ["no output"]
    return f"Not measured: {name}: {lines[-1]}"


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
