"""Keep a snapshot of a server's lists for one identity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.remote.protocol import Health, Remote, ServerRequestHandlers, Watcher
from toolmason._core.values.content import Content
from toolmason.mcp_client.lists.fetch_lists import ServerLists
from toolmason.mcp_client.lists.list_cache import ListCache


class IdentityView:
    """Snapshot of a server's lists for one identity, which changes only on `prepare` or `refresh`."""

    def __init__(
        self, connection: Remote, get_cache: Callable[[], Awaitable[ListCache]], context: ToolContext[Any] | None
    ) -> None:
        self.name, self.server, self.required = connection.name, connection.server, connection.required
        self._lists = ServerLists()
        self._connection, self._get_cache, self._context = connection, get_cache, context
        self._watchers: list[Watcher] = []

    @property
    def lists(self) -> ServerLists:
        """Lists of the identity."""
        return self._lists

    def watch(self, callback: Watcher) -> None:
        """Call `callback` when the lists of this view change."""
        self._watchers.append(callback)

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Load the lists of the identity, and fetch them if they are missing or stale."""
        cache = await self._get_cache()
        try:
            self._set_lists(await cache.get_lists(revalidate=revalidate))
        except BaseException:
            self._set_lists(cache.lists)  # the last good lists, if `serve_stale` is set
            raise

    async def refresh(self) -> None:
        """Fetch the lists of the identity even if they are fresh."""
        cache = await self._get_cache()
        self._set_lists(await cache.fetch())

    def clear_cache(self) -> None:
        """Clear the lists of all identities."""
        self._connection.clear_cache()
        self._set_lists(ServerLists())

    async def health(self) -> Health:
        """Check the server with a round trip, as the toolbox's own identity."""
        return await self._connection.health()

    async def aclose(self) -> None:
        """Close the sessions of all identities."""
        await self._connection.aclose()

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource."""
        return await self._connection.read(uri, self._context if context is None else context)

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any]:
        """Return the completions for an argument."""
        return await self._connection.complete(params, context)

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Subscribe to exactly these resources."""
        await self._connection.subscribe(uris)

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Replace the handlers for all identities."""
        self._connection.set_handlers(handlers)

    def for_identity(self, context: ToolContext[Any] | None) -> Remote:
        """Return a view for another identity."""
        return self._connection.for_identity(context)

    def _set_lists(self, lists: ServerLists) -> None:
        if lists is not self.lists:
            self._lists = lists
            for watcher in self._watchers:
                watcher(None)
