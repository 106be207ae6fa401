"""Worker processes for tools that must be stoppable: warm, few, and really killed at a deadline.

Lives here: the pool and both ends of its pipe. A function crosses by name, values and errors by pickle; a process
that is killed or dies is replaced, and takes its children with it. Not here: deadlines (`execute`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from toolmason._core.define.context import reporting_to
from toolmason._core.run.slots import Slots
from toolmason.errors import ConfigError, ToolmasonError

_CAUSES: Final = 5
_START: Final = 30.0
"""Seconds that a new process may take to load the program."""


class WorkerDied(ToolmasonError):
    """The process that ran the tool ended before it was done."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        super().__init__(f"its worker process {how}")


class NotStarted(WorkerDied):
    """The process was gone before it took the call."""


class Worker:
    """One process, the pipe to it, and the pipe whose end tells it that we are gone."""

    def __init__(self) -> None:
        import multiprocessing  # noqa: PLC0415 - 12 ms at start-up, for the few tools that run in a process

        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["toolmason._core.run.processes"])
        self.pipe, theirs = context.Pipe()
        watched, self.life = context.Pipe(duplex=False)
        self.process = context.Process(target=_serve, args=(theirs, watched), name="toolmason-worker", daemon=True)
        self.process.start()
        theirs.close()
        watched.close()
        self.calls = 0
        _remember(self)
        if not self._is_ready():
            self.kill()
            raise WorkerDied(self.process.exitcode)

    def _is_ready(self) -> bool:
        try:
            return bool(self.pipe.poll(_START)) and self.pipe.recv_bytes() == b"ready"
        except (EOFError, OSError):
            return False

    def run(self, payload: bytes, report: Callable[..., None] | None) -> Any:
        """Have the process run something; blocks until it is done, or the process is gone.

        Raises:
            WorkerDied: the process ended.
            BaseException: what the tool raised.
        """
        import pickle  # noqa: PLC0415 - as above

        self.calls += 1
        kind, data = "progress", []
        try:
            self.pipe.send_bytes(pickle.dumps((self.calls, payload)))
            while kind == "progress":
                number, kind, data = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - from a process of our own
                if number != self.calls:
                    kind = "progress"  # a late word of the call before
                elif kind == "progress" and report is not None:
                    report(*data)
        except (ConnectionResetError, BrokenPipeError) as gone:
            # The process was gone before it read the call, so the call has not run.
            self.process.join(1)
            raise NotStarted(self.process.exitcode) from gone
        except (EOFError, OSError) as gone:
            self.process.join(1)
            raise WorkerDied(self.process.exitcode) from gone
        if kind == "error":
            raise _with_causes(data)
        return data

    def kill(self) -> None:
        """End the process and whatever it started, at once."""
        _alive.discard(self)
        pid = self.process.pid
        if pid is not None and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
                os.killpg(pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(1)
        self.pipe.close()
        self.life.close()


_alive: set[Worker] = set()


def _remember(worker: Worker) -> None:
    if not _alive:
        # Anew each time: it has to run before what multiprocessing does at the end, which leaves children behind.
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _alive.add(worker)


def _end_all() -> None:
    for worker in list(_alive):
        worker.kill()


class Pool:
    """At most `limit` processes; each does one thing at a time."""

    def __init__(self, limit: int) -> None:
        self._slots = Slots(limit)
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    async def take(self, seconds: float | None) -> tuple[Worker, float | None]:
        """Wait for a process; return it, and what is left of the time. Starting a new one does not count.

        Raises:
            TimeoutError: none was free in time.
        """
        started = time.monotonic()
        async with asyncio.timeout(seconds):
            await self._slots.take()
        left = None if seconds is None else max(0.001, seconds - (time.monotonic() - started))
        try:
            with self._lock:
                if self._pid != os.getpid():
                    self._idle, self._pid = [], os.getpid()  # a forked child does not own its parent's processes
                while self._idle:
                    worker = self._idle.pop()
                    if worker.process.is_alive():
                        return worker, left
                    worker.kill()
            return await self._started(), left
        except BaseException:
            self._slots.give()
            raise

    async def _started(self) -> Worker:
        starting = asyncio.ensure_future(asyncio.to_thread(Worker))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end_unwanted)
            raise

    def give(self, worker: Worker, *, usable: bool) -> None:
        """Hand a process back, or end it."""
        if usable and worker.process.is_alive():
            with self._lock:
                self._idle.append(worker)
        else:
            worker.kill()
        self._slots.give()


def _end_unwanted(starting: asyncio.Future[Worker]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()


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


def _serve(pipe: Any, life: Any) -> None:
    """Run what comes through the pipe, until it closes."""
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()  # so that the whole group can be killed, the tool's own children too
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(life,), daemon=True).start()
    pipe.send_bytes(b"ready")
    while True:
        try:
            payload = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_answer(payload, pipe))


def _watch(life: Any) -> None:
    """End this process and its children when the one that started it is gone, also in the middle of a tool."""
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _answer(payload: bytes, pipe: Any) -> bytes:
    import pickle  # noqa: PLC0415 - as above

    number, payload = pickle.loads(payload)  # noqa: S301 - from the process that started this one
    try:
        with reporting_to(lambda *report: pipe.send_bytes(pickle.dumps((number, "progress", report)))):
            function, names, values = pickle.loads(payload)  # noqa: S301 - from the process that started this one
            before = [values.pop(name) for name in names]
            value = _value_of(function(*before, **values))
        return pickle.dumps((number, "ok", value))
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises crosses as it is
        return pickle.dumps((number, "error", _packed_chain(error)))


def _value_of(value: Any) -> Any:
    if inspect.isawaitable(value):
        return asyncio.run(_awaited(value))
    if inspect.isasyncgen(value):
        return asyncio.run(_collected(value))
    return list(value) if inspect.isgenerator(value) else value


async def _awaited(value: Any) -> Any:
    return await value


async def _collected(stream: Any) -> list[Any]:
    return [item async for item in stream]


def _packed_chain(error: BaseException | None) -> list[bytes]:
    """Return an error and its causes as bytes, the error first; pickle by itself forgets causes."""
    chain: list[bytes] = []
    while error is not None and len(chain) < _CAUSES:
        chain.append(_packed_error(error))
        error = error.__cause__
    return chain


def _packed_error(error: BaseException) -> bytes:
    import pickle  # noqa: PLC0415 - as above

    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - our own bytes; some exceptions pickle and do not come back
    except Exception:  # noqa: BLE001 - its words cross even if it cannot
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def _with_causes(chain: list[bytes]) -> BaseException:
    import pickle  # noqa: PLC0415 - as above

    errors: list[BaseException] = [pickle.loads(data) for data in chain]  # noqa: S301 - from a process of our own
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]
