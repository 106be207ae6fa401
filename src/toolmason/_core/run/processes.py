"""Run tools in warm worker processes that are killed at their deadline.

Functions cross the pipe by name, values and errors by pickle. A worker that dies or is killed is replaced, and its
children are killed with it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import itertools
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from toolmason._core.define.context import report_progress_to
from toolmason._core.run.slots import Semaphore
from toolmason._core.run.tracing import use_context
from toolmason._pickling import make_error_picklable
from toolmason.errors import ConfigError, ToolmasonError

_MAX_CAUSES: Final = 5
_START_TIMEOUT: Final = 30.0
"""Seconds a new process may take to load the program."""


class WorkerDied(ToolmasonError):
    """The worker process ended before the tool finished."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        self.code = code
        description = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        super().__init__(f"its worker process {reason or description}")


class CallNotStarted(WorkerDied):
    """The worker process ended before it received the call."""


class Worker:
    """Process with its call pipe, and a lifeline pipe that closes when the parent dies."""

    def __init__(self) -> None:
        import multiprocessing  # noqa: PLC0415 - 12 ms at start-up, for the few tools that run in a process

        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["toolmason._core.run.processes"])
        self.pipe, child_pipe = context.Pipe()
        child_lifeline, self.lifeline = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_serve_calls, args=(child_pipe, child_lifeline), name="toolmason-worker", daemon=True
        )
        self.process.start()
        child_pipe.close()
        child_lifeline.close()
        self.calls = 0
        self._path: list[str] = []
        """Module search path that the process has."""
        _register_worker(self)
        if not self._is_ready():
            self.kill()
            raise WorkerDied(self.process.exitcode)

    def _is_ready(self) -> bool:
        try:
            return bool(self.pipe.poll(_START_TIMEOUT)) and self.pipe.recv_bytes() == b"ready"
        except (EOFError, OSError):
            return False

    def run(self, payload: bytes, report: Callable[..., None] | None, carrier: Mapping[str, str]) -> Any:
        """Run a call in the process, in the trace of `carrier`. Blocks until the call finishes or the process ends.

        Raises:
            WorkerDied: the process ended.
            BaseException: any exception of the tool.
        """
        import pickle  # noqa: PLC0415 - as above

        self.calls += 1
        kind: str = "progress"
        data: Any = None
        try:
            self.pipe.send_bytes(pickle.dumps((self.calls, payload, self._find_new_path(), carrier)))
            while kind == "progress":
                number, kind, data = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - from our own worker
                if number != self.calls:
                    kind = "progress"  # a late message of the previous call
                elif kind == "progress" and report is not None:
                    report(*data)
        except (EOFError, OSError) as gone:
            self.process.join(1)
            # With these two, the process ended before it read the call, so the call has not run.
            is_unread = isinstance(gone, ConnectionResetError | BrokenPipeError)
            raise (CallNotStarted if is_unread else WorkerDied)(self.process.exitcode) from gone
        if kind == "error":
            raise unpickle_error_chain(data)
        return data

    def _find_new_path(self) -> list[str] | None:
        """Return the module search path of this program if it has changed: the module of a tool may be on it."""
        path = [entry or _get_folder() for entry in sys.path]
        if path == self._path:
            return None
        self._path = path
        return path

    def kill(self) -> None:
        """Kill the process and all its children."""
        _live_workers.discard(self)
        pid = self.process.pid
        if pid is not None and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
                os.killpg(pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(1)
        self.pipe.close()
        self.lifeline.close()


def _get_folder() -> str:
    """Return the current folder, which an empty entry of the search path means; empty if it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - a string is needed
    except OSError:
        return ""


_live_workers: set[Worker] = set()


def _register_worker(worker: Worker) -> None:
    if not _live_workers:
        # Register again each time, to run before multiprocessing's own handler, which leaves grandchildren behind.
        atexit.unregister(_kill_all)
        atexit.register(_kill_all)
    _live_workers.add(worker)


def _kill_all() -> None:
    for worker in list(_live_workers):
        worker.kill()


class ProcessPool:
    """At most `limit` processes, each running one call at a time."""

    def __init__(self, limit: int) -> None:
        self._semaphore = Semaphore(limit)
        self._idle: list[Worker] = []
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[Worker]]] = deque()
        """Callers that wait for a process to start."""
        self._starting = 0
        """Number of processes that are starting for callers in `_waiting`."""
        self._alive = 0
        """Number of processes that have started, idle or in use."""
        self._limit = limit
        self._lock = threading.Lock()
        self._pid = os.getpid()

    async def acquire(self, seconds: float | None) -> tuple[Worker, float | None]:
        """Wait for a process, and start one if none is idle. Return it with the remaining time.

        Raises:
            TimeoutError: no process was ready in time.
        """
        started = time.monotonic()
        async with asyncio.timeout(seconds):
            await self._semaphore.acquire()
            try:
                worker = self._take_idle() or await self._start_worker()
            except BaseException:
                self._semaphore.release()
                raise
        return worker, None if seconds is None else max(0.001, seconds - (time.monotonic() - started))

    def _take_idle(self) -> Worker | None:
        with self._lock:
            if self._pid != os.getpid():
                # A forked child does not own its parent's processes.
                self._idle = []
                self._alive = 0
                self._pid = os.getpid()
            while self._idle:
                worker = self._idle.pop()
                if worker.process.is_alive():
                    return worker
                self._alive -= 1
                worker.kill()
        return None

    async def _start_worker(self) -> Worker:
        """Start a process, or take over the start of one whose caller gave up."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Worker] = loop.create_future()
        with self._lock:
            self._waiting.append((loop, ready))
            needs_start = self._starting < sum(not future.done() for _, future in self._waiting)
            self._starting += needs_start
        if needs_start:
            # A thread of its own: the threads of the pool may all be in use.
            threading.Thread(target=self._start_in_thread, name="toolmason-start", daemon=True).start()
        try:
            return await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled() and ready.exception() is None:
                self._hand_over(ready.result(), None)  # the process was ready just as the caller was cancelled
            raise

    def _start_in_thread(self) -> None:
        worker: Worker | None = None
        error: Exception | None = None
        try:
            worker = Worker()
        except Exception as failure:  # noqa: BLE001 - reported to the caller
            error = failure
        with self._lock:
            self._starting -= 1
            self._alive += worker is not None
        self._hand_over(worker, error)

    def _hand_over(self, worker: Worker | None, error: Exception | None) -> None:
        """Give a new process to the first caller that still waits, or keep it for the next call."""
        while True:
            with self._lock:
                while self._waiting and self._waiting[0][1].done():
                    self._waiting.popleft()
                if not self._waiting:
                    break
                loop, ready = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(self._settle, ready, worker, error)
            except RuntimeError:
                continue  # the loop is closed, and its caller with it
            return
        if worker is not None:
            self._keep(worker)

    def _keep(self, worker: Worker) -> None:
        """Keep a process that no caller waits for, or kill it if there are enough."""
        with self._lock:
            if is_kept := self._alive <= self._limit:
                self._idle.append(worker)
            else:
                self._alive -= 1
        if not is_kept:
            worker.kill()

    def _settle(self, ready: asyncio.Future[Worker], worker: Worker | None, error: Exception | None) -> None:
        if ready.done():
            self._hand_over(worker, error)
        elif worker is None:
            ready.set_exception(error or WorkerDied(None))
        else:
            ready.set_result(worker)

    def release(self, worker: Worker, *, usable: bool) -> None:
        """Return a process to the pool, or kill it if it is unusable."""
        if usable and worker.process.is_alive():
            with self._lock:
                self._idle.append(worker)
        else:
            with self._lock:
                self._alive -= 1
            worker.kill()
        self._semaphore.release()


@lru_cache(maxsize=8)
def get_process_pool(limit: int) -> ProcessPool:
    """Return the process-wide pool of this size."""
    return ProcessPool(limit)


def pickle_call(function: Callable[..., Any], names: tuple[str, ...], values: dict[str, Any]) -> bytes:
    """Serialize a call for a worker process.

    Raises:
        ConfigError: the function or a value cannot be pickled; the message says which.
    """
    import pickle  # noqa: PLC0415 - as above

    try:
        return pickle.dumps((function, names, values))
    except Exception as error:
        raise ConfigError(
            f"The call cannot be sent to another process: it cannot be pickled: {error}. "
            "Define the function at module level, and inject only values that can be pickled."
        ) from error


def _serve_calls(pipe: Any, lifeline: Any) -> None:
    """Run calls from the pipe until it closes."""
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()  # so that the whole group can be killed, including the tool's children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(lifeline,), daemon=True).start()
    pipe.send_bytes(b"ready")
    while True:
        try:
            payload = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_run_payload(payload, pipe))


