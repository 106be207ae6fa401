"""Forward MCP client requests to the upstream server that owns the prompt or resource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.remote.servers import Remotes, collect_prompts, find_owners
from toolmason.errors import RemoteError

_log = logging.getLogger("toolmason")


class Gateway:
    """Gateway from a toolbox's clients to its upstream servers."""

    def __init__(self, remotes: Remotes) -> None:
        self._remotes = remotes

    def forward_server_requests(self) -> None:
        """Forward requests from servers to the calling client if the application has no handler for them."""
        self._remotes.forward_server_requests()

    @property
    def resources(self) -> dict[str, Mapping[str, Any]]:
        """Raw resource entries of all servers by URI. If two servers list the same URI, the first one wins."""
        found: dict[str, Mapping[str, Any]] = {}
        for source in reversed(self._remotes.sources):
            found.update(source.lists.raw_resources.resources)
        return found

    @property
    def templates(self) -> list[Mapping[str, Any]]:
        """Raw resource templates of all servers. If two servers list the same template, the first one wins."""
        found: dict[str, Mapping[str, Any]] = {}
        for source in self._remotes.sources:
            for entry in source.lists.raw_resources.templates:
                found.setdefault(str(entry.get("uriTemplate")), entry)
        return list(found.values())

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any] | None:
        """Return completions from the server that owns the prompt or template, or None if no server does.

        Raises:
            RemoteError: the server is unreachable or rejected the request.
        """
        ref = params.get("ref") or {}
        if ref.get("type") == "ref/prompt":
            known = collect_prompts(self._remotes).get(str(ref.get("name")))
            if known is None:
                return None
            source, prompt = known
            return await source.complete({**params, "ref": {**ref, "name": prompt.name}}, context)
        uri = str(ref.get("uri"))
        for source in self._remotes.sources:
            raw = source.lists.raw_resources
            if uri in raw.resources or any(entry.get("uriTemplate") == uri for entry in raw.templates):
                return await source.complete(params, context)
        return None

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Subscribe to changes of these resources, each at the server that owns it."""
        uris_by_server: dict[str, set[str]] = {source.name: set() for source in self._remotes.sources}
        for uri in uris:
            for source in find_owners(uri, self._remotes.sources)[:1]:
                uris_by_server[source.name].add(uri)
        subscriptions = [source.subscribe(frozenset(uris_by_server[source.name])) for source in self._remotes.sources]
        for outcome in await asyncio.gather(*subscriptions, return_exceptions=True):
            if isinstance(outcome, RemoteError):
                _log.warning("cannot subscribe to a resource of server %r: %s", outcome.server, outcome.reason)
            elif isinstance(outcome, BaseException):
                raise outcome
