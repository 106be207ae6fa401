"""What a toolbox does with its servers: connect, look after them, close.

Lives here: the part of a toolbox that concerns servers, async and sync. Not here: names and lists (`remotes`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Self

from toolmason._core.call.long_results import ResultStore
from toolmason._core.catalog.catalog import Catalog
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.context import ContextLike, ToolContext, make_context
from toolmason._core.remote.gateway import Gateway
from toolmason._core.remote.protocol import Health, Watcher
from toolmason._core.remote.servers import Remotes
from toolmason._core.run.blocking import blocking, run_blocking
from toolmason._core.toolbox.options import ToolboxPolicy
from toolmason._core.values.content import Content, ResourceLink
from toolmason._core.values.policy import OnError


class Connections:
    """A toolbox and its servers. Without any, nothing here does anything."""

    _catalog: Catalog
    _policy: ToolboxPolicy
    _remotes: Remotes
    _owns_remotes: bool
    _result_store: ResultStore
    _owns_store: bool

    async def __aenter__(self) -> Self:
        if self._owns_remotes and self._policy.eager:
            try:
                await self._remotes.prepare()
                self._remotes.raise_on_conflict()
            except BaseException:
                await self.aclose()
                raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        if self._owns_remotes and self._remotes and self._policy.eager:
            try:
                run_blocking(self._remotes.prepare())
                self._remotes.raise_on_conflict()
            except BaseException:
                self.close_sync()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_sync()

    @property
    def on_error(self) -> OnError | None:
        """What becomes of failures, where the application has said it with `on_error=`."""
        return self._policy.on_error if self._policy.on_error_is_set else None

    def __mcp_server__(self) -> Any:
        """Return this toolbox as a server object of the SDK, for `McpServer.of` and for tests."""
        return import_module("toolmason.mcp_server.sdk_server").make_server(self)

    def __gateway__(self) -> Gateway:
        """Return the servers of this toolbox, for whoever passes requests on to them."""
        return Gateway(self._remotes)

    async def aclose(self) -> None:
        """Close the connections and forget what the servers offer; the next need connects again.

        Safe from any task, any number of times. A view closes nothing but what is its own: the results of a run.
        """
        if self._owns_store:
            self._result_store.clear()
        if self._owns_remotes and self._remotes:
            await self._remotes.aclose()

    def close_sync(self) -> None:
        """Run `aclose` to its end, from code that is not async."""
        if self._owns_remotes and self._remotes:
            run_blocking(self.aclose())
        elif self._owns_store:
            self._result_store.clear()

    @property
    def servers(self) -> list[str]:
        """The names of the servers."""
        return [source.name for source in self._remotes.sources]

    async def health(self) -> dict[str, Health]:
        """Return how each server is, by a round trip made now."""
        return await self._remotes.health()

    health_sync = blocking(health)

    async def refresh(self) -> None:
        """Fetch the lists of every server again; one that fails is logged, and the others go on."""
        await self._remotes.refresh()
        self._remotes.raise_on_conflict()

    refresh_sync = blocking(refresh)

    def clear_cache(self) -> None:
        """Forget what the servers offer; the next need fetches it."""
        self._remotes.clear_cache()

    @property
    def resources(self) -> list[ResourceLink]:
        """The resources of this toolbox, and those that its servers are known to offer; templates aside."""
        own_links = [item.link for item in self._catalog.resources.values() if not item.parameters]
        remote_links = [link for source in self._remotes.sources for link in source.resources]
        return [*own_links, *(link for link in remote_links if link.uri not in self._catalog.resources)]

    @property
    def own_resources(self) -> list[Resource]:
        """The resources and templates that were written with `@resource`, in the order they were added."""
        return list(self._catalog.resources.values())

    async def read(self, uri: str, *, context: ContextLike = None) -> tuple[Content, ...]:
        """Return the contents of a resource: one of this toolbox, else a server's.

        Raises:
            KeyError: there is no such resource, and no server that could have it.
            RemoteError: no server has it.
        """
        call_context: ToolContext[Any] = self._policy.context.merge(make_context(context))
        for item in self._catalog.resources.values():
            values = item.match_uri(uri)
            if values is not None:
                return await item.read(uri, values, call_context)
        if not self._remotes:
            raise KeyError(f"No resource has the address {uri!r}. Print `toolbox.resources` to see what there is.")
        return await self._remotes.for_identity(call_context).read(uri, call_context)

    read_sync = blocking(read)

    def touch(self, uri: str) -> None:
        """Tell whoever has subscribed to a resource that it has changed. From any thread."""
        self._remotes.notify(uri)

    def watch(self, changed: Watcher) -> Callable[[], None]:
        """Have `changed` called after each change: with an address for a resource, with `None` for what is offered.

        Returns what ends it.
        """
        self._remotes.watchers.append(changed)
        return lambda: self._remotes.watchers.remove(changed) if changed in self._remotes.watchers else None
