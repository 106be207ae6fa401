"""Serve one client over stdin and stdout, directly or through the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from importlib import import_module
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.run import eager_task
from toolmason._core.run.eager_task import TaskOutcome
from toolmason._http.caller import ANONYMOUS
from toolmason._http.guard import INVALID_REQUEST, PARSE_ERROR
from toolmason._wire import OversizedLine
from toolmason.mcp_client.specification import INTERNAL_ERROR, SESSION_VERSIONS
from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES, UnreadableMessage, find_id, parse_message
from toolmason.mcp_server.call_tool import Request
from toolmason.mcp_server.client_requests import Origin, RunningCall
from toolmason.mcp_server.dispatch import DUPLICATE_ID_MESSAGE, Dispatcher, get_cancelled_id, has_modern_envelope
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.http.session_table import Session
from toolmason.mcp_server.stdio.pipes import LineReader, LineWriter

MAX_IN_FLIGHT: Final = 256
"""Number of requests in progress at which reading pauses."""
LISTEN_METHOD: Final = "subscriptions/listen"
_REPLAY_ID: Final = f"initialize-{secrets.token_hex(8)}"
"""Id under which the SDK gets an `initialize` that was answered directly; no client has it."""
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


async def serve_stdio(handlers: Handlers, stop: StopSignal, grace: float, descriptors: tuple[int, int]) -> int:
    """Serve a toolbox on two streams until they end or it is stopped; return the number of unfinished calls."""
    async with handlers.box, handlers.reloader or contextlib.nullcontext():
        session = StdioSession(handlers)
        stop.attach(session.ended)
        return await session.run(*descriptors, grace)


class StdioSession:
    """Session with one client on two streams."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.dispatcher = Dispatcher(handlers)
        self.in_flight = self.dispatcher.in_flight
        self.ended = asyncio.Event()
        self._session = Session()
        self._legacy = False
        """True if the client has opened a session; otherwise it uses the stateless era."""
        self._reader: LineReader | None = None
        self._writer: LineWriter | None = None
        self._sdk_task: asyncio.Task[None] | None = None
        """Task of the SDK's loop; None until a message needs it."""
        self._sdk_queue: asyncio.Queue[tuple[dict[str, Any], RunningCall | None]] = asyncio.Queue()
        """Messages for the SDK; before it is needed, those that opened the session."""
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
            self._sdk_task.cancel()
            await asyncio.wait((self._sdk_task,), timeout=1.0)
        await self.handlers.close()
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
        elif _is_request(message):
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
        if message["method"] == "initialize" and self._open_session(message):
            return
        request = self._accept(message)
        if request is None:
            self._forward_to_sdk(message)
            return
        self.in_flight[request_id] = None
        task, _, error = eager_task.start(self._answer(request, message))
        if error is not None:
            self._send_error(request_id, INTERNAL_ERROR, "Internal server error")
        if task is not None and request.modern:
            self.in_flight[request_id] = task

    def _open_session(self, message: dict[str, Any]) -> bool:
        """Answer the `initialize` of a plain client. Return False if the SDK has to answer it."""
        opened = None if self._legacy or self._sdk_task is not None else self.dispatcher.open_session(message)
        if opened is None or self._writer is None:
            return False
        self._legacy = True
        self._session, response = opened
        self._sdk_queue.put_nowait(({**message, "id": _REPLAY_ID}, None))
        self._writer.write(response)
        return True

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
            return await self.dispatcher.handle(request), None
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
        if self._sdk_task is not None or ("method" in message and not self._take_notification(message)):
            self._forward_to_sdk(message)
        if cancelled_id is not None:
            self._finish_request(cancelled_id)  # the SDK does not answer a request that it cancelled

    def _take_notification(self, message: dict[str, Any]) -> bool:
        """Handle a notification while the SDK carries no request. Return False if the SDK has to."""
        if message.get("jsonrpc") != "2.0" or not isinstance(message.get("params", {}), dict) or "id" in message:
            return False
        if message["method"] != "notifications/initialized":
            return isinstance(message["method"], str)  # it is about a request that has ended, or means nothing here
        if self._legacy and "" not in self.handlers.subscriptions.sessions:
            self._sdk_queue.put_nowait((message, None))
            self.handlers.subscriptions.add_session("", self._notify)
        return self._legacy

    async def _notify(self, kind: str, uri: str | None) -> None:
        """Notify the client of a changed list, until the SDK carries the session. It subscribes to URIs."""
        del uri
        await self._send(to_json({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}))

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
        if _is_request(message):
            self.in_flight[message["id"]] = None
            if message["method"] == LISTEN_METHOD:
                self._listening.add(message["id"])
            self._legacy = self._legacy or message["method"] == "initialize"
        if self._sdk_task is None:
            self._sdk_task = asyncio.get_running_loop().create_task(self._run_sdk())
        self._sdk_queue.put_nowait((message, running))

    async def _run_sdk(self) -> None:
        # In a thread: loading it takes most of a second, and calls that are running have deadlines.
        module = await asyncio.to_thread(import_module, "toolmason.mcp_server.sdk_server")
        server = module.make_server(self.handlers)
        await server.serve_stream(self._receive_for_sdk, self._refuse, self._send_from_sdk)

    async def _receive_for_sdk(self) -> tuple[dict[str, Any], Origin]:
        message, running = await self._sdk_queue.get()
        self._update_backpressure()
        return message, Origin(session=self._session, running=running)

    def _refuse(self, message: dict[str, Any]) -> None:
        self._send_error(message.get("id"), INVALID_REQUEST, "The message is not valid JSON-RPC 2.0.")
        if _is_request(message):
            self._finish_request(message["id"])

    async def _send_from_sdk(self, line: bytes | None, request_id: int | str | None) -> None:
        if request_id == _REPLAY_ID:
            return  # the client has had this answer
        if line is None:
            line = _make_error(request_id, INTERNAL_ERROR, "The response cannot be encoded as JSON.")
        await self._send(line)
        if request_id is not None:
            self._finish_request(request_id)

    def _update_backpressure(self) -> None:
        """Pause reading while too many requests or responses are pending."""
        if self._reader is None or self._writer is None:
            return
        is_behind = max(len(self.in_flight), self._sdk_queue.qsize()) >= MAX_IN_FLIGHT
        if is_behind or not self._writer.writable.is_set():
            self._reader.pause()
        else:
            self._reader.resume()


def _is_request(message: dict[str, Any]) -> bool:
    return "method" in message and "id" in message


def _make_error(request_id: int | str | None, code: int, reason: str) -> bytes:
    return to_json({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": reason}})
