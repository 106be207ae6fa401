"""Send requests to providers over HTTP (httpx2), with retries, timeouts and proxies."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from toolmason._core.run.tracing import LOADED_MODULES, PROVIDER, TRACE_API, ActiveSpan
from toolmason._wire import is_retryable_status, parse_retry_after
from toolmason.errors import ModelError, clip
from toolmason.models.http.redaction import find_secrets
from toolmason.models.http.sender import Endpoint, get_origin, get_retry_delay, join_headers
from toolmason.models.http.sse import EventStream
from toolmason.providers.codec import parse_error

try:
    import httpx2 as httpx2  # noqa: PLC0414 - re-exported
except ImportError as missing:  # pragma: no cover - the test suite has it
    raise ImportError("Models need httpx2: pip install 'toolmason[models]'") from missing

_REDIRECT_STATUS: Final = 300
_ERROR_STATUS: Final = 400
_NO_SPAN: Final[AbstractContextManager[ActiveSpan | None]] = nullcontext()
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a response, decompressed."""
MAX_STREAM_BYTES: Final = 4 * MAX_BODY_BYTES
"""Maximum size of a stream; each token may carry hundreds of bytes of overhead."""
_ALLOWED_ENCODINGS: Final = ("", "identity", "gzip", "deflate")
"""Encodings with a bounded expansion ratio, applied once: a few bytes must not exhaust the memory."""


class UnreadableBody(ValueError):
    """The body of a response is too large, or has an encoding that was not requested."""


class LoopClients:
    """HTTP clients, one for each event loop, because a connection belongs to the loop that opened it."""

    def __init__(self, *, keeps_cookies: bool = True, **options: Any) -> None:
        self._options, self._keeps_cookies = options, keeps_cookies
        self._clients: weakref.WeakKeyDictionary[Any, httpx2.AsyncClient] = weakref.WeakKeyDictionary()

    def get(self) -> httpx2.AsyncClient:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or client.is_closed:
            client = self._clients[loop] = httpx2.AsyncClient(**self._options)
            if not self._keeps_cookies:
                # A session of one user must not go with the request of another.
                client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        return client

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


