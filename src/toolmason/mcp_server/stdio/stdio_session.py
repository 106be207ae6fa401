"""Lines on standard input → answers on standard output: a transport of our own.

Lives here: an answer for every id that can be read, one call for each id, how many run at once, the end.
Plain requests take the short way; the rest goes to the SDK's loop. Not here: bytes (`pipes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import to_json

from toolmason._core.run import eager_task
from toolmason._core.run.eager_task import Rest
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.mcp_client.transport.framing import LINE_BYTES, Unreadable, read_line
from toolmason.mcp_server.http.fast_path import SESSION_VERSIONS, Short, enveloped
from toolmason.mcp_server.http.guard import INVALID_REQUEST, PARSE_ERROR
from toolmason.mcp_server.http.owner import NOBODY
from toolmason.mcp_server.in_flight import TAKEN
from toolmason.mcp_server.sdk_server import ToolboxServer, server_of
from toolmason.mcp_server.stdio.pipes import Incoming, Outgoing

AT_ONCE: Final = 256
"""How many requests are under way before we stop reading."""
INTERNAL: Final = -32603
GRACE_SECONDS: Final = 4.0
"""How long running calls have to finish, so that the process ends within five seconds."""


class Stop:
    """Tells a server on another thread to stop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self._asked = False

    def join(self, event: asyncio.Event) -> None:
        """Have an event of the running loop set when we are told to stop."""
        self._loop, self._event = asyncio.get_running_loop(), event
        if self._asked:
            event.set()

    def __call__(self) -> None:
        """Stop. From any thread, and from a signal handler."""
        self._asked = True
        if self._loop is not None and self._event is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)


async def serve_stdio(box: Toolbox, stop: Stop, grace: float, wire: tuple[int, int]) -> int:
    """Serve a toolbox on two streams until they end, or we are told to; return how many calls hang on."""
    async with box:
        session = Session(server_of(box))
        stop.join(session.ended)
        return await session.run(*wire, grace)


