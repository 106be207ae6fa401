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

from toolmason._core.arguments.bind import nesting
from toolmason._core.run.eager_task import first_step
from toolmason.errors import ConfigError
from toolmason.mcp_client.transport.framing import DEPTH, id_in, repeats_a_key
from toolmason.mcp_server.http.owner import NOBODY, Identity, identity_of

_log = logging.getLogger("toolmason.serving")

Headers: TypeAlias = Mapping[bytes, bytes]
Receive: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Principal: TypeAlias = str | Mapping[str, Any] | None
Verify: TypeAlias = Callable[[str], Principal | Awaitable[Principal]]
"""A bearer token → who it stands for: a name, or context values with `user` among them; `None` refuses it."""

BODY_BYTES: Final = 4 * 1024 * 1024
BODY_SECONDS: Final = 30.0
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


@dataclass(frozen=True, slots=True)
class Bearer:
    """Bearer tokens, and where clients may get one."""

    verify: Verify
    resource: str | None = None
    """The public address of this server; with it, the metadata of the protected resource are served."""
    authorization_servers: Sequence[str] = ()
    scopes: Sequence[str] = ()


def token_is(secret: str, user: str = "token") -> Verify:
    """Return a check for one secret token, in constant time: `serve(box, auth=token_is(secret))`."""
    if len(secret) < 16:  # noqa: PLR2004 - 128 bits, if it is random
        raise ConfigError(f"The token has {len(secret)} characters. Give at least 16, from a secret store.")

    def verify(token: str) -> Principal:
        return user if hmac.compare_digest(token.encode("utf-8", "replace"), secret.encode()) else None

    return verify


