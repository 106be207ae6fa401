"""Requests on a connection: who answers them, in which order, and when the connection ends."""

import asyncio
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, VERSION, Running, eventually, running, shelf
from toolmason import Image, Toolbox, tool
from toolmason.mcp import token_is
from toolmason.mcp_server.http import http_server
from toolmason.mcp_server.http.http_server import make_http_server

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def _body(number: Any = 1, name: str = "echo", **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments or {"text": "hi"}, "_meta": ENVELOPE}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def _head(size: int | None, name: str = "echo", more: str = "", line: str = "POST /mcp HTTP/1.1") -> bytes:
    length = "" if size is None else f"Content-Length: {size}\r\n"
    return (
        f"{line}\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: {ACCEPT}\r\n"
        f"Mcp-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n{more}{length}\r\n"
    ).encode()


def _call(number: Any = 1, name: str = "echo", more: str = "", **arguments: Any) -> bytes:
    body = _body(number, name, **arguments)
    return _head(len(body), name, more) + body


def _read(connection: socket.socket, method: str = "POST") -> tuple[int, bytes, str | None]:
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return response.status, response.read(), response.getheader("connection")


def _read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 20), b""))


# --- malformed requests -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        f"Content-Length: {len(_body())}\r\n",
        "Content-Length: 5\r\n",
        "Content-Length : 5\r\n",
        "Folded: a\r\n b\r\n",
        "No colon\r\n",
        "Nul: \0\r\n",
    ],
    ids=["both lengths", "chunked, not last", "length twice", "two lengths", "space", "folded", "no colon", "nul"],
)
def test_t2_a_request_that_a_proxy_may_read_otherwise_is_refused(server: Running, more: str):
    """RFC 9112, 6.3: a request that has two lengths may be an attempt to smuggle another one behind it."""
    with server.socket() as connection:
        connection.sendall(_call(more=more) + _call(2))
        found = _read_all(connection)

    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "framing", [b"xyz\r\n", b"-1\r\n", b"5\r\nhello!\r\n", b"5\nhello\r\n"], ids=["size", "negative", "long", "line"]
)
def test_t2_invalid_chunks_end_the_connection(server: Running, framing: bytes):
    with server.socket() as connection:
        connection.sendall(_head(None, more="Transfer-Encoding: chunked\r\n") + framing + b"0\r\n\r\n" + _call(2))
        found = _read_all(connection)

    assert b'"id":2' not in found


@pytest.mark.parametrize(("target", "status"), [("evil.example", 400), ("127.0.0.1:1", 400), (None, 200)])
def test_the_host_of_a_whole_url_counts(server: Running, target: str | None, status: int):
    with server.socket() as connection:
        host = re.search(rb"host: (\S+)", _call(), re.IGNORECASE)
        assert host is not None
        whole = b"POST http://%b/mcp " % (host[1] if target is None else target.encode())
        connection.sendall(_call(more="Connection: close\r\n").replace(b"POST /mcp ", whole))
        found = _read_all(connection)

    assert found.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        ("LOCALHOST:34117", "localhost:34117", 200),
        ("localhost", "localhost:80", 200),
        ("localhost:80", "localhost", 200),
        ("[::1]:34117", "[::1]:34117", 200),
        ("[::1]", "[::2]", 400),
        ("localhost:443", "localhost", 400),
    ],
)
def test_the_host_of_a_whole_url_may_be_spelt_in_another_way(server: Running, target: str, header: str, status: int):
    with server.socket() as connection:
        whole = b"POST http://%b/mcp " % target.encode()
        request = _call(more="Connection: close\r\n").replace(b"POST /mcp ", whole)
        connection.sendall(re.sub(rb"(?i)(host: )\S+", rb"\g<1>" + header.encode(), request))
        found = _read_all(connection)

    assert found.startswith(b"HTTP/1.1 %d " % status)


def test_what_follows_a_valid_request_does_not_take_its_answer(server: Running):
    with server.socket() as connection:
        connection.sendall(_call(7) + b"nonsense\r\n\r\n")
        found = _read_all(connection)

    assert found.startswith(b"HTTP/1.1 200 ")
    assert b'"id":7' in found
    assert b"HTTP/1.1 400 " in found


