"""Threats and faults of the reliability page, each by its number, against a real server."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, Running, eventually, running, shelf
from toolmason import Toolbox, tool
from toolmason.mcp import token_is
from toolmason.mcp_server.http import http_server

FOREIGN_HOSTS = ["evil.com", "evil.com:80", "127.0.0.1.evil.com", "localhost.evil.com", "localhost:80@evil.com", ""]
FOREIGN_ORIGINS = [
    "http://evil.com",
    "null",
    "https://localhost.evil.com",
    "file://",
    "http://localhost:1",
    "http://[",
    "http://[::1]x",
    "//[",
]
JSON = {"content-type": "application/json", "accept": ACCEPT}


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_t1_f43_a_foreign_host_is_refused(server: Running, host: str):
    answer = server.ask("tools/list", headers={"host": host})

    assert answer.status in (400, 421)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_t1_f43_a_foreign_origin_is_refused(server: Running, origin: str):
    answer = server.ask("tools/list", headers={"origin": origin})

    assert answer.status == 403


def test_t1_the_servers_own_origin_is_taken(server: Running):
    answer = server.ask("tools/list", headers={"origin": f"http://127.0.0.1:{server.port}"})

    assert answer.status == 200


def test_t2_only_the_endpoint_answers(server: Running):
    found = [server.send(b"", {}, method, path).status for method in ("GET", "POST") for path in ("/", "/run", "/sse")]

    assert set(found) == {404}


def test_t2_without_the_token_nothing_is_answered():
    with running(auth=token_is("0123456789abcdef")) as server:
        none = server.ask("tools/list")
        wrong = server.ask("tools/list", headers={"authorization": "Bearer nope"})
        basic = server.ask("tools/list", headers={"authorization": "Basic 0123456789abcdef"})
        right = server.ask("tools/list", headers={"authorization": "Bearer 0123456789abcdef"})

    assert [none.status, wrong.status, basic.status, right.status] == [401, 401, 401, 200]
    assert wrong.headers["www-authenticate"] == 'Bearer error="invalid_token"'


def test_t11_h2_a_declared_giant_is_refused_unread(server: Running):
    with server.socket() as raw:
        raw.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 104857600\r\n\r\n"
        )

        assert b" 413 " in raw.recv(200)


def test_t11_h2_a_giant_in_pieces_is_refused_at_the_limit(server: Running):
    """50 MB: the answer comes when the limit is passed, or the connection is closed."""
    piece = b"x" * 65536
    with server.socket() as raw:
        raw.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 50_000_000:
                raw.sendall(b"10000\r\n" + piece + b"\r\n")
                sent += len(piece)
        except OSError:
            pass
    after = server.call("echo", {"text": "alive"})

    assert sent < 50_000_000
    assert after["isError"] is False


@pytest.mark.parametrize("depth", [200, 10_000])
def test_t13_f16_deep_json_is_refused_with_its_id(server: Running, depth: int):
    body = b'{"jsonrpc":"2.0","id":"deep","method":"tools/list","params":' + b"[" * depth + b"]" * depth + b"}"

    answer = server.send(body, JSON)

    assert answer.status == 400
    assert answer.json["id"] == "deep"
    assert answer.json["error"]["code"] == -32700


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b"[1]", b'"text"', b"\xff\xfe", b'{"jsonrpc":"2.0"}', b'{"id":{}}', b"1" * 5000],
    ids=repr,
)
def test_t13_f21_malformed_bodies_get_a_400(server: Running, body: bytes):
    answer = server.send(body, {**JSON, "mcp-protocol-version": "2026-07-28"})

    assert answer.status == 400


def test_t13_a_lone_surrogate_is_refused(server: Running):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\ud800"}}).encode()

    answer = server.send(body, {**JSON, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"})

    assert answer.status == 400


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
def test_t13_only_utf_8_is_read(server: Running, coding: str, era: str):
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": ENVELOPE}
    text = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    twice = text.replace('"b": 2', '"b": 2, "b": 40')

    answers = [
        server.send(
            given.encode(coding), {**JSON, "mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "add"}
        )
        for given in (text, twice)
    ]

    assert [(answer.status, answer.json["error"]["code"]) for answer in answers] == [(400, -32700)] * 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","name":"wipe"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","method" :"tools/list"}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":[{"b":1,"\\u0062":2}]}}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"y" * 20_000 + b'"},"params":{}}',
    ],
    ids=["plain", "space before a colon", "written with an escape", "long"],
)
@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
def test_t13_a_key_that_stands_twice_is_refused_with_the_id(server: Running, body: bytes, era: str):
    answer = server.send(body, {**JSON, "mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "add"})

    assert answer.status == 400
    assert answer.json["id"] == 7
    assert "duplicate key" in answer.json["error"]["message"]


@pytest.mark.parametrize("text", ['":', '"a":1', 'a\\":', " :"], ids=["mark", "key", "escaped", "space"])
def test_t13_a_text_that_looks_like_a_key_is_none(server: Running, text: str):
    assert server.call("echo", {"text": text})["content"][0]["text"] == text


def test_t13_an_integer_of_5000_digits_is_answered(server: Running):
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":%s}}}' % (
        b"9" * 5000
    )

    answer = server.send(body, {**JSON, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"})

    assert answer.status == 400


def test_t16_f47_answers_never_cross():
    with running() as server, ThreadPoolExecutor(20) as pool:

        def client(number: int) -> list[bool]:
            texts = [f"{number}-{turn}" for turn in range(25)]
            return [server.call("echo", {"text": text}, id=1)["content"][0]["text"] == text for text in texts]

        crossed = [ok for oks in pool.map(client, range(40)) for ok in oks].count(False)

    assert crossed == 0


def test_t16_a_session_belongs_to_who_opened_it():
    def verify(token: str) -> str | None:
        return {"a" * 16: "alice", "b" * 16: "bob"}.get(token)

    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with running(auth=verify) as server:
        alice = {**JSON, "authorization": f"Bearer {'a' * 16}"}
        opened = server.send(rpc("initialize", hello), alice)
        known = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        own = server.send(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}), {**alice, **known})
        thief = {**JSON, **known, "authorization": f"Bearer {'b' * 16}"}
        stolen = server.send(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}), thief)

    assert own.status == 200
    assert stolen.status == 404


def test_t16_a_tool_knows_for_whom_it_is_called():
    with running(auth=lambda token: {"user": "alice"}) as server:
        found = server.call("who", headers={"authorization": "Bearer x"})

    assert found["content"][0]["text"] == "alice"


def test_t17_f48_dripping_headers_are_dropped(monkeypatch: pytest.MonkeyPatch):
    """Slowloris: bytes come, a whole header never does."""
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.5)
    with running() as server:
        raws = [server.socket() for _ in range(50)]
        for raw in raws:
            raw.sendall(b"POST /mcp HTTP/1.1\r\nhost: local")
        closed = [is_closed(raw) for raw in raws]
        alive = server.call("echo", {"text": "alive"})
        for raw in raws:
            raw.close()

    assert all(closed)
    assert alive["isError"] is False


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /nope HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n", b" 404 "),
        (b"POST /mcp HTTP/1.1\r\nhost: evil\r\ncontent-length: 1000\r\n\r\n", b" 421 "),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n", b" 413 "),
        (b"GET /nope HTTP/1.1\r\nhost: localhost\r\n\r\n", b" 404 "),
    ],
)
@pytest.mark.parametrize("more", [b"x", b"\r\n"])
def test_t17_a_connection_that_was_refused_and_drips_is_closed(
    head: bytes, status: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.2)
    with running() as server, server.socket() as raw:
        raw.sendall(head)
        answer = raw.recv(1000)
        raw.sendall(more)

        with contextlib.suppress(ConnectionResetError):
            while raw.recv(1000):
                pass

    assert status in answer


def test_t17_f48_an_unfinished_body_is_answered_in_time():
    with running() as server:
        object.__setattr__(server.app.guard, "body_seconds", 0.3)
        with server.socket() as raw:
            raw.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
            answer = raw.recv(200)

    assert b" 408 " in answer


def test_t17_a_thousand_idle_connections_leave_room_for_one_that_asks():
    with running() as server:
        raws = [server.socket() for _ in range(1000)]
        found = server.call("echo", {"text": "alive"})
        for raw in raws:
            raw.close()

    assert found["content"][0]["text"] == "alive"


def test_t17_one_machine_cannot_take_every_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "UNLIMITED_PEERS", frozenset())
    monkeypatch.setattr(http_server, "MAX_PEER_CONNECTIONS", 4)
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 600.0)
    with running() as server:
        raws = [server.socket() for _ in range(12)]
        found = server.call("echo", {"text": "alive"})
        few = eventually(lambda: len(server.server.server_state.connections) <= 4)
        for raw in raws:
            raw.close()

    assert found["content"][0]["text"] == "alive"
    assert few


def test_t17_a_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.3)
    params = {"name": "big", "arguments": {}, "_meta": ENVELOPE}
    body = rpc("tools/call", params)
    with running() as server, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.port))
        raw.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
            b"mcp-method: tools/call\r\nmcp-name: big\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        state = server.server.server_state

        assert eventually(lambda: state.connections)
        assert eventually(lambda: not state.connections)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n", b"x: " + b"y" * 1000 + b"\r\n"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ", b"y" * 1000),
        (b"POST /mcp?", b"y" * 1000),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", b""),
    ],
    ids=["headers", "value", "address", "at once"],
)
def test_t17_a_head_without_end_is_cut(start: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 60.0)
    with running() as server, server.socket() as raw:
        with contextlib.suppress(OSError):
            raw.sendall(start)
            for _ in range(2_000):
                raw.sendall(piece)

        assert is_closed(raw)


def test_t22_f29_no_secret_reaches_a_client_or_a_log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-0123456789"  # noqa: S105 - made up, and looked for below

    with running(auth=token_is(secret)) as server:
        headers = {"authorization": f"Bearer {secret}"}
        found = [
            server.ask("tools/call", {"name": "echo", "arguments": {"text": 1}}, headers=headers),
            server.ask("tools/call", {"name": "add", "arguments": {"a": secret}}, headers=headers),
            server.ask("tools/list", headers={"authorization": f"Bearer wrong{secret}"}),
        ]

    assert found[2].status == 401
    assert secret not in found[2].body.decode()
    assert secret not in caplog.text


@pytest.mark.parametrize("kind", ["nan", "surrogate", "ring", "deep", "object"])
def test_f25_f26_f27_what_json_cannot_say_is_an_error_or_a_text(server: Running, kind: str):
    found = server.call("odd", {"kind": kind})

    assert found["isError"] is True or kind in ("surrogate", "object")
    json.dumps(found).encode()
    assert server.call("echo", {"text": "alive"})["isError"] is False


@pytest.mark.parametrize("name", ["leave", "leave_thread"])
@pytest.mark.parametrize("kind", ["exit", "base", "cancel"])
def test_f28_whatever_a_tool_raises_the_server_lives(server: Running, name: str, kind: str):
    if (name, kind) == ("leave_thread", "cancel"):
        kind = "interrupt"

    found = server.call(name, {"kind": kind})

    assert found["isError"] is True
    assert server.call("echo", {"text": "alive"})["isError"] is False


@pytest.mark.parametrize("name", ["f34_async", "f35_sync"])
def test_f34_f35_a_tool_that_takes_too_long_is_a_result(name: str):
    release = threading.Event()

    @tool(timeout=0.1, name="f34_async")
    async def waits() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "late"

    @tool(timeout=0.1, name="f35_sync")
    def blocks() -> str:
        """Block a thread."""
        release.wait(30)
        return "late"

    with running(Toolbox(waits, blocks)) as server:
        found = server.call(name)
        release.set()

    assert found["isError"]
    assert "0.1" in found["content"][0]["text"]


def test_f38_stuck_tools_leave_the_others_and_the_protocol_alone():
    release = threading.Event()

    @tool
    def stuck() -> str:
        """Block a thread."""
        release.wait(60)
        return "late"

    @tool
    def quick() -> str:
        """Answer."""
        return "quick"

    with running(Toolbox(stuck, quick)) as server, ThreadPoolExecutor(50) as pool:
        held = [pool.submit(server.call, "stuck") for _ in range(50)]
        found = server.call("quick")
        listed = server.ask("tools/list").json["result"]["tools"]
        release.set()
        late = {each.result()["content"][0]["text"] for each in held}

    assert found["content"][0]["text"] == "quick"
    assert len(listed) == 2
    assert late == {"late"}


def test_f57_types_are_taken_as_declared(server: Running):
    extra = server.call("add", {"a": 1, "b": 2, "c": 3})
    truth = server.call("add", {"a": True, "b": 2})

    assert extra["structuredContent"] == {"result": 3}
    assert truth["isError"] is True


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"mcp-method": "tools/call"}, 400),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
        ({"content-type": "text/plain"}, 400),
        ({"accept": "text/html"}, 406),
    ],
    ids=["method", "version", "content type", "accept"],
)
def test_h1_wrong_headers_are_refused(server: Running, headers: dict[str, str], status: int):
    assert server.ask("tools/list", headers=headers).status == status


def test_h1_other_methods_are_not_allowed(server: Running):
    answer = server.send(b"", {"mcp-protocol-version": "2026-07-28", "accept": ACCEPT}, "GET")

    assert answer.status == 405


def test_memory_does_not_grow_with_refused_requests():
    with running() as server:
        for _ in range(300):
            server.send(b"{", JSON)
        before = resident()
        for _ in range(2000):
            server.send(b"{", JSON)

        assert resident() - before < 20_000_000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def is_closed(raw: socket.socket) -> bool:
    raw.settimeout(10)
    try:
        return raw.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def rpc(method: str, params: dict) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def test_a_mounted_application_starts_with_its_first_request():
    import asyncio

    from toolmason import asgi_app

    async def main() -> list[dict]:
        app = asgi_app(shelf(), path="/tools")
        sent: list[dict] = []
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "prompts/list", "params": {"_meta": ENVELOPE}}).encode()
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"accept", ACCEPT.encode()),
            (b"mcp-protocol-version", b"2026-07-28"),
            (b"mcp-method", b"prompts/list"),
        ]
        scope = {"type": "http", "method": "POST", "path": "/app/tools", "root_path": "/app", "headers": headers}
        given = iter([{"type": "http.request", "body": body}])

        async def receive() -> dict:
            found = next(given, None)
            return found if found is not None else await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: dict) -> None:
            sent.append(message)

        await app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)
        await app.aclose()
        return sent

    assert asyncio.run(main())[0]["status"] == 200


def test_calls_under_way_are_answered_when_the_server_stops():
    with running() as server:
        found: list[dict] = []
        thread = threading.Thread(target=lambda: found.append(server.call("echo", {"text": "x"})))
        thread.start()
        thread.join(10)
        started = time.monotonic()
    assert found
    assert time.monotonic() - started < 10
