"""Check incoming HTTP requests: Host, Origin, bearer token, size, time."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydantic_core import to_json

from toolmason._core.call.limits import RateLimiter, SharedRates, fingerprint
from toolmason._core.run.execute import DeadlinePassed, await_with_timeout, call_user_function
from toolmason._core.values.definition import is_scope
from toolmason._core.values.policy import EngineSettings, Rate
from toolmason._explain import explain_arguments
from toolmason._http.caller import ANONYMOUS, Identity, get_peer, make_identity
from toolmason._secrets import remember_secrets
from toolmason._text import split_url
from toolmason._wire import ByteBudget
from toolmason.errors import ConfigError, InsufficientScope, LimitExceeded, RemoteError, clip

_log = logging.getLogger("toolmason.mcp_server")

Headers: TypeAlias = Mapping[bytes, bytes]
HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]
Receive: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Principal: TypeAlias = str | Mapping[str, Any] | None
VerifyToken: TypeAlias = Callable[[str], Principal | Awaitable[Principal]]
"""Function of a bearer token that returns a user name, or context values with `user`; None rejects the token."""

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_UNFINISHED_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of all bodies that have not arrived completely."""
MAX_CLIENT_UNFINISHED_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of those of one user or remote machine."""
BODY_SECONDS: Final = 30.0
VERIFY_SECONDS: Final = 10.0
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
_CLOSE: Final = ((b"connection", b"close"),)
SINGLE_HEADERS: Final = (
    *(b"host", b"origin", b"authorization", b"content-type", b"content-length", b"last-event-id"),
    *(b"mcp-session-id", b"mcp-protocol-version", b"mcp-method", b"mcp-name"),
)
"""Headers that decide who a request is from and what it means."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Check of bearer tokens, and where clients can get one."""

    verify: VerifyToken
    resource: str | None = None
    """Public URL of this server; if set, the protected resource metadata is served."""
    authorization_servers: Sequence[str] = ()
    scopes: Sequence[str] = ()
    rate: Rate | None = None
    """Rate of the requests of each user. A request beyond it gets status 429."""

    def __post_init__(self) -> None:
        if self.resource is not None and not split_url(self.resource).hostname:
            raise ConfigError(f"Bearer(resource={self.resource!r}): must be the public URL of this server.")