# --- one after the other ------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_requests(server: Running):
    """The first waits for a thread, the second is another path, and the others are answered at once."""
    other = b"GET /nope HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with server.socket() as connection:
        last = _call(5, more="Connection: close\r\n")
        connection.sendall(_call(1, "add", a=1, b=2) + other + _call(3) + _call(4, "nope") + last)
        found = _read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200", b"404", b"200", b"400", b"200"]
    assert re.findall(rb'"id":(\w+)', found) == [b"1", b"null", b"3", b"4", b"5"]


def test_t17_the_answers_to_a_client_that_does_not_read_do_not_pile_up():
    begun: list[int] = []

    @tool
    async def large() -> Image:
        """Return a megabyte."""
        begun.append(1)
        return Image(b"x" * 1_000_000)

    with running(Toolbox(large)) as server, server.socket() as connection:
        connection.sendall(_call(1, "large") * 19 + _call(2, "large", more="Connection: close\r\n"))
        connections = server.server.server_state.connections
        assert eventually(lambda: any(not other.writable.is_set() for other in connections))
        early = len(begun)
        found = _read_all(connection)

    assert early < 19
    assert len(begun) == found.count(b"HTTP/1.1 200") == 20


def test_many_requests_at_once_are_answered_once_each_on_uvloop(caplog: pytest.LogCaptureFixture):
    """Only uvloop reads between the end of a response and the start of the next request."""
    uvloop = pytest.importorskip("uvloop")
    server = Running(shelf())
    server.thread = threading.Thread(target=lambda: uvloop.run(server.server.serve()), daemon=True)
    server.start()
    sent = b"".join(_call(number) for number in range(1000)) + _call(1000, more="Connection: close\r\n")

    with server.socket() as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        found = _read_all(connection)
        sender.join()
    server.stop()

    assert re.findall(rb'"id":(\d+)', found) == [b"%d" % number for number in range(1001)]
    assert "Exception in callback" not in caplog.text


@pytest.mark.parametrize("cut", [1, 30, 200, -40, -1])
def test_a_request_in_two_pieces_is_one_request(server: Running, cut: int):
    with server.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(3):
            connection.sendall(_call(number)[:cut])
            connection.sendall(_call(number)[cut:])
            assert json.loads(_read(connection)[1])["id"] == number


def test_a_body_that_is_late_is_read_by_the_application(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "DIRECT_BODY_SECONDS", 0.0)
    with running() as server, server.socket() as connection:
        sent = _call(1)
        connection.sendall(sent[:-10])
        assert eventually(lambda: server.server.server_state.tasks)
        connection.sendall(sent[-10:] + _call(2, more="Connection: close\r\n"))
        found = _read_all(connection)

    assert re.findall(rb'"id":(\w+)', found) == [b"1", b"2"]


def test_a_body_that_is_in_time_starts_one_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "DIRECT_BODY_SECONDS", 0.05)
    begun: list[str] = []

    @tool
    async def wait() -> str:
        """Wait until the body would be late."""
        begun.append("x")
        await asyncio.sleep(0.2)
        return "waited"

    with running(Toolbox(wait)) as server, server.socket() as connection:
        sent = _call(1, "wait", more="Connection: close\r\n")
        connection.sendall(sent[:-10])
        assert eventually(lambda: any(other.waits_for_client for other in server.server.server_state.connections))
        connection.sendall(sent[-10:])
        found = _read_all(connection)

    assert found.count(b"waited") == 2
    assert begun == ["x"]


def test_a_client_that_asks_first_may_send_its_body(server: Running):
    with server.socket() as connection:
        connection.sendall(_head(len(_body()), more="Expect: 100-continue\r\n"))
        interim = connection.recv(len(b"HTTP/1.1 100 Continue\r\n\r\n"))
        connection.sendall(_body())
        status, _, _ = _read(connection)

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status == 200


def test_a_refused_client_that_asks_first_need_not_send_its_body(server: Running):
    with server.socket() as connection:
        connection.sendall(_head(99_999_999, more="Expect: 100-continue\r\n"))

        assert _read(connection)[0] == 413


