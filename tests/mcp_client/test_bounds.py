"""Whatever an HTTP server answers, to whatever was asked, no more of it is read than it may be long."""

import gzip
import zlib

import httpx2
import pytest

from toolmason.mcp_client.transport.http import MAX_BODY_BYTES, MAX_OTHER_BYTES, BoundedTransport

HOME = "http://own.example/mcp"
METADATA = "http://own.example/.well-known/oauth-protected-resource"
PIECE = b" " * 65536
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}}


class Endless(httpx2.AsyncByteStream):
    """A body that goes on for as long as it is read."""

    def __init__(self, most=1000):
        self.given, self.most = 0, most

    async def __aiter__(self):
        while self.given < self.most:
            self.given += 1
            yield PIECE


class Answering(httpx2.AsyncBaseTransport):
    """A server that gives one answer."""

    def __init__(self, stream, status=200, **headers):
        self.stream, self.status, self.seen = stream, status, []
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def handle_async_request(self, request):
        self.seen.append(request)
        return httpx2.Response(self.status, headers=self.headers, stream=self.stream, request=request)


class Given(httpx2.AsyncByteStream):
    """A body in one piece."""

    def __init__(self, content):
        self.content = content

    async def __aiter__(self):
        yield self.content


async def asked(inner, request):
    response = await BoundedTransport(inner, HOME).handle_async_request(request)
    return response, await response.aread()


def reading(url=METADATA):
    return httpx2.Request("GET", url)


@pytest.mark.parametrize("kind", ["application/json", "text/html", ""])
@pytest.mark.parametrize("status", [200, 401, 500])
async def test_what_a_server_says_of_itself_is_read_within_bounds(kind, status):
    body = Endless()

    response, _ = await asked(Answering(body, status, content_type=kind), reading())

    assert response.status_code == 502
    assert body.given * len(PIECE) <= MAX_OTHER_BYTES + len(PIECE)


@pytest.mark.parametrize("status", [200, 400])
async def test_an_error_page_in_place_of_an_answer_is_read_within_bounds(status):
    body = Endless()

    _, content = await asked(Answering(body, status, content_type="text/html"), httpx2.Request("POST", HOME, json=CALL))

    assert b"longer than the limit" in content
    assert body.given * len(PIECE) <= MAX_OTHER_BYTES + len(PIECE)


async def test_an_answer_is_read_within_bounds():
    body = Endless()

    _, content = await asked(Answering(body, content_type="application/json"), httpx2.Request("POST", HOME, json=CALL))

    assert b"longer than the limit" in content
    assert body.given * len(PIECE) <= MAX_BODY_BYTES + len(PIECE)


async def test_a_bomb_is_not_unpacked():
    bomb = gzip.compress(b" " * (MAX_OTHER_BYTES + 1))

    response, content = await asked(Answering(Given(bomb), content_encoding="gzip"), reading())

    assert response.status_code == 502
    assert b"longer than the limit" in content


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_what_is_packed_without_being_asked_for_is_read_all_the_same(coding, pack):
    inner = Answering(Given(pack(b'{"issuer": "x"}')), content_encoding=coding, content_type="application/json")

    response, content = await asked(inner, reading())

    assert (response.status_code, content) == (200, b'{"issuer": "x"}')
    assert inner.seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "zstd", "gzip"])
async def test_what_cannot_be_unpacked_within_bounds_is_not_an_answer(coding):
    response, _ = await asked(Answering(Given(b"not packed"), content_encoding=coding), reading())

    assert response.status_code == 502


async def test_a_packed_stream_is_not_read_as_one():
    inner = Answering(Given(gzip.compress(b"data: {}\n\n")), content_type="text/event-stream", content_encoding="br")

    _, content = await asked(inner, httpx2.Request("POST", HOME, json=CALL))

    assert b"compressed" in content


async def test_a_stream_is_passed_on_as_it_comes():
    body = Endless(1)

    response = await BoundedTransport(Answering(body, content_type="text/event-stream"), HOME).handle_async_request(
        reading()
    )

    assert body.given == 0
    assert await response.aread() == PIECE


async def test_what_breaks_off_is_not_an_answer():
    class Broken(httpx2.AsyncByteStream):
        async def __aiter__(self):
            yield b"{"
            raise httpx2.ReadError("gone")

    response, content = await asked(Answering(Broken()), reading())

    assert (response.status_code, content) == (502, b"the response was interrupted: ReadError: gone")


async def test_an_answer_of_two_kinds_is_read_within_the_bounds_of_the_first():
    body = Endless()
    inner = Answering(body)
    inner.headers = [("content-type", "application/json"), ("content-type", "text/event-stream")]

    _, answer = await asked(inner, httpx2.Request("POST", HOME, json=CALL))

    assert b"longer than the limit" in answer
    assert body.given <= MAX_BODY_BYTES // len(PIECE) + 1
