"""Serve one client over stdin and stdout, directly or through the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any, Final

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import to_json

from toolmason._core.run import eager_task
from toolmason._core.run.eager_task import TaskOutcome
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._wire import OversizedLine
from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES, UnreadableMessage, find_id, parse_message
from toolmason.mcp_server.call_tool import Request
from toolmason.mcp_server.dispatch import (
    DUPLICATE_ID_MESSAGE,
    SESSION_VERSIONS,
    Dispatcher,
    get_cancelled_id,
    has_modern_envelope,
)
from toolmason.mcp_server.http.guard import INVALID_REQUEST, PARSE_ERROR
from toolmason.mcp_server.http.owner import ANONYMOUS, Session
from toolmason.mcp_server.sdk_server import Origin, RunningCall, ToolboxServer, make_server
from toolmason.mcp_server.stdio.pipes import LineReader, LineWriter

MAX_IN_FLIGHT: Final = 256
"""Number of requests in progress at which reading pauses."""
INTERNAL_ERROR: Final = -32603
_SDK_CHECK_SECONDS: Final = 0.01
LISTEN_METHOD: Final = "subscriptions/listen"
GRACE_SECONDS: Final = 4.0
"""Seconds that running calls have to finish, so that the process exits within five seconds."""


class StopSignal:
    """Signal that stops a server on another thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self._is_requested = False

    def attach(self, event: asyncio.Event) -> None:
        """Set an event of the running loop when the server is stopped."""
        self._loop, self._event = asyncio.get_running_loop(), event
        if self._is_requested:
            event.set()

    def __call__(self) -> None:
        """Stop the server. Safe from any thread and from a signal handler."""
        self._is_requested = True
        if self._loop is not None and self._event is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)


async def serve_stdio(box: Toolbox, stop: StopSignal, grace: float, descriptors: tuple[int, int]) -> int:
    """Serve a toolbox on two streams until they end or it is stopped; return the number of unfinished calls."""
    async with box:
        session = StdioSession(make_server(box))
        stop.attach(session.ended)
        return await session.run(*descriptors, grace)


