"""Expose the servers of one toolbox as servers of another.

Both toolboxes share the connection: closing either closes it for both, and the next request reconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolmason._core.catalog.catalog import join_items
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import get_root
from toolmason._core.remote.protocol import Health, Remote, RemoteLists, ServerRequestHandlers, ToolTransform, Watcher
from toolmason._core.remote.servers import Remotes
from toolmason._core.values.content import Content
from toolmason._core.values.policy import CarriedPolicy
from toolmason.errors import DuplicateTool

_log = logging.getLogger("toolmason")


def make_remote_views(
    remotes: Remotes, transform: ToolTransform, policy: CarriedPolicy | None = None, *, is_conditional: bool = False
) -> Iterator[RemoteView]:
    """Yield the servers of a toolbox, each with the tools visible through one of its views.

    `transform` gives the tools their policies; `policy` is for prompts.
    """
    for source in remotes.sources:
        yield RemoteView(source, remotes, transform, policy, is_conditional=is_conditional)


def join_servers(first: Remotes, views: Iterable[RemoteView], second: Remotes) -> Remotes:
    """Return the servers of a toolbox and views of the servers of another one.

    Raises:
        DuplicateTool: two views of one server have different tools of one name.
        DefinitionError: two servers have the same name.
    """
    joined = Remotes(first.handlers, first.on_conflict, first.sources)
    for view in views:
        add_server(joined, view)
    joined.names.local_tools = first.names.local_tools | second.names.local_tools
    joined.names.local_prompts = first.names.local_prompts | second.names.local_prompts
    return joined


def add_server(remotes: Remotes, source: Any) -> None:
    """Add a server to a toolbox. If the toolbox has a view of the server, the new one joins it.

    Raises:
        DuplicateTool: the two views have different tools of one name.
        DefinitionError: another server has the same name.
    """
    for index, known in enumerate(remotes.sources):
        if find_connection(known) is find_connection(source):
            joined: Any = JoinedViews((known, source))
            for error in joined.conflicts.values():
                raise error
            remotes.add(joined, index)
            return
    remotes.add(source)


def find_connection(source: Any) -> Remote:
    """Return the connection behind the views of a server."""
    while hasattr(source, "inner"):
        source = source.inner
    connection: Remote = source
    return connection


class RemoteView:
    """Server of another toolbox, with the tools that its view exposes."""

    def __init__(
        self,
        inner: Remote,
        remotes: Remotes,
        transform: ToolTransform,
        policy: CarriedPolicy | None = None,
        *,
        is_conditional: bool = False,
    ) -> None:
        self.inner = inner
        self.is_conditional = is_conditional
        """True if a tool may exist for some contexts only."""
        self.remotes = remotes
        self.transform = transform
        self.policy = policy
        self.name = inner.name
        self.server = inner.server
        self.required = inner.required
        self.watch = inner.watch
        self.prepare: Callable[..., Awaitable[None]] = inner.prepare
        self.refresh: Callable[[], Awaitable[None]] = inner.refresh
        self.clear_cache = inner.clear_cache
        self.health: Callable[[], Awaitable[Health]] = inner.health
        self.complete: Callable[..., Awaitable[Mapping[str, Any]]] = inner.complete
        self.subscribe: Callable[[frozenset[str]], Awaitable[None]] = inner.subscribe
        self.aclose: Callable[[], Awaitable[None]] = inner.aclose

    def __remote__(self, handlers: ServerRequestHandlers) -> RemoteView:
        """Return this object: the connection keeps the handlers of its own toolbox."""
        del handlers
        return self

    def for_identity(self, context: ToolContext[Any] | None) -> RemoteView:
        """Return this server with the lists of the context's identity."""
        remotes = self.remotes.for_identity(context)
        inner = next(source for source in remotes.sources if source.name == self.name)
        return RemoteView(inner, remotes, self.transform, self.policy, is_conditional=self.is_conditional)

    @property
    def lists(self) -> RemoteLists:
        """Lists of the server, with the tools that the other toolbox exposes."""
        lists = self.inner.lists
        own_roots = {id(get_root(tool)) for tool in lists.tools}
        own_tools = (tool for tool in self.remotes.tools.values() if id(get_root(tool)) in own_roots)
        visible_tools = [visible for tool in own_tools if (visible := self.transform(tool)) is not None]
        if self.policy is None:
            return replace(lists, tools=visible_tools)
        prompts = [replace(prompt, policies=(*prompt.policies, self.policy)) for prompt in lists.prompts]
        return replace(lists, tools=visible_tools, prompts=prompts)

    @property
    def is_unconfirmed(self) -> bool:
        """True if a call may have changed the tools since they were listed."""
        return self.inner.is_unconfirmed

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource, under the policy of the other toolbox."""
        work = self.inner.read(uri, context)
        return await (work if self.policy is None else self.policy.bound(uri, work))

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Enable request forwarding in the other toolbox if these handlers forward."""
        if handlers.forwards:
            self.remotes.forward_server_requests()


class JoinedViews:
    """Views of one server as one server, which has the tools and prompts of all."""

    def __init__(self, views: Sequence[Remote], reported: set[str] | None = None) -> None:
        self.views = views
        self.inner = views[0]
        """The view that answers for the server itself."""
        self._reported = set[str]() if reported is None else reported
        """Names whose conflict is logged."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def for_identity(self, context: ToolContext[Any] | None) -> JoinedViews:
        """Return these views with the lists of the context's identity."""
        return JoinedViews([view.for_identity(context) for view in self.views], self._reported)

    @property
    def conflicts(self) -> dict[str, DuplicateTool]:
        """Errors about the names under which the views have different tools or prompts."""
        return {**self._join("tools")[1], **self._join("prompts")[1]}

    @property
    def lists(self) -> RemoteLists:
        """Lists of the server, without the tools and prompts that differ between the views."""
        held_back = {name: reason for view in self.views for name, reason in view.lists.held_back.items()}
        for name, error in self.conflicts.items():
            held_back[name] = "views of its server that were joined have different tools of this name. Rename one."
            if name not in self._reported:
                self._reported.add(name)
                _log.warning("%s The tool is withheld.", error)
        tools = [tool for tool in self._join("tools")[0] if tool.name not in held_back]
        return replace(self.inner.lists, tools=tools, prompts=self._join("prompts")[0], held_back=held_back)

    def _join(self, kind: str) -> tuple[list[Any], dict[str, DuplicateTool]]:
        return join_items((item for view in self.views for item in getattr(view.lists, kind)), kind)

    def watch(self, callback: Watcher) -> None:
        """Call `callback` after each change of a view."""
        for view in self.views:
            view.watch(callback)

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Connect, and fetch missing or stale lists."""
        await asyncio.gather(*(view.prepare(revalidate=revalidate) for view in self._select_distinct()))

    async def refresh(self) -> None:
        """Fetch the lists again."""
        await asyncio.gather(*(view.refresh() for view in self._select_distinct()))

    def _select_distinct(self) -> Iterable[Remote]:
        """Return one view for each list that has to be fetched."""
        return {id(getattr(view, "inner", view)): view for view in self.views}.values()

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Replace the request handlers."""
        for view in self.views:
            view.set_handlers(handlers)
