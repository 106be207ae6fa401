"""What a toolbox does with its servers: connect, look after them, close.

Lives here: the part of a toolbox that concerns servers, async and sync. Not here: names and lists (`remotes`).
"""

from __future__ import annotations

from typing import Self

from toolwright._core.handles import Store
from toolwright._core.remotes import Health, Remotes
from toolwright._core.route import BoxPolicy
from toolwright._core.sync import run_to_end
from toolwright._core.values import Content, ResourceLink


class Connections:
    """A toolbox and its servers. Without any, nothing here does anything."""

    _policy: BoxPolicy
    _remotes: Remotes
    _owns_remotes: bool
    _store: Store
    _owns_store: bool

    async def __aenter__(self) -> Self:
        if self._owns_remotes and self._policy.eager:
            try:
                await self._remotes.prepare()
            except BaseException:
                await self.aclose()
                raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        if self._owns_remotes and self._remotes and self._policy.eager:
            try:
                run_to_end(self._remotes.prepare())
            except BaseException:
                self.close_sync()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_sync()

    async def aclose(self) -> None:
        """Close the connections and forget what the servers offer; the next need connects again.

        Safe from any task, any number of times. A view closes nothing but what is its own: the results of a run.
        """
        if self._owns_store:
            self._store.clear()
        if self._owns_remotes and self._remotes:
            await self._remotes.aclose()

    def close_sync(self) -> None:
        """Run `aclose` to its end, from code that is not async."""
        if self._owns_remotes and self._remotes:
            run_to_end(self.aclose())
        elif self._owns_store:
            self._store.clear()

    @property
    def servers(self) -> list[str]:
        """The names of the servers."""
        return [source.name for source in self._remotes.sources]

    async def health(self) -> dict[str, Health]:
        """Return how each server is, by a round trip made now."""
        return await self._remotes.health()

    def health_sync(self) -> dict[str, Health]:
        """Run `health` to its end, from code that is not async."""
        return run_to_end(self.health())

    async def refresh(self) -> None:
        """Fetch the lists of every server again; one that fails is logged, and the others go on."""
        await self._remotes.refresh()

    def refresh_sync(self) -> None:
        """Run `refresh` to its end, from code that is not async."""
        run_to_end(self.refresh())

    def clear_cache(self) -> None:
        """Forget what the servers offer; the next need fetches it."""
        self._remotes.clear()

    @property
    def resources(self) -> list[ResourceLink]:
        """The resources that the servers are known to offer."""
        return [link for source in self._remotes.sources for link in source.resources]

    async def read(self, uri: str) -> tuple[Content, ...]:
        """Return the contents of a server's resource.

        Raises:
            RemoteError: no server has it.
        """
        return await self._remotes.read(uri)

    def read_sync(self, uri: str) -> tuple[Content, ...]:
        """Run `read` to its end, from code that is not async."""
        return run_to_end(self.read(uri))
