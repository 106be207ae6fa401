"""Connect a toolbox to its servers, read their resources, and close them."""

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
    """Server methods of a toolbox. Without servers, they do nothing."""

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
        """Value of `on_error=`, or None if the application did not set it."""
        return self._policy.on_error if self._policy.on_error_is_set else None

    def __mcp_server__(self) -> Any:
        """Return this toolbox as a server object of the MCP SDK, for `McpServer.of` and for tests."""
        return import_module("toolmason.mcp_server.sdk_server").make_server(self)

    def __gateway__(self) -> Gateway:
        """Return a gateway that forwards requests to this toolbox's servers."""
        return Gateway(self._remotes)

    async def aclose(self) -> None:
        """Close the connections and discard the servers' lists. The next use reconnects.

        Safe to call from any task, and more than once. A view closes only the stored results of its own run.
        """
        if self._owns_store:
            self._result_store.clear()
        if self._owns_remotes and self._remotes:
            await self._remotes.aclose()

    def close_sync(self) -> None:
        """Run `aclose` to completion, from synchronous code."""
        if self._owns_remotes and self._remotes:
            run_blocking(self.aclose())
        elif self._owns_store:
            self._result_store.clear()

    @property
    def servers(self) -> list[str]:
        """Names of the servers."""
        return [source.name for source in self._remotes.sources]

    async def health(self) -> dict[str, Health]:
        """Check each server with a round trip."""
        return await self._remotes.health()

    health_sync = blocking(health)

    async def refresh(self) -> None:
        """Refetch the lists of every server. A failure is logged and does not stop the others."""
        await self._remotes.refresh()
        self._remotes.raise_on_conflict()

    refresh_sync = blocking(refresh)

    def clear_cache(self) -> None:
        """Discard the servers' lists. The next use fetches them again."""
        self._remotes.clear_cache()

    @property
    def resources(self) -> list[ResourceLink]:
        """Resources of this toolbox and the known resources of its servers, without templates."""
        own_links = [item.link for item in self._catalog.resources.values() if not item.parameters]
        remote_links = [link for source in self._remotes.sources for link in source.lists.resources]
        return [*own_links, *(link for link in remote_links if link.uri not in self._catalog.resources)]

    @property
    def own_resources(self) -> list[Resource]:
        """Resources and templates defined with `@resource`, in the order they were added."""
        return list(self._catalog.resources.values())

    async def read(self, uri: str, *, context: ContextLike = None) -> tuple[Content, ...]:
        """Return the contents of a resource of this toolbox, or else of a server.

        Raises:
            KeyError: no resource has this URI, and the toolbox has no servers.
            RemoteError: no server has it.
        """
        call_context: ToolContext[Any] = self._policy.context.merge(make_context(context))
        for item in self._catalog.resources.values():
            values = item.match_uri(uri)
            if values is not None:
                return await item.read(uri, values, call_context)
        if not self._remotes:
            raise KeyError(f"No resource has the URI {uri!r}. Print `toolbox.resources` to list them.")
        return await self._remotes.for_identity(call_context).read(uri, call_context)

    read_sync = blocking(read)

    def notify_resource_changed(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed. Thread-safe."""
        self._remotes.notify(uri)

    def watch(self, changed: Watcher) -> Callable[[], None]:
        """Call `changed` after each change, with the URI of a resource or None for a list.

        Returns a function that ends the subscription.
        """
        self._remotes.watchers.append(changed)
        return lambda: self._remotes.watchers.remove(changed) if changed in self._remotes.watchers else None
