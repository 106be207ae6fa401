"""Manage the servers of a toolbox and resolve name conflicts between them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolmason._core.catalog.catalog import rename_tool
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool, get_root
from toolmason._core.remote.protocol import Health, OnConflict, Remote, ServerRequestHandlers, Watcher
from toolmason._core.values.content import Content
from toolmason._text import make_name_key
from toolmason.errors import DefinitionError, DuplicateTool, RemoteError, ToolmasonError, clip

_log = logging.getLogger("toolmason")
DEFAULT_START_SECONDS: Final = 30.0
"""Seconds to wait for a server that sets no limit of its own."""
EXTRA_SECONDS = 1.0
"""Seconds to wait beyond the limit of a server, which reports its own failure."""
CONFIRM_SECONDS = 5.0
"""Seconds that a turn of a run waits for the lists of the servers that it called."""


@dataclass(slots=True, eq=False, repr=False)
class ServerNames:
    """Names that the servers of a toolbox may not use, and the server that owns each of the others."""

    local_tools: frozenset[str] = frozenset()
    """Names of the toolbox's own tools, including those a view hides."""
    local_prompts: frozenset[str] = frozenset()
    """Names of the toolbox's own prompts."""
    tool_owners: dict[str, str] = field(default_factory=dict)
    """Server that first used each tool name, or one that looks like it, and keeps it."""
    exact_owners: dict[str, str] = field(default_factory=dict)
    """The same for the name itself, which may differ from that of the first server in case."""
    prompt_owners: dict[str, str] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    """Names of shadowed tools that are already logged."""


def _has_full_name(tool: Tool, server: str) -> bool:
    """Return True if the toolbox that a tool comes from has put the name of the server before that of the tool."""
    return tool.name.startswith(f"{server}__") and not get_root(tool).name.startswith(f"{server}__")


