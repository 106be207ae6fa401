"""An application that is started, stopped, and started again."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, VERSION, Running, running, shelf
from toolmason.mcp_server.http.app import McpApp, asgi_app

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def asked(app: McpApp, method: str, params: dict[str, Any], **headers: str) -> tuple[int, dict[str, str]]:
    """Send one request of a session, which the SDK answers."""
    known = {"host": "localhost", "content-type": "application/json", "accept": ACCEPT, **headers}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in known.items()],
    }
    sent: list[Any] = []
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        found = next(given, None)
        if found is None:
            await asyncio.Event().wait()
        return found

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(10):
        await app(scope, receive, send)
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


async def test_a_second_life_answers_as_the_first_and_knows_no_session_of_it():
    app = asgi_app(shelf())
    async with app.lifespan():
        first, headers = await asked(app, "initialize", HELLO)
    async with app.lifespan():
        second, _ = await asked(app, "initialize", HELLO)
        session = {"mcp_session_id": headers["mcp-session-id"], "mcp_protocol_version": "2025-11-25"}
        old, _ = await asked(app, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, **session)

    assert (first, second, old) == (200, 200, 404)


def test_an_application_outlives_its_event_loop():
    app = asgi_app(shelf())

    statuses = [asyncio.run(asked(app, "initialize", HELLO))[0] for _ in range(2)]

    assert statuses == [200, 200]


@contextmanager
def _listening(server: Running, method: str, body: bytes, **more: str) -> Iterator[http.client.HTTPResponse]:
    known = {"accept": ACCEPT, "content-type": "application/json", **{key.replace("_", "-"): more[key] for key in more}}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request(method, "/mcp", body, known)
        with connection.getresponse() as response:
            yield response


def test_f39b_clients_that_only_listen_are_told_of_the_end_and_do_not_delay_it(caplog: pytest.LogCaptureFixture):
    params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params}).encode()
    stateless = {"mcp_protocol_version": VERSION, "mcp_method": "subscriptions/listen"}
    with running() as server:
        session = server.ask_in_session("initialize", HELLO).headers["mcp-session-id"]
        in_session = {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}
        with (
            _listening(server, "POST", body, **stateless) as subscribed,
            _listening(server, "GET", b"", **in_session) as stream,
        ):
            while b"acknowledged" not in subscribed.readline():
                pass

            server.stop()

            told, _ = subscribed.read(), stream.read()

    assert b'"result"' in told
    assert "graceful" not in caplog.text
    assert not server.thread.is_alive()
