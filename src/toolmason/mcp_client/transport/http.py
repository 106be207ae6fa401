"""Connect to a server over HTTP with bounded responses and retries if the server is busy.

A broken connection fails one request; the SDK alone would end the whole session.
"""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, Self, cast

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic_core import from_json, to_json

from toolmason._wire import parse_retry_after
from toolmason.mcp_client.server_options import ServerSpec
from toolmason.mcp_client.specification import CONNECTION_LOST_CODE, HTTP_STATUS_KEY, INTERNAL_ERROR, METHOD_NOT_FOUND
from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES, UnreadableMessage, parse_message
from toolmason.mcp_client.transport.sanitize import Sanitizer
from toolmason.mcp_client.transport.ssrf import resolve_allowed, resolve_host

MAX_BODY_BYTES: Final = MAX_LINE_BYTES
MAX_OTHER_BYTES: Final = 1024 * 1024
"""Maximum size of any other response: metadata, tokens, error messages."""
BUSY_STATUSES: Final = frozenset({429, 503})
_LOST_BEHIND_PROXY: Final = frozenset({502, 503, 504})
"""Answers of a proxy whose server did not answer, or did not answer in time. It may have received the request."""
_STATUSES_WITH_MEANING: Final = frozenset({401, 403, 429})
"""Statuses that a caller has to know even if the server sends an error message."""
_DEFAULT_ERRORS: Final = {404: (METHOD_NOT_FOUND, "Not Found")}
"""Error for a status, as in the SDK. Other statuses have one in common."""
MAX_ATTEMPTS: Final = 3
_DEFAULT_RETRY_DELAY: Final = 0.5
MAX_RETRY_AFTER: Final = 20.0
"""Maximum number of seconds to wait for a busy server."""
# RFC 8414 and OpenID Connect Discovery.
_ISSUER_METADATA: Final = re.compile(
    r"/\.well-known/(oauth-authorization-server|openid-configuration)(/.*)?|/.*/\.well-known/openid-configuration"
)


