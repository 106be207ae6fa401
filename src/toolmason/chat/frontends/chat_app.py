"""Serve a chat to front ends: an ASGI application that streams the events of a run, and can resume a broken stream."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import parse_qs

from pydantic_core import to_json

from toolmason._core.define.context import ContextLike, ToolContext, make_context
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.messages import Message
from toolmason._explain import explain_arguments
from toolmason._http.caller import Identity, get_peer
from toolmason._http.guard import (
    LOOPBACK_HOSTS,
    MAX_BODY_BYTES,
    Bearer,
    ErrorResponse,
    Guard,
    Receive,
    Send,
    VerifyToken,
    make_guard,
    send_json,
    serve_other_type,
)
from toolmason._secrets import scrub
from toolmason._wire import LARGE_JSON_BYTES, UNLIMITED_PEERS, ByteBudget
from toolmason.chat.chat import Chat
from toolmason.chat.events import Done, Event
from toolmason.chat.frontends.ag_ui import AgUiFrontend
from toolmason.chat.frontends.frontend import Encoder, EventFrontend, Frontend, FrontendRequest, KnownCalls
from toolmason.chat.frontends.vercel import VercelFrontend
from toolmason.chat.reply import Reply
from toolmason.chat.run.external import check_results, take_results
from toolmason.errors import ConfigError, ToolmasonError
from toolmason.mcp_client.transport.framing import UnreadableMessage, parse_json, parse_large_json

_log = logging.getLogger("toolmason")

FrontendProtocol = Literal["events", "ag-ui", "vercel"]
MAX_RUNS: Final = 256
"""Runs that are in progress or can be read again."""
MAX_PEER_RUNS: Final = 32
"""Those of one user or remote machine."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Events that are kept of all runs."""
MAX_PEER_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Events that are kept of the runs of one user or remote machine."""
MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
"""Conversations of all runs that wait for approval."""
MAX_PEER_PENDING_BYTES: Final = 16 * 1024 * 1024
"""Those of one user or remote machine."""
KEPT_SECONDS: Final = 300.0
"""Seconds for which the events of a finished run are kept."""
LINGER_SECONDS: Final = 60.0
"""Seconds for which a run continues without a reader."""
HEARTBEAT_SECONDS: Final = 15.0
_FRONTENDS: Final[Mapping[str, type[Frontend]]] = {
    "events": EventFrontend,
    "ag-ui": AgUiFrontend,
    "vercel": VercelFrontend,
}
_STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@dataclass(eq=False, slots=True, repr=False)
class StreamedRun:
    """A run whose events are read by the front end that started it, and by none but its owner."""

    id: str
    owner: str
    peer: str
    events: deque[bytes] = field(default_factory=deque)
    first: int = 1
    """Number of the first event that is kept."""
    is_done: bool = False
    readers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    linger: asyncio.TimerHandle | None = None

    def add(self, event: bytes) -> None:
        """Keep an event, and wake the readers."""
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the readers."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def read(self, number: int) -> AsyncIterator[bytes | None]:
        """Yield the events from a number on, and None while there is nothing new for some time."""
        while True:
            while number < self.first + len(self.events):
                if number < self.first:
                    return  # too slow: what it needs is gone
                yield self.events[number - self.first]
                number += 1
            if self.is_done:
                return
            try:
                await asyncio.wait_for(self.changed.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                yield None

    def cancel(self) -> None:
        """Cancel the run."""
        if self.task is not None:
            self.task.cancel()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WaitingRun:
    """A run that waits for approval or for results, and the user whose run it is."""

    owner: str
    reply: Reply[Any]

    @property
    def keys(self) -> list[str]:
        """Keys of the requests for approval, by id, and of the calls, by conversation or run and id."""
        reply = self.reply
        # Without a name of the conversation, runs of several users may have calls of one id.
        places = [f"run {reply.run}", *([reply.conversation] if reply.conversation else ())]
        calls = [_make_key(place, call.id) for place in places for call in reply.external]
        return [*(request.id for request in reply.pending), *calls]


def _make_key(conversation: str | None, call_id: str) -> str:
    return to_json([conversation, call_id]).decode()


class ChatApp:
    """A chat as an ASGI application: POST starts a run, GET reads it again, DELETE cancels it."""

    def __init__(self, chat: Chat[Any], frontend: Frontend, guard: Guard, context: ToolContext[Any] | None) -> None:
        self.chat, self.guard = chat, guard
        self._frontend, self._context = frontend, context
        self._runs: OrderedDict[str, StreamedRun] = OrderedDict()
        self._kept: ByteBudget[StreamedRun] = ByteBudget(MAX_KEPT_BYTES, MAX_PEER_KEPT_BYTES)
        self._pending: dict[str, WaitingRun] = {}
        """Runs that wait, by what they wait for."""
        self._pending_bytes: ByteBudget[WaitingRun] = ByteBudget(MAX_PENDING_BYTES, MAX_PEER_PENDING_BYTES)

    @property
    def kept_bytes(self) -> int:
        """Size of the events that are kept of all runs."""
        return self._kept.bytes.total()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await serve_other_type(scope["type"], self._run_lifespan(), receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self.guard.check_headers(headers, scope["headers"])
        identity = refusal or await self.guard.authenticate(headers)
        if not isinstance(identity, Identity):
            await refuse(send, identity)
        elif scope["method"] == "POST":
            await self._start(scope, headers, identity, receive, send)
        elif scope["method"] in ("GET", "DELETE"):
            await self._handle_known_run(scope, headers, identity, receive, send)
        else:
            await refuse(send, ErrorResponse(405, "Use POST, GET or DELETE."))

    # --- requests ----------------------------------------------------------------------------------

    async def _start(self, scope: Any, headers: Any, identity: Identity, receive: Receive, send: Send) -> None:
        """Start a run, and stream its events."""
        text = await self.guard.read_body(headers, receive, scope, identity)
        if isinstance(text, ErrorResponse):
            await refuse(send, text)
        if not isinstance(text, bytes):
            return
        run_id, is_large = uuid.uuid4().hex, len(text) > LARGE_JSON_BYTES
        body = await asyncio.to_thread(parse_large_json, text) if is_large else parse_json(text)
        try:
            if isinstance(body, UnreadableMessage):
                raise ConfigError(f"The body cannot be read: {body.reason}.")
            request = self._frontend.parse(body)
            events, known = await self._open_events(request, identity, run_id)
        except ToolmasonError as error:
            await refuse(send, ErrorResponse(400, str(error)))
            return
        peer = get_peer(scope, identity)
        if not self._make_room(peer):
            await refuse(send, ErrorResponse(503, "Too many runs are in progress. Try again later."))
            return
        run = StreamedRun(run_id, identity.owner, peer)
        self._runs[run.id] = run
        encoder = self._frontend.make_encoder(body, run.id, known)
        run.task = asyncio.get_running_loop().create_task(self._produce(run, encoder, events))
        await self._send_stream(run, 1, receive, send)

    async def _open_events(
        self, request: FrontendRequest, identity: Identity, run_id: str
    ) -> tuple[AsyncGenerator[Event], KnownCalls]:
        """Return the events of a new run, or of one that goes on after an approval, and the calls before them."""
        context = ToolContext[Any](**identity) if self._context is None else self._context.merge(dict(identity))
        # Another user must not read a conversation by its name.
        conversation = request.conversation
        if identity.owner and conversation:
            conversation = to_json([identity.owner, conversation]).decode()
        # A front end cannot replace a tool of the chat.
        added = [tool for tool in request.tools if tool.name not in self.chat.box] or None
        external = {tool.name for tool in (*self.chat.box, *request.tools) if tool.options.external}
        place = conversation if request.run is None else f"run {request.run}"
        results = {_make_key(place, call_id): result for call_id, result in request.results.items()}
        waited_for = [key for key in results if key in self._pending]
        messages = request.messages
        is_new = bool(messages) and messages[-1].role == "user"
        if request.answers or waited_for or (results and not is_new):
            keys = [*request.answers, *waited_for]
            reply = self._find_pending(keys, identity.owner).reply
            given = take_results(reply, [results[key] for key in waited_for])
            await check_results(self.chat.box, given)
            waiting = self._find_pending(keys, identity.owner)  # another request may have answered meanwhile
            decide = self.chat.box.approvals.decide
            decisions = [decide(item, request.answers[item.id]) for item in reply.pending if item.id in request.answers]
            self._drop_pending(waiting)
            events = self.chat.stream_resumed(reply, decisions, results=given, context=context, add_tools=added)
            handed_out = [call.id for call in reply.external]
            return events, KnownCalls([*_list_calls(reply.messages), *handed_out], handed_out, external)
        if not is_new:
            raise ConfigError("The last message must be one of the user.")
        calls = _list_calls(messages)
        if self.chat.has_memory:
            calls = _list_calls(await self.chat.load_history(conversation))
            messages = messages[-1:]  # the memory has the others
        run = request.resumes or run_id
        events = self.chat.stream(messages, context=context, conversation=conversation, run=run, add_tools=added)
        return events, KnownCalls(calls, (), external)

    def _find_pending(self, answers: Sequence[str], owner: str) -> WaitingRun:
        """Return the run that waits for these answers.

        Raises:
            ConfigError: no run of this owner waits for one of them.
        """
        found = {self._pending.get(name) for name in answers}
        waiting = found.pop() if found else None
        if found or waiting is None or waiting.owner != owner:
            raise ConfigError("No run waits for these answers. It may have been answered, or the server restarted.")
        return waiting

    async def _handle_known_run(
        self, scope: Any, headers: Mapping[bytes, bytes], identity: Identity, receive: Receive, send: Send
    ) -> None:
        """Stream the rest of a run, or cancel it."""
        last_id, _, last_number = headers.get(b"last-event-id", b"").decode("latin-1").rpartition("/")
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        run = self._runs.get(query.get("run", [last_id])[0])
        if run is None or run.owner != identity.owner:
            await refuse(send, ErrorResponse(404, "This run is unknown. Start one with POST."))
            return
        if scope["method"] == "DELETE":
            run.cancel()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        number = int(last_number) + 1 if last_number.isdigit() and len(last_number) < 10 else 1  # noqa: PLR2004 - digits
        if number < run.first:
            await refuse(send, ErrorResponse(410, "The next events of this run are no longer kept."))
            return
        await self._send_stream(run, number, receive, send)

    # --- runs --------------------------------------------------------------------------------------

    def _make_room(self, peer: str) -> bool:
        """Forget the oldest finished run if there are too many. Return False if all are in progress."""
        own = [run for run in self._runs.values() if run.peer == peer]
        is_over_share = peer not in UNLIMITED_PEERS and len(own) >= MAX_PEER_RUNS
        if not is_over_share and len(self._runs) < MAX_RUNS:
            return True
        finished = next((run for run in (own if is_over_share else self._runs.values()) if run.is_done), None)
        if finished is not None:
            self._forget(finished)
        return finished is not None

    def _forget(self, run: StreamedRun) -> None:
        self._runs.pop(run.id, None)
        self._kept.release(run)

    async def _produce(self, run: StreamedRun, encoder: Encoder, events: AsyncGenerator[Event]) -> None:
        """Run the chat, and keep its events."""
        self._keep(run, encoder.start())
        try:
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Done):
                        self._keep_pending(run, event.reply)
                    self._keep(run, encoder.encode(event))
        except asyncio.CancelledError:
            self._keep(run, encoder.fail("cancelled", "The run was cancelled."))
        except ToolmasonError as error:
            _log.warning("run %s failed: %s", run.id, type(error).__name__)
            self._keep(run, encoder.fail(getattr(error, "code", "error"), scrub(str(error))))
        except Exception as error:  # noqa: BLE001 - the reader must get an end, and no detail of the program
            error_id = uuid.uuid4().hex[:12]
            _log.error("run %s failed, id %s", run.id, error_id, exc_info=error)
            self._keep(run, encoder.fail("internal_error", f"The run failed. Error id: {error_id}."))
        finally:
            run.is_done = True
            run.wake()
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, run)

    def _keep(self, run: StreamedRun, items: Iterator[Any]) -> None:
        for item in items:
            number = run.first + len(run.events)
            data = to_json(item, inf_nan_mode="null", fallback=str)
            event = b"id: %b/%d\ndata: %b\n\n" % (run.id.encode(), number, data)
            self._kept.grow(run, run.peer, len(event))
            run.add(event)
        while (excess := self._kept.find_excess(run.peer)) is not None:
            if excess.events:
                size = len(excess.events.popleft())
                excess.first += 1
                self._kept.grow(excess, excess.peer, -size)
            else:
                self._kept.release(excess)

    def _keep_pending(self, run: StreamedRun, reply: Reply[Any]) -> None:
        """Keep a run that waits, in place of the oldest ones of the same client if it has too many."""
        if not (reply.pending or reply.external):
            return
        waiting = WaitingRun(run.owner, reply)
        for key in waiting.keys:
            self._pending[key] = waiting
        self._pending_bytes.grow(waiting, run.peer, len(to_json(reply.save(), fallback=str)))
        while (excess := self._pending_bytes.find_excess(run.peer)) is not None:
            self._drop_pending(excess)

    def _drop_pending(self, waiting: WaitingRun) -> None:
        self._pending_bytes.release(waiting)
        for key in waiting.keys:
            if self._pending.get(key) is waiting:
                del self._pending[key]

    async def _send_stream(self, run: StreamedRun, number: int, receive: Receive, send: Send) -> None:
        """Send the events of a run from a number on, until its end or that of the connection."""
        headers = [*_STREAM_HEADERS, *self._frontend.headers, (b"x-toolmason-run", run.id.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        run.readers += 1
        if run.linger is not None:
            run.linger.cancel()
        try:
            await run_until_disconnect(self._send_events(run, number, send), receive)
        finally:
            run.readers -= 1
            if not run.readers and not run.is_done:
                run.linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, run.cancel)

    async def _send_events(self, run: StreamedRun, number: int, send: Send) -> None:
        async for event in run.read(number):
            await send({"type": "http.response.body", "body": event or b": waiting\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": self._frontend.last_line})

    @asynccontextmanager
    async def _run_lifespan(self) -> AsyncGenerator[None]:
        try:
            async with self.chat:
                yield
        finally:
            tasks = [run.task for run in self._runs.values() if run.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _list_calls(messages: Sequence[Message]) -> list[str]:
    return [call.id for message in messages for call in message.calls]


async def refuse(send: Send, error: ErrorResponse) -> None:
    """Send an error to a front end, which does not speak JSON-RPC."""
    await send_json(send, error.status, to_json({"error": {"message": error.message}}), error.headers)


async def run_until_disconnect(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run the work for a request until it ends, or the client disconnects."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@explain_arguments
def sse(  # noqa: PLR0913 - one parameter for each option
    chat: Chat[Any],
    *,
    protocol: FrontendProtocol = "events",
    context: ContextLike = None,
    auth: VerifyToken | Bearer | None = None,
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS,
    allowed_origins: Sequence[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
) -> ChatApp:
    """Return an ASGI application that runs a chat for front ends, and streams its events.

    `protocol` is `events` for our own events, `ag-ui` for CopilotKit and others, or `vercel` for `useChat`. `auth`
    checks bearer tokens, as in `serve`; its values are in the context of the tools.

    Raises:
        ConfigError: an option is not valid.
    """
    if not isinstance(chat, Chat):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"sse({chat!r:.60}): pass a Chat.")
    if protocol not in _FRONTENDS:
        raise ConfigError(f"protocol={protocol!r}: must be one of {', '.join(_FRONTENDS)}.")
    rates = get_state(chat.box).calls.state.rates
    guard = make_guard(allowed_hosts, allowed_origins, auth, max_body_bytes, rates)
    return ChatApp(chat, _FRONTENDS[protocol](), guard, make_context(context))
