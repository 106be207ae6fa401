"""Where a server is and how it is treated, as data.

Lives here: the value and its rules. Nothing is opened, and the SDK is not loaded.
Not here: how a developer makes one (`source`), or connecting (`connection`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from typing_extensions import TypedDict

from toolmason._core.define.context import ToolContext
from toolmason.errors import DefinitionError

AuthCallback: TypeAlias = Callable[[ToolContext[Any]], "str | Mapping[str, str] | Awaitable[Any] | None"]
"""Called with the context of each call; returns a bearer token, or headers, or nothing."""

NAME_RULE = "letters, digits, `_`, `-` or `.`, at most 64"


class ServerOptions(TypedDict, total=False):
    """What every kind of server takes."""

    required: bool
    connect_timeout: float
    timeout: float | None
    task_wait: float | None
    cache_ttl: float
    serve_stale: bool
    include: Sequence[str]
    exclude: Sequence[str]
    prefix: str | None
    rename: Mapping[str, str]
    send_context: Sequence[str]
    pin: Literal["lock"] | None
    lock: str | Path | None
    era: Literal["auto", "legacy"]
    description: str | None


@dataclass(frozen=True, slots=True, eq=False)
class ServerSpec:
    """An MCP server: where it is, and how it is treated."""

    name: str
    kind: Literal["stdio", "http", "memory"]
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False)
    """A function of the context (see `Auth`), or an `httpx2.Auth`, such as the SDK's OAuth provider."""
    target: Any = field(default=None, repr=False)
    """A toolbox or a server object, in memory."""
    required: bool = False
    """Whether a toolbox cannot start without it."""
    connect_timeout: float = 10.0
    timeout: float | None = 60.0
    """Seconds for one call, where the tool or the call does not say otherwise."""
    task_wait: float | None = None
    """Seconds to wait for a task before the call is pending; `None` waits as long as the call may take."""
    cache_ttl: float = 600.0
    """Seconds for which a list is fresh, where the server does not say otherwise; 0 asks at each need."""
    serve_stale: bool = False
    """Whether the last good list stays when a new one cannot be had."""
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    prefix: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    send_context: tuple[str, ...] = ()
    """Keys of the context that go to the server, in `_meta`; nothing else of it does."""
    pin: Literal["lock"] | None = None
    """`"lock"`: only definitions that the lock file holds can be used."""
    lock: str | Path | None = None
    """The lock file; `toolmason.lock` where none is given."""
    era: Literal["auto", "legacy"] = "auto"
    """`"legacy"`: shake hands as before 2026, for a server that asks back in the midst of a call."""
    description: str | None = None

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 64 or not all(c.isalnum() or c in "_-." for c in self.name):  # noqa: PLR2004 - said in NAME_RULE
            raise DefinitionError(f"A server cannot be named {self.name!r}. Use {NAME_RULE}.")
        for option in ("connect_timeout", "timeout"):
            seconds = getattr(self, option)
            if seconds is not None and not seconds > 0:
                raise DefinitionError(f"Server {self.name!r}: {option}={seconds!r}. Give seconds above 0.")
        if not self.cache_ttl >= 0:
            raise DefinitionError(f"Server {self.name!r}: cache_ttl={self.cache_ttl!r}. Give 0 or more seconds.")
        if self.task_wait is not None and not self.task_wait >= 0:
            raise DefinitionError(
                f"Server {self.name!r}: task_wait={self.task_wait!r}. Give 0 or more seconds, or None."
            )
        if self.auth is not None and not callable(self.auth) and not hasattr(self.auth, "auth_flow"):
            # Its type alone: it may be a secret.
            raise DefinitionError(
                f"Server {self.name!r}: auth= is a {type(self.auth).__name__}. Give a function of the context that "
                'returns a token, or headers={"Authorization": …}.'
            )
        if self.kind != "http" and hasattr(self.auth, "auth_flow"):
            raise DefinitionError(
                f"Server {self.name!r}: auth= signs HTTP requests, and there are none. Give a function of the context."
            )
        if self.era not in ("auto", "legacy"):
            raise DefinitionError(f'Server {self.name!r}: era={self.era!r}. Give "auto" or "legacy".')
        if self.pin not in (None, "lock"):
            raise DefinitionError(f'Server {self.name!r}: pin={self.pin!r}. Give "lock" or leave it out.')
