"""Tools that live elsewhere: what a toolbox knows of its servers, and under which names.

Lives here: what a toolbox asks of a remote source, names across servers, listing and closing them together.
Not here: any wire; a source brings its own (`toolmason.mcp`).
"""

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

OnConflict: TypeAlias = Literal["shadow", "error", "prefix"]
Watcher: TypeAlias = Callable[[str | None], None]
"""Is told of a change: the address of a resource, or `None` for the lists."""
ToolTransform: TypeAlias = Callable[[Tool], Tool | None]
"""What a view makes of a tool that a server offers; `None` leaves it out."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a server is, by a round trip that was made for the purpose. True when it is well."""

    ok: bool
    latency: float | None = None
    """Seconds that the round trip took."""
    error: str | None = None
    tools: int = 0
    since: float | None = None
    """When it became so, in seconds since the epoch."""
    needs_auth: bool = False
    """Whether it wants to know who we are: a state, not a failure of the server."""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class RawResources:
    """Resources of a server, as the wire has them."""

    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By address."""
    templates: Sequence[Mapping[str, Any]] = ()


class Remote(Protocol):
    """A source whose tools are elsewhere and may come and go. Nothing here blocks but what is async."""

    name: str
    server: Any
    """What the toolbox was given for it."""
    required: bool
    """Whether the toolbox cannot start without it."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What it is known to offer, without asking it."""
        ...

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The prompts it is known to offer."""
        ...

    @property
    def resources(self) -> Sequence[ResourceLink]:
        """The resources it is known to offer."""
        ...

    @property
    def raw_resources(self) -> RawResources:
        """The resources it is known to offer, as the wire has them."""
        ...

    def watch(self, callback: Watcher) -> None:
        """Have `changed` called after each change: with the address of a resource, with `None` for what it offers."""
        ...

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Connect, and fetch lists that are missing or stale; if `doubtful`, unvouched ones too. Raises RemoteError."""
        ...

    async def refresh(self) -> None:
        """Fetch the lists again in any case. Raises RemoteError."""
        ...

    def clear_cache(self) -> None:
        """Forget the lists; the next need fetches them."""
        ...

    def for_identity(self, context: ToolContext[Any] | None) -> Remote:
        """Return this server with the lists of whoever the context speaks of; prepared anew, they change."""
        ...

    async def health(self) -> Health:
        """Make a round trip. Never raises."""
        ...

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource. Raises RemoteError."""
        ...

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any]:
        """Return the completions for an argument, as the wire has question and answer. Raises RemoteError."""
        ...

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources, and of no others. Raises RemoteError."""
        ...

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Take another host; connections that are open keep the old one."""
        ...

    async def aclose(self) -> None:
        """Close the connection and forget the lists; the next need connects again. Never raises."""
        ...


@runtime_checkable
class RemoteSource(Protocol):
    """Something that a toolbox can connect to, such as `McpServer`."""

    def __remote__(self, handlers: ServerRequestHandlers) -> Remote:
        """Return a connection for one toolbox; nothing is opened yet."""
        ...


RequestHandler: TypeAlias = Callable[..., Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True)
class ServerRequestHandlers:
    """What a toolbox offers to its servers."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    on_elicit: RequestHandler | None = None
    on_sample: RequestHandler | None = None
    roots: Sequence[str | Path] = ()
    context: ToolContext[Any] = field(default_factory=ToolContext)
    """In whose name the toolbox itself asks: what a server offers, and how it is."""
    forwards: bool = False
    """Whether what the application does not answer goes to whoever called."""

    @property
    def handled(self) -> frozenset[str]:
        """What the application answers itself, by the names of the capabilities."""
        is_set = {
            "elicitation": self.on_elicit not in (None, FORWARD_TO_CALLER),
            "sampling": self.on_sample not in (None, FORWARD_TO_CALLER),
            "roots": bool(self.roots),
        }
        return frozenset(name for name, is_handled in is_set.items() if is_handled)

    def with_forwarding(self) -> ServerRequestHandlers:
        """Return a host that passes on the questions which the application has named nobody to answer."""
        return replace(
            self,
            on_elicit=self.on_elicit or FORWARD_TO_CALLER,
            on_sample=self.on_sample or FORWARD_TO_CALLER,
            forwards=True,
        )