def test_the_answer_to_head_has_no_body(server: Running):
    with server.socket() as connection:
        connection.sendall(b"HEAD /nope HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = _read(connection, "HEAD")
        connection.sendall(_call(2))
        after = _read(connection)

    assert head[:2] == (404, b"")
    assert json.loads(after[1])["id"] == 2


# --- the end of a connection --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["echo", "nope"])
@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("POST /mcp HTTP/1.1", "Connection: close\r\n"),
        ("POST /mcp HTTP/1.1", "Connection: Keep-Alive, Close\r\n"),
        ("POST /mcp HTTP/1.0", ""),
        ("POST /mcp HTTP/1.0", "Connection: keep-alive\r\n"),
    ],
    ids=["close", "close among others", "1.0", "1.0 keep-alive"],
)
def test_a_connection_ends_if_the_client_says_so(server: Running, line: str, more: str, name: str):
    with server.socket() as connection:
        connection.sendall(_head(len(_body(name=name)), name, more, line) + _body(name=name) + _call(2))
        status, body, ends = _read(connection)
        rest = _read_all(connection)

    assert (status, ends) == (200 if name == "echo" else 400, "close")
    assert json.loads(body)["id"] == 1
    assert rest == b""


def test_a_stream_for_http_1_0_ends_with_the_connection(server: Running):
    params = {"name": "steps", "arguments": {}, "_meta": {**ENVELOPE, "progressToken": "t"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    with server.socket() as connection:
        connection.sendall(_head(len(body), "steps", line="POST /mcp HTTP/1.0") + body)
        found = _read_all(connection)

    assert b"transfer-encoding" not in found
    assert found.count(b"data:") >= 2


# --- both ways ----------------------------------------------------------------------------------


@contextmanager
def _through_asgi(**options: Any) -> Iterator[Running]:
    """Serve an application that the connection does not know, so that it answers nothing itself."""
    server = Running(shelf(), **options)
    app = server.app

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    server.server = make_http_server(wrapped, "127.0.0.1", 0, 2)
    server.start()
    try:
        yield server
    finally:
        server.stop()


_REQUESTS = {
    "call": ("tools/call", {"name": "echo", "arguments": {"text": "ü\n\u2028"}}, {}),
    "number": ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, {}),
    "failure": ("tools/call", {"name": "explode", "arguments": {}}, {}),
    "invalid arguments": ("tools/call", {"name": "add", "arguments": {"a": "x"}}, {}),
    "unknown tool": ("tools/call", {"name": "nope", "arguments": {}}, {}),
    "parts": ("tools/call", {"name": "everything", "arguments": {}}, {}),
    "surrogate": ("tools/call", {"name": "odd", "arguments": {"kind": "surrogate"}}, {}),
    "nan": ("tools/call", {"name": "odd", "arguments": {"kind": "nan"}}, {}),
    "list": ("tools/list", {}, {}),
    "prompts": ("prompts/list", {}, {}),
    "ping": ("ping", {}, {}),
    "other name": ("tools/call", {"name": "echo", "arguments": {"text": "x"}}, {"mcp-name": "add"}),
    "other method": ("tools/call", {"name": "echo", "arguments": {"text": "x"}}, {"mcp-method": "tools/list"}),
    "host": ("tools/list", {}, {"host": "evil.example"}),
    "origin": ("tools/list", {}, {"origin": "http://evil.example"}),
    "accept": ("tools/list", {}, {"accept": "text/html"}),
    "kind": ("tools/list", {}, {"content-type": "text/plain"}),
    "version": ("tools/list", {}, {"mcp-protocol-version": "1999-01-01"}),
    "no token": ("tools/list", {}, {"authorization": ""}),
    "wrong token": ("tools/list", {}, {"authorization": "Bearer wrong"}),
}
_TOKEN = "0123456789abcdef"  # noqa: S105 - made up


@pytest.mark.parametrize("name", _REQUESTS)
def test_a_request_gets_the_same_answer_with_and_without_asgi(both_ways: tuple[Running, Running], name: str):
    method, params, headers = _REQUESTS[name]

    direct, through = (
        server.ask(method, params, headers={"authorization": f"Bearer {_TOKEN}", **headers}) for server in both_ways
    )

    assert (direct.status, _unmark(direct.body)) == (through.status, _unmark(through.body))
    assert direct.headers.get("content-type") == through.headers.get("content-type")


def _unmark(body: bytes) -> bytes:
    """Remove the random id of an error."""
    return re.sub(rb"\b[0-9a-f]{12}\b", b"", body)


@pytest.fixture(scope="module")
def both_ways() -> Iterator[tuple[Running, Running]]:
    with running(auth=token_is(_TOKEN)) as direct, _through_asgi(auth=token_is(_TOKEN)) as through:
        yield direct, through


@pytest.mark.parametrize("body", [b"{", b'{"a":1,"a":2}', b"[]", b"", b"null", b'{"x":1e999}'], ids=repr)
def test_a_body_that_cannot_be_read_gets_the_same_answer(both_ways: tuple[Running, Running], body: bytes):
    headers = {"content-type": "application/json", "accept": ACCEPT, "authorization": f"Bearer {_TOKEN}"}

    direct, through = (server.send(body, {**headers, "mcp-protocol-version": VERSION}) for server in both_ways)

    assert (direct.status, direct.json) == (through.status, through.json)


@pytest.mark.parametrize("name", ["echo", "add", "who", "nope"])
def test_a_call_in_a_session_gets_the_same_answer(both_ways: tuple[Running, Running], name: str):
    arguments = {"echo": {"text": "x"}, "add": {"a": 1, "b": 2}}.get(name, {})
    found = []
    for server in both_ways:
        token = {"authorization": f"Bearer {_TOKEN}"}
        session = server.ask_in_session("initialize", HELLO, token).headers["mcp-session-id"]
        headers = {**token, "mcp-session-id": session}
        calls = [server.ask_in_session("tools/call", {"name": name, "arguments": arguments}, headers) for _ in range(3)]
        found.append([(answer.status, answer.json) for answer in calls])

    assert found[0] == found[1]
    assert found[0][0] == found[0][2]


def test_a_function_that_checks_tokens_is_asked_for_each_request():
    asked: list[str] = []

    def verify(token: str) -> str | None:
        asked.append(token)
        return "ada" if token == "good" else None  # noqa: S105 - made up

    with running(auth=verify) as server:
        found = [server.call("who", headers={"authorization": "Bearer good"}) for _ in range(2)]
        refused = server.ask("tools/list", headers={"authorization": "Bearer bad"})

    assert [result["content"][0]["text"] for result in found] == ["ada", "ada"]
    assert (refused.status, asked) == (401, ["good", "good", "bad"])


# --- other applications -------------------------------------------------------------------------


@contextmanager
def _application(answer: Any) -> Iterator[Running]:
    """Serve an ASGI application of a test."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await answer(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    server = Running(shelf())
    server.server = make_http_server(app, "127.0.0.1", 0, 2)
    server.start()
    try:
        yield server
    finally:
        server.stop()


async def _start(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _fail(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("broken")


async def _say_nothing(scope: Any, receive: Any, send: Any) -> None:
    """Return without a response."""


async def _stop_halfway(scope: Any, receive: Any, send: Any) -> None:
    await _start(send)
    await send({"type": "http.response.body", "body": b"part", "more_body": True})


async def _say_too_much(scope: Any, receive: Any, send: Any) -> None:
    await _start(send, (b"content-length", b"2"))
    await send({"type": "http.response.body", "body": b"okHTTP/1.1 200 OK\r\n\r\n"})
    await send({"type": "http.response.body", "body": b"more"})


async def _say_too_little(scope: Any, receive: Any, send: Any) -> None:
    await _start(send, (b"content-length", b"9"))
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize(
    ("answer", "start", "end"),
    [
        (_fail, b"HTTP/1.1 500 ", b"Internal Server Error"),
        (_say_nothing, b"HTTP/1.1 500 ", b"Internal Server Error"),
        (_stop_halfway, b"HTTP/1.1 200 ", b"4\r\npart\r\n"),
        (_say_too_much, b"HTTP/1.1 200 ", b"\r\n\r\nok"),
        (_say_too_little, b"HTTP/1.1 200 ", b"\r\n\r\nok"),
    ],
)
def test_an_application_that_breaks_its_response_ends_its_connection(answer: Any, start: bytes, end: bytes):
    with _application(answer) as server, server.socket() as connection:
        connection.sendall(_call(1) + (b"" if answer is _say_too_much else _call(2)))
        if answer is _say_too_much:
            connection.shutdown(socket.SHUT_WR)
        found = _read_all(connection)

    assert found.startswith(start)
    assert found.endswith(end)
    assert found.count(b"HTTP/1.1") == 1


def test_a_trusted_proxy_names_the_client():
    async def tell(scope: Any, receive: Any, send: Any) -> None:
        await _start(send)
        await send({"type": "http.response.body", "body": json.dumps(scope["client"]).encode()})

    with _application(tell) as server:
        answer = server.send(b"", {"x-forwarded-for": "203.0.113.7"}, "GET", "/a%20b?c=d")

    assert answer.json[0] == "203.0.113.7"
