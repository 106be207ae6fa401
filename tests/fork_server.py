"""The command and other programs in forks of one process that has loaded the package.

A new interpreter spends about a second on imports, a fork some milliseconds. A fork is a process too: it has its own
streams, folder, environment, modules, signals and exit code. A test about the start of the interpreter needs a new one.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

COMMAND = str(Path(sys.executable).with_name("toolmason"))
"""The installed script; a fork with this as its first word calls the command's `main()`."""

LAUNCHER = Path(__file__).with_name("fork_launcher.py")

LOADED_LATER = [
    "mcp.server.mcpserver",
    "rich.console",
    "rich.json",
    "rich.progress",
    "rich.table",
    "sqlite3",
]
"""Modules that the commands, and servers of the tests, import when they need them."""


# --- the tests' side -----------------------------------------------------------------------------


class Forked:
    """A program that runs in a fork."""

    def __init__(self, reply: socket.socket) -> None:
        self._reply = reply.makefile("r", encoding="ascii")
        self._socket = reply
        started = self._reply.readline()
        assert started, "The fork server has ended. Its standard error says why."
        self.pid = int(started)
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None if the program is still running."""
        if self.returncode is None and select.select([self._socket], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        """Wait for the end of the program; return its exit code, negative if a signal ended it."""
        if self.returncode is None:
            if not select.select([self._socket], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
            self.returncode = int(self._reply.readline())
            self._reply.close()
            self._socket.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # The program may have ended since; the server that reaps it reports that a moment later.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks, and the way to it."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="toolmason-forks-")
        self.folder = Path(self._temporary.name)
        """Holds `python` and `toolmason`, for tests that start a program by its path; see `fork_launcher`."""
        self.python = str(self.folder / "python")
        self.address = str(self.folder / "socket")
        for name, program in (("python", sys.executable), ("toolmason", COMMAND)):
            words = shlex.join([sys.executable, "-IS", str(LAUNCHER), self.address, program])
            (self.folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n', "utf-8")
            (self.folder / name).chmod(0o700)
        self._control, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as launchers:
            launchers.bind(self.address)
            launchers.listen()
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), str(launchers.fileno())],
                pass_fds=[theirs.fileno(), launchers.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def start(
        self,
        words: Sequence[str],
        streams: tuple[int, int, int] | None = None,
        *,
        cwd: str | Path = "",
        env: Mapping[str, str] = os.environ,
        own_terminal: bool = False,
    ) -> Forked:
        """Start a program: the command, or `sys.executable` with a script, `-c` and code, or `-m` and a module.

        By default it reads nothing, and writes and runs where the test does.
        """
        ours, theirs = socket.socketpair()
        with theirs, Path(os.devnull).open() as nothing:
            socket.send_fds(self._control, [b"+"], [theirs.fileno(), *(streams or (nothing.fileno(), 1, 2))])
        folder = str(cwd or Path.cwd())
        request = {"words": list(words), "cwd": folder, "env": dict(env), "own_terminal": own_terminal}
        ours.sendall(json.dumps(request).encode() + b"\n")
        return Forked(ours)

    def open(self, words: Sequence[str], *, cwd: str | Path = "", env: Mapping[str, str] = os.environ) -> Forked:
        """Start a program with a pipe at each stream."""
        (stdin, inlet), (outlet, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
        process = self.start(words, (stdin, stdout, stderr), cwd=cwd, env=env)
        for side in (stdin, stdout, stderr):
            os.close(side)
        process.stdin, process.stdout, process.stderr = (
            os.fdopen(inlet, "wb"),
            os.fdopen(outlet, "rb"),
            os.fdopen(errors, "rb"),
        )
        return process

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: str | Path = "",
        env: Mapping[str, str] = os.environ,
        stdin: str = "",
        timeout: float = 60,
        joined: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, as `subprocess.run` with captured text does.

        If `joined`, standard error goes where standard output goes.
        """
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            given.write(stdin.encode())
            given.seek(0)
            streams = (given.fileno(), out.fileno(), out.fileno() if joined else errors.fileno())
            process = self.start(words, streams, cwd=cwd, env=env)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return subprocess.CompletedProcess(list(words), code, _read_text(out), _read_text(errors))

    def close(self) -> None:
        self._control.close()
        self.process.wait(60)
        self._temporary.cleanup()


def _read_text(file: Any) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


# --- the server's side ---------------------------------------------------------------------------


