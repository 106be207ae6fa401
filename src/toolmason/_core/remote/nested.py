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
from toolmason._core.remote.protocol import Health, Host, Remote, View, Wired
from toolmason._core.remote.servers import Remotes
from toolmason._core.values.content import Content, ResourceLink


def servers_seen(remotes: Remotes, view: View) -> Iterator[Nested]:
    """Yield the servers of a toolbox, each with the tools that a view of it shows."""
    for source in remotes.sources:
        yield Nested(source, remotes, view)


class Nested:
    """A server of another toolbox."""

    def __init__(self, inner: Remote, remotes: Remotes, view: View) -> None:
        self.inner, self.remotes, self.view = inner, remotes, view
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

    def __remote__(self, host: Host) -> Nested:
        """Return the server itself: it is connected as its own toolbox says."""
        del host
        return self

    def seen_by(self, context: ToolContext[Any] | None) -> Nested:
        """Return this server with the lists of whoever the context speaks of."""
        remotes = self.remotes.seen_by(context)
        inner = next(source for source in remotes.sources if source.name == self.name)
        return Nested(inner, remotes, self.view)

    @property
    def tools(self) -> Sequence[Tool]:
        """What the other toolbox shows of it."""
        own = {id(tool.root) for tool in self.inner.tools}
        named = (tool for tool in self.remotes.tools.values() if id(tool.root) in own)
        return [shown for tool in named if (shown := self.view(tool)) is not None]

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The prompts it is known to offer."""
        return self.inner.prompts

    @property
    def resources(self) -> Sequence[ResourceLink]:
        """The resources it is known to offer."""
        return self.inner.resources

    @property
    def wired(self) -> Wired:
        """The resources it is known to offer, as the wire has them."""
        return self.inner.wired

    def host_by(self, host: Host) -> None:
        """Pass questions on where the other toolbox does not answer them itself."""
        if host.passes:
            self.remotes.forward()
