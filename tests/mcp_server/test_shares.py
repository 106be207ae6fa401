"""What a server holds has an owner and a bound: events, unfinished bodies, sessions. Nobody shuts others out."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from mcp_server.sample_server import ACCEPT, ENVELOPE, Running, eventually, running, shelf
from toolmason._core.call.long_results import ResultStore, reset_result_owner, set_result_owner
from toolmason._http.caller import ANONYMOUS
from toolmason._http.guard import ErrorResponse, Guard
from toolmason._wire import ByteBudget
from toolmason.mcp_server.http import http_server
from toolmason.mcp_server.http.app import asgi_app
from toolmason.mcp_server.http.replay import SessionEventStore
from toolmason.mcp_server.http.session_table import SessionTable
from toolmason.mcp_server.tasks import TaskStore

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
JSON = {"content-type": "application/json", "accept": ACCEPT}
CLIENTS = ["a", "b", "127.0.0.1"]


def rpc(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


# --- kept results ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["ada", "bob", "eve"]), st.integers(1, 30)), min_size=1, max_size=60))
def test_kept_results_stay_within_the_bounds_and_nobody_drops_those_of_others(steps: list[tuple[str, int]]):
    store = ResultStore(100)

    async def read_rest(arguments: Any, context: Any) -> str:
        return "rest"

    def act_as(owner: str, action: Callable[[], Any]) -> Any:
        token = set_result_owner(owner)
        try:
            return action()
        finally:
            reset_result_owner(token)

    first = act_as("quiet", lambda: store.save("x" * 20))
    act_as("quiet", lambda: store.link("far", read_rest))
    for owner, size in steps:
        handle = act_as(owner, partial(store.save, "x" * size))
        assert len(act_as(owner, partial(store.read, handle))) == size
        for number in range(10):
            act_as(owner, partial(store.link, f"{handle}{number}", read_rest))

    assert act_as("quiet", lambda: store.read(first)) == "x" * 20
    assert act_as("quiet", lambda: store.find_link("far")) is read_rest
    # The last result of each stays, however large it is.
    assert sum(size for _, size in store._sizes.values()) <= 100 + 3 * 30  # noqa: SLF001 - nothing else shows the sum
    assert len(store) <= 1 + 60 + 256


# --- the events of sessions -----------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("xyz"), st.integers(0, 60), st.booleans()), min_size=1, max_size=40
)


@given(STEPS)
def test_d3_events_stay_within_the_bounds_and_end_with_their_session(steps: list[tuple[int, str, int, bool]]):
    budget: ByteBudget[Any] = ByteBudget(100, 50)
    stores = [SessionEventStore(budget, CLIENTS[number % 2]) for number in range(5)]

    async def main() -> None:
        for number, stream, size, ends in steps:
            await stores[number].store_event(stream, "x" * size)
            if ends:
                stores[number].close()
            assert budget.bytes.total() == sum(held for _, held in budget.values()) <= 100
            assert max(budget.bytes.values(), default=0) <= 50
        for store in stores:
            store.close()
            await store.store_event("late", "x")

    asyncio.run(main())

    assert (len(budget), budget.bytes.total()) == (0, 0)


async def test_d3_who_holds_most_gives_way_first():
    budget: ByteBudget[Any] = ByteBudget(100, 80)
    quiet, loud = SessionEventStore(budget, "quiet"), SessionEventStore(budget, "loud")
    await quiet.store_event("s", "x" * 30)

    for number in range(50):
        await loud.store_event(str(number), "x" * 20)

    assert budget.bytes["quiet"] == 32
    assert budget.bytes["loud"] <= 70


async def test_d3_events_that_a_long_stream_has_dropped_do_not_count():
    budget: ByteBudget[Any] = ByteBudget(10_000, 10_000)
    store = SessionEventStore(budget, "a")

    for _ in range(1000):
        await store.store_event("s", "x" * 8)

    assert budget.bytes["a"] == 100 * 10


def test_d3_an_ended_session_leaves_no_events():
    with running() as server:
        for _ in range(3):
            session = {"mcp-session-id": server.ask_in_session("initialize", HELLO).headers["mcp-session-id"]}
            params = {"name": "echo", "arguments": {"text": "x" * 50_000}, "_meta": {"progressToken": "p"}}
            answer = server.ask_in_session("tools/call", params, session)
            held = server.app.sdk.manager.event_budget.bytes.total()
            server.send(b"", {**JSON, **session, "mcp-protocol-version": "2025-11-25"}, "DELETE")

            assert answer.status == 200
            assert held > 50_000
            assert eventually(lambda: server.app.sdk.manager.event_budget.bytes.total() == 0)


# --- bodies that have not arrived -----------------------------------------------------------------


class Sender:
    """A client that sends a body piece by piece."""

    def __init__(self, guard: Guard, client: str) -> None:
        self.pieces: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"client": (client, 1)}
        self.task = asyncio.ensure_future(guard.read_body({}, self.pieces.get, scope, ANONYMOUS))

    async def send(self, body: bytes, *, more: bool = True) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})
        for _ in range(5):
            await asyncio.sleep(0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=40))
def test_d4_unfinished_bodies_stay_within_the_bounds_and_a_fast_one_arrives(steps: list[tuple[int, int]]):
    async def main() -> tuple[list[int], Any, int]:
        guard = Guard(max_body_bytes=1000)
        guard.unfinished.max_bytes, guard.unfinished.max_client_bytes = 100, 50
        senders = [Sender(guard, CLIENTS[number % 3]) for number in range(6)]
        held = []
        for number, size in steps:
            if not senders[number].task.done():
                await senders[number].send(b"x" * size)
            held.append(guard.unfinished.bytes.total())
        fast = Sender(guard, "c")
        await fast.send(b"{")
        await fast.send(b"}", more=False)
        refused = [sender.task.result() for sender in senders if sender.task.done()]
        for sender in senders:
            sender.task.cancel()
        await asyncio.gather(*(sender.task for sender in senders), return_exceptions=True)
        assert {found.status for found in refused if isinstance(found, ErrorResponse)} <= {503}
        return held, await fast.task, len(guard.unfinished)

    held, arrived, left = asyncio.run(main())

    assert max(held) <= 100
    assert arrived == b"{}"
    assert left == 0


def slow_body(server: Running, sent: bytes = b"{") -> Any:
    raw = server.socket()
    raw.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4190209\r\n\r\n" + sent)
    return raw


@pytest.mark.parametrize("sent", [b"", b"{", b"x" * 10_000], ids=["none", "a byte", "some"])
def test_d4_connections_with_unfinished_bodies_shut_nobody_out(sent: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(http_server, "MAX_PEER_CONNECTIONS", 10)
    with running() as server:
        raws = [slow_body(server, sent) for _ in range(20)]
        assert eventually(lambda: len(server.server.server_state.connections) == 20)
        found = []
        for number in range(10):
            found.append(server.call("echo", {"text": str(number)})["content"][0]["text"])
            raws.append(slow_body(server, sent))
        for raw in raws:
            raw.close()

    assert found == [str(number) for number in range(10)]


def test_d4_a_call_in_progress_is_not_dropped_for_a_slow_body(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(http_server, "MAX_PEER_CONNECTIONS", 1)
    body = rpc("tools/call", {"name": "endless", "arguments": {}, "_meta": ENVELOPE})
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: %b\r\n"
        b"mcp-name: endless\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\ncontent-length: %d\r\n\r\n"
    )
    with running() as server, server.socket() as busy:
        busy.sendall(head % (ACCEPT.encode(), len(body)) + body)
        assert eventually(lambda: server.server.server_state.tasks)
        raws = [slow_body(server) for _ in range(20)]
        busy.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            assert busy.recv(1) != b""
        for raw in raws:
            raw.close()


# --- the results of tasks ---------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 60)), min_size=1, max_size=30))
def test_results_of_tasks_stay_within_the_bounds(steps: list[tuple[str, int]]):
    store = TaskStore(results=ByteBudget(200, 100))

    for owner, size in steps:
        task = store.create(owner)
        store.complete(task, {"text": "x" * size})

        assert store.find(task.id, owner) is task
        assert store.results.bytes.total() == sum(len(to_json(found.result)) for found in store.tasks.values()) <= 200
        assert max(store.results.bytes["a"], store.results.bytes["b"]) <= 100


# --- sessions -------------------------------------------------------------------------------------


async def posted(
    app: Any, body: bytes, peer: str, method: str = "POST", session: bytes | None = None
) -> tuple[int, bytes | None]:
    """Send a request from a machine; return the status, and the session that it is in."""
    headers = [(name.encode(), value.encode()) for name, value in {**JSON, "host": "localhost"}.items()]
    if session is not None:
        headers += [(b"mcp-session-id", session), (b"mcp-protocol-version", b"2025-11-25")]
    scope = {"type": "http", "method": method, "path": "/mcp", "query_string": b"", "client": (peer, 1)}
    sent: list[Any] = []
    gone = asyncio.Event()
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        for part in parts:
            return part
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
    found = {name.lower(): value for name, value in sent[0]["headers"]}
    return sent[0]["status"], found.get(b"mcp-session-id")


def table(*peers: str, most: int = 4) -> SessionTable:
    """A table with a session of each of these peers."""
    sessions = SessionTable(most, 60)
    for number, peer in enumerate(peers):
        note(sessions, peer, number)
    return sessions


def note(sessions: SessionTable, peer: str, number: int) -> None:
    async def nothing(message: Any) -> None:
        return None

    used = {"type": "http.response.start", "status": 200, "headers": [(b"mcp-session-id", b"%d" % number)]}
    asyncio.run(sessions.track(peer, "", {"method": "POST", "headers": []}, nothing)(used))


@given(
    st.lists(st.sampled_from(CLIENTS), max_size=10),
    st.sampled_from([*CLIENTS, "c"]),
    st.sets(st.integers(0, 9)),
    st.sets(st.integers(0, 9)),
)
def test_d11_an_idle_session_of_who_has_too_many_gives_way(
    peers: list[str], newcomer: str, busy: set[int], used: set[int]
):
    sessions = table(*peers[:4])
    for number in used:
        if number < len(sessions):
            note(sessions, peers[number], number)
    before = {int(key): session.peer for key, session in sessions.items()}
    own = [number for number, peer in before.items() if peer == newcomer]
    most = max(map([*before.values()].count, before.values()), default=0)

    async def end(key: bytes) -> bool:
        return int(key) not in busy

    has_room = asyncio.run(sessions.make_room(newcomer, end))

    ended = set(before) - {int(key) for key in sessions}
    over = newcomer != "127.0.0.1" and len(own) >= 2
    assert len(ended) <= 1
    assert not ended & busy
    if not over and len(before) < 4:
        assert has_room
        assert not ended
    for number in ended:
        assert has_room
        assert number in own if over else [*before.values()].count(before[number]) == most


async def test_d11_one_client_cannot_take_every_session():
    app = asgi_app(shelf(), max_sessions=4)

    async with app.lifespan():
        greedy = [await posted(app, rpc("initialize", HELLO), "10.0.0.1") for _ in range(6)]
        modest = await posted(app, rpc("initialize", HELLO), "10.0.0.2")
        gone = await posted(app, rpc("ping", {}), "10.0.0.1", session=greedy[0][1])
        last = await posted(app, rpc("ping", {}), "10.0.0.1", session=greedy[-1][1])
        count = len(app.sessions)

    assert [status for status, _ in greedy] == [200] * 6
    assert (modest[0], gone[0], last[0]) == (200, 404, 200)
    assert count == 3


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.0.0.1"])
async def test_d11_a_flood_ends_before_sessions_that_are_used(peer: str):
    app = asgi_app(shelf(), max_sessions=10)

    async with app.lifespan():
        _, session = await posted(app, rpc("initialize", HELLO), peer)
        assert (await posted(app, rpc("ping", {}), peer, session=session))[0] == 200
        flood = [(await posted(app, rpc("initialize", HELLO), peer))[0] for _ in range(50)]
        still = await posted(app, rpc("ping", {}), peer, session=session)
        other = await posted(app, rpc("initialize", HELLO), "10.0.0.9")
        count = len(app.sessions)

    assert set(flood) == {200}
    assert (still[0], other[0]) == (200, 200)
    assert count <= 10