def load() -> None:
    """Import the package and what the command imports, so that a fork finds it loaded."""
    import toolmason

    names = [module.name for module in pkgutil.walk_packages(toolmason.__path__, "toolmason.")]
    for name in [*names, *LOADED_LATER]:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    assert threading.active_count() == 1, "a fork copies only one thread"
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy every page


def serve(control: socket.socket, launchers: socket.socket) -> dict[str, Any]:
    """Fork for every request, until the tests end; return the request in the fork."""
    running: dict[int, socket.socket] = {}
    lives: dict[int, int] = {}
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, wake, launchers, *lives], [], [])
        if wake in ready:
            wake.recv(4096)
            _report_ends(running)
        for life in lives.keys() & ready:
            os.close(life)
            # A launcher that was killed would be outlived by its fork.
            if (pid := lives.pop(life)) in running:
                os.kill(pid, signal.SIGKILL)
        for asking in [place for place in (control, launchers) if place in ready]:
            reply, life, streams = _accept(asking) if asking is launchers else _receive(asking)
            if not streams:
                reply.close()
                continue
            pid = os.fork()
            if pid == 0:
                for other in (control, launchers, wake, woken, *running.values()):
                    other.close()
                signal.set_wakeup_fd(-1)
                return _take(reply, streams)
            for descriptor in streams:
                os.close(descriptor)
            running[pid] = reply
            with contextlib.suppress(OSError):  # a launcher may be killed before its fork is known to it
                reply.sendall(f"{pid}\n".encode())
            lives.update({life: pid} if life else {})


def _receive(control: socket.socket) -> tuple[socket.socket, int, list[int]]:
    """Return the connection and the streams of a request by the tests."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, 4)
    if not data:
        sys.exit()
    return socket.socket(fileno=descriptors[0]), 0, descriptors[1:]


def _accept(launchers: socket.socket) -> tuple[socket.socket, int, list[int]]:
    """Return the connection of a launcher, a pipe that ends when the launcher ends, and the streams.

    A launcher that was killed before its request has no streams.
    """
    connection, _ = launchers.accept()
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
    return connection, *((descriptors[0], descriptors[1:]) if descriptors else (0, []))


def _report_ends(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as reply, contextlib.suppress(OSError):  # the test may be over
            reply.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _take(reply: socket.socket, streams: Sequence[int]) -> dict[str, Any]:
    """Read the request, and make this fork the process that it describes."""
    with reply, reply.makefile("r", encoding="utf-8") as lines:
        line = lines.readline()
    if not line:
        os._exit(1)  # the launcher was killed
    request: dict[str, Any] = json.loads(line)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.get("own_terminal"):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _open_streams()
    return request


def _open_streams() -> None:
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    encoding, errors = encoding or "utf-8", errors or "surrogateescape"
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115 - it stays open
    sys.stdout = sys.__stdout__ = _open_for_writing(1, encoding, errors)
    sys.stderr = sys.__stderr__ = _open_for_writing(2, encoding, "backslashreplace")


def _open_for_writing(number: int, encoding: str, errors: str) -> io.TextIOWrapper:
    stream = open(number, "w", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115 - it stays open
    stream.reconfigure(line_buffering=number == 2 or stream.isatty())
    return stream


def run(words: list[str]) -> None:
    """Run a program as the interpreter would."""
    program, *arguments = words
    option = arguments[0] if program == sys.executable and arguments[0] in ("-c", "-m") else None
    script = Path(COMMAND if program == COMMAND else arguments[0])
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:0] = [str(Path.cwd() if option else script.parent.resolve()), *folders]
    # A source that is changed within a second would be taken for the one that was compiled before.
    sys.dont_write_bytecode = True
    if program == COMMAND:
        sys.argv = words
        from toolmason.cli.main import main

        main()
    elif option == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *arguments[2:]]
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(arguments[1], "<string>", "exec"), vars(module))  # noqa: S102 - the test wrote it
    else:
        sys.argv = arguments
        runpy.run_path(str(script), run_name="__main__")


def end(code: int) -> None:
    """Do what an interpreter does at its end, except for clearing the modules: that takes as long as loading them."""
    threading._shutdown()  # noqa: SLF001 - waits for threads and ends the pools' ones, as at any end
    atexit._run_exitfuncs()  # noqa: SLF001 - the same for functions
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    load()
    asked = serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:3]))
    try:
        run(asked["words"])
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except BaseException:  # noqa: BLE001 - an interpreter ends with a traceback, whatever it is
        sys.excepthook(*sys.exc_info())
        end(1)
    end(0)
