"""Run an application on uvicorn's server, with connections that enforce limits and answer regular requests."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from toolmason._core.run.eager_task import EagerTask
from toolmason._http.guard import HeaderPairs
from toolmason._wire import UNLIMITED_PEERS
from toolmason.mcp_client.transport.framing import parse_json
from toolmason.mcp_server.dispatch import EXCHANGE_KEY
from toolmason.mcp_server.http.app import McpApp
from toolmason.mcp_server.stdio.stdio_session import GRACE_SECONDS

try:
    import httptools
    import uvicorn

    from toolmason.mcp_server.http.http_request import HttpRequest, get_address, make_head, make_text_response
except ImportError as missing:
    raise ImportError("Serving over HTTP needs uvicorn: pip install 'toolmason[serve]'") from missing

_log = logging.getLogger("toolmason.mcp_server")

HEADER_SECONDS: Final = 10.0
MAX_HEADER_BYTES: Final = 64 * 1024
READ_SECONDS: Final = 60.0
"""Seconds for which a client may leave a response unread."""
MAX_CONNECTIONS: Final = 512
MAX_PEER_CONNECTIONS: Final = 256
"""Maximum number of connections from one other machine."""
KEEP_ALIVE_SECONDS: Final = 30
MAX_BUFFERED_BYTES: Final = 64 * 1024
"""Bytes of a body that wait for the application before reading pauses."""
DIRECT_BODY_SECONDS: Final = 0.1
"""Seconds for which the body of a regular request may be late. The application waits for later ones."""
_UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"connection", b"http2-settings"})
_JSON_RESPONSE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 connection of one client.

    It answers a regular request itself, and runs the application for others. The requests are answered one after the
    other; if there is more than one, reading pauses.
    """

    transport: Any = None
    is_stopping = False
    peer = ""
    """Address of the client."""
    waiting_since = 0.0
    """When the connection was made, or its last request began."""
    _deadline = math.inf
    """When the connection is aborted unless a request arrives; infinite while one is handled."""
    _timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _is_read_paused = False
    _in_headers = _in_body = False
    _chunk_bytes = 0
    """Length of the current chunk of data."""
    _head_bytes = 0
    """Part of the current chunk that may belong to a header that starts in it."""
    _pending_bytes = 0
    """Bytes that are neither handled nor body: a partial header, or the framing of a chunked body."""
    _url = b""
    _parsed: Any = None
    """The request whose body is being parsed."""

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self._time = self.loop.time
        self._state, self._app_state, self._application = server_state, app_state, config.loaded_app
        self._mcp: McpApp = config.app
        # The URL of a request is never empty, so another application gets all requests.
        self._endpoint = config.app.path.encode() if isinstance(config.app, McpApp) else b""
        self._headers: HeaderPairs = []
        self._requests: deque[HttpRequest] = deque()
        """Requests without a complete response. The first one is handled."""
        self.writable = asyncio.Event()
        """Cleared while the client does not read."""
        self.writable.set()
        self._parser: Any = self._make_parser()

    def _make_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # A client may send more after a request with `Connection: close`. It is answered, and the rest dropped.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # --- connection --------------------------------------------------------------------------------

    @override
    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        address = get_address(transport, "peername")
        self.peer = address[0] if address else ""
        connections: set[HttpConnection] = self._state.connections
        connections.add(self)
        self.waiting_since = self._time()
        self._deadline = self.waiting_since + HEADER_SECONDS
        self._on_timer()
        if len(connections) <= MAX_PEER_CONNECTIONS:
            return
        # An aborted connection stays in the set until the loop has closed it.
        others = [other for other in connections if not other.transport.is_closing()]
        if len(others) <= MAX_CONNECTIONS:
            others = [other for other in others if other.peer == self.peer and self.peer not in UNLIMITED_PEERS]
            if len(others) <= MAX_PEER_CONNECTIONS:
                return
        # The one that has waited longest for its client, or this new one if all others are busy.
        waiting = [other for other in others if other.waits_for_client]
        min(waiting, key=lambda other: other.waiting_since, default=self).transport.abort()

    @property
    def waits_for_client(self) -> bool:
        """True if no request is being handled, or if the last one has not arrived completely."""
        return self._in_body or not self._requests

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        for timer in (self._timer, self._read_timer, self._body_timer):
            if timer is not None:
                timer.cancel()
        if self._requests:
            self._requests[0].disconnect()
        self.writable.set()
        self._parser = None

    def shutdown(self) -> None:
        """Close the connection, after the response if a request is being handled."""
        self.is_stopping = True
        if not self._requests:
            self.transport.close()

    def _on_timer(self) -> None:
        # One timer that checks the deadline again: a timer for each request would cost more than its header.
        remaining = self._deadline - self._time()
        if remaining <= 0:
            # A graceful close would wait until the rest is read, possibly forever.
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(min(remaining, HEADER_SECONDS), self._on_timer)

    @override
    def pause_writing(self) -> None:
        self.writable.clear()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        self.writable.set()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        self._handle_next()

    def _pause_reading(self) -> None:
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read more, unless another request waits."""
        if self._is_read_paused and len(self._requests) <= 1:
            self._is_read_paused = False
            self.transport.resume_reading()

    # --- parser ------------------------------------------------------------------------------------

    @override
    def data_received(self, data: bytes) -> None:
        self._chunk_bytes = size = len(data)
        # A chunk that starts with the rest of a body does not count towards the next header.
        self._head_bytes = 0 if self._in_body else size
        self._pending_bytes += size
        is_valid = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            is_valid = self._ignore_upgrades(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            is_valid = False
        if self._requests:
            self._handle_next()
        else:
            # The rest of a rejected body, or line breaks, must not keep the connection open.
            self._deadline = min(self._deadline, self._time() + HEADER_SECONDS)
        if not is_valid and not self.transport.is_closing():
            _log.warning("a client sent an invalid HTTP request")
            if not self._requests:
                self.transport.write(make_text_response(400, b"Invalid HTTP request received."))
            self.transport.close()
        elif self._pending_bytes > MAX_HEADER_BYTES and (self._in_headers or self._in_body):
            self.transport.abort()

    def _ignore_upgrades(self, unread: memoryview) -> bool:
        """Handle a request that asks for another protocol as plain HTTP/1.1. Return False if it is invalid.

        Java's HTTP client asks for HTTP/2 this way with a complete request, whose body the parser would lose.
        """
        while (method := self._parser.get_method()) != b"CONNECT":
            head = [b"%b %b HTTP/%b" % (method, self._url, self._parser.get_http_version().encode())]
            head += [b"%b: %b" % pair for pair in self._headers if pair[0] not in _UPGRADE_HEADERS]
            options = b",".join(value for name, value in self._headers if name == b"connection").lower()
            if b"close" in map(bytes.strip, options.split(b",")):
                head.append(b"connection: close")
            self._parser = self._make_parser()
            try:
                self._parser.feed_data(b"\r\n".join((*head, b"", b"")))
                self._parser.feed_data(unread)
            except httptools.HttpParserUpgrade as upgrade:
                unread = unread[upgrade.args[0] :]
            except httptools.HttpParserError:
                break
            else:
                return True
        return False

    def on_message_begin(self) -> None:
        """Start a request."""
        self._in_headers = True
        self._pending_bytes, self._head_bytes = self._head_bytes, 0
        self._url = b""
        self._headers = []
        self.waiting_since = self._time()
        self._deadline = self.waiting_since + HEADER_SECONDS

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        # Whitespace around a value is not part of it (RFC 9110, 5.5); the parser leaves it at the end.
        self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Decide who answers the request."""
        parser, url, pairs = self._parser, self._url, self._headers
        if parser.should_upgrade():
            return
        # Trailers after a body are not headers: they have not been checked.
        self._headers = []
        self._in_headers, self._in_body = False, True
        self._deadline = math.inf
        is_long = max(self._pending_bytes, self._chunk_bytes) > MAX_HEADER_BYTES
        if is_long and len(url) + sum(len(name) + len(value) for name, value in pairs) > MAX_HEADER_BYTES:
            self.transport.abort()
            raise httptools.HttpParserError("the header is too long")
        self._pending_bytes = 0
        headers = dict(pairs)
        method = parser.get_method()
        keep_alive = parser.should_keep_alive()
        version = "1.1"
        if not keep_alive or b"connection" in headers:
            version = parser.get_http_version()
            # A client of HTTP/1.0 is not kept alive, even if it asks for that.
            keep_alive = keep_alive and version != "1.0"
        self._parsed = request = HttpRequest(self, pairs, keep_alive=keep_alive)
        if url == self._endpoint and method == b"POST" and version == "1.1":
            request.exchange = self._mcp.admit(headers, pairs)
        if request.exchange is None:
            request.make_scope(method, url, version, self._app_state)
            request.expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        self._requests.append(request)
        if len(self._requests) > 1:
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._pending_bytes = 0
        request = self._parsed
        if request.is_answered:
            return  # a response that needed no body
        request.body += body
        if request.is_started:
            request.wake()
        if len(request.body) > MAX_BUFFERED_BYTES:
            self._pause_reading()

    def on_message_complete(self) -> None:
        """End the body."""
        if self._in_body:  # the parser also stops at an upgrade
            self._in_body = False
            self._parsed.has_arrived = True
            if self._parsed.is_started:
                self._parsed.wake()

    # --- responses ---------------------------------------------------------------------------------

    def _handle_next(self) -> None:
        """Answer the first request, unless it is being answered, or let the application answer it."""
        # The responses to a client that does not read must not pile up.
        if not self._requests or not self.writable.is_set() or self.transport.is_closing():
            return
        request = self._requests[0]
        if request.is_started:
            return
        exchange = request.exchange
        if exchange is not None:
            if not request.has_arrived:
                if self._body_timer is None:
                    self._body_timer = self.loop.call_later(DIRECT_BODY_SECONDS, self._run, request)
                return
            if self._body_timer is not None:
                self._body_timer.cancel()
                self._body_timer = None
            exchange.body = request.body
            exchange.data = parse_json(exchange.body)
            self._mcp.dispatcher.start(exchange)
            request.is_started = True
            started = exchange.started
            if isinstance(started, tuple):
                self._respond(request, *started)
                return
            if isinstance(started, EagerTask):
                request.call = started
                self._state.tasks.add(started)
                started.add_done_callback(lambda call: self._on_call_done(request, call))
                return
        self._run(request)

    def _on_call_done(self, request: HttpRequest, call: Any) -> None:
        self._state.tasks.discard(call)
        if request.exchange is not None and not self.transport.is_closing():
            self._respond(request, *self._mcp.dispatcher.encode(request.exchange.request, *call.result()))

    def _respond(self, request: HttpRequest, status: int, body: bytes) -> None:
        """Send the response to a request that was answered here."""
        request.is_answered = True
        if status == 200 and request.keep_alive and not self.is_stopping:  # noqa: PLR2004 - success
            self.transport.write(_JSON_RESPONSE % (len(body), body))
        else:
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            request.keep_alive = request.keep_alive and not self.is_stopping
            self.transport.write(make_head(status, headers, keep_alive=request.keep_alive) + body)
        self.end_request(request)

    def _run(self, request: HttpRequest) -> None:
        """Run the application for a request."""
        request.is_started = True
        self._body_timer = None
        if request.exchange is not None:
            request.make_scope(b"POST", self._endpoint, "1.1", self._app_state)
            if request.has_arrived:
                request.scope[EXCHANGE_KEY] = request.exchange
            else:
                request.exchange = None
        task = self.loop.create_task(request.run(self._application))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def end_request(self, request: HttpRequest) -> None:
        """Continue with the next request, or wait for one."""
        self._requests.popleft()
        if not request.keep_alive or self.is_stopping:
            self.transport.close()
            return
        if self._requests:
            # Not at once: a client that sends many requests must not keep the others waiting.
            self.loop.call_soon(self._handle_next)
        elif not self._in_headers:
            self._deadline = self._time() + KEEP_ALIVE_SECONDS
        if self._is_read_paused:
            self.resume_reading()


class _AnnouncingServer(uvicorn.Server):
    """Server that reports its port."""

    on_started: Callable[[int], object] | None = None
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
    app: Any, host: str, port: int, grace: float = GRACE_SECONDS, on_started: Callable[[int], object] | None = None
) -> uvicorn.Server:
    """Return the server that runs an application. `on_started` gets the port, which is a free one if `port` is 0."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=HttpConnection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        backlog=1024,
        timeout_graceful_shutdown=int(grace),
    )
    server = _AnnouncingServer(config)
    server.on_started = on_started
    server.close_streams = getattr(app, "close_streams", server.close_streams)
    return server
