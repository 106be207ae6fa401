"""What a client asks of a toolbox and a server of it answers: resources, templates, completions, subscriptions.

Lives here: which server a request belongs to. Not here: tools and their names (`remotes`), or any wire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.remote.protocol import Remote
from toolmason._core.remote.servers import Remotes, collect_prompts, find_owners
from toolmason.errors import RemoteError

_log = logging.getLogger("toolmason")


class Gateway:
    """The servers behind a toolbox, as a gateway sees them."""

    def __init__(self, remotes: Remotes) -> None:
        self._remotes = remotes

    def forward_server_requests(self) -> None:
        """Have what the servers ask go to whoever called, where the application does not answer it itself."""
        self._remotes.forward_server_requests()

    @property
    def server_specs(self) -> list[Any]:
        """What the toolbox was given for each server."""
        return [source.server for source in self._remotes.sources]

    @property
    def resources(self) -> dict[str, Mapping[str, Any]]:
        """The resources of the servers, by address, as the wire has them; of two, the first server's."""
        found: dict[str, Mapping[str, Any]] = {}
        for source in reversed(self._remotes.sources):
            found.update(source.raw_resources.resources)
        return found

    @property
    def templates(self) -> list[Mapping[str, Any]]:
        """The templates of the servers, as the wire has them; of two, the first server's."""
        found: dict[str, Mapping[str, Any]] = {}
        for source in self._remotes.sources:
            for entry in source.raw_resources.templates:
                found.setdefault(str(entry.get("uriTemplate")), entry)
        return list(found.values())

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any] | None:
        """Return the completions of the server that has the prompt or template; `None` where none has it.

        Raises:
            RemoteError: the server cannot be had, or refused.
        """
        ref = params.get("ref") or {}
        if ref.get("type") == "ref/prompt":
            known = collect_prompts(self._remotes).get(str(ref.get("name")))
            if known is None:
                return None
            source, prompt = known
            return await source.complete({**params, "ref": {**ref, "name": prompt.name}}, context)
        uri = str(ref.get("uri"))
        owner = next((source for source in self._remotes.sources if _lists_uri(source, uri)), None)
        return None if owner is None else await owner.complete(params, context)

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources, each from the server that has it."""
        uris_by_server: dict[str, set[str]] = {source.name: set() for source in self._remotes.sources}
        for uri in uris:
            for source in find_owners(uri, self._remotes.sources)[:1]:
                uris_by_server[source.name].add(uri)
        subscriptions = [source.subscribe(frozenset(uris_by_server[source.name])) for source in self._remotes.sources]
        for outcome in await asyncio.gather(*subscriptions, return_exceptions=True):
            if isinstance(outcome, RemoteError):
                _log.warning("a resource of server %r cannot be watched: %s", outcome.server, outcome.reason)
            elif isinstance(outcome, BaseException):
                raise outcome


def _lists_uri(source: Remote, uri: str) -> bool:
    return uri in source.raw_resources.resources or any(
        entry.get("uriTemplate") == uri for entry in source.raw_resources.templates
    )
