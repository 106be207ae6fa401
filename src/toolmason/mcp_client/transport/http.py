"""A server's address → the two streams that the SDK reads and writes.

Lives here: an HTTP transport that bounds what comes in, asks again when told to come back later, and turns a broken
connection into the failure of one request; the SDK would end the whole session for it. Not here: sessions and eras
(the SDK), or what is worth a second try (`connection`).
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic_core import from_json, to_json

from toolmason.mcp_client.server_options import Server
from toolmason.mcp_client.transport.framing import LINE_BYTES, Unreadable, read_line
from toolmason.mcp_client.transport.sanitize import Screen
from toolmason.mcp_client.transport.ssrf import pinned

BODY_BYTES: Final = LINE_BYTES
PAPER_BYTES: Final = 1024 * 1024
"""The longest of any other answer: what a server says of itself, tokens, the words of an error."""
BUSY: Final = frozenset({429, 503})
ATTEMPTS: Final = 3
LONGEST_WAIT: Final = 20.0
"""A server that wants more time than this is not waited for."""
LOST: Final = -32099
"""Our own code for a request that no answer came to; `data` says whether the server can have seen it."""


class Careful(httpx2.AsyncBaseTransport):
    """Requests that fail one at a time."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: str, issuer: str | None = None) -> None:
        self.inner, self.home = inner, _origin(httpx2.URL(url))
        self.trusted = {self.home, *([] if issuer is None else [_origin(httpx2.URL(issuer))])}
        """Where the developer sends us; any other place was named by a server."""
        self.expired = False
        """Whether the server has forgotten our session."""
        self.status: int | None = None
        """The last status that was an error."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; its failure is an answer."""
        asked = _asked(request)
        if asked is None:
            # What is not a request of the protocol may have been made beside the client, and lack its headers.
            request.headers.setdefault("accept-encoding", "identity")
        if "oauth-protected-resource" in request.url.path and _origin(request.url) != self.home:
            # What a server says of itself is fetched from the server itself: it must not send us elsewhere.
            return httpx2.Response(404, request=request)
        try:
            response = await self._patiently(await self._on_the_way(request))
        except (httpx2.TransportError, OSError) as error:
            if asked is None:
                raise
            unseen = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            return _lost(request, asked, _words(error), seen=not unseen)
        if response.status_code >= 400:  # noqa: PLR2004 - where errors begin
            self.status = response.status_code
            self.expired = self.expired or (response.status_code == 404 and "mcp-session-id" in request.headers)  # noqa: PLR2004 - not found
        kind, packing = _kind_and_packing(response)
        if asked is not None and kind.startswith("application/json"):
            return await _whole(request, response, asked, packing)
        if kind.startswith("text/event-stream") and response.status_code < 400 and not packing:  # noqa: PLR2004 - no error
            return response  # the SDK bounds its events
        return await _paper(request, response, asked, packing)

    async def _on_the_way(self, request: httpx2.Request) -> httpx2.Request:
        """Return a request as it is sent: one to a place that a server named goes to an address that was judged."""
        url = request.url
        if _origin(url) in self.trusted:
            return request
        try:
            address = await pinned(url.host, _port(url), home=self.home[1], home_port=self.home[2])
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from None
        return httpx2.Request(
            request.method,
            url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )

    async def _patiently(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and again when the server says that it is busy: it has done nothing then."""
        for _ in range(ATTEMPTS - 1):
            response = await self.inner.handle_async_request(request)
            wait = wait_for(response) if response.status_code in BUSY else None
            if wait is None:
                return response
            await response.aclose()
            await asyncio.sleep(wait * (1 + random.random() / 10))  # noqa: S311 - jitter, not a secret
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, _port(url)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _asked(request: httpx2.Request) -> Any:
    """Return the id of the question in a request; `None` where it holds none."""
    if request.method != "POST":
        return None
    try:
        body = from_json(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    return body.get("id") if isinstance(body, dict) and "method" in body else None


def _words(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"{type(error).__name__}: {text}" if text != type(error).__name__ else text


def _lost(request: httpx2.Request, asked: Any, reason: str, *, seen: bool) -> httpx2.Response:
    error = {"code": LOST, "message": reason, "data": {"seen": seen}}
    body = to_json({"jsonrpc": "2.0", "id": asked, "error": error})
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=body, request=request)


class _NotRead(Exception):
    """An answer is too long, packed, or broke off."""


def _kind_and_packing(response: httpx2.Response) -> tuple[str, str]:
    """Return what an answer holds, and how it is packed; empty where it is not."""
    kind = packing = b""
    for name, value in response.headers.raw:  # a look at each by its name costs more than all of them as they came
        if name.lower() == b"content-type":
            kind = kind or value  # of several the SDK goes by the first, and so what is bounded must
        elif name.lower() == b"content-encoding":
            packing = b",".join((packing, value)) if packing else value
    told = packing.decode("latin-1").strip().lower()
    return kind.decode("latin-1").lower(), "" if told == "identity" else told


async def _read(response: httpx2.Response, most: int) -> bytes:
    """Return the body of an answer as it was sent."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in _stream_of(response):
            size += len(part)
            if size > most:
                raise _NotRead(f"the answer is longer than the limit of {most} bytes")
            parts.append(part)
    except (httpx2.TransportError, httpx2.StreamError, OSError) as error:
        raise _NotRead(f"the answer broke off: {_words(error)}") from error
    finally:
        await _stream_of(response).aclose()
    return b"".join(parts)


def _stream_of(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """Return the body as it comes from the wire: the answer itself can then be handed on as if it were unread."""
    stream: Any = response.stream
    return stream  # type: ignore[no-any-return]


def _unpacked(raw: bytes, packing: str, most: int) -> bytes:
    """Return what a body holds, unpacked no further than it may be long."""
    if not packing:
        return raw
    if packing not in ("gzip", "deflate"):
        raise _NotRead("the answer is packed, which was not asked for")
    try:
        body = zlib.decompressobj(wbits=47).decompress(raw, most + 1)
    except zlib.error as error:
        raise _NotRead(f"the answer cannot be unpacked: {error}") from error
    if len(body) > most:
        raise _NotRead(f"the answer is longer than the limit of {most} bytes")
    return body


async def _paper(request: httpx2.Request, response: httpx2.Response, asked: Any, packing: str) -> httpx2.Response:
    """Read an answer that is no message of the protocol to its end, within bounds."""
    try:
        body = _unpacked(await _read(response, PAPER_BYTES), packing, PAPER_BYTES)
    except _NotRead as error:
        if asked is not None:
            return _lost(request, asked, str(error), seen=True)
        return httpx2.Response(502, content=str(error).encode(), request=request)
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _FRAMING]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def _whole(request: httpx2.Request, response: httpx2.Response, asked: Any, packing: str) -> httpx2.Response:
    """Read a JSON answer to its end, within bounds, and see that it is one."""
    if packing:
        # A few bytes can unpack to gigabytes, and we do not ask for it.
        await response.aclose()
        return _lost(request, asked, "the answer is packed, which was not asked for", seen=True)
    try:
        body = await _read(response, BODY_BYTES)
    except _NotRead as error:
        return _lost(request, asked, str(error), seen=True)
    data = read_line(body, (asked,) if request.headers.get("mcp-method") == "tools/list" else ())
    if isinstance(data, Unreadable):
        return _lost(request, asked, f"the answer cannot be read: {data.reason}", seen=True)
    if response.status_code < 400 and (reason := _no_answer(data, asked)) is not None:  # noqa: PLR2004 - no error
        return _lost(request, asked, reason, seen=True)
    response.stream = httpx2.ByteStream(body)
    return response


def _no_answer(data: dict[str, Any] | None, asked: Any) -> str | None:
    """Return why a message is no answer to a question."""
    if data is None or data.get("id") != asked:
        return "the answer is to another question"
    return None if "result" in data or "error" in data else "the answer has neither a result nor an error"


_FRAMING: Final = frozenset({"content-length", "content-encoding", "transfer-encoding"})


def wait_for(response: httpx2.Response) -> float | None:
    """Return how long a busy server asks us to wait; `None` where that is too long."""
    said = response.headers.get("retry-after", "").strip()
    if not said:
        return 0.5
    if said.isdigit():
        seconds = float(said)
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (TypeError, ValueError):
            return 0.5
    return max(0.0, seconds) if seconds <= LONGEST_WAIT else None


class Screened:
    """The reading side of a transport, with every message looked over."""

    def __init__(self, inner: Any, screen: Screen) -> None:
        self.inner, self.screen = inner, screen

    @property
    def last_context(self) -> Any:
        """What the SDK reads the sender's context from."""
        return getattr(self.inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return self._seen(await self.inner.receive())

    def _seen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception):
            return item
        return SessionMessage(self.screen.received(item.message), item.metadata)

    async def aclose(self) -> None:
        """Close the stream."""
        await self.inner.aclose()

    def __aiter__(self) -> Screened:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._seen(await self.inner.__anext__())

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.inner.__aexit__(*exception)


class Noted:
    """The writing side of a transport, with every question noted."""

    def __init__(self, inner: Any, screen: Screen) -> None:
        self.inner, self.screen = inner, screen

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        self.screen.sent(item.message)
        await self.inner.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.inner.__aexit__(*exception)


@asynccontextmanager
async def http_streams(
    server: Server, screen: Screen, careful: Careful, headers: Mapping[str, str], *, old: bool
) -> AsyncGenerator[tuple[Any, Any]]:
    """Speak to a server over HTTP for as long as the block lasts, as a transport of the SDK."""
    auth = server.auth if isinstance(server.auth, httpx2.Auth) else None
    url, known = server.url or "", {"accept-encoding": "identity", **(server.headers or {}), **headers}
    patience = httpx2.Timeout(None, connect=server.connect_timeout, pool=server.connect_timeout)
    if old:

        def client(
            headers: dict[str, str] | None = None, timeout: Any = None, auth: httpx2.Auth | None = None
        ) -> httpx2.AsyncClient:
            del timeout
            return httpx2.AsyncClient(transport=careful, headers=headers, auth=auth, timeout=patience)

        async with sse_client(url, known, auth=auth, httpx_client_factory=client) as (read, write):
            yield Screened(read, screen), Noted(write, screen)
        return
    async with (
        httpx2.AsyncClient(transport=careful, headers=known, auth=auth, timeout=patience) as own,
        streamable_http_client(url, http_client=own) as (read, write),
    ):
        yield Screened(read, screen), Noted(write, screen)
