"""Send the requests of an API to its one server, with bounded responses and judged redirects."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from toolmason._secrets import mask_values
from toolmason._text import split_url
from toolmason._wire import parse_retry_after
from toolmason.errors import ConfigError, RemoteError, clip
from toolmason.models.http.sender import get_origin

try:
    from toolmason.models.http.transport import LoopClients, UnreadableBody, httpx2, read_bounded
except ImportError as missing:  # pragma: no cover - the test suite has it
    raise ImportError("An API needs httpx2: pip install 'toolmason[openapi]'") from missing

MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a response of an API, decompressed."""
MAX_REDIRECTS: Final = 5
"""Redirects in a row, within one origin."""
_TIMEOUT_SECONDS: Final = 60.0
_REPEATS_REQUEST: Final = frozenset({307, 308})


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ApiRequest:
    """One request, without its server."""

    method: str
    path: str
    """Percent-encoded, with its slash at the start."""
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    cookies: list[tuple[str, str]] = field(default_factory=list)
    content: bytes | None = None
    is_repeatable: bool = False
    """True if sending it twice does no harm."""
    secrets: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ApiResponse:
    """One response."""

    status: int
    reason: str
    content_type: str
    content: bytes
    retry_after: float | None = None


class ApiClient:
    """Sender of requests to one server. The document cannot name another."""

    def __init__(
        self,
        base_url: str,
        client: Any = None,
        *,
        max_bytes: int | None = None,
        timeout: float = _TIMEOUT_SECONDS,
    ) -> None:
        parts = split_url(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"base_url={clip(base_url)!r}: must be an http or https address without a query.")
        self.base_url = base_url.rstrip("/")
        self.origin = get_origin(base_url)
        if client is not None and not hasattr(client, "build_request"):
            raise ConfigError(f"client={client!r}: must be an httpx2.AsyncClient.")
        if isinstance(client, httpx2.Client):
            raise ConfigError("client= is an httpx2.Client, which blocks. Pass an httpx2.AsyncClient.")
        self._client, self._max_bytes = client, max_bytes
        self._clients = LoopClients(timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0)), keeps_cookies=False)

    async def aclose(self) -> None:
        """Close the connections that this object has opened in this event loop."""
        await self._clients.aclose()

    async def send(self, request: ApiRequest) -> ApiResponse:
        """Return the response to a request. Follow redirects within the origin only.

        Raises:
            RemoteError: the server cannot be reached, redirects elsewhere, or sends too much.
        """
        query = "&".join(f"{name}={value}" for name, value in request.query)
        url = f"{self.base_url}{request.path}{f'?{query}' if query else ''}"
        headers = {"Accept": "application/json, */*;q=0.5", "Accept-Encoding": "gzip, deflate", **request.headers}
        if request.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in request.cookies)
        client = self._client or self._clients.get()
        method, content = request.method, request.content
        for _ in range(MAX_REDIRECTS + 1):
            built = client.build_request(method, url, headers=headers, content=content)
            response = await self._open(client, built, request)
            try:
                if not response.has_redirect_location:
                    return ApiResponse(
                        response.status_code,
                        response.reason_phrase,
                        response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                        await self._read(response, request),
                        parse_retry_after(response.headers),
                    )
                url = self._judge_redirect(response, method)
            finally:
                await response.aclose()
            if response.status_code not in _REPEATS_REQUEST and method != "HEAD":
                method, content = "GET", None
                headers.pop("Content-Type", None)
        raise RemoteError(self.origin, "call", f"it redirects more than {MAX_REDIRECTS} times")

    async def _open(self, client: Any, built: Any, request: ApiRequest) -> Any:
        try:
            return await client.send(built, stream=True, follow_redirects=False)
        except httpx2.RequestError as error:
            raise self._to_remote_error(error, request) from None

    async def _read(self, response: Any, request: ApiRequest) -> bytes:
        try:
            return await read_bounded(response, self._max_bytes or MAX_RESPONSE_BYTES)
        except UnreadableBody as problem:
            raise RemoteError(self.origin, "call", str(problem)) from None
        except httpx2.RequestError as error:
            raise self._to_remote_error(error, request) from None

    def _to_remote_error(self, error: Exception, request: ApiRequest) -> RemoteError:
        # A connection that was never made has run nothing.
        is_unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        reason = mask_values(
            f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, request.secrets
        )
        return RemoteError(
            self.origin, "connect" if is_unsent else "call", reason, retryable=is_unsent or request.is_repeatable
        )

    def _judge_redirect(self, response: Any, method: str) -> str:
        """Return the address to go to.

        Raises:
            RemoteError: it is on another origin, or a request that may change data would become another one.
        """
        target = response.request.url.join(response.headers["location"])
        same_origin = (target.scheme, target.host, target.port) == (
            response.request.url.scheme,
            response.request.url.host,
            response.request.url.port,
        )
        if not same_origin or target.userinfo:
            origin = clip(get_origin(str(target)))
            raise RemoteError(self.origin, "call", f"its redirect to {origin!r} was not followed")
        is_repeated = response.status_code in _REPEATS_REQUEST or method in ("GET", "HEAD")
        if not is_repeated and response.status_code != HTTPStatus.SEE_OTHER:
            raise RemoteError(self.origin, "call", f"its redirect of a {method} request was not followed")
        return str(target)
