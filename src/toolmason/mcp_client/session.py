"""Run one SDK client in its own task, so that any task or thread can open, use and close it."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import Context
from functools import cache
from importlib import metadata
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Final, TypeVar

import httpx2
from mcp import Client
from mcp.client.auth import OAuthFlowError
from mcp_types import Implementation, ResourceUpdatedNotification, ServerNotification

from toolmason._core.remote.protocol import ServerRequestHandlers
from toolmason._core.run.tracing import describe_current
from toolmason.errors import RemoteError
from toolmason.mcp_client.calls.callbacks import make_callbacks
from toolmason.mcp_client.calls.forwarding import ForwardedRequests, send_raw
from toolmason.mcp_client.calls.tasks import TasksExtension
from toolmason.mcp_client.remote_errors import (
    ConnectionLost,
    add_address,
    find_connection_loss,
    find_root_cause,
    format_reason,
)
from toolmason.mcp_client.sdk_spans import IS_OWN_REQUEST
from toolmason.mcp_client.server_options import ServerSpec
from toolmason.mcp_client.transport.http import BoundedTransport, open_http_streams
from toolmason.mcp_client.transport.sanitize import Sanitizer
from toolmason.mcp_client.transport.stdio import ServerProcess, open_stdio_streams

_T = TypeVar("_T")
OnChange = Callable[..., None]
"""Called with the method of the notification, and with the URI if a single resource changed."""
_SSE_FALLBACK_STATUSES = frozenset({404, 405})
CLOSE_TIMEOUT = 5.0
STREAM_LOST: Final = "the stream of changes ended"
STREAM_RESTORED: Final = "the stream of changes is open again"
FIRST_RETRY_DELAY = 0.2
"""Seconds to wait before listening for changes again; each further delay is doubled."""
MAX_RETRY_DELAY = 30.0
LOOP_CHECK_SECONDS = 1.0
"""Seconds between checks that the loop of a session still runs, if a request comes from another loop."""
MAX_SLOT_SECONDS = 5.0
"""Seconds after which a process that is still starting gives its slot to the next one."""
MIN_START_SECONDS = 300.0
"""Seconds that a server may take to start in any case, though callers wait for `connect_timeout` only."""
START_FACTOR: Final = 10
"""Number of times the `connect_timeout` that a server may take to start, if that is longer."""


class UpstreamSession:
    """A session with a server: opening, open or closed."""

    def __init__(
        self, server: ServerSpec, handlers: ServerRequestHandlers, headers: Mapping[str, str], on_change: OnChange
    ) -> None:
        self.server, self.handlers, self.headers, self.on_change = server, handlers, headers, on_change
        self.sanitizer = Sanitizer(server.name)
        self.server_process: ServerProcess | None = None
        self.transport: BoundedTransport | None = None
        self.client: Any = None
        self.loop = asyncio.get_running_loop()
        self.forwarded = ForwardedRequests(handlers.handled)
        self.reason = "the session is closed"
        self.active_requests = 0
        """Number of requests in progress."""
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._subscribed_uris: frozenset[str] = frozenset()
        self._subscription_task: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """True if a request can be sent now."""
        if self.client is None or self.loop.is_closed() or self._stop.is_set():
            return False
        if self.server_process is not None:
            return not self.server_process.ended
        return not (self.transport and self.transport.session_expired)

    @property
    def announces_late(self) -> bool:
        """True if the response to a call may come before the announcement that the call has changed the tools."""
        client = self.client
        if client is None:
            return False
        capabilities = client.server_capabilities
        if capabilities is not None and capabilities.tools is not None and capabilities.tools.list_changed:
            return True
        # Servers of the SDK do not declare it in the legacy era. Over HTTP they announce changes on another stream.
        return self.transport is not None and self.transport.may_push and client.protocol_version < "2026"

    @property
    def last_stderr_line(self) -> str:
        """Last line that the server process wrote to stderr."""
        return "" if self.server_process is None else self.server_process.last_stderr_line

    @property
    def is_opening(self) -> bool:
        """True if the server has not responded yet, and its connection has not failed."""
        return not self._stop.is_set() and not self._ready.done()

    async def open(self) -> None:
        """Connect. If it fails, call `close` to clean up, which may take longer than the timeout.

        Raises:
            RemoteError: the connection failed, or timed out. While `is_opening`, `finish_opening` waits longer.
        """
        seconds = self.server.connect_timeout
        async with get_start_slots() if self.server.kind == "stdio" else nullcontext():
            if self._stop.is_set():
                raise ConnectionAbortedError("closed while waiting for its start")
            # A fresh context: context variables of the first caller must not leak to later callers.
            self._task = self.loop.create_task(
                self._run_connection(), name=f"toolmason-mcp-{self.server.name}", context=Context()
            )
            # Not a shield, which would log the error of a connection after its caller is gone.
            await asyncio.wait((self._ready,), timeout=min(seconds, MAX_SLOT_SECONDS))
        if not self._ready.done() and seconds > MAX_SLOT_SECONDS:
            await asyncio.wait((self._ready,), timeout=seconds - MAX_SLOT_SECONDS)
        if not self._ready.done():
            reason = f"no response within connect_timeout={seconds:g} s"
            raise RemoteError(self.server.name, "connect", reason, stderr=self.last_stderr_line, retryable=True)
        self._ready.result()

    async def finish_opening(self) -> None:
        """Wait for a server that was not up within its `connect_timeout`.

        Raises:
            RemoteError: the connection failed, or the server is not up after all the time that it may take.
        """
        seconds = max(START_FACTOR * self.server.connect_timeout, MIN_START_SECONDS)
        await asyncio.wait((self._ready,), timeout=seconds - self.server.connect_timeout)
        if not self._ready.done():
            reason = f"no response within {seconds:g} s of its start"
            raise RemoteError(self.server.name, "connect", reason, stderr=self.last_stderr_line, retryable=True)
        self._ready.result()

    def make_late_error(self) -> RemoteError:
        """Return the error for a server that is still starting after its `connect_timeout`."""
        reason = f"no response within connect_timeout={self.server.connect_timeout:g} s; it is still starting"
        return RemoteError(self.server.name, "connect", reason, stderr=self.last_stderr_line, retryable=True)

    async def _run_connection(self) -> None:
        IS_OWN_REQUEST.set(True)
        try:
            async with self._connect() as client:
                # Results are validated once, within bounds, by `output_checks`; the SDK would validate again without
                # bounds.
                client.session.validate_tool_result = _skip_validation
                self.client = client
                if not self._ready.done():
                    self._ready.set_result(None)
                listening = self.loop.create_task(self._listen(client))
                try:
                    await self._stop.wait()
                finally:
                    listening.cancel()
                    if self._subscription_task is not None:
                        self._subscription_task.cancel()
        except BaseException as error:  # noqa: BLE001 - any error that ends the connection is reported as a RemoteError
            self.reason = format_reason(error)
            if not self._ready.done():
                cause = find_root_cause(error)
                remote_error = cause if isinstance(cause, RemoteError) else self._make_connect_error(cause)
                self._ready.set_exception(remote_error)
                # Mark the exception as retrieved: the caller may be gone.
                self._ready.exception()
        finally:
            self.client = None
            self._stop.set()

    def _make_connect_error(self, error: BaseException) -> RemoteError:
        status = None if self.transport is None else self.transport.error_status
        is_lost = find_connection_loss(error) is not None
        if is_lost and self.server_process is not None and self.server_process.ended:
            reason = self.server_process.exit_reason
        else:
            reason = format_reason(error)
        if status in (401, 403) or isinstance(error, OAuthFlowError):
            detail = f": {reason.removeprefix('OAuthFlowError: ')}" if isinstance(error, OAuthFlowError) else ""
            reason = f"the server requires authorization (HTTP {status or 401}){detail}"
            return RemoteError(self.server.name, "authorize", reason)
        if status is not None and f"{status}" not in reason:
            reason = f"{reason} (HTTP {status})"
        if self.server.url:
            reason = add_address(reason, status, self.server.url)
        return RemoteError(self.server.name, "connect", reason, stderr=self.last_stderr_line, retryable=True)

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any]:
        server = self.server
        if server.kind == "memory":
            async with _open_target(server.target) as target, self._make_client(target, server.era) as client:
                yield client
            return
        if server.kind == "stdio":
            self.server_process = ServerProcess(server, self.sanitizer)
            async with self._make_client(open_stdio_streams(self.server_process), server.era) as client:
                yield client
            return
        try:
            async with self._connect_http(use_sse=False) as client:
                yield client
        except BaseException:
            status = None if self.transport is None else self.transport.error_status
            if self.client is not None or status not in _SSE_FALLBACK_STATUSES:
                raise
            async with self._connect_http(use_sse=True) as client:
                yield client

    @asynccontextmanager
    async def _connect_http(self, *, use_sse: bool) -> AsyncGenerator[Any]:
        issuer = getattr(self.server.auth, "issuer", None)
        self.transport = BoundedTransport(
            httpx2.AsyncHTTPTransport(verify=_get_ssl_context()), self.server.url or "", issuer
        )
        streams = open_http_streams(self.server, self.sanitizer, self.transport, self.headers, use_sse=use_sse)
        async with self._make_client(streams, "legacy" if use_sse else self.server.era) as client:
            yield client

    def _make_client(self, target: Any, mode: str) -> Any:
        return Client(
            target,
            mode=mode,
            cache=None,
            client_info=Implementation(name="toolmason", version=metadata.version("toolmason")),
            message_handler=self._on_message,
            extensions=[TasksExtension(self.server.task_wait)],
            **make_callbacks(self.handlers, self.forwarded),
        )

    async def _on_message(self, message: ServerNotification | Exception) -> None:
        method = getattr(message, "method", "")
        if isinstance(method, str) and method.endswith("/list_changed"):
            self.on_change(method)
        elif isinstance(message, ResourceUpdatedNotification):
            self.on_change(method, str(message.params.uri))

    async def _listen(self, client: Any) -> None:
        """Listen for changed lists. Stateless-era servers notify only clients that listen."""
        capabilities = client.server_capabilities
        subscriptions: dict[str, Any] = {
            f"{kind}_list_changed": True
            for kind in ("tools", "prompts", "resources")
            if getattr(getattr(capabilities, kind, None), "list_changed", False)
        }
        if not subscriptions or client.protocol_version < "2026":
            return
        async for change in _listen_forever(client, **subscriptions):
            self.on_change(change if isinstance(change, str) else type(change).__name__)

    # --- requests ----------------------------------------------------------------------------------

    async def run(self, work: Callable[[Any, UpstreamSession], Awaitable[_T]]) -> _T:
        """Run `work` with the client, from any loop.

        Raises:
            ConnectionLost: the session is closed.
            Exception: any error of the SDK.
        """
        if asyncio.get_running_loop() is self.loop:
            return await self._run(work)
        if not self.usable:
            raise ConnectionLost(self.reason, delivered=False)
        return await _run_on_loop(self.loop, self._run(work))

    async def _run(self, work: Callable[[Any, UpstreamSession], Awaitable[_T]]) -> _T:
        client = self.client
        if client is None:
            raise ConnectionLost(self.reason, delivered=False)
        self.active_requests += 1
        token = IS_OWN_REQUEST.set(True)
        describe_current({"mcp.protocol.version": client.protocol_version})
        try:
            return await work(client, self)
        except RuntimeError as error:
            if self.client is None:
                raise ConnectionLost(self.reason, delivered=True) from error
            raise
        finally:
            IS_OWN_REQUEST.reset(token)
            self.active_requests -= 1

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Subscribe to exactly these resources."""
        client = self.client
        previous = self._subscribed_uris
        if client is None:
            return
        capabilities = client.server_capabilities
        if capabilities is None or capabilities.resources is None or not capabilities.resources.subscribe:
            return
        self._subscribed_uris = uris
        if client.protocol_version < "2026":
            for uri in previous - uris:
                await send_raw(client, "resources/unsubscribe", {"uri": uri})
            for uri in uris - previous:
                await send_raw(client, "resources/subscribe", {"uri": uri})
            return
        if self._subscription_task is not None:
            self._subscription_task.cancel()
        if uris:
            started = asyncio.Event()
            self._subscription_task = self.loop.create_task(
                self._listen_for_updates(client, uris, started), context=Context()
            )
            await started.wait()

    async def _listen_for_updates(self, client: Any, uris: frozenset[str], started: asyncio.Event) -> None:
        try:
            async for change in _listen_forever(client, started, resource_subscriptions=sorted(uris)):
                if change == STREAM_RESTORED:  # `_on_message` handles the changes
                    for uri in uris:
                        self.on_change(STREAM_RESTORED, uri)
        finally:
            started.set()

    async def close(self) -> None:
        """Close the session, from any loop. Takes a bounded time and never raises."""
        if self.loop.is_closed():
            return
        if asyncio.get_running_loop() is not self.loop:
            if self.loop.is_running():
                with suppress(Exception):
                    await _run_on_loop(self.loop, self.close())
            return
        task = self._task
        if self.client is None and not self._stop.is_set():
            # While connecting, the task does not wait for the stop event, so cancel it.
            self.abandon()
        self._stop.set()
        if task is None or task is asyncio.current_task():
            return
        done, _ = await asyncio.wait((task,), timeout=CLOSE_TIMEOUT)
        if not done:
            task.cancel()
            await asyncio.wait((task,), timeout=CLOSE_TIMEOUT)
        if self.server_process is not None:
            await self.server_process.wait_until_exited()

    def abandon(self) -> None:
        """Cancel the connection task on its own loop; it cleans up on its own."""
        self._stop.set()
        if self._task is not None:
            self._task.cancel()