class Remotes:
    """Servers of a toolbox, shared by all its views."""

    def __init__(
        self, handlers: ServerRequestHandlers, on_conflict: OnConflict = "shadow", sources: Iterable[Remote] = ()
    ) -> None:
        self.handlers = handlers
        self.on_conflict: OnConflict = on_conflict
        self.sources: list[Remote] = []
        self.version = 0
        """Number that increases with each change."""
        self.names = ServerNames()
        self._logged_errors: dict[str, str] = {}
        self._conflict: DuplicateTool | None = None
        self._tools_cache: tuple[int, dict[str, Tool]] | None = None
        self._shadowed: dict[str, str] = {}
        self._exact_names: dict[str, str] = {}
        self._late_tasks: set[asyncio.Future[None]] = set()
        self._listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.watchers: list[Watcher] = []
        for source in sources:
            self.add(source)

    def __bool__(self) -> bool:
        return bool(self.sources)

    @property
    def unlisted(self) -> list[str]:
        """Names of the servers whose tools are not known."""
        return [source.name for source in self.sources if not source.lists.is_known]

    @property
    def held_back(self) -> dict[str, str]:
        """Reason why a tool of a server is not among the tools, by its name, with and without that of the server."""
        reasons = [(source.name, *item) for source in reversed(self.sources) for item in source.lists.held_back.items()]
        names = {name: reason for _, name, reason in reasons}
        return {**names, **{f"{server}__{name}": reason for server, name, reason in reasons}}

    @property
    def is_known(self) -> bool:
        """True if every server has sent its lists, and they are the same for each caller."""
        return all(source.lists.is_known and getattr(source.server, "auth", None) is None for source in self.sources)

    def add(self, source: Remote, index: int | None = None) -> None:
        """Add a server, or use it in place of the one at `index`.

        Raises:
            DefinitionError: a server of that name exists.
        """
        if index is None and any(known.name == source.name for known in self.sources):
            raise DefinitionError(f"Two servers are named {source.name!r}. Give each a unique name.")
        index = len(self.sources) if index is None else index
        self.sources[index : index + 1] = [source]
        source.watch(self._on_change)
        self.mark_changed()

    async def replace(self, source: Remote) -> None:
        """Use another connection to a server, such as one that signs in."""
        index = next(index for index, known in enumerate(self.sources) if known.name == source.name)
        old = self.sources[index]
        self.add(source, index)
        await old.aclose()

    def for_identity(self, context: ToolContext[Any] | None) -> Remotes:
        """Return the servers with the lists of the context's identity, under the same naming rules."""
        view = Remotes(self.handlers, self.on_conflict, (source.for_identity(context) for source in self.sources))
        view.names = self.names
        view.watchers = self.watchers
        view._logged_errors = self._logged_errors
        return view

    def add_listener(self, listener: Any) -> None:
        """Call `listener.__changed__()` after each change. Holds only a weak reference."""
        self._listeners.add(listener)

    def mark_changed(self) -> None:
        """Record that a list has changed, and notify the listeners."""
        self.version += 1
        for listener in tuple(self._listeners):
            listener.__changed__()
        self.notify(None)

    def _on_change(self, uri: str | None) -> None:
        if uri is None:
            self.mark_changed()
        else:
            self.notify(uri)

    def notify(self, uri: str | None) -> None:
        """Notify the watchers that a resource, or a list if `uri` is None, has changed."""
        for watcher in tuple(self.watchers):
            watcher(uri)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Known tools of all servers, by the name they have in the toolbox.

        A local tool keeps its name. If two servers share a tool name, the first server keeps it and the other tool
        becomes `server__tool`.
        """
        if self._tools_cache is not None and self._tools_cache[0] == self.version:
            return self._tools_cache[1]
        by_name: dict[str, Tool] = {}
        self._conflict = None
        self._shadowed = {}
        self._exact_names = {}
        local_keys = frozenset(map(make_name_key, self.names.local_tools))
        for source in self.sources:
            for tool in source.lists.tools:
                name = self._name_for(source, tool, by_name, local_keys)
                by_name[name] = rename_tool(tool, name)
                bare_name = name.removeprefix(f"{source.name}__")
                # A tool of a nested toolbox has its full name already, which must not be one that the server chose.
                is_qualified = tool.name == bare_name != name or get_root(tool).name == bare_name
                if self.on_conflict == "shadow" and is_qualified and bare_name in self.names.local_tools:
                    self._shadowed[name] = bare_name
                elif name != tool.name and self.names.exact_owners.get(tool.name) == source.name:
                    self._exact_names[tool.name] = name
        self._tools_cache = (self.version, by_name)
        return by_name

    @property
    def shadowed(self) -> Mapping[str, str]:
        """Names of the tools that a local tool shadows, each with the name of that tool. They can be called."""
        return self._shadowed if self.tools else {}

    @property
    def exact_names(self) -> Mapping[str, str]:
        """Names that servers gave to tools and no other tool has, each with the name of the tool in the toolbox."""
        return self._exact_names if self.tools else {}

    def _name_for(self, source: Remote, tool: Tool, by_name: Mapping[str, Tool], local_keys: frozenset[str]) -> str:
        qualified_name = f"{source.name}__{tool.name}"
        if self.on_conflict == "prefix":
            return tool.name if _has_full_name(tool, source.name) else qualified_name
        # A name stays with its first server even while that server is down: arguments must not reach another server.
        key = make_name_key(tool.name)
        owner = self.names.tool_owners.setdefault(key, source.name)
        if tool.name.isascii() and tool.name not in self.names.local_tools:
            self.names.exact_owners.setdefault(tool.name, source.name)
        if key not in local_keys and tool.name not in by_name and owner == source.name:
            return tool.name
        if self.on_conflict == "error":
            other_origin = "a local tool" if key in local_keys else f"server {owner!r}"
            self._conflict = self._conflict or DuplicateTool(tool.name, other_origin, tool.origin)
        elif qualified_name not in self.names.warned:
            self.names.warned.add(qualified_name)
            _log.warning(
                "%s of server %r is shadowed by another tool of that name; call it as %s",
                tool.name,
                source.name,
                qualified_name,
            )
        return qualified_name

    def raise_on_conflict(self) -> None:
        """Raise `DuplicateTool` if two tools share a name and `on_conflict="error"` forbids it."""
        if self.tools and self._conflict is not None:
            raise self._conflict

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Connect to every server and fetch missing or stale lists. Pass `revalidate` to look up an unknown name.

        All servers have the same time, that of the slowest to connect. One that needs longer is added when it is up.

        Raises:
            RemoteError: a required server is unavailable.
        """
        if not self.sources:
            return
        seconds = EXTRA_SECONDS + max(
            getattr(source.server, "connect_timeout", DEFAULT_START_SECONDS) for source in self.sources
        )
        tasks = [asyncio.ensure_future(source.prepare(revalidate=revalidate)) for source in self.sources]
        required = [task for source, task in zip(self.sources, tasks, strict=True) if source.required]
        try:
            await asyncio.wait(tasks, timeout=seconds)
            if required:
                await asyncio.wait(required)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        reason = f"it is still starting after {seconds:g} s. Its tools are added when it is up"
        outcomes: list[BaseException | None] = []
        for source, task in zip(self.sources, tasks, strict=True):
            if task.done():
                outcomes.append(asyncio.CancelledError() if task.cancelled() else task.exception())
            else:
                # It goes on, and retries in the background if it fails.
                self._late_tasks.add(task)
                task.add_done_callback(self._end_late_task)
                outcomes.append(RemoteError(source.name, "connect", reason, retryable=True))
        self._report_failures("cannot be used", outcomes)

    async def confirm(self) -> None:
        """List the tools again that a call may have changed. A server that fails or takes long keeps its list."""
        called = [source for source in self.sources if source.is_unconfirmed]
        if called:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONFIRM_SECONDS):
                    await asyncio.gather(*(source.prepare() for source in called), return_exceptions=True)

    def _end_late_task(self, task: asyncio.Future[None]) -> None:
        self._late_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it: the next use reports it

    async def refresh(self) -> None:
        """Refetch every list concurrently. A failure is logged and does not stop the others.

        Raises:
            RemoteError: a required server is unavailable.
        """
        outcomes = await asyncio.gather(*(source.refresh() for source in self.sources), return_exceptions=True)
        self._report_failures("cannot be refreshed", outcomes)

    def _report_failures(self, failure: str, outcomes: Sequence[BaseException | None]) -> None:
        required_errors: list[BaseException] = []
        for source, outcome in zip(self.sources, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                self._logged_errors.pop(source.name, None)
                continue
            if not isinstance(outcome, ToolmasonError):
                raise outcome
            message = f"{failure}: {outcome}"
            # Log each failure once: every call meets a server that is down.
            if self._logged_errors.get(source.name) != message:
                _log.warning("server %r %s: %s", source.name, failure, outcome)
            self._logged_errors[source.name] = message
            if source.required:
                required_errors.append(outcome)
        if required_errors:
            raise required_errors[0]

    def clear_cache(self) -> None:
        """Discard every cached list."""
        for source in self.sources:
            source.clear_cache()

    async def health(self) -> dict[str, Health]:
        """Make a round trip to every server, concurrently."""
        results = await asyncio.gather(*(source.health() for source in self.sources))
        return {source.name: health for source, health in zip(self.sources, results, strict=True)}

    def forward_server_requests(self) -> None:
        """Forward requests from servers to the calling client if the application has no handler for them."""
        self.handlers = self.handlers.with_forwarding()
        for source in self.sources:
            source.set_handlers(self.handlers)

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource from the server that lists it or whose template matches.

        Raises:
            RemoteError: no server owns the URI, or every owner failed.
        """
        await self.prepare()
        last_error: RemoteError | None = None
        # A single server gets every URI: its tools may link to resources it does not list.
        for source in find_owners(uri, self.sources) or (self.sources if len(self.sources) == 1 else ()):
            try:
                return await source.read(uri, context)
            except RemoteError as read_error:
                last_error = read_error
        raise last_error or RemoteError("", "read", f"no server lists {clip(uri)!r}")

    async def aclose(self) -> None:
        """Close every connection, even if closing one fails."""
        await asyncio.gather(*(source.aclose() for source in self.sources), return_exceptions=True)


def find_owners(uri: str, sources: Sequence[Remote]) -> Sequence[Remote]:
    """Return the servers that list a URI, or else those with the most specific matching template, or none.

    A URI can be a secret, and its owner's answer is trusted, so it is never sent to a server that did not claim it.
    """
    listing_sources = [source for source in sources if any(link.uri == uri for link in source.lists.resources)]
    if listing_sources:
        return listing_sources
    scored = [(_score_best_template(source.lists.raw_resources.templates, uri), source) for source in sources]
    best_score = max((score for score, _ in scored), default=0)
    return [source for score, source in scored if best_score and score == best_score]


def _score_best_template(templates: Sequence[Mapping[str, Any]], uri: str) -> int:
    from toolmason._core.catalog.uri_templates import measure_specificity  # noqa: PLC0415 - 1 ms at start-up, needed only for servers with templates

    scores = (measure_specificity(str(entry.get("uriTemplate")), uri) for entry in templates)
    return max((score for score in scores if score is not None), default=0)


def collect_prompts(remotes: Remotes) -> dict[str, tuple[Remote, Prompt]]:
    """Return the known prompts of all servers by name, each with its server. Names follow the rules for tools."""
    by_name: dict[str, tuple[Remote, Prompt]] = {}
    for source in remotes.sources:
        for prompt in source.lists.prompts:
            is_taken = prompt.name in remotes.names.local_prompts or prompt.name in by_name
            owner = remotes.names.prompt_owners.setdefault(prompt.name, source.name)
            if is_taken or owner != source.name or remotes.on_conflict == "prefix":
                by_name.setdefault(f"{source.name}__{prompt.name}", (source, prompt))
            else:
                by_name[prompt.name] = (source, prompt)
    return by_name
