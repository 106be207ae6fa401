"""An application that is started, stopped, and started again."""

import asyncio
import json
from typing import Any

from serving.shelf import ACCEPT, shelf
from toolwright.serving.app import McpApp, asgi_app

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