def check_encoding(response: httpx2.Response) -> None:
    """Raise UnreadableBody if a response has an encoding that was not requested."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ALLOWED_ENCODINGS:
        raise UnreadableBody(f"the response has the encoding {clip(encoding)!r}, which was not requested")


def check_size(size: int, max_bytes: int) -> None:
    """Raise UnreadableBody if a body exceeds its limit."""
    if size > max_bytes:
        raise UnreadableBody(f"the response exceeds {max_bytes:,} bytes")


async def read_bounded(response: httpx2.Response, max_bytes: int) -> bytes:
    """Return the decompressed body of a response.

    Raises:
        UnreadableBody: it is too large, or has an encoding that was not requested.
    """
    check_encoding(response)
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        check_size(len(content), max_bytes)
    return bytes(content)


class Transport:
    """Connections to one endpoint, usable from several event loops, even concurrently."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout: float | None = 600.0,
        max_retries: int = 2,
        proxy: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._max_retries, self._sleep = max_retries, sleep
        connect = 10.0 if timeout is None else min(timeout, 10.0)
        self._clients = LoopClients(timeout=httpx2.Timeout(timeout, connect=connect), proxy=proxy)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings that errors must not contain."""
        endpoint = self._endpoint
        return (endpoint.secret, *find_secrets(endpoint.url, endpoint.headers))

    def _open_span(self, attempt: int = 0) -> ActiveSpan:
        """Return the span of one HTTP request. Path and query of the URL may hold a key, so it has only the host."""
        url = urlsplit(self._endpoint.url)
        attributes: dict[str, Any] = {"http.request.method": "POST", "server.address": url.hostname or ""}
        if url.port is not None:
            attributes["server.port"] = url.port
        if attempt:
            attributes["http.request.resend_count"] = attempt
        return ActiveSpan("POST", attributes, "client", is_current=False)

    def _start(self, body: Mapping[str, Any], url: str, accept: str) -> Coroutine[Any, Any, httpx2.Response]:
        """Return a coroutine that sends a request and returns the response, without its body."""
        endpoint = self._endpoint
        headers = {"Content-Type": "application/json", "Accept": accept, "Accept-Encoding": "gzip, deflate"}
        headers.update(endpoint.headers)
        for name, field_headers in endpoint.field_headers.items():
            if body.get(name):
                headers = join_headers(headers, field_headers)
        client = self._clients.get()
        content = to_json(body, inf_nan_mode="null")
        return client.send(client.build_request("POST", url, headers=headers, content=content), stream=True)

    async def post(self, body: Mapping[str, Any], *, count: bool = False) -> Any:
        """Return the response; with `count`, that of the API that counts the tokens of a request.

        Raises:
            ModelError: the request failed; `retryable` is True if it may succeed later. Secrets are not yet redacted.
        """
        url = self._endpoint.count_url if count else self._endpoint.url
        for attempt in itertools.count():
            try:
                with (
                    self._open_span(attempt)
                    if getattr(LOADED_MODULES.get(TRACE_API), PROVIDER, None)
                    else _NO_SPAN as span
                ):
                    response = await self._start(body, url, "application/json")
                    try:
                        content = await read_bounded(response, MAX_BODY_BYTES)
                    finally:
                        await response.aclose()
                    if span is not None:
                        span.set({"http.response.status_code": response.status_code})
                    if response.status_code >= _REDIRECT_STATUS:
                        raise self._make_status_error(response, content)
                return self._parse_json(content)
            except (ModelError, UnreadableBody, httpx2.RequestError) as error:
                model_error = self._to_model_error(error)
                if not await self.wait_for_retry(model_error, attempt):
                    raise model_error from (error if model_error is not error else None)
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    async def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the response. The caller decides about retries with `wait_for_retry`.

        Raises:
            ModelError: the request failed, or the stream ended early. Secrets are not yet redacted.
        """
        stream = EventStream(self._endpoint.provider)
        try:
            with self._open_span() if getattr(LOADED_MODULES.get(TRACE_API), PROVIDER, None) else _NO_SPAN as span:
                response = await self._start(body, self._endpoint.stream_url, "text/event-stream")
                try:
                    if span is not None:
                        span.set({"http.response.status_code": response.status_code})
                    if response.status_code >= _REDIRECT_STATUS:
                        raise self._make_status_error(response, await read_bounded(response, MAX_BODY_BYTES))
                    async for piece in self._iterate_stream(response):
                        for event in stream.feed(piece):
                            yield event
                    for event in stream.end():
                        yield event
                finally:
                    await response.aclose()
        except (UnreadableBody, httpx2.RequestError) as error:
            raise self._to_model_error(error) from error

    async def wait_for_retry(self, error: ModelError, attempt: int) -> bool:
        """Wait before the next attempt. Return False if there is none."""
        may_retry = error.retryable and attempt < self._max_retries
        delay = get_retry_delay(attempt, error.retry_after) if may_retry else None
        if delay is not None:
            await self._sleep(delay)
        return delay is not None

    async def _iterate_stream(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield a decompressed stream. Some servers do not name its type, so its beginning is checked then."""
        if "text/event-stream" not in response.headers.get("content-type", ""):
            content = await read_bounded(response, MAX_BODY_BYTES)
            if not content.lstrip().startswith((b"data:", b"event:", b":")):
                excerpt = clip(content.decode(errors="replace"), 200)
                raise ModelError(self._endpoint.provider, f"expected a stream, got: {excerpt}")
            yield content
            return
        check_encoding(response)
        size = 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            check_size(size, MAX_STREAM_BYTES)
            yield piece

    def _make_status_error(self, response: httpx2.Response, content: bytes) -> ModelError:
        status, headers = response.status_code, response.headers
        if status < _ERROR_STATUS:
            # Redirects are not followed, so that the key is not sent to another server.
            location = clip(headers.get("location", "unknown"))
            message = f"redirect to {location!r} not followed. Correct base_url."
            return ModelError(self._endpoint.provider, message, status=status)
        try:
            payload = from_json(content)
        except ValueError:
            payload = None
        if isinstance(payload, list) and payload:  # Gemini sends errors of streaming requests as a list
            payload = payload[0]
        if not isinstance(payload, Mapping):
            payload = {"error": content.decode(errors="replace")[:300] or "no message"}
        error = parse_error(self._endpoint.provider, payload, status)
        error.retryable = is_retryable_status(status)
        error.retry_after = parse_retry_after(headers)
        return error

    def _parse_json(self, content: bytes) -> Any:
        try:
            body = from_json(content)
        except ValueError as error:
            excerpt = clip(content.decode(errors="replace"), 200)
            raise ModelError(self._endpoint.provider, f"the response is not JSON: {excerpt}") from error
        choices = body.get("choices") if isinstance(body, Mapping) else None
        # OpenRouter and others report failures in responses with the status 200, also in the place of the answer.
        for part in (body, choices[0] if isinstance(choices, list) and choices else None):
            if isinstance(part, Mapping) and isinstance(part.get("error"), Mapping):
                raise parse_error(self._endpoint.provider, part)
        return body

    def _to_model_error(self, error: Exception) -> ModelError:
        if isinstance(error, ModelError):
            return error
        if isinstance(error, UnreadableBody):
            return ModelError(self._endpoint.provider, str(error))
        description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        retryable = isinstance(error, httpx2.TransportError)
        message = f"no response from {get_origin(self._endpoint.url)} ({description})"
        return ModelError(self._endpoint.provider, message, code="connection", retryable=retryable)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        await self._clients.aclose()
