"""A server as a toolbox sees it: connected when needed, listed when stale, called, looked after, closed.

Lives here: who connects and who waits, what is tried again and what must not be, how long a list is good.
Not here: one connection (`link`), lists (`listing`), or the names of several servers (`_core.remotes`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult

from toolwright._core.clients import Relay, relay_of
from toolwright._core.context import CLIENT, ToolContext
from toolwright._core.prompts import Prompt
from toolwright._core.remotes import Health, Host, Watcher, Wired
from toolwright._core.tool import Tool
from toolwright._core.values import Content, ResourceLink
from toolwright.errors import RemoteError, ToolwrightError
from toolwright.mcp.failures import loss_in, reason_of, told_of
from toolwright.mcp.identity import headers_for, key_of
from toolwright.mcp.link import Link
from toolwright.mcp.listing import Lists, fetch_lists
from toolwright.mcp.requests import PromptRequest, RawRequest, ReadRequest, ToolRequest, pinged
from toolwright.mcp.servers import Server
from toolwright.mcp.tools import RemoteTool, contents_of, context_of

_log = logging.getLogger("toolwright.mcp")
_T = TypeVar("_T")

QUICK_FAILURES: Final = 3
"""After this many failures in a row we wait before the next try."""
IDENTITIES: Final = 64
"""How many identities have a connection of their own at once; beyond it, the one least used goes."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
_NOBODY: Final = ToolContext[Any]()


