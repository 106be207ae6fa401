"""Hold what the page shows, and tell the open pages about changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolmason._core.call.approval import ApprovalRequest
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.chat.chat import Chat
from toolmason.chat.durable.journal import StoreRuntime
from toolmason.chat.memory import WindowMemory
from toolmason.errors import ToolmasonError, UnknownName

MAX_REQUESTS: Final = 256
"""Requests for approval of calls that were started on the page."""
MAX_LISTENERS: Final = 64
"""Open pages that follow changes."""
MAX_UNREAD: Final = 100
"""Changes that a page has not read."""
HEARTBEAT_SECONDS: Final = 15.0
"""Time without a change after which a comment keeps the stream open."""


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Options of a page, from the command line."""

    target: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    """Models to choose from, each with a note about it. The page cannot name others."""
    system: str | None = None
    """System message of the chats."""
    runtime: StoreRuntime | None = None
    """Journal of the chats' runs."""
    chat: Chat[Any] | None = None
    """Chat of the target, if that is one."""


class Page:
    """A toolbox on a page, which a reload replaces."""

    def __init__(self, box: Toolbox, options: PageOptions) -> None:
        self.box, self.options = box, options
        self.memory = WindowMemory(200)
        """Conversations of the chats."""
        self.problem = ""
        """Why the last reload failed."""
        self.sign_ins: set[asyncio.Future[None]] = set()
        """Connections that wait for the user to sign in."""
        self._requests: OrderedDict[str, ApprovalRequest] = OrderedDict()
        self._listeners: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refresh: asyncio.Future[None] | None = None
        """Work that fetches lists; changes that it makes start no other."""
        self._stop_watching: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Follow the changes of the toolbox. Call it on the loop of the server."""
        self._loop = asyncio.get_running_loop()
        self._stop_watching()
        self._stop_watching = self.box.servers.watch(self._on_change)

    def _on_change(self, uri: str | None) -> None:
        if uri is None and self._loop is not None and self._refresh is None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no page is open
                self._loop.call_soon_threadsafe(self.refresh)

    def refresh(self) -> None:
        """Fetch the lists of servers that may have changed, then tell the pages."""
        if self._refresh is None:
            self._refresh = asyncio.ensure_future(self._list_again())

    async def _list_again(self) -> None:
        try:
            with contextlib.suppress(ToolmasonError):  # the page shows the health of each server
                await get_state(self.box).remotes.confirm()
                await self.box.list()
        finally:
            self._refresh = None
        self.notify("tools")

    async def replace(self, loaded: tuple[Toolbox, PageOptions]) -> None:
        """Show another toolbox, after a reload."""
        old = self.box
        (self.box, self.options), self.problem = loaded, ""
        self.start()
        self.notify("tools")
        await get_state(old).remotes.aclose()

    def report(self, problem: str) -> None:
        """Show why a reload failed. The toolbox from before stays."""
        self.problem = problem
        self.notify("problem", message=problem)

    # --- changes ---------------------------------------------------------------------------------

    def notify(self, kind: str, **facts: Any) -> None:
        """Tell the open pages about a change. Thread-safe."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no page is open
                self._loop.call_soon_threadsafe(self._put, {"type": kind, **facts})

    def _put(self, change: dict[str, Any] | None) -> None:
        for queue in self._listeners:
            # A page that does not read needs only one of many changes of a kind.
            if change is None or queue.qsize() < MAX_UNREAD:
                queue.put_nowait(change)

    def close_streams(self) -> None:
        """End the streams of changes, which would block a shutdown."""
        self._put(None)

    async def follow(self) -> AsyncGenerator[dict[str, Any] | None]:
        """Yield changes, and None if there was none for some time."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        if len(self._listeners) >= MAX_LISTENERS:
            return
        self._listeners.add(queue)
        try:
            yield {"type": "hello", "problem": self.problem}
            while True:
                try:
                    change = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield None
                    continue
                if change is None:
                    return
                yield change
        finally:
            self._listeners.discard(queue)

    # --- requests for approval -------------------------------------------------------------------

    def keep_request(self, request: ApprovalRequest) -> None:
        """Keep a request until it is answered, in place of the oldest one if there are too many."""
        self._requests[request.id] = request
        while len(self._requests) > MAX_REQUESTS:
            self._requests.popitem(last=False)

    def take_request(self, request_id: str) -> ApprovalRequest:
        """Return a request, and forget it.

        Raises:
            KeyError: it is unknown.
        """
        if request_id not in self._requests:
            raise UnknownName("No call waits for this answer. It may have been answered. Run the call again.")
        return self._requests.pop(request_id)
