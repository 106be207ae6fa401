"""Identify the process that executes a run, so that another process can check if it is still alive."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

_PROC_DIR = Path("/proc")


def get_process_identity() -> str:
    """Return a string that identifies this process: host, PID and start time."""
    pid = os.getpid()
    return f"{_get_host_identity()} {pid} {_get_start_time(pid) or '-'}"


def is_dead(identity: str) -> bool:
    """Return True if the identified process has certainly ended. False for processes on other hosts."""
    host, _, rest = identity.partition(" ")
    pid_text, _, recorded_start = rest.partition(" ")
    if host != _get_host_identity() or not pid_text.isdigit() or os.name != "posix":
        return False
    pid = int(pid_text)
    current_start = _get_start_time(pid)
    if current_start is None:
        return not _process_exists(pid)
    # PIDs are reused: the current process may not be the one that acquired the run.
    return recorded_start not in (current_start, "-")


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # With /proc, a process without a start time is gone or a zombie.
    return not _PROC_DIR.joinpath("self", "stat").exists()


@lru_cache(maxsize=1)
def _get_host_identity() -> str:
    """Return a string that is the same for all processes with the same PID numbering: machine, boot and container."""
    parts = [socket.gethostname()]
    for path in ("sys/kernel/random/boot_id", "self/ns/pid"):
        file = _PROC_DIR / path
        try:
            parts.append(str(file.readlink()) if file.is_symlink() else file.read_text("ascii").strip())
        except OSError:
            parts.append("-")
    return "/".join(parts).replace(" ", "_")


def _get_start_time(pid: int) -> str | None:
    """Return the start time of a process in ticks since boot, or None if it has ended or /proc is unavailable."""
    try:
        # The program name may contain anything, including blanks and parentheses.
        fields = _PROC_DIR.joinpath(str(pid), "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Fields 3 and 22 of proc(5): Z is a zombie, X a dead process.
    state, start_time = fields[0], fields[19]
    return None if state in ("Z", "X") else start_time
