"""Who drives a run, as a text that another process can look into.

Lives here: a name for this process that no later one has, and whether the process of a name is gone. Not here: for how
long a name counts (`journal`).
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

_PROC_DIR = Path("/proc")


def get_process_identity() -> str:
    """Return the name of this process: where it runs, its number, and when it began."""
    pid = os.getpid()
    return f"{_get_host_identity()} {pid} {_get_start_time(pid) or '-'}"


def is_dead(identity: str) -> bool:
    """Tell whether the process of a name is gone for certain; one on another machine never is."""
    host, _, rest = identity.partition(" ")
    number, _, started = rest.partition(" ")
    if host != _get_host_identity() or not number.isdigit() or os.name != "posix":
        return False
    pid = int(number)
    current_start = _get_start_time(pid)
    if current_start is None:
        return not _process_exists(pid)
    # A number is given again: the process of today need not be the one that took the run.
    return started not in (current_start, "-")


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # Where there is a list of processes, one that it does not name has ended, or is only waited for.
    return not _PROC_DIR.joinpath("self", "stat").exists()


@lru_cache(maxsize=1)
def _get_host_identity() -> str:
    """Return what two processes share that can see each other's numbers: machine, boot, container."""
    parts = [socket.gethostname()]
    for path in ("sys/kernel/random/boot_id", "self/ns/pid"):
        file = _PROC_DIR / path
        try:
            parts.append(str(file.readlink()) if file.is_symlink() else file.read_text("ascii").strip())
        except OSError:
            parts.append("-")
    return "/".join(parts).replace(" ", "_")


def _get_start_time(pid: int) -> str | None:
    """Return when a process began, in ticks since the boot; `None` where there is none, or nobody can say."""
    try:
        # The name of the program may hold anything, also blanks and brackets.
        fields = _PROC_DIR.joinpath(str(pid), "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in ("Z", "X") else started
