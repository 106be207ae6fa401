"""A server as a toolbox sees it: connected when needed, listed when stale, called, looked after, closed.

Lives here: what is tried again and what must not be, who is asking.
Not here: connections (`pool`), lists (`offer`), or the names of several servers (`_core.remotes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult
from typing_extensions import override

from toolmason._core.define.context import CLIENT, ToolContext
from toolmason._core.define.mcp_client import Relay, relay_of
from toolmason._core.remote.protocol import Health, Host, Remote, Watcher
from toolmason._core.values.content import Content
from toolmason.errors import RemoteError, ToolmasonError
from toolmason.mcp_client.calls.remote_tools import RemoteTool, contents_of, context_of
from toolmason.mcp_client.calls.requests import PromptRequest, RawRequest, ReadRequest, ToolRequest, pinged
from toolmason.mcp_client.calls.tasks import GoingOn
from toolmason.mcp_client.identity import has_identities, headers_for, key_of
from toolmason.mcp_client.lists.fetch_lists import Listed, Lists, fetch_lists
from toolmason.mcp_client.lists.identity_view import Seen
from toolmason.mcp_client.lists.list_cache import Offer
from toolmason.mcp_client.pool import IDENTITIES, Pool
from toolmason.mcp_client.remote_errors import loss_in, reason_of, told_of
from toolmason.mcp_client.server_options import Server
from toolmason.mcp_client.session import Link

_log = logging.getLogger("toolmason.mcp")
_T = TypeVar("_T")


class Connection(Listed):
    """One server of one toolbox: its connections, by identity, and what it is known to offer."""

    def __init__(self, server: Server, host: Host) -> None:
        self.server, self.host = server, host
        self.name, self.required, self._identities = server.name, server.required, has_identities(server)
        self.offer = Offer(server, self._fetch, self._tell)
        self.pool = Pool(server.name, self._begin, self._begun)
        self._offers: dict[str, Offer] = {}
        self._going_on = None if server.task_wait is None else GoingOn(server.task_wait)
        self._lock = threading.Lock()
        self._changed: list[Watcher] = []
        self._subscribed: frozenset[str] = frozenset()

    # --- what a toolbox asks -----------------------------------------------------------------------

    @property
    @override
    def lists(self) -> Lists:
        """What it is known to offer, and until when that is fresh."""
        return self.offer.lists

    def watch(self, changed: Watcher) -> None:
        """Have `changed` called whenever the lists, or a resource that is subscribed to, change."""
        self._changed.append(changed)

    async def prepare(self, *, doubtful: bool = False) -> None:
        """Connect, and fetch the lists where they are missing or stale."""
        await self.offer.ready(doubtful=doubtful)

    async def refresh(self) -> None:
        """Fetch the lists in any case."""
        await self.offer.fetch()

    def clear_cache(self) -> None:
        """Forget the lists."""
        for offer in self._all():
            offer.forget()

    def seen_by(self, context: ToolContext[Any] | None) -> Remote:
        """Return this server with the lists of whoever the context speaks of."""
        return Seen(self, lambda: self._offer_for(context), context)

    async def health(self) -> Health:
        """Make a round trip."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.server.connect_timeout):
                # As a call would: a session that the server has forgotten is no illness, the next one is opened.
                await self._reliably("health", self._pinged, again=True)
                latency = time.perf_counter() - started
                self.offer.wake()
                if not self.offer.sound:
                    # One that answers and cannot say what it offers is of no use to anybody.
                    await self.offer.fetch(later=False)
        except Exception as error:  # noqa: BLE001 - a health check reports, whatever it is
            self.pool.note(ok=False)
            unknown = isinstance(error, RemoteError) and error.phase == "authorize"
            return Health(
                ok=False, error=told_of(error), tools=len(self.tools), since=self.pool.since, needs_auth=unknown
            )
        self.pool.note(ok=True)
        return Health(ok=True, latency=latency, tools=len(self.tools), since=self.pool.since)

    async def _pinged(self, client: Any, link: Link) -> None:
        try:
            await pinged(client, link)
        except BaseException:
            self.pool.evict(key_of(link.headers), link)
            raise

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource."""
        known = context if context is not None else self.host.context
        request = ReadRequest(uri, self._relay_of(known))
        result = await self._reliably("read", request, again=True, context=known)
        return tuple(map(contents_of, result.contents))

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any]:
        """Return the completions for an argument."""
        request = RawRequest("completion/complete", params, self._relay_of(context))
        return await self._reliably("complete", request, again=True, context=context)

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources, and of no others."""
        if uris != self._subscribed:
            self._subscribed = uris
            await self._reliably("subscribe", lambda _, link: link.subscribe(uris), again=True)

    def host_by(self, host: Host) -> None:
        """Take another host; connections that are open keep the old one."""
        self.host = host

    async def aclose(self) -> None:
        """Close every connection and forget the lists."""
        offers = self._all()
        for offer in offers:
            offer.close()
        await self.pool.aclose()
        for offer in offers:
            offer.forget()

    # --- calls -------------------------------------------------------------------------------------

    async def call(self, tool: RemoteTool, arguments: dict[str, Any], context: ToolContext[Any]) -> CallToolResult:
        """Run a tool on the server.

        Raises:
            RemoteError: the server cannot be had, or refused the call.
        """
        meta = context_of(context, self.server.send_context)
        request = ToolRequest(tool.remote_name, arguments, context, meta, self._relay_of(context), self._going_on)
        again = tool.options.repeatable
        return await self._reliably("call", request, again=again, context=context, tool=tool.remote_name)

    def _relay_of(self, context: ToolContext[Any]) -> Relay | None:
        if CLIENT not in context:
            return None
        # A toolbox that answers, and is not served, answers for all.
        return relay_of(context[CLIENT]) if self.host.passes or not self.host.own else None

    async def _reliably(
        self,
        phase: str,
        work: Callable[[Any, Link], Awaitable[_T]],
        *,
        again: bool,
        context: ToolContext[Any] | None = None,
        tool: str = "",
    ) -> _T:
        """Do something with a connection of whoever asks; of the toolbox itself, where nobody is named."""
        headers: Mapping[str, str] = {}
        if self._identities:
            headers = await headers_for(self.server, self.host.context if context is None else context)
        return await self._twice(phase, work, headers, again=again, tool=tool)

    async def _twice(
        self,
        phase: str,
        work: Callable[[Any, Link], Awaitable[_T]],
        headers: Mapping[str, str],
        *,
        again: bool,
        tool: str = "",
    ) -> _T:
        """Do something with a connection; once more with a new one where that cannot do harm."""
        key = key_of(headers)
        for attempt in (1, 2):
            link = await self.pool.link(key, headers)
            try:
                return await link.run(work)
            except ToolmasonError:
                raise
            except Exception as error:
                lost, expired = loss_in(error), link.careful is not None and link.careful.expired
                if lost is None and not expired:
                    raise await self._refused(phase, error, tool) from error
                words, gone = link.last_words, not link.usable
                if gone:
                    self.pool.evict(key, link)
                # A session that the server has forgotten was never asked; a request that was not seen did nothing.
                harmless = expired or again or (lost is not None and not lost.seen)
                if attempt == 1 and harmless:
                    continue
                reason = "the session has expired" if lost is None else lost.reason
                raise RemoteError(self.name, phase, reason, tool=tool, stderr=words, retryable=again) from error
        raise AssertionError  # pragma: no cover - both rounds return or raise

    async def _refused(self, phase: str, error: Exception, tool: str) -> RemoteError:
        if isinstance(error, MCPError) and error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
            self._expire()  # it may offer something else by now
        return RemoteError(self.name, phase, reason_of(error), tool=tool)

    # --- connections and lists ---------------------------------------------------------------------

    def _begin(self, headers: Mapping[str, str]) -> Link:
        return Link(self.server, self.host, headers, self._list_changed)

    async def _begun(self, link: Link) -> None:
        if self._subscribed:
            await link.subscribe(self._subscribed)

    def _list_changed(self, what: str, uri: str | None = None) -> None:
        _log.debug("server %r: %s", self.name, what)
        if uri is None:
            self._expire()
        self._tell(uri)

    def _all(self) -> list[Offer]:
        with self._lock:
            return [self.offer, *self._offers.values()]

    def _expire(self) -> None:
        for offer in self._all():
            offer.lists.expires = 0.0

    async def _offer_for(self, context: ToolContext[Any] | None) -> Offer:
        """Return the lists of whoever a context speaks of; those of the toolbox, where it is the same identity.

        What one identity was shown is shown to no other: a server may offer something else to each.
        """
        if context is None or context is self.host.context or not self._identities:
            return self.offer
        headers = await headers_for(self.server, context)
        with contextlib.suppress(RemoteError):
            if headers == await headers_for(self.server, self.host.context):
                return self.offer
        key, gone = key_of(headers), []
        with self._lock:
            offer = self._offers.pop(key, None) or Offer(self.server, lambda: self._fetch_as(headers), _untold)
            self._offers[key] = offer  # the last one used is the last one to go
            while len(self._offers) > IDENTITIES:
                gone.append(self._offers.pop(next(iter(self._offers))))
        for old in gone:
            old.close()
        return offer

    async def _fetch(self) -> Lists:
        return await self._reliably("list", self._listed, again=True)

    async def _fetch_as(self, headers: Mapping[str, str]) -> Lists:
        return await self._twice("list", self._listed, headers, again=True)

    async def _listed(self, client: Any, link: Link) -> Lists:
        seconds = self.server.timeout
        try:
            async with asyncio.timeout(seconds):
                return await fetch_lists(client, self.server, link.screen.entries, self.call, self._prompt)
        except TimeoutError:
            # Not asked again at once: it would cost the same time once more.
            reason = f"no answer within timeout of {seconds:g} s"
            raise RemoteError(self.name, "list", reason, stderr=link.last_words, retryable=True) from None

    async def _prompt(self, name: str, arguments: dict[str, str], context: ToolContext[Any]) -> Any:
        request = PromptRequest(name, arguments, self._relay_of(context))
        return await self._reliably("prompt", request, again=True, context=context)

    def _tell(self, uri: str | None = None) -> None:
        for changed in self._changed:
            changed(uri)


def _untold() -> None:
    """Tell nobody: what changed is seen by one identity, which looks at it with each need."""
