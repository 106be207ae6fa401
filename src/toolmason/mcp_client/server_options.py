"""Define and validate the options of an MCP server, and find the identity of a caller, without loading the SDK."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, Final, Literal, TypeAlias

from typing_extensions import TypedDict

from toolmason._core.define.context import ToolContext
from toolmason._core.run.execute import call_user_function
from toolmason._core.values.policy import INHERIT, EngineSettings, Inherit, Timeout, check_kinds
from toolmason._secrets import remember_secrets
from toolmason._text import split_url
from toolmason.errors import DefinitionError, RemoteError
from toolmason.mcp_client.auth.oauth import OAuth

AuthCallback: TypeAlias = Callable[[ToolContext[Any]], "str | Mapping[str, str] | Awaitable[Any] | None"]
"""Function of a call's context that returns a bearer token, headers, or None."""


class ServerOptions(TypedDict, total=False):
    """Options that every kind of server accepts. See `ServerSpec` for their meaning."""

    required: bool
    connect_timeout: float
    timeout: Timeout
    task_wait: float | None
    cache_ttl: float
    serve_stale: bool
    include: Sequence[str]
    exclude: Sequence[str]
    prefix: str | None
    rename: Mapping[str, str]
    send_context: Sequence[str]
    trust: bool
    pin: Literal["lock"] | None
    lock: str | Path | None
    era: Literal["auto", "legacy"]
    description: str | None


NAME_RULE = "at most 64 letters, digits, `_`, `-` or `.`"


_OPTION_KINDS: Final = {
    **dict.fromkeys(("trust", "required", "serve_stale"), (bool,)),
    **dict.fromkeys(("env", "headers"), (Mapping, NoneType)),
    **dict.fromkeys(("prefix", "description"), (str, NoneType)),
    **dict.fromkeys(("cwd", "lock"), (str, PurePath, NoneType)),
    **dict.fromkeys(("connect_timeout", "cache_ttl"), (float, int)),
    **dict.fromkeys(("include", "exclude", "send_context"), (Sequence,)),
    "timeout": (float, int, Inherit, NoneType),
    "task_wait": (float, int, NoneType),
    "rename": (Mapping,),
}


