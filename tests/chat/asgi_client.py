"""A client of an ASGI application in the same loop, which can disconnect before the end of a stream."""

import asyncio
import json
from typing import Any


class Streamed:
    """What an application sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.changed = asyncio.Event()

    @property
    def events(self) -> list[Any]:
        lines = self.body.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    @property
    def ids(self) -> list[str]:
        return [line[4:] for line in self.body.decode().splitlines() if line.startswith("id: ")]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def request(
    app: Any,
    body: Any = None,
    method: str = "POST",
    query: bytes = b"",
    leave_after: int | None = None,
    path: str = "/",
    **headers: str,
) -> Streamed:
    """Send a request, and return the answer; with `leave_after`, the client leaves after so many events."""
    answer = Streamed()
    text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    waiting = [{"type": "http.request", "body": text, "more_body": False}]

    async def receive() -> Any:
        if waiting:
            return waiting.pop()
        while leave_after is None or max(len(answer.ids), len(answer.events)) < leave_after:
            answer.changed.clear()
            await answer.changed.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], dict(message["headers"])
        else:
            answer.body += message.get("body", b"")
        answer.changed.set()
        await asyncio.sleep(0)

    given = {"host": "localhost", "content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": pairs}
    await asyncio.wait_for(app({**scope, "client": ("203.0.113.7", 1)}, receive, send), 20)
    return answer
