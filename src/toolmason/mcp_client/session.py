"""One live connection to a server, in a task of its own.

Lives here: entering and leaving the SDK's client in one task, so that opening, using and closing may come from any
task, any thread and in any order. Not here: when to connect again (`connection`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp_types import Implementation, ResourceUpdatedNotification, ServerNotification

from mcp import Client
from toolmason._core.remote.protocol import Host
from toolmason.errors import RemoteError
from toolmason.mcp_client.calls.callbacks import answers_of
from toolmason.mcp_client.calls.forwarding import Passages, sent
from toolmason.mcp_client.calls.tasks import TasksExtension
from toolmason.mcp_client.remote_errors import Lost, reason_of, root_of
from toolmason.mcp_client.server_options import Server
from toolmason.mcp_client.transport.http import Careful, http_streams
from toolmason.mcp_client.transport.sanitize import Screen
from toolmason.mcp_client.transport.stdio import Child, stdio_streams

_T = TypeVar("_T")
OnChange = Callable[..., None]
"""Is told what has changed: the method of the notification, and the address where it is one resource."""
_OLD_TRANSPORT = frozenset({404, 405})
CLOSE_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
"""Seconds between two tries to hear of changes."""


class Link:
    """A connection that is open, or was."""

    def __init__(self, server: Server, host: Host, headers: Mapping[str, str], on_change: OnChange) -> None:
        self.server, self.host, self.headers, self.on_change = server, host, headers, on_change
        self.screen = Screen(server.name)
        self.child: Child | None = None
        self.careful: Careful | None = None
        self.client: Any = None
        self.loop = asyncio.get_running_loop()
        self.passages = Passages(host.own)
        self.reason = "it is closed"
        self.busy = 0
        """How many requests are under way."""
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._subscribed: frozenset[str] = frozenset()
        self._hearing: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now."""
        if self.client is None or self.loop.is_closed() or self._stop.is_set():
            return False
        if self.child is not None:
            return not self.child.ended
        return not (self.careful and self.careful.expired)

    @property
    def last_words(self) -> str:
        """The last line that a server process wrote to its standard error."""
        return "" if self.child is None else self.child.last_words

    async def open(self) -> None:
        """Connect. Where it fails, `close` cleans up, which may take longer than whoever waits for this has.

        Raises:
            RemoteError: it cannot be done in time; says why.
        """
        seconds = self.server.connect_timeout
        # A context of its own: what the first caller has set must not be seen by all who follow.
        self._task = self.loop.create_task(self._live(), name=f"toolmason-mcp-{self.server.name}", context=Context())
        # Not a shield: what happens to a connection that nobody waits for any more is nobody's news.
        await asyncio.wait((self._ready,), timeout=seconds)
        if not self._ready.done():
            reason = f"no answer within connect_timeout of {seconds:g} s"
            raise RemoteError(self.server.name, "connect", reason, stderr=self.last_words, retryable=True)
        self._ready.result()

    async def _live(self) -> None:
        try:
            async with self._connected() as client:
                # A result is checked once, by us, within bounds (`checks`): the SDK would do it again, and without any.
                client.session.validate_tool_result = _unchecked
                self.client = client
                if not self._ready.done():
                    self._ready.set_result(None)
                listening = self.loop.create_task(self._listen(client))
                try:
                    await self._stop.wait()
                finally:
                    listening.cancel()
                    if self._hearing is not None:
                        self._hearing.cancel()
        except BaseException as error:  # noqa: BLE001 - whatever ends a connection, its users are told in our words
            self.reason = reason_of(error)
            if not self._ready.done():
                cause = root_of(error)
                own = cause if isinstance(cause, RemoteError) else self._refusal(cause)
                self._ready.set_exception(own)
                # Nobody may be left to look at it.
                self._ready.exception()
        finally:
            self.client = None
            self._stop.set()

    def _refusal(self, error: BaseException) -> RemoteError:
        status = None if self.careful is None else self.careful.status
        reason = reason_of(error) if self.child is None or not self.child.ended else self.child.end
        if status in (401, 403) or isinstance(error, OAuthFlowError):
            told = "" if not isinstance(error, OAuthFlowError) else f": {reason}"
            reason = f"the server wants authorization (HTTP {status or 401}){told}"
            return RemoteError(self.server.name, "authorize", reason)
        if status is not None and f"{status}" not in reason:
            reason = f"{reason} (HTTP {status})"
        return RemoteError(self.server.name, "connect", reason, stderr=self.last_words, retryable=True)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Any]:
        server = self.server
        if server.kind == "memory":
            async with self._client(_served(server.target), server.era) as client:
                yield client
            return
        if server.kind == "stdio":
            self.child = Child(server, self.screen)
            async with self._client(stdio_streams(self.child), server.era) as client:
                yield client
            return
        try:
            async with self._over_http(old=False) as client:
                yield client
        except BaseException:
            if self.client is not None or self.careful is None or self.careful.status not in _OLD_TRANSPORT:
                raise
            async with self._over_http(old=True) as client:
                yield client

    @asynccontextmanager
    async def _over_http(self, *, old: bool) -> AsyncGenerator[Any]:
        issuer = getattr(self.server.auth, "issuer", None)
        self.careful = Careful(httpx2.AsyncHTTPTransport(verify=_trust()), self.server.url or "", issuer)
        streams = http_streams(self.server, self.screen, self.careful, self.headers, old=old)
        async with self._client(streams, "legacy" if old else self.server.era) as client:
            yield client

    def _client(self, target: Any, mode: str) -> Any:
        return Client(
            target,
            mode=mode,
            cache=None,
            client_info=Implementation(name="toolmason", version=_version()),
            message_handler=self._heard,
            extensions=[TasksExtension(self.server.task_wait)],
            **answers_of(self.host, self.passages),
        )

    async def _heard(self, message: ServerNotification | Exception) -> None:
        method = getattr(message, "method", "")
        if isinstance(method, str) and method.endswith("/list_changed"):
            self.on_change(method)
        elif isinstance(message, ResourceUpdatedNotification):
            self.on_change(method, str(message.params.uri))

    async def _listen(self, client: Any) -> None:
        """Hear of changed lists from servers of the stateless era, which tell only who asks."""
        can = client.server_capabilities
        wanted = {
            f"{kind}_list_changed": True
            for kind in ("tools", "prompts", "resources")
            if getattr(getattr(can, kind, None), "list_changed", False)
        }
        if not wanted or client.protocol_version < "2026":
            return
        pause = FIRST_PAUSE
        while True:
            with suppress(Exception):
                async with client.listen(**wanted) as changes:
                    async for change in changes:
                        pause = FIRST_PAUSE
                        self.on_change(type(change).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            # Whatever changed while nobody listened was not told.
            self.on_change("nobody listened")

    # --- using it ----------------------------------------------------------------------------------

    async def run(self, work: Callable[[Any, Link], Awaitable[_T]]) -> _T:
        """Do something with the client, from whatever loop.

        Raises:
            Lost: the connection is no more.
            Exception: whatever the SDK raises.
        """
        if asyncio.get_running_loop() is self.loop:
            return await self._run(work)
        if not self.usable:
            raise Lost(self.reason, seen=False)
        return await _on(self.loop, self._run(work))

    async def _run(self, work: Callable[[Any, Link], Awaitable[_T]]) -> _T:
        client = self.client
        if client is None:
            raise Lost(self.reason, seen=False)
        self.busy += 1
        try:
            return await work(client, self)
        except RuntimeError as error:
            if self.client is None:
                raise Lost(self.reason, seen=True) from error
            raise
        finally:
            self.busy -= 1

    async def subscribe(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources, and of no others."""
        client, before = self.client, self._subscribed
        if client is None:
            return
        can = client.server_capabilities
        if can is None or can.resources is None or not can.resources.subscribe:
            return
        self._subscribed = uris
        if client.protocol_version < "2026":
            for uri in before - uris:
                await sent(client, "resources/unsubscribe", {"uri": uri})
            for uri in uris - before:
                await sent(client, "resources/subscribe", {"uri": uri})
            return
        if self._hearing is not None:
            self._hearing.cancel()
        if uris:
            heard = self.loop.create_future()
            self._hearing = self.loop.create_task(self._hear(client, uris, heard), context=Context())
            await heard

    async def _hear(self, client: Any, uris: frozenset[str], begun: asyncio.Future[None]) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                with suppress(Exception):
                    async with client.listen(resource_subscriptions=sorted(uris)) as changes:
                        _begin(begun)
                        async for _ in changes:  # `_heard` hears of each as well
                            pause = FIRST_PAUSE
                _begin(begun)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                for uri in uris:
                    self.on_change("nobody listened", uri)
        finally:
            _begin(begun)

    async def close(self) -> None:
        """Close it, from whatever loop; does not take long, and never raises."""
        if self.loop.is_closed():
            return
        if asyncio.get_running_loop() is not self.loop:
            if self.loop.is_running():
                with suppress(Exception):
                    await _on(self.loop, self.close())
            return
        task = self._task
        if self.client is None and not self._stop.is_set():
            # It is not there yet, so it does not look whether it shall stop.
            self.abandon()
        self._stop.set()
        if task is None or task is asyncio.current_task():
            return
        done, _ = await asyncio.wait((task,), timeout=CLOSE_SECONDS)
        if not done:
            task.cancel()
            await asyncio.wait((task,), timeout=CLOSE_SECONDS)
        if self.child is not None:
            await self.child.gone()

    def abandon(self) -> None:
        """Break off what opens or holds it, on its own loop; it cleans up by itself."""
        self._stop.set()
        if self._task is not None:
            self._task.cancel()


async def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
    """Run work on another loop; a cancel here is one there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


@cache
def _trust() -> ssl.SSLContext:
    """Return the certificates that we trust; reading them takes 30 ms and some megabytes, so once."""
    return ssl.create_default_context()


@cache
def _version() -> str:
    return metadata.version("toolmason")


async def _unchecked(name: str, result: Any) -> None:
    del name, result


def _begin(begun: asyncio.Future[None]) -> None:
    """Let whoever waits for a beginning go on; there need not have been one."""
    if not begun.done():
        begun.set_result(None)


def _served(target: Any) -> Any:
    """Return the server object for something in memory."""
    serve = getattr(target, "__mcp_server__", None)
    return target if serve is None else serve()