class Session:
    """One client, on two streams."""

    session: Final = ""
    """What the short way knows a session by; here there is one."""

    def __init__(self, server: ToolboxServer) -> None:
        self.server, self.short = server, Short(server, 0)
        self.ended = asyncio.Event()
        self.waiting: dict[int | str, asyncio.Future[Any] | None] = {}
        """Requests under way: our own task, or `None` for the SDK's."""
        self._version: bytes | None = None
        self._legacy = False
        self._incoming: Incoming | None = None
        self._out: Outgoing | None = None
        self._to_sdk: Any = None
        self._sdk: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()

    async def run(self, wire_in: int, wire_out: int, grace: float) -> int:
        """Serve until the end; return how many calls would not stop."""
        self._out = await Outgoing.over(wire_out)
        self._out.on_room = self._breathe
        self._incoming = await Incoming.over(wire_in, self.took, self.ended.set)
        await self.ended.wait()
        self._incoming.close()
        stuck = await self._drained(grace)
        if self._sdk is not None:
            self._to_sdk.close()
            self._sdk.cancel()
            await asyncio.wait((self._sdk,), timeout=1.0)
        self.server.changes.close()
        await self.server.engine.tasks.close()
        await self._out.close()
        return stuck

    async def _drained(self, grace: float) -> int:
        """Wait for the answers of what was taken in, no longer than the grace time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.waiting:
                    self._idle.clear()
                    await self._idle.wait()
        left = [task for task in self.waiting.values() if task is not None]
        for task in left:
            task.cancel()
        return len(self.waiting)

    # --- one line ----------------------------------------------------------------------------------

    def took(self, line: bytes | None) -> None:
        """Take one line."""
        if line is None:
            self._refuse(None, INVALID_REQUEST, f"The line is longer than {LINE_BYTES} bytes.")
            return
        if not line.strip():
            return
        message = read_line(line)
        if isinstance(message, Unreadable):
            self._refuse(message.id, PARSE_ERROR, f"The line cannot be read: {message.reason}.")
        elif message is None:
            self._refuse(None, PARSE_ERROR, "The line is not a JSON object.")
        elif "method" in message and "id" in message:
            self._asked(message)
        else:
            self._told(message)
        self._breathe()

    def _asked(self, message: dict[str, Any]) -> None:
        asked = message["id"]
        if type(asked) is not int and type(asked) is not str:
            self._refuse(None, INVALID_REQUEST, "The id must be a text or a whole number.")
        elif asked in self.waiting:
            self._refuse(asked, INVALID_REQUEST, TAKEN)
        elif self._is_plain(message):
            self.waiting[asked] = None
            task, _, error = eager_task.start(self._answer(message), asyncio.get_running_loop())
            if task is not None:
                self.waiting[asked] = task
                task.add_done_callback(lambda _: self._done(asked))
            else:
                self._done(asked)
                if error is not None:
                    self._refuse(asked, INTERNAL, "Internal server error")
        else:
            self._pass_on(message)

    def _is_plain(self, message: dict[str, Any]) -> bool:
        """Tell whether the short way may have a look."""
        params = message.get("params")
        if message.get("jsonrpc") != "2.0" or not isinstance(params, dict):
            return False
        if self._legacy:
            return self._version in SESSION_VERSIONS and isinstance(params.get("_meta", {}), dict)
        return enveloped(params)

    async def _answer(self, message: dict[str, Any]) -> None:
        # A session may carry the other era's envelope by mistake; the SDK says so.
        mixed = self._legacy and enveloped(message["params"])
        if mixed or not await self.short.reply(message, NOBODY, not self._legacy, self):
            self.waiting.pop(message["id"], None)
            self._pass_on(message)

    def _done(self, asked: int | str) -> None:
        if self.waiting.get(asked, self) is not None or self._sdk is None or asked not in self._passed:
            self.waiting.pop(asked, None)
        if not self.waiting:
            self._idle.set()
        self._breathe()

    def _told(self, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/cancelled":
            params = message.get("params")
            asked = params.get("requestId") if isinstance(params, dict) else None
            task = self.waiting.get(asked) if isinstance(asked, int | str) else None
            if task is not None:
                task.cancel()
                return
        if self._sdk is not None or "method" in message:
            self._pass_on(message)

    # --- what the short way sees ---------------------------------------------------------------------

    async def waited(self, rest: Rest) -> Any:
        """Wait for a call; a cancel of the request is one of the call."""
        return await rest

    async def send(self, status: int, body: bytes) -> None:
        """Write an answer, when there is room."""
        del status
        if self._out is not None:
            if not self._out.room.is_set():
                await self._out.room.wait()
            self._out.write(body)

    def _refuse(self, asked: int | str | None, code: int, reason: str) -> None:
        if self._out is not None:
            error = {"code": code, "message": reason}
            self._out.write(to_json({"jsonrpc": "2.0", "id": asked, "error": error}))

    # --- the SDK's loop ----------------------------------------------------------------------------

    def _pass_on(self, message: dict[str, Any]) -> None:
        try:
            read = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            self._refuse(message.get("id"), INVALID_REQUEST, "The message is not one of JSON-RPC 2.0.")
            return
        if isinstance(read, JSONRPCRequest):
            self.waiting[read.id] = None
            self._passed.add(read.id)
            self._legacy = self._legacy or read.method == "initialize"
        if self._sdk is None:
            self._begin()
        self._to_sdk.send_nowait(SessionMessage(read))

    @property
    def _passed(self) -> set[int | str]:
        found: set[int | str] = self.__dict__.setdefault("passed", set())
        return found

    def _begin(self) -> None:
        self._to_sdk, from_us = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        to_us, from_sdk = anyio.create_memory_object_stream[SessionMessage](0)
        self._sdk = asyncio.get_running_loop().create_task(self._serve(from_us, to_us, from_sdk))

    async def _serve(self, from_us: Any, to_us: Any, from_sdk: Any) -> None:
        async with from_us, to_us, from_sdk, anyio.create_task_group() as group:
            group.start_soon(self._forward, from_sdk)
            try:
                await self.server.run(from_us, to_us, self.server.create_initialization_options())
            finally:
                group.cancel_scope.cancel()

    async def _forward(self, from_sdk: Any) -> None:
        async for item in from_sdk:
            message = item.message
            try:
                line = message.model_dump_json(by_alias=True, exclude_none=True).encode()
            except (ValueError, UnicodeEncodeError):
                line = to_json(
                    {
                        "jsonrpc": "2.0",
                        "id": getattr(message, "id", None),
                        "error": {"code": INTERNAL, "message": "The answer cannot be written as JSON."},
                    }
                )
            await self.send(200, line)
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                if isinstance(message, JSONRPCResponse) and "protocolVersion" in message.result:
                    self._version = str(message.result["protocolVersion"]).encode()
                self._passed.discard(message.id)
                self.waiting.pop(message.id, None)
                if not self.waiting:
                    self._idle.set()
                self._breathe()

    def _breathe(self) -> None:
        """Read no faster than we answer."""
        if self._incoming is None or self._out is None:
            return
        queued = 0 if self._to_sdk is None else self._to_sdk.statistics().current_buffer_used
        if len(self.waiting) >= AT_ONCE or queued >= AT_ONCE or not self._out.room.is_set():
            self._incoming.pause()
        else:
            self._incoming.resume()
