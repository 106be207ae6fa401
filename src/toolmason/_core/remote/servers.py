"""Tools that live elsewhere: what a toolbox knows of its servers, and under which names.

Lives here: what a toolbox asks of a remote source, names across servers, listing and closing them together.
Not here: any wire; a source brings its own (`toolmason.mcp`).
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from toolmason._core.catalog.catalog import as_named
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.remote.protocol import Health, Host, OnConflict, Remote, Watcher
from toolmason._core.values.content import Content
from toolmason.errors import DefinitionError, DuplicateTool, RemoteError, ToolmasonError, clip

_log = logging.getLogger("toolmason")


class Remotes:
    """The servers of a toolbox, shared by all of its views."""

    def __init__(self, host: Host, on_conflict: OnConflict = "shadow", sources: Iterable[Remote] = ()) -> None:
        self.host = host
        self.on_conflict: OnConflict = on_conflict
        self.sources: list[Remote] = []
        self.version = 0
        """Another number whenever something changed."""
        self._warned: set[str] = set()
        self._said: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._clash: DuplicateTool | None = None
        self.local: frozenset[str] = frozenset()
        """The names of the toolbox's own tools, which keep them, whatever a view leaves out."""
        self.local_prompts: frozenset[str] = frozenset()
        """The names of the toolbox's own prompts."""
        self.prompt_owners: dict[str, str] = {}
        """Which server had the name of a prompt first, and keeps it."""
        self._named: tuple[int, dict[str, Tool]] | None = None
        self._listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.watchers: list[Watcher] = []
        for source in sources:
            self.add(source)

    def __bool__(self) -> bool:
        return bool(self.sources)

    def add(self, source: Remote) -> None:
        """Add a server.

        Raises:
            DefinitionError: there is one of that name.
        """
        if any(known.name == source.name for known in self.sources):
            raise DefinitionError(f"Two servers are named {source.name!r}. Give each a name of its own.")
        self.sources.append(source)
        source.watch(self._heard)
        self.changed()

    def joined(self, other: Remotes) -> Remotes:
        """Return the servers of both, with their connections."""
        if other is self:
            return self
        more = [source for source in other.sources if source not in self.sources]
        both = Remotes(self.host, self.on_conflict, [*self.sources, *more])
        both.local = self.local | other.local
        both.local_prompts = self.local_prompts | other.local_prompts
        return both

    def seen_by(self, context: ToolContext[Any] | None) -> Remotes:
        """Return the servers as whoever the context speaks of sees them, under the same rules for names."""
        seen = Remotes(self.host, self.on_conflict, (source.seen_by(context) for source in self.sources))
        seen.local, seen.local_prompts, seen.watchers = self.local, self.local_prompts, self.watchers
        seen.prompt_owners = self.prompt_owners
        seen._owners, seen._warned, seen._said = self._owners, self._warned, self._said
        return seen

    def listen(self, listener: Any) -> None:
        """Have `listener.forget_routes()` called after each change, for as long as it lives."""
        self._listeners.add(listener)

    def changed(self) -> None:
        """Take note that a list has changed."""
        self.version += 1
        for listener in tuple(self._listeners):
            listener.forget_routes()
        self.tell(None)

    def _heard(self, uri: str | None) -> None:
        if uri is None:
            self.changed()
        else:
            self.tell(uri)

    def tell(self, uri: str | None) -> None:
        """Tell whoever watches that a resource, or a list, has changed."""
        for watcher in tuple(self.watchers):
            watcher(uri)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What the servers are known to offer, by the name it has beside the local tools.

        A local tool keeps its name, and of two servers the first; the other one is `server__tool`.
        """
        if self._named is not None and self._named[0] == self.version:
            return self._named[1]
        named: dict[str, Tool] = {}
        self._clash = None
        for source in self.sources:
            for tool in source.tools:
                name = self._name_for(source, tool, named)
                named[name] = as_named(tool, name)
        self._named = (self.version, named)
        return named

    def _name_for(self, source: Remote, tool: Tool, named: Mapping[str, Tool]) -> str:
        full = f"{source.name}__{tool.name}"
        if self.on_conflict == "prefix":
            return full
        # A name stays with the server that had it first, also while that one is away: what a model sends to it must
        # not go to another party.
        owner = self._owners.setdefault(tool.name, source.name)
        if tool.name not in self.local and tool.name not in named and owner == source.name:
            return tool.name
        if self.on_conflict == "error":
            other = "a local tool" if tool.name in self.local else f"server {owner!r}"
            self._clash = self._clash or DuplicateTool(tool.name, other, tool.origin)
        elif full not in self._warned:
            self._warned.add(full)
            _log.warning(
                "%s of server %r is hidden by another tool of that name; call it %s", tool.name, source.name, full
            )
        return full

    def refuse_clash(self) -> None:
        """Refuse two tools of one name where the application does not want them.

        Raises:
            DuplicateTool: there are two, and `on_conflict="error"`.
        """
        if self.tools and self._clash is not None:
            raise self._clash

    async def prepare(self, *, doubtful: bool = False) -> None:
        """Connect to every server and fetch what is missing or stale; for a name that nobody knows, look again.

        Raises:
            RemoteError: a server that is required cannot be had.
        """
        await self._each("cannot be used", lambda source: source.prepare(doubtful=doubtful))

    async def refresh(self) -> None:
        """Fetch every list again, side by side; one that fails is logged, and the others go on.

        Raises:
            RemoteError: a server that is required cannot be had.
        """
        await self._each("cannot be refreshed", lambda source: source.refresh())

    async def _each(self, trouble: str, work: Callable[[Remote], Awaitable[None]]) -> None:
        if not self.sources:
            return
        outcomes = await asyncio.gather(*(work(source) for source in self.sources), return_exceptions=True)
        failed: list[BaseException] = []
        for source, outcome in zip(self.sources, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                self._said.pop(source.name, None)
                continue
            if not isinstance(outcome, ToolmasonError):
                raise outcome
            said = f"{trouble}: {outcome}"
            # Told once: a server that is down is met by every need.
            if self._said.get(source.name) != said:
                _log.warning("server %r %s: %s", source.name, trouble, outcome)
            self._said[source.name] = said
            if source.required:
                failed.append(outcome)
        if failed:
            raise failed[0]

    def clear(self) -> None:
        """Forget every list."""
        for source in self.sources:
            source.clear_cache()

    async def health(self) -> dict[str, Health]:
        """Make a round trip to every server, side by side."""
        found = await asyncio.gather(*(source.health() for source in self.sources))
        return {source.name: health for source, health in zip(self.sources, found, strict=True)}

    def forward(self) -> None:
        """Have what servers ask go to whoever called, where the application does not answer it itself."""
        self.host = self.host.forwarding()
        for source in self.sources:
            source.host_by(self.host)

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource, from the server that lists it or whose template it fits.

        Raises:
            RemoteError: no server has it, or none of several says that it could.
        """
        await self.prepare()
        error: RemoteError | None = None
        # Where there is but one server, no other can be meant; its tools may point to what it does not list.
        for source in owners_of(uri, self.sources) or (self.sources if len(self.sources) == 1 else ()):
            try:
                return await source.read(uri, context)
            except RemoteError as missing:
                error = missing
        raise error or RemoteError("", "read", f"there is no server that could have {clip(uri)!r}")

    async def aclose(self) -> None:
        """Close every connection; none keeps the others from being closed."""
        await asyncio.gather(*(source.aclose() for source in self.sources), return_exceptions=True)


