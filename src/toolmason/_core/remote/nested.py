"""The servers of one toolbox, as servers of another.

Lives here: a server seen through the view of the toolbox that it came from. The connection is the same, so whoever
closes one of the two closes it for both; the next need connects again. Not here: names and lists (`remotes`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.remote.protocol import Health, RawResources, Remote, ServerRequestHandlers, ToolTransform
from toolmason._core.remote.servers import Remotes
from toolmason._core.values.content import Content, ResourceLink


def make_remote_views(remotes: Remotes, transform: ToolTransform) -> Iterator[RemoteView]:
    """Yield the servers of a toolbox, each with the tools that a view of it shows."""
    for source in remotes.sources:
        yield RemoteView(source, remotes, transform)


class RemoteView:
    """A server of another toolbox."""

    def __init__(self, inner: Remote, remotes: Remotes, transform: ToolTransform) -> None:
        self.inner, self.remotes, self.transform = inner, remotes, transform
        self.name, self.server, self.required = inner.name, inner.server, inner.required
        self.watch = inner.watch
        self.prepare: Callable[..., Awaitable[None]] = inner.prepare
        self.refresh: Callable[[], Awaitable[None]] = inner.refresh
        self.clear_cache = inner.clear_cache
        self.health: Callable[[], Awaitable[Health]] = inner.health
        self.read: Callable[..., Awaitable[tuple[Content, ...]]] = inner.read
        self.complete: Callable[..., Awaitable[Mapping[str, Any]]] = inner.complete
        self.subscribe: Callable[[frozenset[str]], Awaitable[None]] = inner.subscribe
        self.aclose: Callable[[], Awaitable[None]] = inner.aclose

    def __remote__(self, handlers: ServerRequestHandlers) -> RemoteView:
        """Return the server itself: it is connected as its own toolbox says."""
        del handlers
        return self

    def for_identity(self, context: ToolContext[Any] | None) -> RemoteView:
        """Return this server with the lists of whoever the context speaks of."""
        remotes = self.remotes.for_identity(context)
        inner = next(source for source in remotes.sources if source.name == self.name)
        return RemoteView(inner, remotes, self.transform)

    @property
    def tools(self) -> Sequence[Tool]:
        """What the other toolbox shows of it."""
        own_roots = {id(tool.root) for tool in self.inner.tools}
        own_tools = (tool for tool in self.remotes.tools.values() if id(tool.root) in own_roots)
        return [visible for tool in own_tools if (visible := self.transform(tool)) is not None]

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The prompts it is known to offer."""
        return self.inner.prompts

    @property
    def resources(self) -> Sequence[ResourceLink]:
        """The resources it is known to offer."""
        return self.inner.resources

    @property
    def raw_resources(self) -> RawResources:
        """The resources it is known to offer, as the wire has them."""
        return self.inner.raw_resources

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Pass questions on where the other toolbox does not answer them itself."""
        if handlers.forwards:
            self.remotes.forward_server_requests()
