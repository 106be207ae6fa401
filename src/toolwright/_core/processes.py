"""Worker processes for tools that must be stoppable: warm, few, and really killed at a deadline.

Lives here: the pool and both ends of its pipe. A function crosses by name, values and errors by pickle; a process
that is killed or dies is replaced, and takes its children with it. Not here: deadlines (`execute`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from toolwright._core.context import reporting_to
from toolwright._core.limits import Slots
from toolwright.errors import ConfigError, ToolwrightError

_START: Final = 30.0
"""Seconds that a new process may take to load the program."""


class WorkerDied(ToolwrightError):
    """The process that ran the tool ended before it was done."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        super().__init__(f"its worker process {how}")


class Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        import multiprocessing  # noqa: PLC0415 - 12 ms at start-up, for the few tools that run in a process

        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["toolwright._core.processes"])
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), name="toolwright-worker", daemon=True)
        self.process.start()
        theirs.close()
        if not self.pipe.poll(_START):
            self.kill()
            raise WorkerDied(self.process.exitcode)
        try:
            self.pipe.recv_bytes()
        except (EOFError, OSError) as gone:
            self.process.join(1)
            raise WorkerDied(self.process.exitcode) from gone

    def run(self, payload: bytes, report: Callable[..., None] | None) -> Any:
        """Have the process run something; blocks until it is done, or the process is gone.

        Raises:
            WorkerDied: the process ended.
            BaseException: what the tool raised.
        """
        import pickle  # noqa: PLC0415 - as above

        try:
            self.pipe.send_bytes(payload)
            while True:
                kind, data = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - from a process of our own
                if kind == "progress":
                    if report is not None:
                        report(*data)
                    continue
                if kind == "error":
                    raise data
                return data
        except (EOFError, OSError) as gone:
            self.process.join(1)
            raise WorkerDied(self.process.exitcode) from gone

    def kill(self) -> None:
        """End the process and whatever it started, at once."""
        pid = self.process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
                os.killpg(pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(1)
        self.pipe.close()


class Pool:
    """At most `limit` processes; each does one thing at a time."""

    def __init__(self, limit: int) -> None:
        self._slots = Slots(limit)
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    async def take(self) -> Worker:
        """Wait for a process."""
        await self._slots.take()
        try:
            with self._lock:
                if self._pid != os.getpid():
                    self._idle, self._pid = [], os.getpid()  # a forked child does not own its parent's processes
                while self._idle:
                    worker = self._idle.pop()
                    if worker.process.is_alive():
                        return worker
            return await asyncio.to_thread(Worker)
        except BaseException:
            self._slots.give()
            raise

    def give(self, worker: Worker, *, usable: bool) -> None:
        """Hand a process back, or end it."""
        if usable and worker.process.is_alive():
            with self._lock:
                self._idle.append(worker)
        else:
            worker.kill()
        self._slots.give()


@lru_cache(maxsize=8)
def processes(limit: int) -> Pool:
    """Return the process pool of this size."""
    return Pool(limit)


def packed(function: Callable[..., Any], names: tuple[str, ...], values: dict[str, Any]) -> bytes:
    """Return a call as bytes that a worker process understands.

    Raises:
        ConfigError: the function or a value cannot cross to another process; says which.
    """
    import pickle  # noqa: PLC0415 - as above

    try:
        return pickle.dumps((function, names, values))
    except Exception as error:
        raise ConfigError(
            f'runs_on="process": the call cannot cross to another process: {error}. '
            "Define the function at the top level of a module, and inject only what can be pickled."
        ) from error


def _serve(pipe: Any) -> None:
    """Run what comes through the pipe, until it closes."""
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()  # so that the whole group can be killed, the tool's own children too
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send_bytes(b"ready")
    while True:
        try:
            payload = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_answer(payload, pipe))


def _answer(payload: bytes, pipe: Any) -> bytes:
    import pickle  # noqa: PLC0415 - as above

    try:
        with reporting_to(lambda *report: pipe.send_bytes(pickle.dumps(("progress", report)))):
            function, names, values = pickle.loads(payload)  # noqa: S301 - from the process that started this one
            before = [values.pop(name) for name in names]
            value = function(*before, **values)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            elif inspect.isgenerator(value):
                value = list(value)
        return pickle.dumps(("ok", value))
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises crosses as it is
        return _packed_error(error)


async def _awaited(value: Any) -> Any:
    return await value


def _packed_error(error: BaseException) -> bytes:
    import pickle  # noqa: PLC0415 - as above

    error.__traceback__ = None
    try:
        data = pickle.dumps(("error", error))
        pickle.loads(data)  # noqa: S301 - our own bytes; some exceptions pickle and do not come back
    except Exception:  # noqa: BLE001 - its words cross even if it cannot
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}")))
    return data
