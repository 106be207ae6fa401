"""The MCP servers of a toolbox, as `box.servers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolmason._core.remote.protocol import Health, Watcher
from toolmason._core.remote.servers import Remotes
from toolmason._core.run.blocking import blocking


class Servers:
    """The servers of a toolbox. Iterate over it for their names."""

    def __init__(self, remotes: Remotes) -> None:
        self._remotes = remotes

    def __iter__(self) -> Iterator[str]:
        return (source.name for source in self._remotes.sources)

    def __len__(self) -> int:
        return len(self._remotes.sources)

    def __contains__(self, name: object) -> bool:
        return any(source.name == name for source in self._remotes.sources)

    def __repr__(self) -> str:
        return f"<Servers {list(self)}>"

    async def health(self) -> dict[str, Health]:
        """Check each server with a round trip."""
        return await self._remotes.health()

    health_sync = blocking(health)

    async def refresh(self) -> None:
        """Refetch the lists of every server. A failure is logged and does not stop the others.

        Raises:
            RemoteError: a required server is unavailable.
            DuplicateTool: two tools share a name, and `on_conflict="error"`.
        """
        await self._remotes.refresh()
        self._remotes.raise_on_conflict()

    refresh_sync = blocking(refresh)

    async def reconnect(self) -> None:
        """Close every connection and connect again, with new lists.

        Raises:
            RemoteError: a required server is unavailable.
        """
        await self._remotes.aclose()
        await self._remotes.prepare()

    reconnect_sync = blocking(reconnect)

    def clear_cache(self) -> None:
        """Discard the lists. The next use fetches them again."""
        self._remotes.clear_cache()

    def notify_resource_changed(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed. Thread-safe."""
        self._remotes.notify(uri)

    def watch(self, changed: Watcher) -> Callable[[], None]:
        """Call `changed` after each change, with the URI of a resource or None for a list.

        Returns a function that ends the subscription.
        """
        watchers = self._remotes.watchers
        watchers.append(changed)
        return lambda: watchers.remove(changed) if changed in watchers else None