class StdioSession:
    """Session with one client on two streams."""

    def __init__(self, server: ToolboxServer) -> None:
        self.server = server
        self.dispatcher = Dispatcher(server)
        self.in_flight = self.dispatcher.in_flight
        self.ended = asyncio.Event()
        self._session = Session()
        self._legacy = False
        """True if the client has opened a session; otherwise it uses the stateless era."""
        self._reader: LineReader | None = None
        self._writer: LineWriter | None = None
        self._to_sdk: Any = None
        self._sdk_task: asyncio.Task[None] | None = None
        self._sdk_check: asyncio.TimerHandle | None = None
        self._all_answered = asyncio.Event()
        self._listening: set[int | str] = set()
        """Requests that are open until the client ends them, and that no exit waits for."""

    async def run(self, wire_in: int, wire_out: int, grace: float) -> int:
        """Serve until the end; return the number of unfinished calls."""
        self._writer = await LineWriter.open(wire_out)
        self._writer.on_writable = self._update_backpressure
        self._reader = await LineReader.open(wire_in, self.on_line, self.ended.set)
        await self.ended.wait()
        self._reader.close()
        stuck = await self._drain(grace)
        if self._sdk_task is not None:
            self._to_sdk.close()
            self._sdk_task.cancel()
            await asyncio.wait((self._sdk_task,), timeout=1.0)
        await self.server.close()
        await self._writer.close()
        return stuck

    async def _drain(self, grace: float) -> int:
        """Wait for pending responses, at most for the grace period; return the number still missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.in_flight.keys() - self._listening:
                    self._all_answered.clear()
                    await self._all_answered.wait()
        unfinished = [task for task in self.in_flight.values() if task is not None]
        for task in unfinished:
            task.cancel()
        return len(self.in_flight.keys() - self._listening)

    # --- incoming lines ----------------------------------------------------------------------------

    def on_line(self, line: bytes | OversizedLine) -> None:
        """Handle one line."""
        if isinstance(line, OversizedLine):
            request_id = find_id(line.start + line.end)
            self._send_error(request_id, INVALID_REQUEST, f"The line is longer than {MAX_LINE_BYTES} bytes.")
            return
        if not line.strip():
            return
        message = parse_message(line)
        if isinstance(message, UnreadableMessage):
            self._send_error(message.id, PARSE_ERROR, f"The line cannot be read: {message.reason}.")
        elif message is None:
            self._send_error(None, PARSE_ERROR, "The line is not a JSON object.")
        elif "method" in message and "id" in message:
            self._handle_request(message)
        else:
            self._handle_notification(message)
        self._update_backpressure()

    def _handle_request(self, message: dict[str, Any]) -> None:
        request_id = message["id"]
        if type(request_id) is not int and type(request_id) is not str:
            self._send_error(None, INVALID_REQUEST, "The id must be a string or an integer.")
            return
        if request_id in self.in_flight:
            self._send_error(request_id, INVALID_REQUEST, DUPLICATE_ID_MESSAGE)
            return
        request = self._accept(message)
        if request is None:
            self._forward_to_sdk(message)
            return
        self.in_flight[request_id] = None
        task, _, error = eager_task.start(self._answer(request, message), asyncio.get_running_loop())
        if error is not None:
            self._send_error(request_id, INTERNAL_ERROR, "Internal server error")
        if task is not None and request.modern:
            self.in_flight[request_id] = task

    def _accept(self, message: dict[str, Any]) -> Request | None:
        """Return a request that is answered directly, or None if the SDK carries its answer."""
        if not self._legacy:
            return self.dispatcher.accept(message, ANONYMOUS, None)
        # A session may send the other era's envelope by mistake; the SDK reports that.
        if self._session.version not in SESSION_VERSIONS or has_modern_envelope(message):
            return None
        return self.dispatcher.accept(message, ANONYMOUS, self._session)

    async def _answer(self, request: Request, message: dict[str, Any]) -> None:
        outcome: Any = None, None
        try:
            if request.modern:
                outcome = await self._run_stateless(request)
            else:
                outcome = self.dispatcher.start_in_session(request)
                if isinstance(outcome, RunningCall) and not outcome.stream.is_needed:
                    outcome = await self.dispatcher.wait_in_session(outcome, request.id)
            if isinstance(outcome, RunningCall):
                self._forward_to_sdk(message, outcome)
            elif not isinstance(outcome[1], asyncio.CancelledError):
                await self._send(self.dispatcher.encode(request, *outcome)[1])
        finally:
            if not isinstance(outcome, RunningCall):
                self._finish_request(request.id)

    async def _run_stateless(self, request: Request) -> TaskOutcome:
        try:
            return await self.dispatcher.table[request.method](request), None
        except Exception as error:  # noqa: BLE001 - any error becomes a response
            return None, error

    def _finish_request(self, request_id: int | str | None) -> None:
        self.in_flight.pop(request_id, None)
        self._listening.discard(request_id)
        if len(self.in_flight) <= len(self._listening):
            self._all_answered.set()
        self._update_backpressure()

    def _handle_notification(self, message: dict[str, Any]) -> None:
        cancelled_id = get_cancelled_id(message)
        if cancelled_id is not None and self.in_flight.cancel(cancelled_id):
            return
        if self._sdk_task is not None or "method" in message:
            self._forward_to_sdk(message)
        if cancelled_id is not None:
            self._finish_request(cancelled_id)  # the SDK does not answer a request that it cancelled

    async def _send(self, line: bytes) -> None:
        """Write a line once there is room."""
        if self._writer is not None:
            if not self._writer.writable.is_set():
                await self._writer.writable.wait()
            self._writer.write(line)

    def _send_error(self, request_id: int | str | None, code: int, reason: str) -> None:
        if self._writer is not None:
            self._writer.write(_make_error(request_id, code, reason))

    # --- the SDK's loop ----------------------------------------------------------------------------

    def _forward_to_sdk(self, message: dict[str, Any], running: RunningCall | None = None) -> None:
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            self._send_error(message.get("id"), INVALID_REQUEST, "The message is not valid JSON-RPC 2.0.")
            return
        if isinstance(parsed, JSONRPCRequest):
            self.in_flight[parsed.id] = None
            if parsed.method == LISTEN_METHOD:
                self._listening.add(parsed.id)
            self._legacy = self._legacy or parsed.method == "initialize"
        if self._sdk_task is None:
            self._start_sdk()
        origin = Origin(session=self._session, running=running)
        self._to_sdk.send_nowait(SessionMessage(parsed, ServerMessageMetadata(request_context=origin)))

    def _start_sdk(self) -> None:
        self._to_sdk, sdk_input = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        sdk_output, from_sdk = anyio.create_memory_object_stream[SessionMessage](0)
        self._sdk_task = asyncio.get_running_loop().create_task(self._run_sdk(sdk_input, sdk_output, from_sdk))

    async def _run_sdk(self, sdk_input: Any, sdk_output: Any, from_sdk: Any) -> None:
        async with sdk_input, sdk_output, from_sdk, anyio.create_task_group() as group:
            group.start_soon(self._forward_from_sdk, from_sdk)
            try:
                await self.server.run(sdk_input, sdk_output, self.server.create_initialization_options())
            finally:
                group.cancel_scope.cancel()

    async def _forward_from_sdk(self, from_sdk: Any) -> None:
        async for item in from_sdk:
            message = item.message
            try:
                line = message.model_dump_json(by_alias=True, exclude_none=True).encode()
            except (ValueError, UnicodeEncodeError):
                line = _make_error(
                    getattr(message, "id", None), INTERNAL_ERROR, "The response cannot be encoded as JSON."
                )
            await self._send(line)
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                self._finish_request(message.id)

    def _update_backpressure(self) -> None:
        """Pause reading while too many requests or responses are pending."""
        if self._reader is None or self._writer is None:
            return
        queued = 0 if self._to_sdk is None else self._to_sdk.statistics().current_buffer_used
        if queued >= MAX_IN_FLIGHT and self._sdk_check is None:
            # The SDK does not say that it has read messages, and answers none that are notifications.
            self._sdk_check = asyncio.get_running_loop().call_later(_SDK_CHECK_SECONDS, self._check_sdk)
        if len(self.in_flight) >= MAX_IN_FLIGHT or queued >= MAX_IN_FLIGHT or not self._writer.writable.is_set():
            self._reader.pause()
        else:
            self._reader.resume()

    def _check_sdk(self) -> None:
        self._sdk_check = None
        self._update_backpressure()


def _make_error(request_id: int | str | None, code: int, reason: str) -> bytes:
    return to_json({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": reason}})