def owners_of(uri: str, sources: Sequence[Remote]) -> Sequence[Remote]:
    """Return whom an address belongs to: who lists it, else whose template is closest to it; none, it may be.

    An address can be a secret, and who answers for it is believed: it is shown to no server that did not name it.
    """
    listing = [source for source in sources if any(link.uri == uri for link in source.resources)]
    if listing:
        return listing
    fits = [(_closest(source.wired.templates, uri), source) for source in sources]
    best = max((close for close, _ in fits), default=0)
    return [source for close, source in fits if best and close == best]


def _closest(templates: Sequence[Mapping[str, Any]], uri: str) -> int:
    from toolmason._core.catalog.uri_templates import closeness  # noqa: PLC0415 - 1 ms at start-up, for servers with templates

    found = (closeness(str(entry.get("uriTemplate")), uri) for entry in templates)
    return max((close for close in found if close is not None), default=0)


def prompts_in(remotes: Remotes) -> dict[str, tuple[Remote, Prompt]]:
    """Return the prompts that the servers are known to offer, each with its server, named by the rule for tools."""
    named: dict[str, tuple[Remote, Prompt]] = {}
    for source in remotes.sources:
        for prompt in source.prompts:
            taken = prompt.name in remotes.local_prompts or prompt.name in named
            owner = remotes.prompt_owners.setdefault(prompt.name, source.name)
            if taken or owner != source.name or remotes.on_conflict == "prefix":
                named.setdefault(f"{source.name}__{prompt.name}", (source, prompt))
            else:
                named[prompt.name] = (source, prompt)
    return named