_start_slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


def get_start_slots() -> asyncio.Semaphore:
    """Return the slots for starting processes on the running loop, as many as there are cores but at least two.

    Many processes that start at once on a small machine all take too long; in turn, each is up in a second or two.
    """
    loop = asyncio.get_running_loop()
    if loop not in _start_slots:
        for closed in [other for other in _start_slots if other.is_closed()]:
            del _start_slots[closed]
        _start_slots[loop] = asyncio.Semaphore(max(2, os.cpu_count() or 1))
    return _start_slots[loop]


async def _listen_forever(
    client: Any, started: asyncio.Event | None = None, **subscriptions: Any
) -> AsyncGenerator[Any]:
    """Yield the changes that a server reports, `STREAM_LOST` if the stream ends, and `STREAM_RESTORED` after that.

    `started` is set after the first attempt, whether or not it succeeded.
    """
    delay, is_restart = FIRST_RETRY_DELAY, False
    while True:
        with suppress(Exception):
            async with client.listen(**subscriptions) as changes:
                if started is not None:
                    started.set()
                if is_restart:
                    yield STREAM_RESTORED  # changes may have been missed
                async for change in changes:
                    delay = FIRST_RETRY_DELAY
                    yield change
        if started is not None:
            started.set()
        yield STREAM_LOST  # the server may have restarted
        is_restart = True
        await asyncio.sleep(delay)
        delay = min(2 * delay, MAX_RETRY_DELAY)


