"""Run calls in a worker process of Ray.

A worker loads this module, so it needs the same version of the package as the program.
"""

from __future__ import annotations

import pickle
import platform
import queue
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from importlib.metadata import version
from typing import Any, Final

from toolmason._core.run.processes import pickle_error_chain, run_pickled_call
from toolmason.errors import ConfigError

MAX_VALUE_BYTES: Final = 1024 * 1024
"""Maximum size of a pickled return value that is copied to the program at once."""
_HEAD_CHARS: Final = 2000
"""Number of characters of a larger value that the model sees."""

Answer = tuple[tuple[Any, ...], bytes | None]
"""Kind of an outcome with its data, and a large value. Ray keeps the two apart, so that the second may stay there."""


def describe_program() -> tuple[str, str]:
    """Return the versions that a program and its workers must share."""
    return platform.python_version(), version("toolmason")


def run_call(payload: bytes, path: list[str], program: tuple[str, str], carrier: Mapping[str, str]) -> Answer:
    """Run a call and return its outcome."""
    return _run(payload, path, program, carrier, lambda *_: None)


def stream_call(
    payload: bytes, path: list[str], program: tuple[str, str], carrier: Mapping[str, str]
) -> Generator[Any]:
    """Run a call, and yield its progress reports, its outcome and, separately, a large value."""
    found: queue.SimpleQueue[Answer | tuple[str, Any]] = queue.SimpleQueue()

    def work() -> None:
        found.put(_run(payload, path, program, carrier, lambda *report: found.put(("progress", report))))

    threading.Thread(target=work, name="toolmason-call", daemon=True).start()
    while True:
        first, second = found.get()
        yield ("progress", second) if first == "progress" else first
        if first != "progress":
            yield second
            return


def _run(
    payload: bytes,
    path: list[str],
    program: tuple[str, str],
    carrier: Mapping[str, str],
    report: Callable[..., None],
) -> Answer:
    try:
        _check_program(program)
        sys.path.extend(entry for entry in path if entry not in sys.path)
        _check_payload(payload)
        value = run_pickled_call(payload, carrier, report)
        data = pickle.dumps(value)
    except BaseException as error:  # noqa: BLE001 - any exception of the tool is sent to the program
        return ("error", pickle_error_chain(error)), None
    if len(data) <= MAX_VALUE_BYTES:
        return ("ok", data), None
    head = value if isinstance(value, str) else f"{value!r:.{_HEAD_CHARS}}"
    return ("stored", type(value).__name__, len(data), head[:_HEAD_CHARS]), data


def _check_program(program: tuple[str, str]) -> None:
    own = describe_program()
    if own != program:
        raise ConfigError(
            f"The worker has Python {own[0]} with toolmason {own[1]}, the program has Python {program[0]} with "
            f"toolmason {program[1]}. Install the same versions."
        )


def _check_payload(payload: bytes) -> None:
    """Raise if this worker cannot load the function of a call."""
    try:
        pickle.loads(payload)  # noqa: S301 - from the program that owns this worker
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The worker cannot load the tool: {error}. Install the code of the tools on every worker, or pass "
            "`runtime_env=` to RayExecutor."
        ) from error
