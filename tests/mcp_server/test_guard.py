"""Who may come in, by every header and every way of sending a body."""

import asyncio
import json
import math
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.sample_server import ACCEPT, ENVELOPE, Running, running
from toolmason import McpServer, Toolbox
from toolmason._http.caller import ANONYMOUS
from toolmason._http.guard import SINGLE_HEADERS, Bearer, ErrorResponse, Guard
from toolmason.errors import ConfigError
from toolmason.mcp_client.transport.framing import UnreadableMessage, parse_json, parse_message
from toolmason.mcp_server.http.app import asgi_app

HOST = (b"host", b"localhost:8000")
GOOD = {b"authorization": b"Bearer good"}


def refused(guard: Guard, *raw: tuple[bytes, bytes]) -> int | None:
    found = guard.check_headers(dict(raw), raw)
    return None if found is None else found.status


def test_t1_a_host_or_origin_that_is_there_twice_is_refused_also_when_it_is_known():
    guard = Guard()
    first = refused(guard, HOST, HOST)
    known = refused(guard, HOST)
    again = refused(guard, HOST, HOST)
    others = refused(guard, HOST, (b"accept", b"a"), (b"accept", b"b"))

    assert (first, known, again, others) == (400, None, 400, None)


def test_t1_two_origins_are_refused_even_if_each_is_allowed():
    first, second = (b"origin", b"https://a.example"), (b"origin", b"https://b.example")
    guard = Guard(allowed_origins=frozenset({"https://a.example", "https://b.example"}))

    assert refused(guard, HOST, first, second) == 400


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        (("*",), b"anything.example", None),
        (("localhost",), None, 421),
        (("[::1]",), b"[::1]", None),
        (("[::1]",), b"[::1]:8000", None),
        (("localhost",), b"localhost:x", 421),
    ],
    ids=["all", "none", "ipv6", "ipv6 with a port", "port of letters"],
)
def test_t1_names_under_which_a_server_is_reached(hosts: Any, host: bytes | None, status: int | None):
    raw = () if host is None else ((b"host", host),)

    assert refused(Guard(frozenset(hosts)), *raw) == status


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        (
            b"tools.example.com",
            "Host 'tools.example.com' is not allowed. Add it to `allowed_hosts`, or use --allowed-host.",
        ),
        (b"a\x1b[2J\r\nset-cookie: b", r"Host 'a\\u001b[2J\\u000d\\nset-cookie: b' is not allowed."),
        (b"x" * 10_000, f"Host '{'x' * 79}…' is not allowed."),
    ],
    ids=["name", "control characters", "long"],
)
def test_t1_a_refused_host_is_named_short_and_printable(host: bytes, shown: str):
    raw = ((b"host", host),)
    found = Guard().check_headers(dict(raw), raw)

    assert found is not None
    assert found.message.startswith(shown)
    assert found.message.isprintable()
    assert (found.headers, len(found.message) < 200) == ((), True)


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        (("*",), b"https://page.example", None),
        (("https://page.example",), b"https://page.example", None),
        ((), b"http://localhost:8000", None),
        ((), b"http://localhost:8001", 403),
    ],
    ids=["all", "named", "own", "another port"],
)
def test_t1_pages_that_may_call(origins: Any, origin: bytes, status: int | None):
    assert refused(Guard(allowed_origins=frozenset(origins)), HOST, (b"origin", origin)) == status


async def test_t16_a_check_may_be_async_and_give_more_than_a_name():
    async def verify(token: str) -> dict[str, str] | None:
        return {"user": "ada", "tenant": "x"} if token == "good" else None  # noqa: S105 - of a test

    guard = Guard(bearer=Bearer(verify, "https://tools.example/mcp", scopes=["read"]))

    assert await guard.authenticate({b"authorization": b"bearer good"}) == {"user": "ada", "tenant": "x", "scopes": ()}
    bad = await guard.authenticate({b"authorization": b"Bearer bad"})
    assert isinstance(bad, ErrorResponse)
    challenge = dict(bad.headers)[b"www-authenticate"].decode()
    assert 'error="invalid_token"' in challenge
    assert 'scope="read"' in challenge
    assert b"scopes_supported" in guard.encode_metadata()


async def test_a_sync_check_does_not_block_the_loop():
    released = threading.Event()

    def verify(token: str) -> str | None:
        del token
        return "ada" if released.wait(5) else None

    check = asyncio.create_task(Guard(bearer=Bearer(verify)).authenticate(GOOD))
    asyncio.get_running_loop().call_soon(released.set)

    assert await check == {"user": "ada", "scopes": ()}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_check_that_hangs_ends_at_its_deadline(is_async: bool, caplog: pytest.LogCaptureFixture):
    released = threading.Event()

    async def wait(token: str) -> str:
        await asyncio.Event().wait()
        return token

    verify: Any = wait if is_async else lambda token: token if released.wait(5) else None
    guard = Guard(bearer=Bearer(verify), verify_seconds=0.05)
    try:
        found = await asyncio.wait_for(guard.authenticate(GOOD), 3)
    finally:
        released.set()

    assert isinstance(found, ErrorResponse)
    assert (found.status, found.message) == (
        503,
        "The bearer token could not be checked within 0.05 s. Try again later.",
    )
    assert "bearer token check did not finish within 0.05 s" in caplog.messages


