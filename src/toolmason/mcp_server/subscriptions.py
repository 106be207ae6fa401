"""A toolbox that changes → clients that are told: who listens, and to what.

Lives here: the sessions and subscriptions of a server, within bounds. The stateless era listens by a request of its
own, which the SDK serves; sessions are told by us. Not here: what a list holds (`lists`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from toolmason.errors import ToolmasonError
from toolmason.mcp_server.lists import Lists

_log = logging.getLogger("toolmason.serving")

SESSIONS: Final = 1000
SUBSCRIPTIONS: Final = 1000
SHARE: Final = 100
"""How many of them one user may have, or one session of nobody's; beyond it, those of the user's oldest session go."""
_EVENTS: Final[dict[str, Any]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


class Changes:
    """Tells clients of what has changed."""

    def __init__(self, lists: Lists) -> None:
        self.lists, self.bus = lists, InMemorySubscriptionBus()
        self.sessions: OrderedDict[str, Any] = OrderedDict()
        self.levels: OrderedDict[str, str] = OrderedDict()
        """The log level that each session asked for."""
        self.subscribed: dict[str, dict[str, Any]] = {}
        """Address → session → whom to tell."""
        self._owners: dict[str, str] = {}
        """Session → whose subscriptions its are."""
        self._listened: Counter[str] = Counter()
        """Addresses that requests of the stateless era listen to."""
        self._known: dict[str, Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._end: Callable[[], None] | None = None

    def open(self) -> None:
        """Begin to watch the toolbox; once is enough."""
        if self._end is None:
            self._loop = asyncio.get_running_loop()
            self._known = self.lists.now()
            self._end = self.lists.box.watch(self._changed)

    def close(self) -> None:
        """Watch no more."""
        if self._end is not None:
            self._end()
            self._end = None
        for task in self._telling:
            task.cancel()

    def _changed(self, uri: str | None) -> None:
        if uri is None:
            self.lists.stale = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell, uri)

    def _tell(self, uri: str | None) -> None:
        if self._end is None:
            return
        work = self._updated(uri) if uri is not None else self._relisted()
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _relisted(self) -> None:
        with suppress(ToolmasonError):
            # A server behind us that says its lists have changed is asked for them before anybody is told.
            await self.lists.box.list()
        before, after = self._known or {}, self.lists.now()
        self._known = after
        for kind in [kind for kind in after if before.get(kind) != after[kind]]:
            await self.bus.publish(_EVENTS[kind]())
            word = {"tools": "tool", "prompts": "prompt", "resources": "resource"}[kind]
            for key, session in tuple(self.sessions.items()):
                await self._send(key, getattr(session, f"send_{word}_list_changed")())

    async def _updated(self, uri: str) -> None:
        await self.bus.publish(ResourceUpdated(uri=uri))
        for key, session in tuple(self.subscribed.get(uri, {}).items()):
            await self._send(key, session.send_resource_updated(uri))

    async def _send(self, key: str, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(5):
                await work
        except Exception as error:  # noqa: BLE001 - a client that is gone costs itself, not the others
            _log.debug("a session could not be told: %s", type(error).__name__)
            self.forget(key)

    def joined(self, key: str, session: Any) -> None:
        """Take note of a session."""
        self.open()
        self.sessions[key] = session
        while len(self.sessions) > SESSIONS:
            self.forget(next(iter(self.sessions)))

    def forget(self, key: str) -> None:
        """Forget a session."""
        self.sessions.pop(key, None)
        self.levels.pop(key, None)
        self._owners.pop(key, None)
        for listeners in self.subscribed.values():
            listeners.pop(key, None)

    def subscribe(self, uri: str, key: str, session: Any, owner: str = "") -> bool:
        """Have a session told of a resource; `False` where there is no room, for all or for this one."""
        self.open()
        if key not in self.subscribed.get(uri, {}) and not self._has_share(key, owner or key):
            return False
        if uri not in self.subscribed and len(self.subscribed) >= SUBSCRIPTIONS:
            for empty in [known for known, listeners in self.subscribed.items() if not listeners]:
                del self.subscribed[empty]
            if len(self.subscribed) >= SUBSCRIPTIONS:
                return False
        self.subscribed.setdefault(uri, {})[key] = session
        self._owners.setdefault(key, owner or key)
        return True

    def _has_share(self, key: str, owner: str) -> bool:
        """Tell whether a session may have one more; sessions that have ended are the oldest of their owner."""
        if not owner:
            return True  # over stdio there is one client
        others = [known for known, whose in self._owners.items() if whose == owner and known != key]
        while sum(len(listeners.keys() & {key, *others}) for listeners in self.subscribed.values()) >= SHARE:
            if not others:
                return False
            self._owners.pop(others[0])
            for listeners in self.subscribed.values():
                listeners.pop(others[0], None)
            del others[0]
        return True

    async def follow(self) -> None:
        """Have the servers behind us tell of what somebody here has subscribed to, and of nothing else."""
        own = {item.uri for item in self.lists.box.own_resources}
        wanted = {uri for uri, listeners in self.subscribed.items() if listeners} | {*self._listened}
        await self.lists.box.__behind__().subscribe(frozenset(wanted - own))

    @asynccontextmanager
    async def listened(self, uris: Iterable[str]) -> AsyncGenerator[None]:
        """Follow resources for as long as the block lasts."""
        counted = Counter(map(str, uris))
        self._listened += counted
        if counted:
            await self.follow()
        try:
            yield
        finally:
            self._listened -= counted
            if counted:
                await self.follow()

    def unsubscribe(self, uri: str, key: str) -> None:
        """Tell a session no more of a resource."""
        listeners = self.subscribed.get(uri, {})
        listeners.pop(key, None)
        if not listeners:
            self.subscribed.pop(uri, None)
