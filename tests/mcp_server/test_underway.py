"""Requests of sessions: one answer for each id, and an end when the client wants none any more."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, Answer, Running, eventually, running
from toolmason import Tool, Toolbox, ToolContext, tool
from toolmason.mcp_server.dispatch import get_cancelled_id, get_request_id
from toolmason.mcp_server.http.session_table import SessionTable


class Room:
    """A tool that waits until it is let go, and says what became of it."""

    def __init__(self) -> None:
        self.entered, self.cancelled, self.let_go = threading.Event(), threading.Event(), threading.Event()
        self.left = threading.Event()

    def box(self, *, with_context: bool) -> Toolbox:
        @tool(name="wait")
        async def wait_with_context(ctx: ToolContext) -> str:
            """Wait."""
            return await self.wait()

        return Toolbox(wait_with_context if with_context else Tool.from_function(self.wait))

    async def wait(self) -> str:
        """Wait."""
        self.entered.set()
        try:
            await asyncio.to_thread(self.let_go.wait, 30)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.left.set()
        return "waited"


@pytest.fixture(params=[False, True], ids=["a plain tool", "a tool with context"])
def waiting(request: pytest.FixtureRequest) -> Iterator[tuple[Running, Room, "Future[Answer]", dict[str, str]]]:
    room = Room()
    with running(room.box(with_context=request.param)) as server, ThreadPoolExecutor() as pool:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        opened = server.ask_in_session("initialize", params)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        server.ask_in_session("tools/list", {}, session)  # the server learns what the client can do
        call = pool.submit(server.ask_in_session, "tools/call", {"name": "wait", "arguments": {}}, session)
        assert room.entered.wait(10)
        try:
            yield server, room, call, session
        finally:
            room.let_go.set()


def _tell(server: Running, message: dict[str, Any], session: dict[str, str]) -> Answer:
    known = {"content-type": "application/json", "accept": ACCEPT, "mcp-protocol-version": "2025-11-25"}
    return server.send(json.dumps({"jsonrpc": "2.0", **message}).encode(), {**known, **session})


def test_f52_a_session_calls_a_request_off(waiting: Any):
    server, room, call, session = waiting

    told = _tell(server, {"method": "notifications/cancelled", "params": {"requestId": 1}}, session)

    assert told.status == 202
    assert room.cancelled.wait(10)
    assert call.result(10).json["error"]["code"] == -32800


def test_t16_what_another_session_calls_off_goes_on(waiting: Any):
    server, room, call, _ = waiting
    other = {"mcp-session-id": "another"}

    told = _tell(server, {"method": "notifications/cancelled", "params": {"requestId": 1}}, other)
    room.let_go.set()

    assert told.status == 404
    assert call.result(10).json["result"]["content"][0]["text"] == "waited"


def test_f53_an_id_of_a_session_that_is_under_way_is_refused(waiting: Any):
    server, room, call, session = waiting

    second = server.ask_in_session("tools/call", {"name": "wait", "arguments": {}}, session)
    room.let_go.set()

    assert (second.status, second.json["id"]) == (400, 1)
    assert "in progress" in second.json["error"]["message"]
    assert call.result(10).json["result"]["content"][0]["text"] == "waited"


def test_an_id_that_was_answered_may_be_used_again(waiting: Any):
    server, room, call, session = waiting
    room.let_go.set()
    call.result(10)

    again = server.ask_in_session("tools/call", {"name": "wait", "arguments": {}}, session)

    assert again.json["result"]["content"][0]["text"] == "waited"


def test_who_hangs_up_in_a_session_has_not_called_the_call_off(waiting: Any):
    server, room, _, session = waiting
    room.entered.clear()
    body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait"}}).encode()
    head = {"host": "127.0.0.1", "content-type": "application/json", "accept": ACCEPT, **session}
    head |= {"mcp-protocol-version": "2025-11-25", "content-length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    connections = len(server.server.server_state.connections)
    with server.socket() as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        assert room.entered.wait(10)

    assert eventually(lambda: len(server.server.server_state.connections) <= connections)
    room.let_go.set()

    assert room.left.wait(10)
    assert not room.cancelled.is_set()


@pytest.mark.parametrize("data", [[], {"id": 1}, {"id": True, "method": "m"}, {"id": 1.5, "method": "m"}])
def test_what_wants_no_answer_has_no_id(data: Any):
    assert get_request_id(data) is None


@pytest.mark.parametrize("params", [None, [], {}, {"requestId": True}, {"requestId": [1]}])
def test_what_names_no_request_calls_none_off(params: Any):
    assert get_cancelled_id({"method": "notifications/cancelled", "params": params}) is None


@pytest.mark.parametrize("peer", ["127.0.0.1", "203.0.113.7"])
async def test_t18_sessions_that_clients_make_up_are_not_kept(peer: str):
    peers = SessionTable(4, 60)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    for number in range(10):
        scope = {"method": "POST", "headers": [(b"mcp-session-id", b"%d" % number)]}
        watch = peers.track(peer, "", scope, send)
        await watch({"type": "http.response.start", "status": 200, "headers": []})

    assert len(sent) == 10
    assert len(peers) == 0
