"""Streams that broke, and are taken up again."""

from typing import Any

import pytest

from mcp_server.sample_server import Running, running
from toolmason import Toolbox, ToolContext, tool
from toolmason._wire import ByteBudget
from toolmason.mcp_server.http import replay
from toolmason.mcp_server.http.replay import SessionEventStore

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@tool
async def secret(ctx: ToolContext) -> str:
    """Say something that is for the caller alone."""
    return f"the secret of {ctx['user']}"


def budget(most: int = 10_000, of_one: int = 10_000) -> ByteBudget[Any]:
    return ByteBudget(most, of_one)


async def replayed(store: SessionEventStore, after: str) -> tuple[str | None, list[Any]]:
    found: list[Any] = []

    async def take(event: Any) -> None:
        found.append(event.message)

    return await store.replay_events_after(after, take), found


async def test_what_came_after_an_event_is_sent_again():
    store = SessionEventStore(budget())
    first = await store.store_event("one", "a")
    await store.store_event("two", "of another stream")
    await store.store_event("one", None)
    await store.store_event("one", "b")

    assert await replayed(store, first) == ("one", ["b"])


async def test_an_event_that_nobody_knows_is_of_no_stream():
    assert await replayed(SessionEventStore(budget()), "guessed") == (None, [])


async def test_t18_the_oldest_events_and_streams_go_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay, "MAX_EVENTS_PER_STREAM", 2)
    monkeypatch.setattr(replay, "MAX_STREAMS", 2)
    store = SessionEventStore(budget())
    gone, *_ = [await store.store_event("a", number) for number in range(3)]
    kept = await store.store_event("b", 1)
    await store.store_event("c", 1)

    assert await replayed(store, gone) == (None, [])
    assert await replayed(store, kept) == ("b", [])


async def test_t16_a_session_cannot_look_into_anothers_stream_of_the_same_name():
    events = budget()
    bob, alice = SessionEventStore(events), SessionEventStore(events)
    before = await bob.store_event("5", None)
    heard = await alice.store_event("5", "for alice")

    assert await replayed(bob, before) == ("5", [])
    assert await replayed(bob, heard) == (None, [])


async def test_t18_a_session_that_floods_loses_its_own_streams(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolmason.mcp_server.http.replay.MAX_STREAMS_PER_SESSION", 3)
    events = budget()
    quiet, loud = SessionEventStore(events), SessionEventStore(events)
    kept = await quiet.store_event("1", None)
    first, *_ = [await loud.store_event(str(number), None) for number in range(5)]

    assert await replayed(quiet, kept) == ("1", [])
    assert await replayed(loud, first) == (None, [])


def begun(server: Running, token: str) -> dict[str, str]:
    """Open a session."""
    who = {"authorization": f"Bearer {token}"}
    return {**who, "mcp-session-id": server.ask_in_session("initialize", HELLO, who).headers["mcp-session-id"]}


def called(server: Running, session: dict[str, str]) -> str:
    """Make a call under an id that everybody takes; return the first event of its stream."""
    params = {"name": "secret", "arguments": {}, "_meta": {"progressToken": "p"}}
    answer = server.ask_in_session("tools/call", params, session)
    return next(line[3:].strip() for line in answer.body.decode().splitlines() if line.startswith("id:"))


def test_t16_f47_a_users_results_are_not_sent_again_to_another():
    with running(Toolbox(secret), auth=str) as server:
        alice, bob = begun(server, "alice"), begun(server, "bob")
        first = called(server, bob)
        called(server, alice)
        called(server, bob)

        with server.socket() as raw:
            headers = {
                **bob,
                "accept": "text/event-stream",
                "mcp-protocol-version": "2025-11-25",
                "last-event-id": first,
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            raw.sendall(f"GET /mcp HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n".encode())
            heard = b""
            while heard.count(b"the secret of bob") < 2:
                heard += raw.recv(65536)

    assert b"alice" not in heard
