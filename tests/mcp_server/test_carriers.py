"""Calls in a session: answered at once as JSON, or on a stream if they wait, ask or notify."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult

from mcp_server.sample_server import ACCEPT, Running, running
from mcp_server.test_streams import Streams, greeted, streams
from toolmason import Toolbox, ToolContext, asgi_app, tool
from toolmason.mcp_server.http.app import McpApp

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
RAN: list[str] = []


@tool
async def at_once(ctx: ToolContext) -> str:
    """Return at once."""
    RAN.append("at_once")
    return "now"


@tool
async def after_a_while(ctx: ToolContext) -> str:
    """Wait for the loop."""
    RAN.append("after_a_while")
    await asyncio.sleep(0)
    return "later"


@tool
async def loud(ctx: ToolContext) -> str:
    """Log, and return at once."""
    RAN.append("loud")
    ctx.log.warning("careful")
    return "logged"


@tool
async def curious(ctx: ToolContext) -> str:
    """Ask for a name."""
    RAN.append("curious")
    answer = await ctx.client.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return str(answer.content.get("name"))


@tool(approval=True)
async def wipe(disk: str) -> str:
    """Wipe a disk."""
    RAN.append("wipe")
    return f"wiped {disk}"


@tool
async def hold() -> str:
    """Wait until cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        RAN.append("cancelled")
    return "never"


TOOLS = (at_once, after_a_while, loud, curious, wipe, hold)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@pytest.fixture(scope="module")
def carrying() -> Iterator[Running]:
    with running(Toolbox(*TOOLS)) as server:
        yield server


def _session(server: Running) -> dict[str, str]:
    session = {"mcp-session-id": server.ask_in_session("initialize", HELLO).headers["mcp-session-id"]}
    server.ask_in_session("tools/list", {}, session)
    return session


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("at_once", "application/json", "now"),
        ("after_a_while", "text/event-stream", "later"),
        ("loud", "text/event-stream", "logged"),
    ],
)
def test_a_call_that_does_not_wait_is_answered_as_json(carrying: Running, name: str, kind: str, text: str):
    answer = carrying.ask_in_session("tools/call", {"name": name}, _session(carrying))

    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.json["result"]["content"][0]["text"] == text
    assert [name] == RAN


def test_a_log_record_comes_before_the_result(carrying: Running):
    answer = carrying.ask_in_session("tools/call", {"name": "loud"}, _session(carrying))

    assert [event.get("method") for event in answer.events] == ["notifications/message", None]
    assert answer.events[0]["params"]["data"] == "careful"


def test_a_stream_can_be_resumed_from_its_first_event(carrying: Running):
    answer = carrying.ask_in_session("tools/call", {"name": "after_a_while"}, _session(carrying))

    assert b"id: " in answer.body.partition(b"later")[0]


def test_a_stream_needs_a_client_that_accepts_it(carrying: Running):
    headers = {**_session(carrying), "accept": "application/json"}

    answer = carrying.ask_in_session("tools/call", {"name": "after_a_while"}, headers)

    assert answer.status == 406
    assert RAN == []


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "text"),
    [
        ("curious", {}, {"name": "Ada"}, "Ada"),
        ("wipe", {"disk": "a"}, {"approve": True}, "wiped a"),
    ],
)
async def test_a_question_of_a_call_that_was_started_directly_is_answered(
    carrying: Running, name: str, arguments: dict[str, Any], answer: dict[str, Any], text: str
):
    async def elicit(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content=answer)

    async with Client(carrying.url, mode="legacy", elicitation_callback=elicit) as client:
        await client.list_tools()
        found = await client.call_tool(name, arguments)

    assert found.content[0].text == text
    assert [name] == RAN


@pytest.mark.parametrize("answer", [{}, {"approve": "yes"}, {"allow": True}], ids=str)
async def test_an_answer_of_a_session_that_does_not_fit_is_no_approval(carrying: Running, answer: dict[str, Any]):
    async def elicit(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content=answer)

    async with Client(carrying.url, mode="legacy", elicitation_callback=elicit) as client:
        found = await client.call_tool("wipe", {"disk": "a"})

    assert found.is_error
    assert '"code":"approval_denied"' in found.content[0].text
    assert '"tool":"wipe"' in found.content[0].text
    assert RAN == []


@pytest.mark.parametrize(("name", "text"), [("at_once", "now"), ("after_a_while", "later"), ("loud", "logged")])
async def test_a_call_of_a_session_over_stdio_runs_once(name: str, text: str):
    async with streams(Toolbox(*TOOLS)) as client:
        await greeted(client)
        await client.asked("tools/list", None, 1)
        found = await _answer_to(client, 2, name)

    assert found["result"]["content"][0]["text"] == text
    assert [name] == RAN


async def test_an_approval_of_a_session_over_stdio_is_asked_and_answered():
    async with streams(Toolbox(*TOOLS)) as client:
        await greeted(client)
        await client.asked("tools/list", None, 1)
        asked = await client.asked("tools/call", {"name": "wipe", "arguments": {"disk": "a"}}, 2)
        answer = {"action": "accept", "content": {"approve": True}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        found = await client.read()

    assert asked["method"] == "elicitation/create"
    assert found["result"]["content"][0]["text"] == "wiped a"
    assert RAN == ["wipe"]


async def _answer_to(client: Streams, number: int, name: str) -> Any:
    found = await client.asked("tools/call", {"name": name}, number)
    while found.get("id") != number:
        found = await client.read()
    return found


async def _post(app: McpApp, method: str, params: dict[str, Any], **headers: str) -> dict[bytes, bytes]:
    known = {"host": "localhost", "content-type": "application/json", "accept": ACCEPT, **headers}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in known.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": encoded}
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        for part in parts:
            return part
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "raw_path": b"/mcp"}, receive, send)
    return dict(sent[0]["headers"])


async def test_a_server_that_cancels_the_request_cancels_the_call():
    app = asgi_app(Toolbox(*TOOLS))
    async with app.lifespan():
        opened = await _post(app, "initialize", HELLO)
        session = {"mcp_session_id": opened[b"mcp-session-id"].decode(), "mcp_protocol_version": "2025-11-25"}
        await _post(app, "tools/list", {}, **session)
        request = asyncio.create_task(_post(app, "tools/call", {"name": "hold"}, **session))
        await asyncio.sleep(0)

        request.cancel()

        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.sleep(0)

    assert RAN == ["cancelled"]
    assert not app.dispatcher.in_flight