class Connection:
    """One server of one toolbox: its connections, by identity, and what it is known to offer."""

    def __init__(self, server: Server, host: Host) -> None:
        self.server, self.host = server, host
        self.name, self.required = server.name, server.required
        self.lists = Lists()
        self.since = time.time()
        self._links: dict[str, Link] = {}
        self._opening: dict[str, concurrent.futures.Future[Link]] = {}
        self._listing: concurrent.futures.Future[Lists] | None = None
        self._lock = threading.Lock()
        self._changed: list[Watcher] = []
        self._subscribed: frozenset[str] = frozenset()
        self._failures = 0
        self._not_before = 0.0
        self._trouble: RemoteError | None = None
        self._retry: asyncio.Task[None] | None = None
        self._closings = 0

    # --- what a toolbox asks -----------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[Tool]:
        """What it is known to offer."""
        return self.lists.tools

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The prompts it is known to offer."""
        return self.lists.prompts

    @property
    def resources(self) -> Sequence[ResourceLink]:
        """The resources it is known to offer."""
        return self.lists.resources

    @property
    def wired(self) -> Wired:
        """The resources as the wire has them."""
        return self.lists.wired

    def watch(self, changed: Watcher) -> None:
        """Have `changed` called whenever the lists, or a resource that is subscribed to, change."""
        self._changed.append(changed)

    async def prepare(self) -> None:
        """Connect, and fetch the lists where they are missing or stale."""
        if not self.lists.fresh:
            await self._fetch()

    async def refresh(self) -> None:
        """Fetch the lists in any case."""
        await self._fetch()

    def clear_cache(self) -> None:
        """Forget the lists."""
        self._have(Lists())

    async def health(self) -> Health:
        """Make a round trip."""
        started, link = time.perf_counter(), None
        try:
            async with asyncio.timeout(self.server.connect_timeout):
                headers = await headers_for(self.server, _NOBODY)
                link = await self._link(key_of(headers), headers)
                await link.run(pinged)
        except Exception as error:  # noqa: BLE001 - a health check reports, whatever it is
            if link is not None:
                await self._evict(key_of(link.headers), link)
            self._note(ok=False)
            unknown = isinstance(error, RemoteError) and error.phase == "authorize"
            return Health(ok=False, error=told_of(error), tools=len(self.tools), since=self.since, needs_auth=unknown)
        self._note(ok=True)
        return Health(ok=True, latency=time.perf_counter() - started, tools=len(self.tools), since=self.since)

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource."""
        known = context if context is not None else _NOBODY
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
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        with self._lock:
            links, self._links = list(self._links.values()), {}
            self._closings += 1
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        self._failures, self._not_before = 0, 0.0
        self._have(Lists())

    # --- calls -------------------------------------------------------------------------------------

    async def call(self, tool: RemoteTool, arguments: dict[str, Any], context: ToolContext[Any]) -> CallToolResult:
        """Run a tool on the server.

        Raises:
            RemoteError: the server cannot be had, or refused the call.
        """
        meta = context_of(context, self.server.send_context)
        request = ToolRequest(tool.remote_name, arguments, context, meta, self._relay_of(context))
        again = tool.options.repeatable
        return await self._reliably("call", request, again=again, context=context, tool=tool.remote_name)

    def _relay_of(self, context: ToolContext[Any]) -> Relay | None:
        return relay_of(context.get(CLIENT)) if self.host.forwards else None

    async def _reliably(
        self,
        phase: str,
        work: Callable[[Any, Link], Awaitable[_T]],
        *,
        again: bool,
        context: ToolContext[Any] = _NOBODY,
        tool: str = "",
    ) -> _T:
        """Do something with a connection; once more with a new one where that cannot do harm."""
        headers = await headers_for(self.server, context)
        key = key_of(headers)
        for attempt in (1, 2):
            link = await self._link(key, headers)
            try:
                return await link.run(work)
            except ToolwrightError:
                raise
            except Exception as error:
                lost, expired = loss_in(error), link.careful is not None and link.careful.expired
                if lost is None and not expired:
                    raise await self._refused(phase, error, tool) from error
                words, gone = link.last_words, not link.usable
                if gone:
                    await self._evict(key, link)
                # A session that the server has forgotten was never asked; a request that was not seen did nothing.
                harmless = expired or again or (lost is not None and not lost.seen)
                if attempt == 1 and harmless:
                    continue
                reason = "the session has expired" if lost is None else lost.reason
                raise RemoteError(self.name, phase, reason, tool=tool, stderr=words, retryable=again) from error
        raise AssertionError  # pragma: no cover - both rounds return or raise

    async def _refused(self, phase: str, error: Exception, tool: str) -> RemoteError:
        if isinstance(error, MCPError) and error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
            self.lists.expires = 0.0  # it may offer something else by now
        return RemoteError(self.name, phase, reason_of(error), tool=tool)

    # --- connections -------------------------------------------------------------------------------

    async def _link(self, key: str, headers: Mapping[str, str]) -> Link:
        """Return a usable connection: the one that is there, or a new one; who comes meanwhile waits for that."""
        while True:
            with self._lock:
                link = self._links.get(key)
                if link is not None and link.usable:
                    self._links[key] = self._links.pop(key)  # the last one used is the last one to go
                    return link
                opening = self._opening.get(key)
                mine = opening is None
                if opening is None:
                    self._look_before_leaping()
                    opening = self._opening[key] = concurrent.futures.Future()
                    self._links.pop(key, None)
            if mine:
                task = asyncio.get_running_loop().create_task(self._open(key, headers, link, opening))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            found = await _outcome(opening)
            if found is not None:
                return found

    def _look_before_leaping(self) -> None:
        left = self._not_before - time.monotonic()
        if left > 0 and self._trouble is not None:
            trouble = self._trouble
            reason = f"{trouble.reason}; it is tried again in {left:.1f} s"
            raise RemoteError(self.name, trouble.phase, reason, stderr=trouble.stderr, retryable=True)

    async def _open(
        self, key: str, headers: Mapping[str, str], old: Link | None, opening: concurrent.futures.Future[Link]
    ) -> None:
        try:
            if old is not None:
                await old.close()
            link, closings = Link(self.server, self.host, headers, self._list_changed), self._closings
            await link.open()
            if self._subscribed:
                await link.subscribe(self._subscribed)
            if closings != self._closings:
                await link.close()
                raise RemoteError(self.name, "connect", "the toolbox was closed meanwhile")  # noqa: TRY301 - as below
        except RemoteError as error:
            self._failed(error)
            self._opened(key, opening, error=error)
        except BaseException:
            with self._lock:
                self._opening.pop(key, None)
            opening.cancel()
            raise
        else:
            self._failures, self._not_before = 0, 0.0
            self._note(ok=True)
            self._opened(key, opening, link=link)
            for gone in self._left_alone():
                await self._evict(gone)

    def _opened(
        self,
        key: str,
        opening: concurrent.futures.Future[Link],
        *,
        link: Link | None = None,
        error: RemoteError | None = None,
    ) -> None:
        with self._lock:
            self._opening.pop(key, None)
            if link is not None:
                self._links[key] = link
        if link is not None:
            opening.set_result(link)
        else:
            opening.set_exception(error)

    def _left_alone(self) -> list[str]:
        """Return whose connections go: tokens change, and each would keep its connection for ever."""
        with self._lock:
            idle = [key for key, link in self._links.items() if not link.busy]
            return idle[: max(0, len(self._links) - IDENTITIES)]

    def _failed(self, error: RemoteError) -> None:
        self._trouble = error
        self._failures += 1
        self._note(ok=False)
        if self._failures >= QUICK_FAILURES:
            pause = min(FIRST_PAUSE * 2 ** (self._failures - QUICK_FAILURES), LONGEST_PAUSE)
            self._not_before = time.monotonic() + pause

    def _note(self, *, ok: bool) -> None:
        if ok is bool(self._failures):
            self.since = time.time()

    async def _evict(self, key: str, link: Link | None = None) -> None:
        with self._lock:
            known = self._links.get(key)
            if known is None or (link is not None and known is not link):
                return
            del self._links[key]
        await known.close()

    # --- lists -------------------------------------------------------------------------------------

    def _list_changed(self, what: str, uri: str | None = None) -> None:
        _log.debug("server %r: %s", self.name, what)
        if uri is None:
            self.lists.expires = 0.0
        self._tell(uri)

    async def _fetch(self, *, later: bool = True) -> None:
        """Fetch the lists; who comes meanwhile waits for the same. Where it fails, try again `later`."""
        with self._lock:
            listing = self._listing
            mine = listing is None
            if listing is None:
                listing = self._listing = concurrent.futures.Future()
        if mine:
            # In a task of its own: whoever asked first may go away, and the others still wait for it.
            task = asyncio.get_running_loop().create_task(self._fetching(listing))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            if await _outcome(listing) is None:
                await self._fetch(later=later)
        except RemoteError:
            if later:
                self._try_later()
            raise

    async def _fetching(self, listing: concurrent.futures.Future[Lists]) -> None:
        try:
            lists = await self._reliably("list", self._listed, again=True)
        except BaseException as error:
            with self._lock:
                self._listing = None
            if not isinstance(error, RemoteError):
                listing.cancel()
                raise
            if not self.server.serve_stale:
                self._have(Lists())
            listing.set_exception(error)
            return
        with self._lock:
            self._listing = None
        self._have(lists)
        listing.set_result(lists)

    async def _listed(self, client: Any, link: Link) -> Lists:
        async with asyncio.timeout(self.server.timeout):
            return await fetch_lists(client, self.server, link.screen.entries, self.call, self._prompt)

    async def _prompt(self, name: str, arguments: dict[str, str], context: ToolContext[Any]) -> Any:
        request = PromptRequest(name, arguments, self._relay_of(context))
        return await self._reliably("prompt", request, again=True, context=context)

    def _have(self, lists: Lists) -> None:
        self.lists = lists
        self._tell()

    def _tell(self, uri: str | None = None) -> None:
        for changed in self._changed:
            changed(uri)

    def _try_later(self) -> None:
        """Try again in the background, until the server is there or the toolbox is closed."""
        if self._retry is not None and not self._retry.done():
            return

        async def again() -> None:
            pause = 1.0
            while not self.lists.fresh:
                await asyncio.sleep(pause)
                with contextlib.suppress(ToolwrightError):
                    await self._fetch(later=False)
                pause = min(pause * 2, LONGEST_PAUSE)

        self._retry = asyncio.get_running_loop().create_task(again())


async def _outcome(future: concurrent.futures.Future[_T]) -> _T | None:
    """Wait for what another task does, on whatever loop; `None` where it was called off, and we were not."""
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if future.cancelled() and (task is None or not task.cancelling()):
            return None
        raise
