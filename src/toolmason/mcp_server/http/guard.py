"""An HTTP request → whether it may come in: Host, Origin, bearer token, size, time, depth.

Lives here: every check that holds for all requests, whoever answers them. Not here: what a request means.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from toolmason._core.arguments.bind import measure_nesting
from toolmason._core.run.eager_task import run_until_first_await
from toolmason.errors import ConfigError
from toolmason.mcp_client.transport.framing import MAX_DEPTH, find_id, has_duplicate_key
from toolmason.mcp_server.http.owner import ANONYMOUS, Identity, make_identity

_log = logging.getLogger("toolmason.mcp_server")

Headers: TypeAlias = Mapping[bytes, bytes]
Receive: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Principal: TypeAlias = str | Mapping[str, Any] | None
VerifyToken: TypeAlias = Callable[[str], Principal | Awaitable[Principal]]
"""A bearer token → who it stands for: a name, or context values with `user` among them; `None` refuses it."""

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
BODY_SECONDS: Final = 30.0
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


@dataclass(frozen=True, slots=True)
class Bearer:
    """Bearer tokens, and where clients may get one."""

    verify: VerifyToken
    resource: str | None = None
    """The public address of this server; with it, the metadata of the protected resource are served."""
    authorization_servers: Sequence[str] = ()
    scopes: Sequence[str] = ()


def token_is(secret: str, user: str = "token") -> VerifyToken:
    """Return a check for one secret token, in constant time: `serve(box, auth=token_is(secret))`."""
    if len(secret) < 16:  # noqa: PLR2004 - 128 bits, if it is random
        raise ConfigError(f"The token has {len(secret)} characters. Give at least 16, from a secret store.")

    def verify(token: str) -> Principal:
        return user if hmac.compare_digest(token.encode("utf-8", "replace"), secret.encode()) else None

    return verify


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An answer that ends a request before anybody looks into it."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    code: int = INVALID_REQUEST
    id: Any = None

    async def __call__(self, send: Send) -> None:
        """Send it."""
        error = {"code": self.code, "message": self.message}
        body = to_json({"jsonrpc": "2.0", "id": self.id, "error": error})
        await send_json(send, self.status, body, self.headers)


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send a whole JSON response."""
    all_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class Guard:
    """The checks of one server."""

    allowed_hosts: frozenset[str] = frozenset(LOOPBACK_HOSTS)
    allowed_origins: frozenset[str] = frozenset()
    bearer: Bearer | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    body_seconds: float = BODY_SECONDS
    _accepted: dict[tuple[bytes | None, bytes | None], bool] = field(default_factory=dict)

    def check_headers(self, headers: Headers, header_pairs: Sequence[tuple[bytes, bytes]]) -> ErrorResponse | None:
        """Return why a request may not come in by where it says it goes, and where it comes from."""
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if (host, origin) in self._accepted:
            # A header that is there twice is two answers to one question.
            if len(headers) == len(header_pairs) or sum(
                name in (b"host", b"origin") for name, _ in header_pairs
            ) <= 1 + bool(origin):
                return None
            return ErrorResponse(400, "The Host or Origin header appears more than once.")
        if (
            sum(name == b"host" for name, _ in header_pairs) > 1
            or sum(name == b"origin" for name, _ in header_pairs) > 1
        ):
            return ErrorResponse(400, "The Host or Origin header appears more than once.")
        if not self._is_allowed_host(host):
            return ErrorResponse(421, "The Host header names a server that this is not. Add it to allowed_hosts.")
        if not self._is_allowed_origin(origin, host):
            return ErrorResponse(403, "The Origin header names a page that may not call. Add it to allowed_origins.")
        if len(self._accepted) < 64:  # noqa: PLR2004 - a client cannot make it grow
            self._accepted[host, origin] = True
        return None

    def _is_allowed_host(self, host: bytes | None) -> bool:
        if host is None:
            return False
        if "*" in self.allowed_hosts:
            return True
        name = host.decode("latin-1").lower()
        hostname = name if name.endswith("]") else name.rpartition(":")[0] or name
        port = name[len(hostname) :].removeprefix(":")
        return name in self.allowed_hosts or (hostname in self.allowed_hosts and (not port or port.isdigit()))

    def _is_allowed_origin(self, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None or "*" in self.allowed_origins:
            return True
        value = origin.decode("latin-1").lower()
        if value in self.allowed_origins:
            return True
        try:
            parts = urlsplit(value)
        except ValueError:
            return False  # an address that cannot be read is nobody's
        # The page that this server itself would have sent.
        own_host = (host or b"").decode("latin-1").lower()
        return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc == own_host

    async def authenticate(self, headers: Headers) -> Identity | ErrorResponse:
        """Return for whom a request is made, as context values; without authentication, for nobody."""
        if self.bearer is None:
            return ANONYMOUS
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return self._make_unauthorized("A bearer token is needed.", "")
        try:
            verified: Any = self.bearer.verify(token.strip())
            verified = await verified if inspect.isawaitable(verified) else verified
        except Exception as error:  # noqa: BLE001 - when in doubt, no; and the token may be in the words
            _log.error("the check of a bearer token failed: %s", type(error).__name__)
            verified = None
        if not verified:
            return self._make_unauthorized("The bearer token is not valid.", "invalid_token")
        return make_identity(verified, token.strip())

    def _make_unauthorized(self, message: str, error: str) -> ErrorResponse:
        parameters = [f'error="{error}"'] if error else []
        if (url := self.metadata_url) is not None:
            parameters.append(f'resource_metadata="{url}"')
        if self.bearer is not None and self.bearer.scopes:
            parameters.append(f'scope="{" ".join(self.bearer.scopes)}"')
        challenge = f"Bearer {', '.join(parameters)}".strip()
        return ErrorResponse(401, message, ((b"www-authenticate", challenge.encode()),))

    @property
    def metadata_url(self) -> str | None:
        """Where clients find out how to get a token."""
        if self.bearer is None or self.bearer.resource is None:
            return None
        parts = urlsplit(self.bearer.resource)
        return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"

    def encode_metadata(self) -> bytes:
        """Return the metadata of the protected resource."""
        bearer = self.bearer
        if bearer is None:
            return b"{}"
        document: dict[str, Any] = {
            "resource": bearer.resource,
            "authorization_servers": list(bearer.authorization_servers),
        }
        if bearer.scopes:
            document["scopes_supported"] = list(bearer.scopes)
        return to_json({**document, "bearer_methods_supported": ["header"]})

    async def read_body(self, headers: Headers, receive: Receive) -> bytes | ErrorResponse | None:
        """Return the body of a request; `None` where the client has gone."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self.max_body_bytes):
            return ErrorResponse(413, f"The body is larger than {self.max_body_bytes} bytes.")
        message, suspended = run_until_first_await(receive())
        if suspended is None and not message.get("more_body"):
            whole: bytes = message.get("body", b"")
            return (self._check_body(whole) or whole) if message["type"] == "http.request" else None
        try:
            async with asyncio.timeout(self.body_seconds):
                return await self._read_rest(message if suspended is None else await suspended, receive)
        except TimeoutError:
            return ErrorResponse(
                408, f"The body did not come within {self.body_seconds:g} s.", ((b"connection", b"close"),)
            )

    async def _read_rest(self, message: Any, receive: Receive) -> bytes | ErrorResponse | None:
        parts: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.max_body_bytes:
                return ErrorResponse(
                    413, f"The body is larger than {self.max_body_bytes} bytes.", ((b"connection", b"close"),)
                )
            if not message.get("more_body"):
                whole = b"".join(parts)
                return self._check_body(whole) or whole
            message = await receive()
        return None

    def parse_body(self, body: bytes) -> Any:
        """Return what a body says that is read by others than us, or why it may not come in: two readers would differ.

        What our reader cannot read, another might: the standard library takes UTF-16 and lone surrogates.
        """
        try:
            data = from_json(body)
        except ValueError:
            return ErrorResponse(400, "The body is not JSON in UTF-8.", code=PARSE_ERROR, id=find_id(body))
        if not has_duplicate_key(body, data):
            return data
        return ErrorResponse(400, "A key stands twice in one object of the body.", code=PARSE_ERROR, id=find_id(body))

    def _check_body(self, body: bytes) -> ErrorResponse | None:
        if len(body) > self.max_body_bytes:
            return ErrorResponse(413, f"The body is larger than {self.max_body_bytes} bytes.")
        if (
            body.count(b"[") + body.count(b"{") <= MAX_DEPTH
            or measure_nesting(body.decode("utf-8", "replace"), MAX_DEPTH) <= MAX_DEPTH
        ):
            return None
        return ErrorResponse(
            400, f"The body is nested deeper than {MAX_DEPTH} levels.", code=PARSE_ERROR, id=find_id(body)
        )