class SecretCheck:
    """Constant-time check for some tokens. It does no I/O, so it needs no thread."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._known = [(token.encode(), principal) for token, principal in principals.items()]
        remember_secrets([{"token": token} for token in principals])

    def __call__(self, token: str) -> Principal:
        """Return the user, or the context values, of a token; None if it is not known."""
        given, found = token.encode("utf-8", "replace"), None
        # Every token is compared: the time must not tell which one is similar.
        for known, principal in self._known:
            if hmac.compare_digest(given, known):
                found = principal
        return found


@explain_arguments
def token_is(secret: str, user: str = "token") -> VerifyToken:
    """Return a constant-time check for one secret token: `serve(box, auth=token_is(secret))`."""
    _check_token("The token", secret)
    return SecretCheck({secret: user})


@explain_arguments
def tokens_from_env(users: Mapping[str, str | Mapping[str, Any]]) -> VerifyToken:
    """Return a check for tokens in environment variables, from the name of each variable and its user.

    In place of a user, context values with `user` and `scopes`: `{"CI_TOKEN": {"user": "ci", "scopes": ["read"]}}`.

    Raises:
        ConfigError: a variable is not set, its token is short, or two have the same token.
    """
    found: dict[str, Principal] = {}
    for variable, principal in users.items():
        token = os.environ.get(str(variable))
        if not token:
            raise ConfigError(f"tokens_from_env: the variable {variable!r} is not set. Set it to a token.")
        _check_token(f"The token in {variable!r}", token)
        if not principal or token in found:
            raise ConfigError(f"tokens_from_env: {variable!r} has no user, or the same token as another variable.")
        found[token] = principal
    if not found:
        raise ConfigError("tokens_from_env: no variables. Pass the name and the user of each.")
    return SecretCheck(found)


def _check_token(subject: str, token: str) -> None:
    if len(token) < 16:  # noqa: PLR2004 - 128 bits, if it is random
        raise ConfigError(f"{subject} has {len(token)} characters. Use at least 16, from a secret store.")


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """Error response that ends a request before it is processed."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    code: int = INVALID_REQUEST
    id: Any = None

    async def __call__(self, send: Send) -> None:
        """Send the response."""
        error = {"code": self.code, "message": self.message}
        body = to_json({"jsonrpc": "2.0", "id": self.id, "error": error})
        await send_json(send, self.status, body, self.headers)


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send a complete JSON response."""
    all_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def serve_other_type(
    kind: str, lifespan: AbstractAsyncContextManager[None], receive: Receive, send: Send
) -> None:
    """Answer what is not a request to an ASGI application: its start and end, in which it runs, or a WebSocket."""
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1000})
    if kind != "lifespan":
        return
    await receive()
    try:
        async with lifespan:
            await send({"type": "lifespan.startup.complete"})
            await receive()
    except Exception as error:  # noqa: BLE001 - the ASGI server reports it
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    await send({"type": "lifespan.shutdown.complete"})


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks on the requests to one server."""

    allowed_hosts: frozenset[str] = frozenset(LOOPBACK_HOSTS)
    allowed_origins: frozenset[str] = frozenset()
    bearer: Bearer | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    body_seconds: float = BODY_SECONDS
    verify_seconds: float = VERIFY_SECONDS
    rates: SharedRates | None = None
    """Rates that other processes share; None if those of this process are its own."""
    _limiter: RateLimiter | None = field(init=False)
    """Rate of the requests of each user, in this process."""
    unfinished: ByteBudget[asyncio.Timeout] = field(init=False)
    """Deadlines of the bodies that have not arrived completely."""
    _accepted: dict[tuple[bytes | None, bytes | None], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        budget: ByteBudget[asyncio.Timeout] = ByteBudget(
            max(MAX_UNFINISHED_BYTES, 4 * self.max_body_bytes), max(MAX_CLIENT_UNFINISHED_BYTES, self.max_body_bytes)
        )
        object.__setattr__(self, "unfinished", budget)
        rate = None if self.bearer is None else self.bearer.rate
        object.__setattr__(self, "_limiter", None if rate is None else RateLimiter(rate))

    def check_headers(self, headers: Headers, header_pairs: Sequence[tuple[bytes, bytes]]) -> ErrorResponse | None:
        """Return an error if the Host or Origin header is not allowed, else None."""
        host, origin = headers.get(b"host"), headers.get(b"origin")
        # A proxy, or the SDK, may read the other value (request smuggling).
        if len(headers) != len(header_pairs):
            names = [name for name, _ in header_pairs]
            if repeated := next((name for name in SINGLE_HEADERS if names.count(name) > 1), None):
                return ErrorResponse(400, f"The header {repeated.decode()!r} appears more than once.")
        if (host, origin) in self._accepted:
            return None
        if not self._is_allowed_host(host):
            name = clip((host or b"").decode("latin-1"))
            message = f"Host {name!r} is not allowed. Add it to `allowed_hosts`, or use --allowed-host."
            return ErrorResponse(421, message)
        if not self._is_allowed_origin(origin, host):
            return ErrorResponse(403, "The Origin header is not allowed. Add it to allowed_origins.")
        if len(self._accepted) < 64:  # noqa: PLR2004 - keeps clients from growing it
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
        parts = split_url(value)
        # A page that this server itself has sent.
        own_host = (host or b"").decode("latin-1").lower()
        return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc == own_host

    def identify(self, headers: Headers) -> Identity | ErrorResponse | str:
        """Return the identity of the caller, an error, or the token if its check or its rate may take time.

        Without authentication, the caller is anonymous.
        """
        if self.bearer is None:
            return ANONYMOUS
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return self._make_unauthorized("A bearer token is required.", "")
        if not isinstance(self.bearer.verify, SecretCheck) or self.bearer.rate is not None:
            return token.strip()
        return self._make_identity(self.bearer.verify(token.strip()), token.strip())

    async def authenticate(self, headers: Headers) -> Identity | ErrorResponse:
        """Return the identity of the caller, or an error."""
        token = self.identify(headers)
        if not isinstance(token, str):
            return token
        try:
            verified = await self._verify(token)
        except DeadlinePassed:
            # Not 401: the client would discard a token that may be valid.
            _log.warning("bearer token check did not finish within %g s", self.verify_seconds)
            message = f"The bearer token could not be checked within {self.verify_seconds:g} s. Try again later."
            return ErrorResponse(503, message)
        except RemoteError as error:
            _log.warning("bearer token check could not reach its server: %s", error)
            return ErrorResponse(503, "The bearer token could not be checked. Try again later.")
        except Exception as error:  # noqa: BLE001 - reject if in doubt; the message may contain the token
            _log.error("bearer token check failed: %s", type(error).__name__)
            verified = None
        identity = self._make_identity(verified, token)
        return identity if isinstance(identity, ErrorResponse) else await self._count(identity)

    async def _count(self, identity: Identity) -> Identity | ErrorResponse:
        """Count a request of a user. Return the user, or an error if there are too many."""
        if self._limiter is not None:
            caller = fingerprint("rate", identity.owner)
            try:
                if self.rates is None:
                    self._limiter.count("The request", caller)
                else:
                    await self.rates.count("The request", self._limiter.rate, caller)
            except LimitExceeded as error:
                seconds = b"%d" % max(1, math.ceil(error.retry_after or 1))
                return ErrorResponse(429, str(error), ((b"retry-after", seconds),))
        return identity

    def _make_identity(self, verified: Any, token: str) -> Identity | ErrorResponse:
        if not verified:
            return self._make_unauthorized("The bearer token is not valid.", "invalid_token")
        return make_identity(verified, token)

    async def _verify(self, token: str) -> Any:
        verify: Any = self.bearer and self.bearer.verify
        settings = EngineSettings()
        work = call_user_function(verify, token, settings=settings)
        return await await_with_timeout(work, self.verify_seconds, "auth=", settings.cancel_grace)

    def _make_unauthorized(self, message: str, error: str) -> ErrorResponse:
        scopes = () if self.bearer is None else self.bearer.scopes
        return ErrorResponse(401, message, self._make_challenge(error, scopes))

    def _make_challenge(self, error: str, scopes: Sequence[str]) -> tuple[tuple[bytes, bytes], ...]:
        parameters = [f'error="{error}"'] if error else []
        if (url := self.metadata_url) is not None:
            parameters.append(f'resource_metadata="{url}"')
        if scopes:
            parameters.append(f'scope="{" ".join(scopes)}"')
        return ((b"www-authenticate", f"Bearer {', '.join(parameters)}".strip().encode()),)

    def make_step_up(self, tool: str, missing: Sequence[str], identity: Identity, request_id: Any) -> ErrorResponse:
        """Return the answer to a caller that needs a token with more scopes: those that it has, and the missing ones.

        A client that asked for the missing ones only would lose the others.
        """
        granted = identity.get("scopes") or ()
        known = granted.split() if isinstance(granted, str) else granted
        scopes = sorted({*missing, *(scope for scope in known if is_scope(scope))})
        message = str(InsufficientScope(tool, missing))
        return ErrorResponse(403, message, self._make_challenge("insufficient_scope", scopes), id=request_id)

    @property
    def metadata_url(self) -> str | None:
        """URL of the protected resource metadata, or None."""
        if self.bearer is None or self.bearer.resource is None:
            return None
        parts = split_url(self.bearer.resource)
        return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"

    def encode_metadata(self) -> bytes:
        """Return the protected resource metadata as JSON."""
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

    async def read_body(
        self, headers: Headers, receive: Receive, scope: Mapping[str, Any], identity: Identity
    ) -> bytes | ErrorResponse | None:
        """Return the body of a request, an error, or None if the client disconnected."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self.max_body_bytes):
            return ErrorResponse(413, f"The body is larger than {self.max_body_bytes} bytes.")
        deadline, is_split = asyncio.timeout(self.body_seconds), False
        try:
            async with deadline:
                message = await receive()
                if is_split := bool(message.get("more_body")):
                    self.unfinished.grow(deadline, client := get_peer(scope, identity), 0)
                    return await self._read_parts(message, receive, deadline, client)
                whole: bytes = message.get("body", b"")
                if len(whole) > self.max_body_bytes:
                    return ErrorResponse(413, f"The body is larger than {self.max_body_bytes} bytes.")
                return whole if message["type"] == "http.request" else None
        except TimeoutError:
            if is_split and deadline not in self.unfinished:
                return ErrorResponse(503, "Too many bodies are unfinished. Send the request again.", _CLOSE)
            return ErrorResponse(408, f"The body did not arrive within {self.body_seconds:g} s.", _CLOSE)
        finally:
            if is_split:
                self.unfinished.release(deadline)

    async def _read_parts(
        self, message: Any, receive: Receive, deadline: asyncio.Timeout, client: str
    ) -> bytes | ErrorResponse | None:
        parts: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.max_body_bytes:
                return ErrorResponse(413, f"The body is larger than {self.max_body_bytes} bytes.", _CLOSE)
            if not message.get("more_body"):
                return b"".join(parts)
            self.unfinished.grow(deadline, client, len(parts[-1]))
            while (slowest := self.unfinished.find_excess(client)) is not None:
                self.unfinished.release(slowest)
                if slowest is deadline:
                    raise TimeoutError
                if not slowest.expired():
                    slowest.reschedule(0)
            message = await receive()
        return None


def make_guard(
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str],
    auth: VerifyToken | Bearer | None,
    max_body_bytes: int,
    rates: SharedRates | None = None,
) -> Guard:
    """Return the guard of a server with these options.

    Raises:
        ConfigError: an option is invalid.
    """
    hosts, origins = _parse_names("allowed_hosts", allowed_hosts), _parse_names("allowed_origins", allowed_origins)
    check_size("max_body_bytes", max_body_bytes)
    if not (auth is None or isinstance(auth, Bearer) or callable(auth)):
        # Show only the type: the value may be the token itself.
        raise ConfigError(
            f"auth= is of type {type(auth).__name__!r}. Pass a function of the token: auth=token_is(secret)."
        )
    bearer = auth if auth is None or isinstance(auth, Bearer) else Bearer(auth)
    return Guard(hosts, frozenset(origin.rstrip("/") for origin in origins), bearer, max_body_bytes, rates=rates)


def check_size(option: str, size: Any) -> None:
    """Check a size or a count.

    Raises:
        ConfigError: it is not a positive integer.
    """
    if type(size) is not int or size < 1:
        raise ConfigError(f"{option}={size!r} must be a positive integer.")


def _parse_names(option: str, names: Any) -> frozenset[str]:
    """Return the names of an option in lower case."""
    # A string is a sequence of strings, too, and one with a star in it would allow every host.
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{option}={names!r} must be a list of strings, such as ['tools.example.com'].")
    return frozenset(map(str.lower, names))
