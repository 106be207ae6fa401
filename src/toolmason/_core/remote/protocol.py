"""Define the interface between a toolbox and a remote server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import FORWARD_TO_CALLER, ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.values.content import Content, ResourceLink
from toolmason._core.values.policy import EngineSettings
from toolmason._value import Value

OnConflict: TypeAlias = Literal["shadow", "error", "prefix"]
Watcher: TypeAlias = Callable[[str | None], None]
"""Callback for changes. Receives the URI of a changed resource, or None if a list changed."""
ToolTransform: TypeAlias = Callable[[Tool], Tool | None]
"""Maps a server's tool to the tool a view exposes, or to None to hide it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Health(Value):
    """Result of a health check. Truthy if the server is healthy."""

    ok: bool
    latency: float | None = None
    """Round-trip time in seconds."""
    error: str | None = None
    tools: int = 0
    since: float | None = None
    """Start of the current state, in seconds since the epoch."""
    needs_auth: bool = False
    """True if the server requires authorization. This is a state, not a server failure."""
    last_error: str | None = None
    """Why the connection was last lost or failed, also if the server has recovered since."""
    failed_at: float | None = None
    """Time of `last_error`, in seconds since the epoch."""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RawResources:
    """Resources of a server, as raw protocol entries."""

    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Entries by URI."""
    templates: Sequence[Mapping[str, Any]] = ()


@dataclass(slots=True, eq=False, repr=False)
class RemoteLists:
    """Everything that a server offers, as far as it is known."""

    tools: Sequence[Tool] = ()
    prompts: Sequence[Prompt] = ()
    resources: Sequence[ResourceLink] = ()
    raw_resources: RawResources = field(default_factory=RawResources)
    held_back: Mapping[str, str] = field(default_factory=dict)
    """Reason why a tool of the server is not among the tools, by name."""

    @property
    def is_known(self) -> bool:
        """True if the server has sent its lists."""
        return bool(self.tools or self.prompts or self.resources)


class Remote(Protocol):
    """Remote source of tools, which may change at any time. Only the async methods may block."""

    name: str
    server: Any
    """Server specification passed to the toolbox."""
    required: bool
    """True if the toolbox cannot start without this server."""

    @property
    def lists(self) -> RemoteLists:
        """Known tools, prompts and resources of the server. Sends no request."""
        ...

    @property
    def is_unconfirmed(self) -> bool:
        """True if a call may have changed the tools since they were listed. Preparing the server lists them again."""
        ...

    def watch(self, callback: Watcher) -> None:
        """Call `callback` after each change, with the URI of a changed resource or None for a list."""
        ...

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Connect and fetch missing or stale lists. With `revalidate`, also refetch lists the server gave no TTL for.

        Raises:
            RemoteError: the server is unreachable or returned an error.
        """
        ...

    async def refresh(self) -> None:
        """Fetch the lists again, even if they are fresh. Raises RemoteError."""
        ...

    def clear_cache(self) -> None:
        """Discard the cached lists. The next use fetches them again."""
        ...

    def for_identity(self, context: ToolContext[Any] | None) -> Remote:
        """Return this server with the lists of the context's identity. Preparing the copy updates them."""
        ...

    async def health(self) -> Health:
        """Make a round trip. Never raises."""
        ...

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource. Raises RemoteError."""
        ...

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any]:
        """Return completions for an argument; parameters and result are raw protocol objects. Raises RemoteError."""
        ...

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Replace the subscriptions with these resources. Raises RemoteError."""
        ...

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Replace the request handlers. Open connections keep the old ones."""
        ...

    async def aclose(self) -> None:
        """Close the connection and discard the lists. The next use reconnects. Never raises."""
        ...


@runtime_checkable
class RemoteSource(Protocol):
    """Object that a toolbox can connect to, such as `McpServer`."""

    def __remote__(self, handlers: ServerRequestHandlers) -> Remote:
        """Return a connection for one toolbox without opening it."""
        ...


RequestHandler: TypeAlias = Callable[..., Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServerRequestHandlers:
    """Handlers for requests that servers send to a toolbox."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    on_elicit: RequestHandler | None = None
    on_sample: RequestHandler | None = None
    roots: Sequence[str | Path] = ()
    context: ToolContext[Any] = field(default_factory=ToolContext)
    """Identity for the toolbox's own requests, such as lists and health checks."""
    forwards: bool = False
    """True if requests the application does not handle are forwarded to the calling client."""

    @property
    def handled(self) -> frozenset[str]:
        """Names of the MCP capabilities that the application handles."""
        is_set = {
            "elicitation": self.on_elicit not in (None, FORWARD_TO_CALLER),
            "sampling": self.on_sample not in (None, FORWARD_TO_CALLER),
            "roots": bool(self.roots),
        }
        return frozenset(name for name, is_handled in is_set.items() if is_handled)

    def with_forwarding(self) -> ServerRequestHandlers:
        """Return handlers that forward every request the application does not handle."""
        return replace(
            self,
            on_elicit=self.on_elicit or FORWARD_TO_CALLER,
            on_sample=self.on_sample or FORWARD_TO_CALLER,
            forwards=True,
        )
