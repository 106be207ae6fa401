"""Expose the servers of one toolbox as servers of another.

Both toolboxes share the connection: closing either closes it for both, and the next request reconnects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import get_root
from toolmason._core.remote.protocol import Health, Remote, RemoteLists, ServerRequestHandlers, ToolTransform
from toolmason._core.remote.servers import Remotes
from toolmason._core.values.content import Content
from toolmason._core.values.policy import CarriedPolicy


def make_remote_views(
    remotes: Remotes, transform: ToolTransform, policy: CarriedPolicy | None = None, *, is_conditional: bool = False
) -> Iterator[RemoteView]:
    """Yield the servers of a toolbox, each with the tools visible through one of its views.

    `transform` gives the tools their policies; `policy` is for prompts.
    """
    for source in remotes.sources:
        yield RemoteView(source, remotes, transform, policy, is_conditional=is_conditional)


def join_servers(first: Remotes, views: Iterable[RemoteView], second: Remotes) -> Remotes:
    """Return the servers of a toolbox and views of the servers of another one."""
    known = {id(getattr(source, "inner", source)) for source in first.sources}
    added: list[Any] = [view for view in views if id(view.inner) not in known]
    if not added and second is first:
        return first
    joined = Remotes(first.handlers, first.on_conflict, [*first.sources, *added])
    joined.names.local_tools = first.names.local_tools | second.names.local_tools
    joined.names.local_prompts = first.names.local_prompts | second.names.local_prompts
    return joined


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