@dataclass(frozen=True, slots=True, eq=False)
class ServerSpec:
    """Address and options of an MCP server."""

    name: str
    kind: Literal["stdio", "http", "memory"]
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False)
    """A function of the context (see `AuthCallback`), `"oauth"` or `OAuth(...)` for a sign-in, or an `httpx2.Auth` such
    as that of `client_credentials`."""
    target: Any = field(default=None, repr=False)
    """Toolbox or server object, for a server in memory."""
    required: bool = False
    """True if the toolbox cannot start without this server."""
    connect_timeout: float = 30.0
    """Seconds to wait for the connection, to list the tools, and to answer a ping, without the wait for a free core.

    A server that is not up by then goes on starting in the background.
    """
    timeout: Timeout = INHERIT
    """Seconds for one call. The strictest of this and the toolbox's own holds; if neither is set, 60."""
    task_wait: float | None = None
    """Seconds to wait for a task before the call is reported as pending; `None` waits until the call's timeout."""
    cache_ttl: float = 600.0
    """Seconds for which a list is fresh, unless the server sets a TTL; 0 fetches it on every use."""
    serve_stale: bool = False
    """True to keep the last good list if a new one cannot be fetched."""
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    prefix: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    send_context: Sequence[str] = ()
    """Context keys to send to the server in `_meta`; other context values are never sent."""
    trust: bool = True
    """False if a run needs approval for its tools, unless they say read-only or are in the lock file."""
    pin: Literal["lock"] | None = None
    """`"lock"`: use only definitions that are in the lock file."""
    lock: str | Path | None = None
    """Path of the lock file; `toolmason.lock` by default."""
    era: Literal["auto", "legacy"] = "auto"
    """`"legacy"`: use the handshake from before 2026, for a server that sends requests during a call."""
    description: str | None = None

    @property
    def list_seconds(self) -> float:
        """Seconds for fetching the lists: `connect_timeout`, or `timeout` if that is shorter."""
        seconds = self.timeout
        return self.connect_timeout if isinstance(seconds, Inherit | None) else min(seconds, self.connect_timeout)

    def __post_init__(self) -> None:
        self._check_types()
        remember_secrets((self.env or {}, self.headers or {}), self.url)
        if not self.name or len(self.name) > 64 or not all(c.isalnum() or c in "_-." for c in self.name):  # noqa: PLR2004 - see NAME_RULE
            raise DefinitionError(f"Invalid server name {self.name!r}. Use {NAME_RULE}.")
        for option in ("connect_timeout", "timeout"):
            seconds = getattr(self, option)
            if seconds is not None and seconds is not INHERIT and not seconds > 0:
                raise DefinitionError(f"Server {self.name!r}: {option}={seconds!r} must be positive.")
        if not self.cache_ttl >= 0:
            raise DefinitionError(f"Server {self.name!r}: cache_ttl={self.cache_ttl!r} must be 0 or more seconds.")
        if self.task_wait is not None and not self.task_wait >= 0:
            raise DefinitionError(
                f"Server {self.name!r}: task_wait={self.task_wait!r} must be 0 or more seconds, or None."
            )
        self._check_choices()
        if self.url is not None:
            self._check_url(self.url)
        if self.auth is not None:
            self._check_auth()

    def _check_types(self) -> None:
        check_kinds(f"Server {self.name!r}: ", {name: getattr(self, name) for name in _OPTION_KINDS}, _OPTION_KINDS)
        for option in ("include", "exclude", "send_context"):
            value = getattr(self, option)
            object.__setattr__(self, option, (value,) if isinstance(value, str) else tuple(value))
        for option in ("env", "headers", "rename", "include", "exclude", "send_context"):
            texts = getattr(self, option) or ()
            if not all(
                isinstance(text, str) for text in (*texts, *(texts.values() if isinstance(texts, Mapping) else ()))
            ):
                raise DefinitionError(f"Server {self.name!r}: {option}= must hold strings only.")

    def _check_choices(self) -> None:
        if self.era not in ("auto", "legacy"):
            raise DefinitionError(f'Server {self.name!r}: era={self.era!r} must be "auto" or "legacy".')
        if self.pin not in (None, "lock"):
            raise DefinitionError(f'Server {self.name!r}: pin={self.pin!r} must be "lock" or None.')

    def _check_url(self, url: str) -> None:
        parts = split_url(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DefinitionError(f"Server {self.name!r}: {url!r} is not an http or https URL.")
        if parts.username or parts.password:
            raise DefinitionError(
                f"Server {self.name!r}: the URL contains credentials. Pass them with headers= or auth=."
            )

    def _check_auth(self) -> None:
        signs_in = isinstance(self.auth, OAuth) or self.auth == "oauth"
        if not callable(self.auth) and not hasattr(self.auth, "auth_flow") and not signs_in:
            # Show only the type: the value may be a secret.
            raise DefinitionError(
                f"Server {self.name!r}: auth= is a {type(self.auth).__name__}. Pass a function of the context that "
                'returns a token, or headers={"Authorization": …}.'
            )
        if self.kind != "http" and (signs_in or hasattr(self.auth, "auth_flow")):
            raise DefinitionError(
                f"Server {self.name!r}: auth= signs HTTP requests, but the server does not use HTTP. "
                "Pass a function of the context."
            )


def has_identities(server: ServerSpec) -> bool:
    """Return True if the server distinguishes callers, that is, if `auth=` is a function of the context."""
    auth = server.auth
    return callable(auth) and not hasattr(auth, "auth_flow") and not hasattr(auth, "async_auth_flow")


async def make_auth_headers(server: ServerSpec, context: ToolContext[Any]) -> Mapping[str, str]:
    """Return the headers for the context's identity.

    Raises:
        RemoteError: `auth=` failed, or returned neither a token nor headers.
    """
    deadline = asyncio.timeout(server.connect_timeout)
    try:
        async with deadline:
            credentials = await call_user_function(server.auth, context, settings=EngineSettings())
    except Exception as error:
        timed_out = isinstance(error, TimeoutError) and deadline.expired()
        timeout_reason = f"no response within connect_timeout={server.connect_timeout:g} s"
        reason = f"auth= failed: {timeout_reason if timed_out else type(error).__name__}"
        raise RemoteError(server.name, "authorize", reason) from error
    if credentials is None:
        return {}
    if isinstance(credentials, str):
        return {"Authorization": credentials if " " in credentials else f"Bearer {credentials}"}
    if isinstance(credentials, Mapping):
        return {str(name): str(value) for name, value in credentials.items()}
    reason = f"auth= returned {type(credentials).__name__}. Return a token or headers"
    raise RemoteError(server.name, "authorize", reason)


def make_identity_key(headers: Mapping[str, str]) -> str:
    """Return a key that identifies the headers without storing their secrets."""
    if not headers:
        return ""
    text = "\n".join(f"{name.lower()}:{value}" for name, value in sorted(headers.items()))
    return hashlib.sha256(text.encode()).hexdigest()
