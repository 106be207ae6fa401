"""What comes over a connection: heads that want another protocol, what stands behind a body, many at once."""

import http.client
import json
import threading

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, VERSION, Running

_JAVA = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
_PIECES = b"Transfer-Encoding: chunked\r\n"


def _body(number: int = 1) -> bytes:
    params = {"name": "echo", "arguments": {"text": "hi"}, "_meta": ENVELOPE}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def _head(more: bytes = b"", length: int | None = None) -> bytes:
    size = b"" if length is None else b"Content-Length: %d\r\n" % length
    known = f"Accept: {ACCEPT}\r\nMcp-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
    start = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return start + known.encode() + more + size + b"\r\n"


def _answered(server: Running, *pieces: bytes) -> http.client.HTTPResponse:
    with server.socket() as connection:
        for piece in pieces:
            connection.sendall(piece)
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.body = response.read()  # type: ignore[attr-defined]
        return response


@pytest.mark.parametrize("cut", [None, 40, 200, -10])
def test_a_client_that_would_like_http_2_is_answered_in_http_1(server: Running, cut: int | None):
    sent = _head(_JAVA, len(_body())) + _body()

    response = _answered(server, sent[:cut], b"" if cut is None else sent[cut:])

    assert response.status == 200
    assert b'"text":"hi"' in response.body  # type: ignore[attr-defined]


def test_a_client_that_would_like_http_2_and_an_end_gets_both_wishes_but_one(server: Running):
    sent = _head(_JAVA.replace(b"Upgrade,", b"Upgrade, Close,"), len(_body())) + _body()

    response = _answered(server, sent)

    assert (response.status, response.getheader("connection")) == (200, "close")


def test_requests_that_would_like_http_2_may_follow_each_other(server: Running):
    sent = _head(_JAVA, len(_body())) + _body()

    with server.socket() as connection:
        connection.sendall(sent * 2 + sent.replace(b"Upgrade,", b"Upgrade, close,"))
        found = b"".join(iter(lambda: connection.recv(1 << 20), b""))

    assert found.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("method", [b"CONNECT 127.0.0.1:80", b"PRI *"])
def test_what_is_no_request_to_us_is_refused(server: Running, method: bytes):
    response = _answered(server, method + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    assert response.status == 400


def test_t2_what_stands_behind_a_body_is_no_header(server: Running):
    behind = b"0\r\nMcp-Name: add\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n"

    response = _answered(server, _head(_PIECES) + b"%x\r\n%b\r\n" % (len(_body()), _body()) + behind)

    assert response.status == 200


@pytest.mark.parametrize(
    "start", [b"%x\r\n%b\r\n0\r\nTrailer: " % (len(_body()), _body()), b"5;extension="], ids=["behind", "between"]
)
def test_t11_what_stands_around_the_pieces_of_a_body_has_an_end(server: Running, start: bytes):
    with server.socket() as connection:
        connection.sendall(_head(_PIECES) + start)

        with pytest.raises(ConnectionError):
            connection.sendall(b"x" * 64_000_000)


def test_a_body_in_many_small_pieces_is_one_body(server: Running):
    text = _body()
    pieces = b"".join(b"1\r\n%b\r\n" % text[place : place + 1] for place in range(len(text)))

    response = _answered(server, _head(_PIECES) + pieces + b"0\r\n\r\n")

    assert response.status == 200


def test_a_thousand_requests_at_once_are_all_answered(server: Running):
    sent = b"".join(_head(length=len(_body(number))) + _body(number) for number in range(1000, 2000))

    with server.socket() as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        found = b""
        while found.count(b'"id":') < 1000 and (piece := connection.recv(1 << 20)):
            found += piece
        sender.join()

    assert found.count(b"HTTP/1.1 200") == 1000
