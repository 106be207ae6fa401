"""A server process → the two streams that the SDK reads and writes.

Lives here: starting the process without a shell and with a short environment, reading it in linear time, keeping its
last words, ending it and everything it started. A process that dies of the question which era it speaks is started
again, and not asked. Not here: what the messages mean (`screen`, the SDK).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from toolmason.errors import RemoteError
from toolmason.mcp_client.server_options import Server
from toolmason.mcp_client.transport.framing import Lines, TooLong, Unreadable, read_line
from toolmason.mcp_client.transport.sanitize import Screen, failure

_log = logging.getLogger("toolmason.mcp")

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_INHERITED_WINDOWS: Final = ("APPDATA", "LOCALAPPDATA", "PATH", "PATHEXT", "SYSTEMROOT", "TEMP", "USERPROFILE")
STDERR_BYTES: Final = 64 * 1024
PROBE_SECONDS: Final = 3.0
"""How long a server may be silent when it is asked which era it speaks."""
POLITE_SECONDS: Final = 2.0
"""How long a process may take to end when its input is closed, and again when it is told to."""
_CHUNK: Final = 256 * 1024
_QUEUE: Final = 256

SPEAKS_LEGACY: Final[set[tuple[str, ...]]] = set()
"""Commands whose process ended, or said nothing, when asked: it is not asked again in this process."""


class Child:
    """One server process, and what is known of it."""

    def __init__(self, server: Server, screen: Screen) -> None:
        self.server, self.screen = server, screen
        self.process: asyncio.subprocess.Process | None = None
        self.stderr = bytearray()
        self.ended = False
        """Whether it says nothing any more; asyncio hears of the death of a process a little later."""
        self.noise = 0
        """Lines that were no messages."""
        self.probe: Any = None
        """The id of the question which era it speaks, while there is no answer."""
        self.suspect = False
        """Whether it did not take the question well."""
        self._out, self.read = anyio.create_memory_object_stream[SessionMessage | Exception](_QUEUE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()

    @property
    def last_words(self) -> str:
        """The last line that the process wrote to its standard error."""
        lines = bytes(self.stderr).decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def end(self) -> str:
        """How the process came to its end, as far as is known."""
        code = None if self.process is None else self.process.returncode
        return "its process ended" if code is None else f"its process ended with code {code}"

    async def start(self) -> None:
        """Start the process.

        Raises:
            RemoteError: it cannot be started.
        """
        server = self.server
        try:
            self.process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**inherited(os.environ), **(server.env or {})},
                cwd=server.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = f"{server.command[0]!r} cannot be started: {error}"
            raise RemoteError(server.name, "connect", reason) from error
        _LIVE.add(self.process.pid)
        self._spawn(self._read_stdout(self.process))
        self._spawn(self._read_stderr(self.process))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stderr
        while stream is not None and (chunk := await stream.read(_CHUNK)):
            self.stderr += chunk
            del self.stderr[:-STDERR_BYTES]

    async def _read_stdout(self, process: asyncio.subprocess.Process) -> None:
        lines, stream = Lines(), process.stdout
        try:
            while stream is not None and (chunk := await stream.read(_CHUNK)):
                for line in lines.feed(chunk):
                    await self._take(line)
        except TooLong as error:
            _log.warning("server %r: %s; its process is ended", self.server.name, error)
            self._kill(process)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody listens any more
        if self.probe is not None and process is self.process:
            # It ended because it was asked: a server of the old era that takes no question before the handshake.
            self.suspect, self.process = True, None
            await self._end(process)
            await self._answer_probe("the process ended when it was asked")
            return
        if process is self.process:
            self.ended = True
            self._out.close()

    async def _take(self, line: bytes) -> None:
        data = read_line(line, self.screen.lists)
        if data is None:
            self.noise += bool(line.strip())
            return
        if isinstance(data, Unreadable):
            self.noise += 1
            _log.warning("server %r: a message cannot be read: %s", self.server.name, data.reason)
            if data.id in self.screen.asked:
                await self._out.send(SessionMessage(self.screen.received(failure(data.id, data.reason))))
            return
        try:
            message = jsonrpc_message_adapter.validate_python(data, by_name=False)
        except ValidationError:
            self.noise += 1
            known = data.get("id")
            if isinstance(known, int | str) and known in self.screen.asked:
                reason = "the answer has neither a result nor an error"
                await self._out.send(SessionMessage(self.screen.received(failure(known, reason))))
            return
        if getattr(message, "id", None) == self.probe and self.probe is not None:
            self._probe_is_over()
        if self.suspect and isinstance(message, JSONRPCResponse) and "protocolVersion" in message.result:
            # The handshake went well, so it was not just slow to start.
            SPEAKS_LEGACY.add(self.server.command)
        await self._out.send(SessionMessage(self.screen.received(message)))

    # --- the question which era it speaks ----------------------------------------------------------

    async def _answer_probe(self, reason: str) -> None:
        asked = self.probe
        self._probe_is_over()
        self.screen.asked.pop(asked, None)
        error = ErrorData(code=METHOD_NOT_FOUND, message=reason)
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody may wait any more
            await self._out.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked, error=error)))

    def _probe_is_over(self) -> None:
        self.probe = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _silent(self) -> None:
        if self.probe is not None:
            self.suspect = True
            self._spawn(self._answer_probe("no answer"))

    # --- writing -----------------------------------------------------------------------------------

    async def send(self, item: SessionMessage) -> None:
        """Write one message."""
        message = item.message
        self.screen.sent(message)
        if isinstance(message, JSONRPCRequest) and message.method == "server/discover":
            self.probe = message.id
            if self.server.command in SPEAKS_LEGACY:
                await self._answer_probe("known to be of the old era")
                return
            patience = min(PROBE_SECONDS, self.server.connect_timeout / 3)
            self._timer = asyncio.get_running_loop().call_later(patience, self._silent)
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._writing:
            if self.process is None or self.process.returncode is not None:
                await self.start()
            try:
                assert self.process is not None  # noqa: S101 - started just above
                assert self.process.stdin is not None  # noqa: S101 - it is a pipe
                self.process.stdin.write(data)
                await self.process.stdin.drain()
            except (OSError, RuntimeError):
                if self.probe is None:
                    raise anyio.ClosedResourceError from None

    async def aclose(self) -> None:
        """Take no more messages."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    # --- the end -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the process and everything that it started: gently first, and not for long."""
        self._probe_is_over()
        process = self.process
        try:
            if process is not None:
                await self._end(process)
        except asyncio.CancelledError:
            if process is not None:
                self._kill(process)
            raise
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            self._out.close()
            self.read.close()
            if process is not None:
                # A grandchild may hold a pipe; asyncio has no public way to let go of it.
                transport: Any = vars(process)["_transport"]
                transport.close()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        for urge in (None, signal.SIGTERM):
            if urge is not None:
                _signal_group(process.pid, urge)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), POLITE_SECONDS)
                break
        else:
            self._kill(process)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), POLITE_SECONDS)
        if _signal_group(process.pid, signal.SIGTERM):
            await asyncio.sleep(0.1)
            _signal_group(process.pid, signal.SIGKILL)
        _LIVE.discard(process.pid)

    async def gone(self) -> None:
        """Wait for the end of a process that was ended in a hurry; not for long."""
        if self.process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), POLITE_SECONDS)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        if not _signal_group(process.pid, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _signal_group(pid: int, number: int) -> bool:
    """Signal a process and everything that it started; tell whether there was anything."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


_LIVE: Final[set[int]] = set()
"""Server processes that were started and not ended."""


@atexit.register
def _end_all() -> None:
    """End what nobody closed: a server must not outlive the program that started it."""
    for pid in _LIVE:
        _signal_group(pid, signal.SIGKILL)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a server process gets of our environment."""
    names = _INHERITED_WINDOWS if sys.platform == "win32" else INHERITED
    # A value that begins so is a shell function, which some shells would run.
    return {name: environ[name] for name in names if name in environ and not environ[name].startswith("()")}


@asynccontextmanager
async def stdio_streams(child: Child) -> AsyncGenerator[tuple[Any, Any]]:
    """Run a server process for as long as the block lasts, as a transport of the SDK."""
    try:
        await child.start()
        yield child.read, child
    finally:
        await child.stop()
