"""Run a server as a subprocess, and connect its pipes to the SDK."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from toolmason._wire import LineSplitter, OversizedLine
from toolmason.errors import RemoteError
from toolmason.mcp_client.server_options import ServerSpec
from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES, UnreadableMessage, find_id, parse_message
from toolmason.mcp_client.transport.sanitize import Sanitizer, make_error_response

_log = logging.getLogger("toolmason.mcp")

INHERITED_VARIABLES: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_INHERITED_VARIABLES_WINDOWS: Final = (
    "APPDATA",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "SYSTEMROOT",
    "TEMP",
    "USERPROFILE",
)
MAX_STDERR_BYTES: Final = 64 * 1024
PROBE_SECONDS: Final = 3.0
"""Seconds to wait for a response to the era probe (`server/discover`)."""
TERMINATE_SECONDS: Final = 2.0
"""Seconds to wait for the process to exit after closing stdin, and again after SIGTERM."""
MAX_SKIPPED_BYTES: Final = 4 * MAX_LINE_BYTES
"""Length at which a line without an end kills the process."""
MAX_PROGRESS: Final = 256
"""Progress notifications at once, and for each second, that a server may send."""
MAX_UNREAD_BYTES: Final = 64 * 1024
"""Bytes that a server has not read yet, above which its refused requests get no answer."""
_CHUNK_BYTES: Final = 256 * 1024
_QUEUE_SIZE: Final = 256

LEGACY_COMMANDS: Final[set[tuple[str, ...]]] = set()
"""Commands whose process exited or stayed silent when probed; they are not probed again by this program."""


class _ProgressLimit:
    """Drops the oldest progress notifications of a flood: each costs the SDK a task, and only the newest matter."""

    def __init__(self) -> None:
        self._left, self._time = float(MAX_PROGRESS), monotonic()
        self.dropped = 0

    def apply(self, lines: Iterable[bytes | OversizedLine]) -> list[bytes | OversizedLine]:
        """Return the lines that came together, without the notifications that are too many."""
        lines, now = list(lines), monotonic()
        self._left, self._time = min(MAX_PROGRESS, self._left + MAX_PROGRESS * (now - self._time)), now
        found = [number for number, line in enumerate(lines) if _is_progress(line)] if len(lines) > 1 else []
        excess = len(found) - max(1, int(self._left))
        self._left = max(0.0, self._left - len(found))
        if excess <= 0:
            return lines
        self.dropped += excess
        stale = set(found[:excess])
        return [line for number, line in enumerate(lines) if number not in stale]


def _is_progress(line: bytes | OversizedLine) -> bool:
    if isinstance(line, OversizedLine) or b'"notifications/progress"' not in line:
        return False
    data = parse_message(line)
    return isinstance(data, dict) and data.get("method") == "notifications/progress" and "id" not in data


def _encode(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


class _LineTooLong(Exception):
    """A line of the server exceeds the limit."""


class ServerProcess:
    """A server subprocess and its state."""

    def __init__(self, server: ServerSpec, sanitizer: Sanitizer) -> None:
        self.server, self.sanitizer = server, sanitizer
        self.process: asyncio.subprocess.Process | None = None
        self.stderr = bytearray()
        self.ended = False
        """True if stdout is closed; asyncio notices the exit of the process slightly later."""
        self.probe_id: Any = None
        """Id of the pending era probe, or None."""
        self.probe_failed = False
        """True if the process exited or did not respond when probed."""
        self.is_probed = False
        """True if the server responded to the probe. Later requests of the same method check that it is alive."""
        self._sender, self.receiver = anyio.create_memory_object_stream[SessionMessage | Exception](_QUEUE_SIZE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started: list[asyncio.subprocess.Process] = []
        """The processes that were started: more than one if the first exited when probed."""
        self._probe_timer: asyncio.TimerHandle | None = None
        self._write_lock = asyncio.Lock()

    @property
    def last_stderr_line(self) -> str:
        """Last line that the process wrote to stderr."""
        lines = bytes(self.stderr).decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def exit_reason(self) -> str:
        """Description of how the process exited, as far as it is known."""
        code = None if self.process is None else self.process.returncode
        return "its process exited" if code is None else f"its process exited with code {code}"

    async def start(self) -> None:
        """Start the process. Raise `RemoteError` if it cannot be started."""
        server = self.server
        try:
            self.process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**make_environment(os.environ), **(server.env or {})},
                cwd=server.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = f"cannot start {server.command[0]!r}: {error}"
            raise RemoteError(server.name, "connect", reason) from error
        self._started.append(self.process)
        _LIVE_PIDS.add(self.process.pid)
        self._spawn(self._read_stdout(self.process))
        self._spawn(self._read_stderr(self.process))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stderr
        while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
            self.stderr += chunk
            del self.stderr[:-MAX_STDERR_BYTES]

    async def _read_stdout(self, process: asyncio.subprocess.Process) -> None:
        splitter, progress = LineSplitter(MAX_LINE_BYTES), _ProgressLimit()
        stream = process.stdout
        try:
            while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
                for line in progress.apply(splitter.feed(chunk)):
                    await self._handle_line(line)
                if splitter.oversized is not None and splitter.oversized.size > MAX_SKIPPED_BYTES:
                    raise _LineTooLong  # noqa: TRY301 - to the handler below, which also ends the stream
        except _LineTooLong:
            _log.warning(
                "server %r: a line has no end after %d bytes; killing its process", self.server.name, MAX_SKIPPED_BYTES
            )
            self._kill(process)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the receiver is closed
        finally:
            if progress.dropped:
                _log.warning("server %r: %d progress notifications were dropped", self.server.name, progress.dropped)
        if self.probe_id is not None and process is self.process:
            # It exited because of the probe: a legacy server that accepts no request before the handshake.
            self.probe_failed = True
            self.process = None
            await self._terminate(process)
            await self._answer_probe("the process exited when probed")
            return
        if process is self.process:
            self.ended = True
            self._sender.close()

    async def _handle_line(self, line: bytes | OversizedLine) -> None:
        data = (
            UnreadableMessage(f"it is longer than the limit of {MAX_LINE_BYTES} bytes", find_id(line.start + line.end))
            if isinstance(line, OversizedLine)
            else parse_message(line, self.sanitizer.tool_list_ids)
        )
        if data is None:
            return
        if isinstance(data, UnreadableMessage):
            _log.warning("server %r: unreadable message: %s", self.server.name, data.reason)
            await self._fail_request(data.id, data.reason)
            return
        try:
            message = jsonrpc_message_adapter.validate_python(data, by_name=False)
        except ValidationError:
            await self._fail_request(data.get("id"), "the response has neither a result nor an error")
            return
        if getattr(message, "id", None) == self.probe_id and self.probe_id is not None:
            self.is_probed = True
            self._clear_probe()
        if self.probe_failed and isinstance(message, JSONRPCResponse) and "protocolVersion" in message.result:
            # The handshake succeeded, so the server was not just slow to start.
            LEGACY_COMMANDS.add(self.server.command)
        refusal = self.sanitizer.refuse(message)
        if refusal is None:
            await self._sender.send(SessionMessage(self.sanitizer.sanitize(message)))
            return
        stdin = None if self.process is None else self.process.stdin
        # Without a wait: a server that writes and does not read would stop the client from reading, too.
        if stdin is not None and stdin.transport.get_write_buffer_size() < MAX_UNREAD_BYTES:
            stdin.write(_encode(refusal))

    async def _fail_request(self, request_id: Any, reason: str) -> None:
        """Answer a pending request with an error; ignore an id that belongs to none."""
        if isinstance(request_id, int | str) and request_id in self.sanitizer.pending:
            await self._sender.send(SessionMessage(self.sanitizer.sanitize(make_error_response(request_id, reason))))

    # --- era probe ---------------------------------------------------------------------------------

    async def _answer_probe(self, reason: str) -> None:
        request_id = self.probe_id
        self._clear_probe()
        self.sanitizer.pending.pop(request_id, None)
        error = ErrorData(code=METHOD_NOT_FOUND, message=reason)
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the receiver may be closed
            await self._sender.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))

    def _clear_probe(self) -> None:
        self.probe_id = None
        if self._probe_timer is not None:
            self._probe_timer.cancel()
            self._probe_timer = None

    def _on_probe_timeout(self) -> None:
        if self.probe_id is not None:
            self.probe_failed = True
            self._spawn(self._answer_probe("no response"))

    # --- writing -----------------------------------------------------------------------------------

    async def send(self, item: SessionMessage) -> None:
        """Write one message."""
        message = item.message
        self.sanitizer.track(message)
        if isinstance(message, JSONRPCRequest) and message.method == "server/discover" and not self.is_probed:
            self.probe_id = message.id
            if self.server.command in LEGACY_COMMANDS:
                await self._answer_probe("the server is known to be of the legacy era")
                return
            probe_timeout = min(PROBE_SECONDS, self.server.connect_timeout / 3)
            self._probe_timer = asyncio.get_running_loop().call_later(probe_timeout, self._on_probe_timeout)
        async with self._write_lock:
            if self.process is None or self.process.returncode is not None:
                await self.start()
            try:
                assert self.process is not None  # noqa: S101 - started just above
                assert self.process.stdin is not None  # noqa: S101 - it is a pipe
                self.process.stdin.write(_encode(message))
                await self.process.stdin.drain()
            except (OSError, RuntimeError):
                if self.probe_id is None:
                    raise anyio.ClosedResourceError from None
        self.sanitizer.settle(message)

    async def aclose(self) -> None:
        """Do nothing: `stop` ends the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    # --- shutdown ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop each process and its descendants: gracefully first, then by force."""
        self._clear_probe()
        running = [process for process in self._started if process.pid in _LIVE_PIDS]
        try:
            await asyncio.gather(*map(self._terminate, running))
        except asyncio.CancelledError:
            for process in running:
                self._kill(process)
            raise
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            self._sender.close()
            self.receiver.close()
            for process in self._started:
                # A grandchild may hold a pipe open; asyncio has no public API to release it.
                transport: Any = vars(process)["_transport"]
                transport.close()

    async def _terminate(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        for signal_number in (None, signal.SIGTERM):
            if signal_number is not None:
                signal_group(process.pid, signal_number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), TERMINATE_SECONDS)
                break
        else:
            self._kill(process)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), TERMINATE_SECONDS)
        if signal_group(process.pid, signal.SIGTERM):
            await asyncio.sleep(0.1)
            signal_group(process.pid, signal.SIGKILL)
        _LIVE_PIDS.discard(process.pid)

    async def wait_until_exited(self) -> None:
        """Wait a short time for a killed process to exit."""
        if self.process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), TERMINATE_SECONDS)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        if not signal_group(process.pid, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def signal_group(pid: int, number: int) -> bool:
    """Signal a process and its descendants. Return True if any of them was running."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


_LIVE_PIDS: Final[set[int]] = set()
"""Ids of the server processes that are running."""


@atexit.register
def _kill_all() -> None:
    """Kill the remaining servers: a server must not outlive the program that started it."""
    for pid in _LIVE_PIDS:
        signal_group(pid, signal.SIGKILL)


def make_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that a server process inherits."""
    names = _INHERITED_VARIABLES_WINDOWS if sys.platform == "win32" else INHERITED_VARIABLES
    # A value with this prefix is a shell function, which some shells execute.
    return {name: environ[name] for name in names if name in environ and not environ[name].startswith("()")}


@asynccontextmanager
async def open_stdio_streams(process: ServerProcess) -> AsyncGenerator[tuple[Any, Any]]:
    """Run a server process during the block, as an SDK transport."""
    try:
        await process.start()
        yield process.receiver, process
    finally:
        await process.stop()