def _exit_with_parent(lifeline: Any) -> None:
    """Kill this process and its children when the parent ends, even while a tool runs."""
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv_bytes()
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _run_payload(payload: bytes, pipe: Any) -> bytes:
    import pickle  # noqa: PLC0415 - as above

    number, payload, path, carrier = pickle.loads(payload)  # noqa: S301 - from the process that started this one
    if path is not None:
        sys.path[:] = path

    def report(*progress: Any) -> None:
        pipe.send_bytes(pickle.dumps((number, "progress", progress)))

    try:
        return pickle.dumps((number, "ok", run_pickled_call(payload, carrier, report)))
    except BaseException as error:  # noqa: BLE001 - any exception of the tool is sent to the parent
        return pickle.dumps((number, "error", pickle_error_chain(error)))


def run_pickled_call(payload: bytes, carrier: Mapping[str, str], report: Callable[..., None]) -> Any:
    """Run a call of another process in its trace, and return its value."""
    import pickle  # noqa: PLC0415 - as above

    with report_progress_to(report), use_context(carrier):
        function, names, values = pickle.loads(payload)  # noqa: S301 - from a process of the same application
        positional = [values.pop(name) for name in names]
        value = function(*positional, **values)
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            return asyncio.run(collect_value(value))
        return list(value) if inspect.isgenerator(value) else value


async def collect_value(value: Any) -> Any:
    """Return the value that a function returned: awaited if it is an awaitable, and a list of a stream."""
    if inspect.isasyncgen(value):
        return [item async for item in value]
    value = await value if inspect.isawaitable(value) else value
    return list(value) if inspect.isgenerator(value) else value


def pickle_error_chain(error: BaseException | None) -> list[bytes]:
    """Serialize an error and its causes, the error first. Pickle alone drops `__cause__`."""
    import pickle  # noqa: PLC0415 - as above

    chain: list[bytes] = []
    while error is not None and len(chain) < _MAX_CAUSES:
        chain.append(pickle.dumps(make_error_picklable(error)))
        error = error.__cause__
    return chain


def unpickle_error_chain(chain: list[bytes]) -> BaseException:
    """Return the error that `pickle_error_chain` serialized, with its causes."""
    import pickle  # noqa: PLC0415 - as above

    errors: list[BaseException] = [pickle.loads(data) for data in chain]  # noqa: S301 - from our own worker
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]
