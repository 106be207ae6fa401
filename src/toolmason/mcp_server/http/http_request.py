"""Hold one HTTP request while it arrives and is answered, and run an ASGI application for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import httptools

from toolmason._core.run.eager_task import EagerTask
from toolmason._http.guard import HeaderPairs
from toolmason.mcp_server.dispatch import HttpExchange

_log = logging.getLogger("toolmason.mcp_server")

_STATUS_LINES: Final = {int(status): f"HTTP/1.1 {status:d} {status.phrase}".encode() for status in HTTPStatus}


class HttpRequest:
    """A request on a connection, and its response."""

    scope: Any = None
    exchange: HttpExchange | None = None
    """The request as the dispatcher sees it, if the connection may answer it."""
    call: EagerTask | None = None
    """The call that the connection started for it, if it waits."""
    body = b""
    has_arrived = is_started = is_answered = is_disconnected = False
    expects_continue = False
    _changed: asyncio.Event | None = None
    """Set when there is something to receive; None until the application runs."""
    _has_received_all = False
    _is_head_sent = _has_no_body = _is_chunked = False
    _length: int | None = None
    """Rest of the announced length of the response; None if it was not announced."""

    def __init__(self, connection: Any, pairs: HeaderPairs, *, keep_alive: bool) -> None:
        self.connection, self.pairs, self.keep_alive = connection, pairs, keep_alive

    def make_scope(self, method: bytes, target: bytes, version: str, state: dict[str, Any]) -> None:
        """Make the ASGI scope."""
        url, transport = httptools.parse_url(target), self.connection.transport
        raw_path = url.path or b"/"
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        if url.host:  # it counts, and not the header (RFC 9112, 3.2.2): two hosts are refused
            default_port = 443 if is_encrypted else 80
            name = b"[%b]" % url.host if b":" in url.host else url.host
            host = b"%b:%d" % (name.lower(), url.port or default_port)
            received = dict(self.pairs).get(b"host", b"").lower()
            if received not in (host, host.removesuffix(b":%d" % default_port)):
                self.pairs.append((b"host", host))
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method.decode("ascii"),
            "scheme": "https" if is_encrypted else "http",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self.pairs,
            "client": get_address(transport, "peername"),
            "server": get_address(transport, "sockname"),
            "state": state.copy(),
        }

    def wake(self) -> None:
        """Wake the application that waits for the body or for the end of the connection."""
        if self._changed is not None:
            self._changed.set()

    def disconnect(self) -> None:
        """Cancel the call, or report to the application that the client is gone."""
        self.is_disconnected = True
        self.wake()
        if self.call is not None:
            self.call.cancel()

    # --- ASGI --------------------------------------------------------------------------------------

    async def run(self, application: Any) -> None:
        """Run the application, and make sure that the request has a response."""
        self._has_received_all = self.exchange is not None
        self._changed = asyncio.Event()
        try:
            await application(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            pass  # the server stops
        except BaseException as error:  # noqa: BLE001 - an application must not stop the server
            _log.error("an HTTP request failed: %s", type(error).__name__, exc_info=error)
        if self.is_answered or self.is_disconnected:
            return
        if not self._is_head_sent:
            self.connection.transport.write(make_text_response(500, b"Internal Server Error"))
        self.keep_alive = False
        self._end()

    async def receive(self) -> dict[str, Any]:
        """Return the next part of the body, or wait until the client is gone or has its response."""
        if self.expects_continue and not self.connection.transport.is_closing():
            self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        while not (self.is_disconnected or self.is_answered):
            if not self._has_received_all and (self.body or self.has_arrived):
                break
            self.connection.resume_reading()
            if self._changed is not None:
                self._changed.clear()
                await self._changed.wait()
        else:
            return {"type": "http.disconnect"}
        body, self.body, self._has_received_all = self.body, b"", self.has_arrived
        return {"type": "http.request", "body": body, "more_body": not self.has_arrived}

    async def send(self, message: Any) -> None:
        """Send the start of the response, or a part of its body, when the client has read the previous ones."""
        if not self.is_disconnected:
            await self.connection.writable.wait()
        if self.is_disconnected or self.is_answered:
            return
        if message["type"] == "http.response.start":
            self._send_head(message["status"], message.get("headers", ()))
        else:
            self._send_body(message.get("body", b""), has_more=message.get("more_body", False))

    def _send_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._is_head_sent, self.expects_continue = True, False
        pairs = [(name.lower(), value) for name, value in headers]
        fields = dict(pairs)
        self._length = int(fields[b"content-length"]) if b"content-length" in fields else None
        self._has_no_body = self.scope["method"] == "HEAD" or status in (204, 304)
        self._is_chunked = self._length is None and self.scope["http_version"] != "1.0"
        if self._is_chunked and not self._has_no_body:
            pairs.append((b"transfer-encoding", b"chunked"))
        if self.connection.is_stopping or b"close" in fields.get(b"connection", b"").lower():
            self.keep_alive = False
        self.connection.transport.write(make_head(status, pairs, keep_alive=self.keep_alive))

    def _send_body(self, body: bytes, *, has_more: bool) -> None:
        transport = self.connection.transport
        if self._has_no_body:
            self._length = 0
        elif self._is_chunked:
            part = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            transport.write(part if has_more else part + b"0\r\n\r\n")
        elif self._length is None:
            transport.write(body)
        else:
            # The client would read more than announced as the next response, and less as a part of it.
            transport.write(body[: self._length])
            self._length = max(0, self._length - len(body))
        if not has_more:
            self.keep_alive = self.keep_alive and not self._length
            self._end()

    def _end(self) -> None:
        self.is_answered, self.body = True, b""
        self.wake()
        self.connection.end_request(self)


def make_head(status: int, headers: Iterable[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
    """Return the status line and the headers of a response."""
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status]
    lines += [b"%b: %b" % pair for pair in headers if keep_alive or pair[0] != b"connection"]
    if not keep_alive:
        lines.append(b"connection: close")
    return b"\r\n".join((*lines, b"", b""))


def make_text_response(status: int, text: bytes) -> bytes:
    """Return a complete response after which the connection closes."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    return make_head(status, headers, keep_alive=False) + text


def get_address(transport: Any, name: str) -> tuple[str, int] | None:
    """Return the address of the client (`peername`) or of the server (`sockname`)."""
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, list | tuple) else None
