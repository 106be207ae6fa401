"""Run the application on uvicorn, with limits on slow clients and on the number of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from toolmason._wire import UNLIMITED_PEERS
from toolmason.mcp_server.http.app import McpApp
from toolmason.mcp_server.stdio.stdio_session import GRACE_SECONDS

try:
    import httptools
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as missing:
    raise ImportError("Serving over HTTP needs uvicorn: pip install 'toolmason[serve]'") from missing

HEADER_SECONDS: Final = 10.0
MAX_HEADER_BYTES: Final = 64 * 1024
READ_SECONDS: Final = 60.0
"""Seconds for which a client may leave a response unread."""
MAX_CONNECTIONS: Final = 512
MAX_PEER_CONNECTIONS: Final = 256
"""Maximum number of connections from one other machine."""
KEEP_ALIVE_SECONDS: Final = 30
_UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"connection", b"http2-settings"})


class _LimitedHttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol with limits on header size and time."""

    _header_deadline: float | None = None
    """Deadline for the header of a request; None while a request is handled."""
    waiting_since = 0.0
    """When the connection was made, or its last request began."""
    _header_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _in_headers = False
    _chunk_bytes = 0
    """Length of the current chunk of data."""
    _head_bytes = 0
    """Part of the current chunk that may belong to a header that starts in it."""
    _pending_bytes = 0
    """Bytes that are neither handled nor body: a partial header, or the framing of a chunked body."""
    _parsed_bytes = 0
    """Bytes of the current chunk that were parsed before an upgrade."""

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_header_timer()
        if len(self.connections) <= MAX_PEER_CONNECTIONS:
            return
        # An aborted connection stays in the set until the loop has closed it.
        limited = [
            other
            for other in self.connections
            if isinstance(other, _LimitedHttpProtocol) and not other.transport.is_closing()
        ]
        if len(limited) > MAX_CONNECTIONS:
            self._drop_slowest(limited)
        elif self.peer_address not in UNLIMITED_PEERS:
            same_peer = [other for other in limited if other.peer_address == self.peer_address]
            if len(same_peer) > MAX_PEER_CONNECTIONS:
                self._drop_slowest(same_peer)

    def _drop_slowest(self, candidates: list[_LimitedHttpProtocol]) -> None:
        """Abort the connection that has waited longest for its client, or this new one if all others are busy."""
        waiting = [other for other in candidates if other.is_idle or other.cycle.more_body]
        min(waiting, key=lambda other: other.waiting_since, default=self).transport.abort()

    @property
    def peer_address(self) -> str:
        """Address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """True if no request is being handled."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _start_header_timer(self) -> None:
        # One timer that checks the deadline again: a timer per request would cost more than the rest of this method.
        self.waiting_since = self.loop.time()
        self._header_deadline = self.waiting_since + HEADER_SECONDS
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._on_header_timer)

    def _on_header_timer(self) -> None:
        self._header_timer = None
        if self._header_deadline is None:
            return
        remaining = self._header_deadline - self.loop.time()
        if remaining <= 0:
            self.transport.abort()
        else:
            self._header_timer = self.loop.call_later(remaining, self._on_header_timer)

    @override
    def data_received(self, data: bytes) -> None:
        previous_cycle: Any = self.cycle
        self._chunk_bytes = len(data)
        # A chunk that starts with the rest of a body does not count towards the next header.
        self._head_bytes = 0 if previous_cycle is not None and previous_cycle.more_body else self._chunk_bytes
        self._pending_bytes += self._chunk_bytes
        self._feed(data)
        cycle: Any = self.cycle
        if self._pending_bytes > MAX_HEADER_BYTES and (self._in_headers or (cycle is not None and cycle.more_body)):
            self.transport.abort()
        # The rest of a rejected body, or invalid data, stops the keep-alive timer, so start the header timer. Closing
        # now would lose the response.
        if self._header_deadline is None and self.is_idle and not self.transport.is_closing():
            self._start_header_timer()

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        unread = memoryview(data)
        try:
            while not self._feed_parser(unread):
                unread = unread[self._parsed_bytes :]
        except httptools.HttpParserError:
            if not self.transport.is_closing():
                self.logger.warning("Invalid HTTP request received.")
                self.send_400_response("Invalid HTTP request received.")

    def _feed_parser(self, unread: memoryview) -> bool:
        """Feed the parser. Return False if it stopped at an upgrade, which is ignored."""
        try:
            self.parser.feed_data(unread)
        except httptools.HttpParserUpgrade as upgrade:
            self._parsed_bytes = upgrade.args[0]
        else:
            return True
        self._ignore_upgrade()
        return False

    def _ignore_upgrade(self) -> None:
        """Handle a request that asks for another protocol as plain HTTP/1.1.

        Java's HTTP client asks for HTTP/2 this way with a complete request, whose body the parser would lose.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("CONNECT is not supported")
        connection = b",".join(value for name, value in self.headers if name == b"connection").lower()
        head = [method + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
        head += [name + b": " + value for name, value in self.headers if name not in _UPGRADE_HEADERS]
        if b"close" in [option.strip() for option in connection.split(b",")]:
            head.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"\r\n".join((*head, b"", b"")))

    @override
    def on_message_begin(self) -> None:
        self._in_headers = True
        self._pending_bytes = self._head_bytes
        self._head_bytes = 0
        self._start_header_timer()
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_headers = False
        self._header_deadline = None
        headers = self.headers
        if max(self._pending_bytes, self._chunk_bytes) > MAX_HEADER_BYTES:
            size = len(self.url) + sum(len(name) + len(value) for name, value in headers)
            if size > MAX_HEADER_BYTES:
                self.transport.abort()
                raise httptools.HttpParserError("the header is too long")
        self._pending_bytes = 0
        if any(value[-1:] in b" \t" for _, value in headers):
            # Whitespace around a value is not part of it (RFC 9110, 5.5); the parser leaves it at the end.
            headers[:] = [(name, value.strip(b" \t")) for name, value in headers]
        super().on_headers_complete()
        # Trailers after a body are not headers: they have not been checked.
        self.headers = []

    @override
    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    @override
    def timeout_keep_alive_handler(self) -> None:
        # A graceful close would wait until the rest is read, possibly forever.
        self.transport.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._header_timer, self._read_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)


class _AnnouncingServer(uvicorn.Server):
    """Server that reports its port."""

    on_started: Callable[[int], None] | None = None
    """Called with the port once the server accepts connections."""
    close_streams: Callable[[], None] = staticmethod(lambda: None)
    """Closes the streams of clients that only listen, which would block the shutdown."""

    @override
    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.on_started is not None:
            self.on_started(self.servers[0].sockets[0].getsockname()[1])

    @override
    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        self.close_streams()
        await super().shutdown(sockets)


def make_http_server(
    app: Any, host: str, port: int, grace: float = GRACE_SECONDS, on_started: Callable[[int], None] | None = None
) -> uvicorn.Server:
    """Return the server that runs an application. `on_started` gets the port, which is a free one if `port` is 0."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_LimitedHttpProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=1024,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(grace),
    )
    server = _AnnouncingServer(config)
    server.on_started = on_started
    if isinstance(app, McpApp):
        server.close_streams = app.close_streams
    return server