async def _run_on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
    """Run work on another loop, and forward cancellation to it.

    Raises:
        ConnectionLost: the loop has ended, and the work with it.
    """
    try:
        running = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
    except RuntimeError:
        work.close()
        raise ConnectionLost("its event loop has ended", delivered=False) from None
    try:
        while not running.done():
            await asyncio.wait((running,), timeout=LOOP_CHECK_SECONDS)
            if loop.is_closed() and not running.done():
                is_new = getcoroutinestate(work) == CORO_CREATED
                if is_new:
                    work.close()
                raise ConnectionLost("its event loop has ended", delivered=not is_new)
    finally:
        if not loop.is_closed():
            running.cancel()
    if running.cancelled():  # by a loop that is ending: the cancellation of the caller was raised above
        raise ConnectionLost("its event loop has ended", delivered=True)
    return running.result()


@cache
def _get_ssl_context() -> ssl.SSLContext:
    """Return the default TLS context. Cached: loading the certificates takes 30 ms and several megabytes."""
    return ssl.create_default_context()


async def _skip_validation(name: str, result: Any) -> None:
    del name, result


@asynccontextmanager
async def _open_target(target: Any) -> AsyncGenerator[Any]:
    """Yield the SDK server object of an in-memory target. The one of a toolbox ends with the block."""
    make_server = getattr(target, "__mcp_server__", None)
    if make_server is None:
        yield target
        return
    server = make_server()
    try:
        yield server
    finally:
        await server.handlers.close()