class BoundedTransport(httpx2.AsyncBaseTransport):
    """HTTP transport in which a broken connection fails one request, not the session."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: str, issuer: str | None = None) -> None:
        self.inner = inner
        self.server_origin = scheme, host, port = _get_origin(httpx2.URL(url))
        # The SDK follows a redirect from HTTP to HTTPS.
        self._own_origins = {self.server_origin, ("https", host, 443 if (scheme, port) == ("http", 80) else port)}
        self.trusted_origins = {_get_origin(httpx2.URL(trusted)) for trusted in (url, issuer) if trusted is not None}
        """Origins set by the developer; any other origin was named by a server."""
        self.session_expired = False
        """True if the server no longer knows the session."""
        self.may_push = True
        """False if the server refused the stream for messages that belong to no request."""
        self.error_status: int | None = None
        """Last HTTP error status."""
        self._server_addresses: set[str] = set()
        """Addresses from which the server has named other hosts."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. A failure becomes an error response."""
        request_id = _get_request_id(request)
        if request_id is None:
            # Requests outside the protocol may be sent without the client's default headers.
            request.headers.setdefault("accept-encoding", "identity")
        if _get_origin(request.url) not in self._own_origins and _is_misplaced_metadata(request):
            return httpx2.Response(404, request=request)
        try:
            response = await self._send_with_retry(await self._pin_address(request))
        except (httpx2.TransportError, OSError) as error:
            if request_id is None:
                raise
            not_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            return _make_lost_response(request, request_id, _describe_error(error), delivered=not not_sent)
        if request_id is None or response.status_code >= 300:  # noqa: PLR2004 - redirects and errors
            self._note_response(request, response)
        content_type, encoding = _read_content_headers(response)
        try:
            if content_type.startswith("text/event-stream") and not response.is_error and not encoding:
                return response  # the SDK limits the size of events
            if request_id is None:
                return await _buffer_response(request, response, encoding)
            return await _read_answer(request, response, request_id, encoding, content_type)
        except _BodyError as error:
            if request_id is None:
                return httpx2.Response(502, content=str(error).encode(), request=request)
            return _make_lost_response(request, request_id, str(error), delivered=True)

    def _note_response(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Record what a response says about its server, apart from the result of a request."""
        if _get_origin(request.url) in self._own_origins:
            self._server_addresses.update(_get_peer_address(response))
        else:
            # Follow no redirect of a host that a server named: nothing has checked its target.
            response.headers.pop("location", None)
        if response.is_error:
            self.error_status = response.status_code
            self.may_push = self.may_push and request.method != "GET"
            self.session_expired = self.session_expired or (
                response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers
            )

    async def _pin_address(self, request: httpx2.Request) -> httpx2.Request:
        """Return the request to send. A host named by a server is replaced with its checked address."""
        url = request.url
        if _get_origin(url) in self.trusted_origins:
            return request
        try:
            address = await resolve_allowed(url.host, _get_port(url), self._get_server_addresses)
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from None
        return httpx2.Request(
            request.method,
            url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )

    async def _get_server_addresses(self) -> Collection[str]:
        """Return the addresses that the server has answered from, so that its name cannot mean another one later."""
        return self._server_addresses or await resolve_host(*self.server_origin[1:])

    async def _send_with_retry(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and retry if the server is busy: it has not processed the request."""
        for _ in range(MAX_ATTEMPTS - 1):
            response = await self.inner.handle_async_request(request)
            delay = _get_retry_delay(response) if response.status_code in BUSY_STATUSES else None
            if delay is None:
                return response
            await response.aclose()
            await asyncio.sleep(delay * (1 + random.random() / 10))  # noqa: S311 - jitter, not a secret
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


def _get_origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, _get_port(url)


def _get_port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _is_misplaced_metadata(request: httpx2.Request) -> bool:
    """Return True for a request of the SDK for OAuth metadata from a URL that no specification names for it.

    A server names the URL of its own metadata (RFC 9728), and could send the client to any other URL.
    """
    url = request.url
    # The SDK sends this header with metadata requests; other requests by GET are those of the developer's `auth=`.
    if request.method != "GET" or "mcp-protocol-version" not in request.headers:
        return False
    return _ISSUER_METADATA.fullmatch(url.path) is None or ".." in url.path or bool(url.query)


def _get_peer_address(response: httpx2.Response) -> tuple[str, ...]:
    """Return the address that a response came from, if it came over a network."""
    stream = response.extensions.get("network_stream")
    peer = None if stream is None else stream.get_extra_info("server_addr")
    return (str(peer[0]),) if isinstance(peer, tuple) else ()


def _get_request_id(request: httpx2.Request) -> Any:
    """Return the JSON-RPC id of a request, or None if it has none."""
    if request.method != "POST":
        return None
    try:
        body = from_json(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    return body.get("id") if isinstance(body, dict) and "method" in body else None


def _describe_error(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"{type(error).__name__}: {text}" if text != type(error).__name__ else text


def _make_lost_response(request: httpx2.Request, request_id: Any, reason: str, *, delivered: bool) -> httpx2.Response:
    error = {"code": CONNECTION_LOST_CODE, "message": reason, "data": {"seen": delivered}}
    body = to_json({"jsonrpc": "2.0", "id": request_id, "error": error})
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=body, request=request)


class _BodyError(Exception):
    """A response body is too long, compressed, incomplete, or for another request."""


def _read_content_headers(response: httpx2.Response) -> tuple[str, str]:
    """Return the content type and the encoding of a response; each is empty if absent."""
    content_type = encoding = b""
    for name, value in response.headers.raw:  # one pass over the raw headers is faster than a lookup per name
        if name.lower() == b"content-type":
            content_type = content_type or value  # the SDK uses the first one, so the limits must too
        elif name.lower() == b"content-encoding":
            encoding = b",".join((encoding, value)) if encoding else value
    encoding_name = encoding.decode("latin-1").strip().lower()
    return content_type.decode("latin-1").lower(), "" if encoding_name == "identity" else encoding_name


async def _read_body(response: httpx2.Response, max_bytes: int) -> bytes:
    """Return the body of a response as it was sent."""
    # Reading the raw stream does not mark the response as read, so the response can be passed on.
    stream = cast("httpx2.AsyncByteStream", response.stream)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in stream:
            size += len(part)
            if size > max_bytes:
                raise _BodyError(f"the response is longer than the limit of {max_bytes} bytes")
            parts.append(part)
    except (httpx2.TransportError, httpx2.StreamError, OSError) as error:
        raise _BodyError(f"the response was interrupted: {_describe_error(error)}") from error
    finally:
        await stream.aclose()
    return b"".join(parts)


def _decompress(raw: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the decompressed body, limited to `max_bytes`."""
    if not encoding:
        return raw
    if encoding not in ("gzip", "deflate"):
        raise _BodyError("the response is compressed, which was not requested")
    try:
        body = zlib.decompressobj(wbits=47).decompress(raw, max_bytes + 1)
    except zlib.error as error:
        raise _BodyError(f"the response cannot be decompressed: {error}") from error
    if len(body) > max_bytes:
        raise _BodyError(f"the response is longer than the limit of {max_bytes} bytes")
    return body


async def _buffer_response(request: httpx2.Request, response: httpx2.Response, encoding: str) -> httpx2.Response:
    """Read a response that is not a protocol message, within bounds."""
    body = _decompress(await _read_body(response, MAX_OTHER_BYTES), encoding, MAX_OTHER_BYTES)
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _FRAMING_HEADERS]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def _read_answer(
    request: httpx2.Request, response: httpx2.Response, request_id: Any, encoding: str, content_type: str
) -> httpx2.Response:
    """Read the response to a request of the protocol, within bounds. Its status says what it is."""
    if response.is_error:
        return await _read_failure(request, response, request_id, encoding)
    is_final = response.is_success and response.status_code != HTTPStatus.ACCEPTED
    if is_final and content_type.startswith("application/json"):
        return await _read_json_response(request, response, request_id, encoding)
    return await _buffer_response(request, response, encoding)


async def _read_failure(
    request: httpx2.Request, response: httpx2.Response, request_id: Any, encoding: str
) -> httpx2.Response:
    """Read the response to a failed request, whose body becomes a JSON-RPC error: the SDK would drop the status."""
    found, status = await _buffer_response(request, response, encoding), response.status_code
    data = parse_message(found.content)
    found_error: Any = data.get("error") if isinstance(data, dict) else None
    error: dict[str, Any] = found_error if isinstance(found_error, dict) else {}
    message = error.get("message")
    if type(error.get("code")) is not int or not isinstance(message, str):  # of a proxy: no error of the protocol
        if status in _LOST_BEHIND_PROXY:
            raise _BodyError(f"the server returned HTTP {status}")
        code, default = _DEFAULT_ERRORS.get(status, (INTERNAL_ERROR, "Server returned an error response"))
        error = {"code": code, "message": message if isinstance(message, str) else default}
    elif status not in _STATUSES_WITH_MEANING:
        return found
    seconds = parse_retry_after(response.headers)
    wait = "" if seconds is None else f", retry after {seconds:g} s"
    details = {**(error["data"] if isinstance(error.get("data"), dict) else {}), HTTP_STATUS_KEY: status}
    error = {**error, "message": f"{error['message'].rstrip('.')} (HTTP {status}{wait})", "data": details}
    body = to_json({"jsonrpc": "2.0", "id": request_id, "error": error})
    found.headers.update({"content-type": "application/json", "content-length": f"{len(body)}"})
    return httpx2.Response(status, headers=found.headers, content=body, request=request)


async def _read_json_response(
    request: httpx2.Request, response: httpx2.Response, request_id: Any, encoding: str
) -> httpx2.Response:
    """Read a JSON response within bounds, and check that it answers the request."""
    if encoding:
        # A few bytes can decompress to gigabytes, and the client does not request compression.
        await response.aclose()
        raise _BodyError("the response is compressed, which was not requested")
    body = await _read_body(response, MAX_BODY_BYTES)
    data = parse_message(body, (request_id,) if request.headers.get("mcp-method") == "tools/list" else ())
    if isinstance(data, UnreadableMessage):
        raise _BodyError(f"the response cannot be read: {data.reason}")
    if (reason := _find_mismatch(data, request_id)) is not None:
        raise _BodyError(reason)
    response.stream = httpx2.ByteStream(body)
    return response


def _find_mismatch(data: dict[str, Any] | None, request_id: Any) -> str | None:
    """Return why a message does not answer the request, or None if it does."""
    if data is None or data.get("id") != request_id:
        return "the response is for another request"
    return None if "result" in data or "error" in data else "the response has neither a result nor an error"


_FRAMING_HEADERS: Final = frozenset({"content-length", "content-encoding", "transfer-encoding"})


def _get_retry_delay(response: httpx2.Response) -> float | None:
    """Return the seconds to wait for a busy server, or None if it asks for too long."""
    seconds = parse_retry_after(response.headers)
    if seconds is None:
        return _DEFAULT_RETRY_DELAY
    return seconds if seconds <= MAX_RETRY_AFTER else None


class _WrappedStream:
    """Stream of a transport, whose messages pass a sanitizer."""

    def __init__(self, inner: Any, sanitizer: Sanitizer) -> None:
        self.inner, self.sanitizer = inner, sanitizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.inner.__aexit__(*exception)


class SanitizedReader(_WrappedStream):
    """Read stream of a transport that sanitizes every message, and refuses requests beyond the limit."""

    def __init__(self, inner: Any, sanitizer: Sanitizer, writer: Any) -> None:
        super().__init__(inner, sanitizer)
        self.writer = writer

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self._read(self.inner.receive)

    async def _read(self, read: Callable[[], Awaitable[SessionMessage | Exception]]) -> SessionMessage | Exception:
        while True:
            item = await read()
            if isinstance(item, Exception):
                return item
            refusal = self.sanitizer.refuse(item.message)
            if refusal is None:
                return SessionMessage(self.sanitizer.sanitize(item.message), item.metadata)
            await self.writer.send(SessionMessage(refusal))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self._read(self.inner.__anext__)


class TrackedWriter(_WrappedStream):
    """Write stream of a transport that records every request."""

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        self.sanitizer.track(item.message)
        await self.inner.send(item)
        self.sanitizer.settle(item.message)


@asynccontextmanager
async def open_http_streams(
    server: ServerSpec, sanitizer: Sanitizer, transport: BoundedTransport, headers: Mapping[str, str], *, use_sse: bool
) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect to a server over HTTP during the block, as an SDK transport."""
    auth = server.auth if isinstance(server.auth, httpx2.Auth) else None
    url = server.url or ""
    all_headers = {"accept-encoding": "identity", **(server.headers or {}), **headers}
    client_timeout = httpx2.Timeout(None, connect=server.connect_timeout, pool=server.connect_timeout)
    if use_sse:

        def make_client(
            headers: dict[str, str] | None = None, timeout: Any = None, auth: httpx2.Auth | None = None
        ) -> httpx2.AsyncClient:
            del timeout
            return httpx2.AsyncClient(transport=transport, headers=headers, auth=auth, timeout=client_timeout)

        async with sse_client(url, all_headers, auth=auth, httpx_client_factory=make_client) as (read, write):
            yield SanitizedReader(read, sanitizer, write), TrackedWriter(write, sanitizer)
        return
    async with (
        httpx2.AsyncClient(transport=transport, headers=all_headers, auth=auth, timeout=client_timeout) as http_client,
        streamable_http_client(url, http_client=http_client, max_sse_event_size=MAX_BODY_BYTES) as (read, write),
    ):
        yield SanitizedReader(read, sanitizer, write), TrackedWriter(write, sanitizer)