@dataclass(frozen=True, slots=True)
class Refusal:
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
        await answer(send, self.status, body, self.headers)


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send a whole JSON response."""
    known = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": known})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class Guard:
    """The checks of one server."""

    hosts: frozenset[str] = frozenset(LOOPBACK)
    origins: frozenset[str] = frozenset()
    bearer: Bearer | None = None
    body_bytes: int = BODY_BYTES
    body_seconds: float = BODY_SECONDS
    _seen: dict[tuple[bytes | None, bytes | None], bool] = field(default_factory=dict)

    def refuses(self, headers: Headers, raw: Sequence[tuple[bytes, bytes]]) -> Refusal | None:
        """Return why a request may not come in by where it says it goes, and where it comes from."""
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if (host, origin) in self._seen:
            # A header that is there twice is two answers to one question.
            if len(headers) == len(raw) or sum(name in (b"host", b"origin") for name, _ in raw) <= 1 + bool(origin):
                return None
            return Refusal(400, "The Host or Origin header appears more than once.")
        if sum(name == b"host" for name, _ in raw) > 1 or sum(name == b"origin" for name, _ in raw) > 1:
            return Refusal(400, "The Host or Origin header appears more than once.")
        if not self._knows_host(host):
            return Refusal(421, "The Host header names a server that this is not. Add it to allowed_hosts.")
        if not self._knows_origin(origin, host):
            return Refusal(403, "The Origin header names a page that may not call. Add it to allowed_origins.")
        if len(self._seen) < 64:  # noqa: PLR2004 - a client cannot make it grow
            self._seen[host, origin] = True
        return None

    def _knows_host(self, host: bytes | None) -> bool:
        if host is None:
            return False
        if "*" in self.hosts:
            return True
        name = host.decode("latin-1").lower()
        bare = name if name.endswith("]") else name.rpartition(":")[0] or name
        port = name[len(bare) :].removeprefix(":")
        return name in self.hosts or (bare in self.hosts and (not port or port.isdigit()))

    def _knows_origin(self, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None or "*" in self.origins:
            return True
        given = origin.decode("latin-1").lower()
        if given in self.origins:
            return True
        try:
            parts = urlsplit(given)
        except ValueError:
            return False  # an address that cannot be read is nobody's
        # The page that this server itself would have sent.
        same = (host or b"").decode("latin-1").lower()
        return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc == same

    async def principal(self, headers: Headers) -> Identity | Refusal:
        """Return for whom a request is made, as context values; without authentication, for nobody."""
        if self.bearer is None:
            return NOBODY
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return self._unauthorized("A bearer token is needed.", "")
        try:
            found: Any = self.bearer.verify(token.strip())
            found = await found if inspect.isawaitable(found) else found
        except Exception as error:  # noqa: BLE001 - when in doubt, no; and the token may be in the words
            _log.error("the check of a bearer token failed: %s", type(error).__name__)
            found = None
        if not found:
            return self._unauthorized("The bearer token is not valid.", "invalid_token")
        return identity_of(found, token.strip())

    def _unauthorized(self, message: str, error: str) -> Refusal:
        facts = [f'error="{error}"'] if error else []
        if (url := self.metadata_url) is not None:
            facts.append(f'resource_metadata="{url}"')
        if self.bearer is not None and self.bearer.scopes:
            facts.append(f'scope="{" ".join(self.bearer.scopes)}"')
        challenge = f"Bearer {', '.join(facts)}".strip()
        return Refusal(401, message, ((b"www-authenticate", challenge.encode()),))

    @property
    def metadata_url(self) -> str | None:
        """Where clients find out how to get a token."""
        if self.bearer is None or self.bearer.resource is None:
            return None
        parts = urlsplit(self.bearer.resource)
        return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"

    def metadata(self) -> bytes:
        """Return the metadata of the protected resource."""
        bearer = self.bearer
        if bearer is None:
            return b"{}"
        found: dict[str, Any] = {
            "resource": bearer.resource,
            "authorization_servers": list(bearer.authorization_servers),
        }
        if bearer.scopes:
            found["scopes_supported"] = list(bearer.scopes)
        return to_json({**found, "bearer_methods_supported": ["header"]})

    async def body(self, headers: Headers, receive: Receive) -> bytes | Refusal | None:
        """Return the body of a request; `None` where the client has gone."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self.body_bytes):
            return Refusal(413, f"The body is larger than {self.body_bytes} bytes.")
        message, rest = first_step(receive())
        if rest is None and not message.get("more_body"):
            whole: bytes = message.get("body", b"")
            return (self._deep(whole) or whole) if message["type"] == "http.request" else None
        try:
            async with asyncio.timeout(self.body_seconds):
                return await self._rest(message if rest is None else await rest, receive)
        except TimeoutError:
            return Refusal(408, f"The body did not come within {self.body_seconds:g} s.", ((b"connection", b"close"),))

    async def _rest(self, message: Any, receive: Receive) -> bytes | Refusal | None:
        parts: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.body_bytes:
                return Refusal(413, f"The body is larger than {self.body_bytes} bytes.", ((b"connection", b"close"),))
            if not message.get("more_body"):
                whole = b"".join(parts)
                return self._deep(whole) or whole
            message = await receive()
        return None

    def read(self, body: bytes) -> Any:
        """Return what a body says that is read by others than us, or why it may not come in: two readers would differ.

        What our reader cannot read, another might: the standard library takes UTF-16 and lone surrogates.
        """
        try:
            data = from_json(body)
        except ValueError:
            return Refusal(400, "The body is not JSON in UTF-8.", code=PARSE_ERROR, id=id_in(body))
        if not repeats_a_key(body, data):
            return data
        return Refusal(400, "A key stands twice in one object of the body.", code=PARSE_ERROR, id=id_in(body))

    def _deep(self, body: bytes) -> Refusal | None:
        if len(body) > self.body_bytes:
            return Refusal(413, f"The body is larger than {self.body_bytes} bytes.")
        if body.count(b"[") + body.count(b"{") <= DEPTH or nesting(body.decode("utf-8", "replace"), DEPTH) <= DEPTH:
            return None
        return Refusal(400, f"The body is nested deeper than {DEPTH} levels.", code=PARSE_ERROR, id=id_in(body))
