"""A request body → an answer over HTTP, or its events; the one place that opens connections to providers.

Lives here: httpx2, retries, time-outs, proxies, errors with the provider's words. A key stands in headers alone.
Not here: what is in a body (`toolmason.providers`), or what an error may show (`secrets`).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason.errors import ModelError, clip
from toolmason.models.http.redaction import secrets_in
from toolmason.models.http.retries import Retries, asked_wait, may_pass
from toolmason.models.http.sender import Endpoint
from toolmason.models.http.sse import EventStream
from toolmason.providers.codec import error_in

try:
    import httpx2
except ImportError as missing:  # pragma: no cover - the test suite has it
    raise ImportError("Models need httpx2: pip install 'toolmason[models]'") from missing


_MOVED, _FAILED = 300, 400
BODY_BYTES: Final = 64 * 1024 * 1024
"""The longest answer that is taken, unpacked."""
STREAM_BYTES: Final = 4 * BODY_BYTES
"""The longest stream: each token of it may come with hundreds of bytes around it."""
_PACKED: Final = ("", "identity", "gzip", "deflate")
"""Packed once, and in a way whose pieces cannot grow without end: a few bytes must not fill the memory."""


class Transport:
    """Connections to one endpoint. It may be used from several event loops, one after the other or at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout: float | None = 600.0,
        retries: Retries | None = None,
        proxy: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._endpoint, self._retries, self._sleep = endpoint, retries or Retries(), sleep
        connect = 10.0 if timeout is None else min(timeout, 10.0)
        self._options: dict[str, Any] = {"timeout": httpx2.Timeout(timeout, connect=connect), "proxy": proxy}
        # A connection belongs to the loop that opened it.
        self._clients: weakref.WeakKeyDictionary[Any, httpx2.AsyncClient] = weakref.WeakKeyDictionary()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no error may show."""
        known = self._endpoint
        return (known.secret, *secrets_in(known.url, known.headers))

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or client.is_closed:
            client = self._clients[loop] = httpx2.AsyncClient(**self._options)
        return client

    def _request(self, body: Mapping[str, Any], *, stream: bool) -> httpx2.Request:
        known = self._endpoint
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream" if stream else "application/json"}
        headers["Accept-Encoding"] = "gzip, deflate"
        headers |= {**known.headers, **(known.flags(body) if known.flags is not None else {})}
        url = known.stream_url if stream else known.url
        return self._client().build_request("POST", url, headers=headers, content=to_json(body, inf_nan_mode="null"))

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Return the answer.

        Raises:
            ModelError: there is none; `retryable` tells whether it may come later. It may show a secret still.
        """
        for attempt in count():
            try:
                return await self._answer(body)
            except (ModelError, httpx2.RequestError) as error:
                told = self._told(error)
                if not await self.again(told, attempt):
                    raise told from (error if told is not error else None)
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    async def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the answer; whoever reads them knows whether it may be asked for `again`.

        Raises:
            ModelError: there is none, or it was cut. It may show a secret still.
        """
        try:
            async for event in self._once(body):
                yield event
        except httpx2.RequestError as error:
            raise self._told(error) from error

    async def again(self, error: ModelError, attempt: int) -> bool:
        """Wait before another attempt, and tell whether there is one."""
        wait = self._retries.wait(attempt, error.retry_after) if error.retryable else None
        if wait is not None:
            await self._sleep(wait)
        return wait is not None

    async def _answer(self, body: Mapping[str, Any]) -> Any:
        answer = await self._client().send(self._request(body, stream=False), stream=True)
        try:
            content = await self._whole(answer)
            self._refuse(answer.status_code, answer.headers, content)
            return self._read(content)
        finally:
            await answer.aclose()

    async def _whole(self, answer: httpx2.Response) -> bytes:
        return b"".join([piece async for piece in self._pieces(answer, BODY_BYTES)])

    async def _pieces(self, answer: httpx2.Response, most: int) -> AsyncIterator[bytes]:
        """Yield an answer, unpacked, as long as it is not too long."""
        packed = answer.headers.get("content-encoding", "").strip().lower()
        if packed not in _PACKED:
            raise ModelError(
                self._endpoint.provider, f"the answer is packed as {clip(packed)!r}, which was not asked for"
            )
        size = 0
        async for piece in answer.aiter_bytes():
            size += len(piece)
            if size > most:
                raise ModelError(self._endpoint.provider, f"the answer is longer than {most:,} bytes")
            yield piece

    async def _once(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        answer = await self._client().send(self._request(body, stream=True), stream=True)
        try:
            if answer.status_code >= _MOVED:
                self._refuse(answer.status_code, answer.headers, await self._whole(answer))
            if "text/event-stream" not in answer.headers.get("content-type", ""):
                content = await self._whole(answer)
                if not content.lstrip().startswith((b"data:", b"event:", b":")):
                    raise ModelError(
                        self._endpoint.provider, f"no stream came, but: {clip(content.decode(errors='replace'), 200)}"
                    )
                pieces: AsyncIterator[bytes] = _single(content)
            else:
                pieces = self._pieces(answer, STREAM_BYTES)
            stream = EventStream(self._endpoint.provider)
            async for piece in pieces:
                for event in stream.feed(piece):
                    yield event
            for event in stream.end():
                yield event
        finally:
            await answer.aclose()

    def _refuse(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        if status < _MOVED:
            return
        if status < _FAILED:
            # Not followed: a key must not go where nobody meant it to.
            place = clip(headers.get("location", "nowhere"))
            raise ModelError(
                self._endpoint.provider, f"it points to {place!r}. Give the right base_url.", status=status
            )
        try:
            told = from_json(content)
        except ValueError:
            told = None
        if isinstance(told, list) and told:  # Gemini sends a list where a stream was asked for
            told = told[0]
        form = told if isinstance(told, Mapping) else {"error": content.decode(errors="replace")[:300] or "no words"}
        error = error_in(self._endpoint.provider, form, status)
        error.retryable = may_pass(status)
        error.retry_after = asked_wait(headers)
        raise error

    def _read(self, content: bytes) -> Any:
        try:
            return from_json(content)
        except ValueError as error:
            shown = clip(content.decode(errors="replace"), 200)
            raise ModelError(self._endpoint.provider, f"the answer is not JSON: {shown}") from error

    def _told(self, error: Exception) -> ModelError:
        if isinstance(error, ModelError):
            return error
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        again = isinstance(error, httpx2.TransportError)
        return ModelError(self._endpoint.provider, f"no answer came ({words})", code="connection", retryable=again)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


async def _single(content: bytes) -> AsyncIterator[bytes]:
    yield content
