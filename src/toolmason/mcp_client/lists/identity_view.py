"""A server as whoever a context speaks of sees it: lists that stay what they were until they are asked for again.

Lives here: which lists one view of a toolbox goes by, whatever others clear or fetch meanwhile.
Not here: fetching them (`offer`), or whose they are (`connection`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from typing_extensions import override

from toolmason._core.define.context import ToolContext
from toolmason._core.remote.protocol import Health, Host, Remote, Watcher
from toolmason._core.values.content import Content
from toolmason.mcp_client.lists.fetch_lists import Listed, Lists
from toolmason.mcp_client.lists.list_cache import Offer


class Seen(Listed):
    """One server, for one identity."""

    def __init__(
        self, server: Remote, choose: Callable[[], Awaitable[Offer]], context: ToolContext[Any] | None
    ) -> None:
        self.name, self.server, self.required = server.name, server.server, server.required
        self._lists = Lists()
        self._server, self._choose, self._context = server, choose, context
        self._changed: list[Watcher] = []

    @property
    @override
    def lists(self) -> Lists:
        """What it offers to the identity."""
        return self._lists

    def watch(self, changed: Watcher) -> None:
        """Have `changed` called when the lists of this view change."""
        self._changed.append(changed)

    async def prepare(self, *, doubtful: bool = False) -> None:
        """Have the lists of the identity, fetched where they are missing or stale."""
        offer = await self._choose()
        try:
            self._have(await offer.ready(doubtful=doubtful))
        except BaseException:
            self._have(offer.lists)  # the last good ones, where they may be served
            raise

    async def refresh(self) -> None:
        """Fetch the lists of the identity in any case."""
        self._have(await (await self._choose()).fetch())

    def clear_cache(self) -> None:
        """Forget the lists, for everybody."""
        self._server.clear_cache()
        self._have(Lists())

    async def health(self) -> Health:
        """Make a round trip, in the name of the toolbox."""
        return await self._server.health()

    async def aclose(self) -> None:
        """Close the connections, for everybody."""
        await self._server.aclose()

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource."""
        return await self._server.read(uri, self._context if context is None else context)

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any]:
        """Return the completions for an argument."""
        return await self._server.complete(params, context)

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources, and of no others."""
        await self._server.subscribe(uris)

    def host_by(self, host: Host) -> None:
        """Take another host, for everybody."""
        self._server.host_by(host)

    def seen_by(self, context: ToolContext[Any] | None) -> Remote:
        """Return the server with the lists of somebody else."""
        return self._server.seen_by(context)

    def _have(self, lists: Lists) -> None:
        if lists is not self.lists:
            self._lists = lists
            for changed in self._changed:
                changed(None)
