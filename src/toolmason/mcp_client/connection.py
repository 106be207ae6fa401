"""Connect a toolbox to one server: sessions, lists, calls and retries."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult, GetPromptResult, ReadResourceResult

from toolmason._core.call.call_policy import CallPolicy
from toolmason._core.define.context import CLIENT_KEY, ToolContext
from toolmason._core.remote.protocol import Health, Remote, ServerRequestHandlers, Watcher
from toolmason._core.run.tracing import is_observed
from toolmason._core.values.content import Content
from toolmason._core.values.mcp_client import UpstreamCaller, as_upstream_caller
from toolmason._core.values.policy import Inherit
from toolmason.errors import RemoteError, ToolmasonError
from toolmason.mcp_client.calls.forwarding import send_raw
from toolmason.mcp_client.calls.remote_tools import RemoteTool, select_context, to_embedded_resource
from toolmason.mcp_client.calls.requests import ForwardableRequest, ToolRequest, ping
from toolmason.mcp_client.calls.tasks import PendingTasks
from toolmason.mcp_client.lists.fetch_lists import ServerLists, fetch_lists, has_other_tools
from toolmason.mcp_client.lists.identity_view import IdentityView
from toolmason.mcp_client.lists.list_cache import ListCache
from toolmason.mcp_client.pool import MAX_IDENTITIES, SessionPool, start_task
from toolmason.mcp_client.remote_errors import (
    find_connection_loss,
    format_reason,
    format_reason_with_stderr,
    get_http_status,
)
from toolmason.mcp_client.sdk_spans import trace_request
from toolmason.mcp_client.server_options import ServerSpec, has_identities, make_auth_headers, make_identity_key
from toolmason.mcp_client.session import UpstreamSession

_log = logging.getLogger("toolmason.mcp")
_T = TypeVar("_T")

CHECK_DELAY = 0.1
"""Seconds before the ping after a request without a response: a caller that is cancelled often closes the toolbox."""


class Connection:
    """One server of one toolbox: its sessions by identity, and its cached lists."""

    def __init__(self, server: ServerSpec, handlers: ServerRequestHandlers) -> None:
        self.server, self.handlers = server, handlers
        self.name, self.required = server.name, server.required
        # A server is like a toolbox of its tools: its time-out holds beside that of the toolbox.
        self._policies = () if isinstance(server.timeout, Inherit) else (CallPolicy(timeout=server.timeout),)
        self._has_identities = has_identities(server)
        self.list_cache = ListCache(server, self._fetch, self._notify, self._has_other_tools)
        self.pool = SessionPool(server.name, self._make_session, self._on_session_open, self._on_late_session)
        self._identity_caches: dict[str, ListCache] = {}
        self._own_key = ""
        """Key of the identity that the toolbox's own lists were fetched for."""
        self._pending_tasks = None if server.task_wait is None else PendingTasks(server.task_wait)
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._subscribed_uris: frozenset[str] = frozenset()
        self.checked_sessions: set[UpstreamSession] = set()
        """Sessions whose server is pinged because a request had no response."""

    # --- toolbox interface -------------------------------------------------------------------------

    @property
    def lists(self) -> ServerLists:
        """Cached lists, and when they expire."""
        return self.list_cache.lists

    def watch(self, callback: Watcher) -> None:
        """Call `callback` when the lists or a subscribed resource change."""
        self._watchers.append(callback)

    @property
    def is_unconfirmed(self) -> bool:
        """True if a call may have changed the tools since they were listed."""
        return self.list_cache.is_unconfirmed

    async def prepare(self, *, revalidate: bool = False) -> None:
        """Connect, and fetch the lists if they are missing or stale. With `revalidate`, also if their TTL is 0."""
        self._drop_lost_sessions()
        await self.list_cache.get_lists(revalidate=revalidate)

    async def refresh(self) -> None:
        """Fetch the lists even if they are fresh."""
        await self.list_cache.fetch()

    def clear_cache(self) -> None:
        """Clear the cached lists."""
        for cache in self._get_caches():
            cache.clear()

    def for_identity(self, context: ToolContext[Any] | None) -> Remote:
        """Return a view of this server with the lists of the context's identity."""
        return IdentityView(self, lambda: self._get_list_cache(context), context)

    async def health(self) -> Health:
        """Check the server with a round trip."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.server.connect_timeout):
                # Retry like a call: an expired session is not a failure, since the next call opens a new one.
                await self._run("health", self._ping, retry_safe=True)
                latency = time.perf_counter() - started
                self.list_cache.retry_now()
                if not self.list_cache.healthy:
                    # A server that responds but cannot list its tools is not healthy.
                    await self.list_cache.fetch(retry_in_background=False)
        except Exception as error:  # noqa: BLE001 - a health check reports any error
            self.pool.record_health(ok=False)
            needs_auth = isinstance(error, RemoteError) and error.phase == "authorize"
            late_error = self.pool.find_late_error() if isinstance(error, TimeoutError) else None
            state = Health(ok=False, error=format_reason_with_stderr(late_error or error), needs_auth=needs_auth)
        else:
            self.pool.record_health(ok=True)
            state = Health(ok=True, latency=latency)
        last, pool = self.pool.last_error, self.pool
        last_error = None if last is None else format_reason_with_stderr(last)
        tools = len(self.lists.tools)
        return replace(state, tools=tools, since=pool.since, last_error=last_error, failed_at=pool.failed_at)

    async def _ping(self, client: Any, session: UpstreamSession) -> None:
        try:
            await ping(client, session)
        except BaseException:
            self.pool.evict(make_identity_key(session.headers), session)
            raise

    async def describe(self) -> dict[str, Any]:
        """Return what the server says about itself: name, version, protocol, capabilities, instructions.

        Raises:
            RemoteError: the server cannot be reached.
        """

        async def collect(client: Any, _: UpstreamSession) -> dict[str, Any]:
            def dump(part: Any) -> Any:
                return {} if part is None else part.model_dump(by_alias=True, mode="json", exclude_none=True)

            return {
                "server": dump(client.server_info),
                "protocol": client.protocol_version,
                "capabilities": dump(client.server_capabilities),
                "instructions": client.instructions or "",
            }

        return await self._run_or_retry("describe", collect, retry_safe=True)  # no request, so no span

    async def read(self, uri: str, context: ToolContext[Any] | None = None) -> tuple[Content, ...]:
        """Return the contents of a resource."""
        own_context = context if context is not None else self.handlers.context
        request = ForwardableRequest(
            "resources/read",
            {"uri": uri},
            self._get_caller(own_context),
            lambda client: client.read_resource(uri),
            ReadResourceResult,
        )
        result = await self._run("read", request, retry_safe=True, context=own_context)
        return tuple(map(to_embedded_resource, result.contents))

    async def complete(self, params: Mapping[str, Any], context: ToolContext[Any]) -> Mapping[str, Any]:
        """Return the completions for an argument."""
        method = "completion/complete"
        request = ForwardableRequest(
            method, params, self._get_caller(context), lambda client: send_raw(client, method, params)
        )
        found: Mapping[str, Any] = await self._run("complete", request, retry_safe=True, context=context)
        return found

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Subscribe to exactly these resources."""
        if uris != self._subscribed_uris:
            self._subscribed_uris = uris
            await self._run("subscribe", lambda _, session: session.subscribe(uris), retry_safe=True)

    def set_handlers(self, handlers: ServerRequestHandlers) -> None:
        """Replace the handlers. Open sessions keep the old ones."""
        self.handlers = handlers

    async def aclose(self) -> None:
        """Close all sessions and clear the lists."""
        caches = self._get_caches()
        for cache in caches:
            cache.close()
        await self.pool.aclose()
        for cache in caches:
            cache.clear()

    # --- calls -------------------------------------------------------------------------------------

    async def call(self, tool: RemoteTool, arguments: dict[str, Any], context: ToolContext[Any]) -> CallToolResult:
        """Run a tool on the server.

        Raises:
            RemoteError: the server cannot be reached, or rejected the call.
        """
        meta = select_context(context, self.server.send_context)
        request = ToolRequest(
            tool.remote_name, arguments, context, meta, self._get_caller(context), self._pending_tasks
        )
        retry_safe = tool.options.repeatable
        if self.server.cache_ttl:  # otherwise each use of the lists fetches them
            self.list_cache.refresh_in_background()

        async def send(client: Any, session: UpstreamSession) -> CallToolResult:
            try:
                return await request(client, session)
            finally:
                if session.announces_late and (cache := self._find_cache(session)) is not None:
                    cache.calls += 1

        return await self._run("call", send, retry_safe=retry_safe, context=context, tool=tool.remote_name)

    def _get_caller(self, context: ToolContext[Any]) -> UpstreamCaller | None:
        if CLIENT_KEY not in context:
            return None
        if self.handlers.handled and not self.handlers.forwards:
            return None  # the toolbox is not served, and its own handlers answer for all callers
        return as_upstream_caller(context[CLIENT_KEY])

    async def _run(
        self, phase: str, work: Callable[[Any, UpstreamSession], Awaitable[_T]], *, tool: str = "", **options: Any
    ) -> _T:
        """Run `work` as `_run_or_retry` does, in a span if the program traces."""
        run = partial(self._run_or_retry, phase, work, tool=tool, **options)
        return await (trace_request(self.server, phase, tool, run) if is_observed() else run())

    async def _run_or_retry(
        self,
        phase: str,
        work: Callable[[Any, UpstreamSession], Awaitable[_T]],
        *,
        retry_safe: bool,
        context: ToolContext[Any] | None = None,
        headers: Mapping[str, str] | None = None,
        tool: str = "",
    ) -> _T:
        """Run `work` on a session of these headers, or of the identity of the context or the toolbox.

        Retry once on a new session if that is safe.
        """
        close_count = self.pool.close_count
        if headers is None:
            own_context = self.handlers.context if context is None else context
            headers = await make_auth_headers(self.server, own_context) if self._has_identities else {}
        key = make_identity_key(headers)
        for attempt in (1, 2):
            session = await self.pool.get_session(key, headers, close_count)
            try:
                found = await self._send(key, session, work)
            except ToolmasonError:
                raise
            except Exception as error:
                loss = find_connection_loss(error)
                expired = session.transport is not None and session.transport.session_expired
                if loss is None and not expired:
                    raise self._make_error(error, phase, tool) from error
                stderr = session.last_stderr_line
                if not session.usable:
                    self.pool.evict(key, session)
                # Safe to retry: an expired session rejected the request, and an undelivered request had no effect.
                can_retry = expired or retry_safe or (loss is not None and not loss.delivered)
                if attempt == 1 and can_retry:
                    continue
                reason = "the session has expired" if loss is None else loss.reason
                failure = RemoteError(self.name, phase, reason, tool=tool, stderr=stderr, retryable=can_retry)
                self.pool.record_error(failure)
                raise failure from error
            if attempt > 1:
                self._expire()  # the server was away, and may have restarted with other tools
            return found
        raise AssertionError  # pragma: no cover - both attempts return or raise

    def _make_error(self, error: Exception, phase: str, tool: str) -> RemoteError:
        """Return the error for a request that the server refused."""
        if isinstance(error, MCPError) and error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
            self._expire()  # its lists may have changed
        status = get_http_status(error)
        phase = "authorize" if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) else phase
        is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
        return RemoteError(self.name, phase, format_reason(error), tool=tool, retryable=is_busy)

    async def _send(
        self, key: str, session: UpstreamSession, work: Callable[[Any, UpstreamSession], Awaitable[_T]]
    ) -> _T:
        try:
            found = await session.run(work)
        except asyncio.CancelledError:
            self._check_later(key, session)  # the call has timed out, or its caller is gone
            raise
        self.pool.hangs = 0
        return found

    def _check_later(self, key: str, session: UpstreamSession) -> None:
        """Ping the server after a request without a response, and close the session if it does not answer."""
        if session not in self.checked_sessions and session.usable:
            self.checked_sessions.add(session)
            start_task(self._check(key, session))

    async def _check(self, key: str, session: UpstreamSession) -> None:
        seconds = self.server.connect_timeout
        try:
            await asyncio.sleep(CHECK_DELAY)
            if not session.usable:
                return
            async with asyncio.timeout(seconds):
                await session.run(ping)
        except Exception as error:  # noqa: BLE001 - a server that answers with an error is alive
            # The SDK has a shorter time-out of its own for this request, and reports it as a lost connection.
            if isinstance(error, TimeoutError) or find_connection_loss(error) is not None:
                _log.warning("server %r does not respond; its session is closed", self.name)
                self.pool.evict_hung(key, session, f"no response within connect_timeout={seconds:g} s")
                self._expire()
        finally:
            self.checked_sessions.discard(session)

    # --- connections and lists ---------------------------------------------------------------------

    def _make_session(self, headers: Mapping[str, str]) -> UpstreamSession:
        return UpstreamSession(self.server, self.handlers, headers, self._on_change)

    async def _on_session_open(self, session: UpstreamSession) -> None:
        # The server may have restarted with other tools. A fetch that opens the session sets the lists afterwards.
        cache = self._find_cache(session)
        if cache is not None:
            cache.lists.expires_at = 0.0
        if self._subscribed_uris:
            await session.subscribe(self._subscribed_uris)

    def _on_late_session(self) -> None:
        for cache in self._get_caches():
            cache.retry_now()

    def _find_cache(self, session: UpstreamSession) -> ListCache | None:
        """Return the lists of the identity that a session is for."""
        key = make_identity_key(session.headers)
        is_own = not self._has_identities or key == self._own_key
        return self.list_cache if is_own else self._identity_caches.get(key)

    def _on_change(self, method: str, uri: str | None = None) -> None:
        _log.debug("server %r: %s", self.name, method)
        if uri is None:
            self._expire()
        self._notify(uri)

    def _drop_lost_sessions(self) -> None:
        """Close sessions that have ended, and let the lists expire: the server may come back with others."""
        if self.pool.evict_lost():
            self._expire()

    def _get_caches(self) -> list[ListCache]:
        with self._lock:
            return [self.list_cache, *self._identity_caches.values()]

    def _expire(self) -> None:
        for cache in self._get_caches():
            cache.lists.expires_at = 0.0

    async def _get_list_cache(self, context: ToolContext[Any] | None) -> ListCache:
        """Return the lists of the context's identity, or the toolbox's own if the identity is the same.

        Lists are never shared between identities: a server may offer different tools to each.
        """
        self._drop_lost_sessions()
        if context is None or context is self.handlers.context or not self._has_identities:
            return self.list_cache
        headers = await make_auth_headers(self.server, context)
        with contextlib.suppress(RemoteError):
            if headers == await make_auth_headers(self.server, self.handlers.context):
                return self.list_cache
        key = make_identity_key(headers)
        evicted: list[ListCache] = []
        with self._lock:
            cache = self._identity_caches.pop(key, None) or ListCache(
                self.server,
                lambda: self._fetch(headers),
                lambda: None,
                lambda lists: self._has_other_tools(lists, headers),
            )
            self._identity_caches[key] = cache  # most recently used last
            while len(self._identity_caches) > MAX_IDENTITIES:
                evicted.append(self._identity_caches.pop(next(iter(self._identity_caches))))
        for old_cache in evicted:
            old_cache.close()
        return cache

    async def _fetch(self, headers: Mapping[str, str] | None = None) -> ServerLists:
        if headers is None:
            return await self._run("list", self._fetch_own_lists, retry_safe=True)
        return await self._run("list", self._fetch_lists, retry_safe=True, headers=headers)

    async def _fetch_own_lists(self, client: Any, session: UpstreamSession) -> ServerLists:
        self._own_key = make_identity_key(session.headers)
        return await self._fetch_lists(client, session)

    async def _fetch_lists(self, client: Any, session: UpstreamSession) -> ServerLists:
        seconds, cache = self.server.list_seconds, self._find_cache(session)
        seen = (self.list_cache if cache is None else cache).seen
        try:
            async with asyncio.timeout(seconds):
                lists = await fetch_lists(
                    client, self.server, session.sanitizer.definitions, self.call, self._fetch_prompt, seen
                )
        except TimeoutError:
            # Not retried immediately: that would take as long again.
            reason = f"no response within timeout={seconds:g} s"
            if seconds == self.server.connect_timeout:
                reason = f"no response within connect_timeout={seconds:g} s"
            if session.active_requests == 1:  # no other request waits for a response
                self.pool.evict_hung(make_identity_key(session.headers), session, reason)
            raise RemoteError(self.name, "list", reason, stderr=session.last_stderr_line, retryable=True) from None
        for tool in lists.tools:
            tool.policies = self._policies
        return lists

    async def _has_other_tools(self, lists: ServerLists, headers: Mapping[str, str] | None = None) -> bool:
        async def compare(client: Any, session: UpstreamSession) -> bool:
            return await has_other_tools(client, self.server, session.sanitizer.definitions, lists)

        return await self._run("list", compare, retry_safe=True, headers=headers)

    async def _fetch_prompt(self, name: str, arguments: dict[str, str], context: ToolContext[Any]) -> Any:
        request = ForwardableRequest(
            "prompts/get",
            {"name": name, "arguments": arguments},
            self._get_caller(context),
            lambda client: client.get_prompt(name, arguments),
            GetPromptResult,
        )
        return await self._run("prompt", request, retry_safe=True, context=context, tool=name)

    def _notify(self, uri: str | None = None) -> None:
        for watcher in self._watchers:
            watcher(uri)