async def test_without_a_check_everybody_is_nobody():
    guard = Guard()

    assert await guard.authenticate({}) == {}
    assert guard.encode_metadata() == b"{}"
    assert guard.metadata_url is None


def sender(*messages: Any) -> Any:
    left = list(messages)

    async def receive() -> Any:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ((part(b"{}", more=False),), b"{}"),
        ((part(b"{", more=True), part(b"}", more=False)), b"{}"),
        ((GONE,), None),
        ((part(b"{", more=True), GONE), None),
        ((part(b"x" * 11, more=False),), 413),
        ((part(b"x" * 6, more=True), part(b"x" * 6, more=True)), 413),
        ((part(b"x", more=True),), 408),
        ((), 408),
    ],
    ids=["whole", "parts", "gone", "gone in between", "large", "large in parts", "unfinished", "nothing"],
)
async def test_t11_t17_a_body_is_read_within_its_bounds(messages: Any, found: Any):
    guard = Guard(max_body_bytes=10, body_seconds=0.05)

    body = await guard.read_body({}, sender(*messages), {}, ANONYMOUS)

    assert (body.status if isinstance(body, ErrorResponse) else body) == found


@pytest.mark.parametrize("length", [b"11", b"-1", b"many"])
async def test_t11_a_length_that_is_too_much_or_none_is_refused_unread(length: bytes):
    body = await Guard(max_body_bytes=10).read_body({b"content-length": length}, sender(), {}, ANONYMOUS)

    assert isinstance(body, ErrorResponse)
    assert body.status == 413


@pytest.mark.parametrize("name", SINGLE_HEADERS, ids=bytes.decode)
@pytest.mark.parametrize("other", [b"same", b"other"], ids=bytes.decode)
def test_d16_a_header_that_decides_is_there_once(name: bytes, other: bytes):
    """Whoever checks a token and whoever uses it must not read two headers."""
    rest = [pair for pair in (HOST, (b"accept", b"a")) if pair[0] != name]
    value = HOST[1] if name == b"host" else b"http://localhost:8000" if name == b"origin" else b"same"
    second = value if other == b"same" else other

    found = [refused(Guard(), *pairs) for pairs in ([*rest, (name, value)], [(name, value), *rest, (name, second)])]

    assert found == [None, 400]


def test_d16_two_tokens_are_refused_before_either_is_checked():
    checked: list[str] = []

    def check(token: str) -> str:
        checked.append(token)
        return token

    with running(auth=check) as server, server.socket() as raw:
        raw.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a\r\n"
            b"Authorization: Bearer b\r\ncontent-length: 0\r\n\r\n"
        )
        answer = raw.recv(1024)

    assert answer.startswith(b"HTTP/1.1 400")
    assert checked == []


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NO_NUMBERS = st.sampled_from([math.nan, math.inf, -math.inf])


@given(JSON_VALUES, NO_NUMBERS, st.booleans())
def test_d17_what_is_no_number_of_json_is_refused_the_same_over_both_wires(value: Any, number: float, bare: bool):
    message = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": [value, number if bare else {"x": [number]}],
    }
    text = json.dumps(message).encode()

    assert isinstance(parse_json(text), UnreadableMessage)
    assert parse_message(text) == parse_json(text)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_d17_a_body_with_no_number_gets_a_400_with_its_id(server: Running, token: str):
    params = {"name": "add", "arguments": {"a": "?", "b": 1}, "_meta": ENVELOPE}
    text = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).replace('"?"', token)
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}

    answer = server.send(text.encode(), {"content-type": "application/json", "accept": ACCEPT, **headers})

    assert (answer.status, answer.json["id"], answer.json["error"]["code"]) == (400, 7, -32700)


@pytest.mark.parametrize("body", [b"not json", b'{"a": 1, "a": 2}', b"[" * 200 + b"]" * 200, '"é"'.encode("utf-16")])
def test_t13_a_body_that_we_cannot_read_is_left_to_no_other_reader(server: Running, body: bytes):
    answer = server.send(body, {"content-type": "application/json"})

    assert (answer.status, answer.json["error"]["code"]) == (400, -32700)


def test_t2_another_place_is_not_found():
    with running() as server:
        elsewhere = server.send(b"{}", {"content-type": "application/json"}, path="/other")

    assert elsewhere.status == 404
    assert "/mcp" in elsewhere.json["error"]["message"]


async def test_t2_a_websocket_is_closed():
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await asgi_app(Toolbox())({"type": "websocket"}, sender(), send)

    assert sent == [{"type": "websocket.close", "code": 1000}]


async def test_an_application_whose_server_is_required_and_away_does_not_start():
    away = McpServer.http("away", "http://127.0.0.1:1/mcp", required=True)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await asgi_app(Toolbox(away))({"type": "lifespan"}, sender({"type": "lifespan.startup"}), send)

    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "away" in sent[0]["message"]


def test_a_key_for_states_that_is_too_short_is_refused():
    with pytest.raises(ConfigError, match="state_key"):
        asgi_app(Toolbox(), state_key="short")
