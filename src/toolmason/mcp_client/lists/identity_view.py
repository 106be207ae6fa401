"""Keep a snapshot of a server's lists for one identity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.remote.protocol import Remote, Watcher
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
        self.inner, self._get_cache, self._context = connection, get_cache, context
        self._watchers: list[Watcher] = []
        self._cache: ListCache | None = None
        self.health = connection.health
        self.complete = connection.complete
        self.subscribe = connection.subscribe
        self.aclose = connection.aclose
        self.set_handlers = connection.set_handlers
        self.for_identity = connection.for_identity

    @property
    def lists(self) -> ServerLists:
        """Lists of the identity."""
        return self._lists

    @property
    def is_unconfirmed(self) -> bool:
        """True if a call may have changed the tools since they were listed."""
        return self._cache is not None and self._cache.is_unconfirmed

    def watch(self, callback: Watcher) -> None:
        """Call `callback` when the lists of this view change."""
        self._watchers.append(callback)

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Load the lists of the identity, and fetch them if they are missing or stale."""
        cache = self._cache = await self._get_cache()
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
        self.inner.clear_cache()
        self._set_lists(ServerLists())

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource."""
        return await self.inner.read(uri, self._context if context is None else context)

    def _set_lists(self, lists: ServerLists) -> None:
        if lists is not self.lists:
            self._lists = lists
            for watcher in self._watchers:
                watcher(None)
