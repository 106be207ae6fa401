"""Both ways into a server give the same answers, also to requests that are odd."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, VERSION, Answer, Running, running

META = "io.modelcontextprotocol/"


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Running, Running]]:
    with running(fast=True) as short, running(fast=False) as long:
        yield short, long


def _request(**changed: Any) -> dict[str, Any]:
    params = {"name": "echo", "arguments": {"text": "hi"}, "_meta": ENVELOPE}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **changed}


def _listed(**meta: Any) -> dict[str, Any]:
    return _request(method="tools/list", params={"_meta": {**ENVELOPE, **meta}})


def _able(**words: Any) -> dict[str, Any]:
    params = {"name": "echo", "arguments": {"text": "hi"}}
    return _request(params={**params, "_meta": {**ENVELOPE, f"{META}clientCapabilities": words}})


def _headers(method: str, **more: str) -> dict[str, str]:
    known = {"content-type": "application/json", "accept": ACCEPT, "mcp-protocol-version": VERSION}
    name = {"mcp-name": "echo"} if method == "tools/call" else {}
    return {**known, "mcp-method": method, **name, **{key.replace("_", "-"): value for key, value in more.items()}}


def _seen(answer: Answer) -> tuple[int, Any]:
    """Return what both ways have to agree in: not how it is framed, nor ids that are made anew for each."""
    if not answer.body:
        return answer.status, None
    return answer.status, json.loads(re.sub(r"\b[0-9a-f]{12}\b", "-", json.dumps(answer.json)))


_ODD = {
    "an id of many digits": (_request(id=10**30), {}),
    "an id that is a fraction": (_request(id=1.5), {}),
    "no parameters": (_request(params=None), {}),
    "an error beside the method": (_request(error={"code": 1, "message": "m"}), {}),
    "a stranger beside the method": (_request(other=1), {}),
    "a kind that only begins like JSON": (_request(), {"content_type": "application/jsonx"}),
    "a kind with a charset": (_request(), {"content_type": "application/json; charset=utf-8"}),
    "kinds that only contain JSON": (_request(), {"accept": "xapplication/json, text/event-stream"}),
    "kinds in parameters": (_request(), {"accept": "a/b;x=application/json, c/d;y=text/event-stream"}),
    "kinds with weights": (_request(), {"accept": "application/json;q=0.5,text/event-stream;q=0.1"}),
    "a capability of a wrong kind": (_able(sampling={"tools": 3}), {}),
    "an extension of a wrong kind": (_able(extensions={"a": 3}), {}),
    "folders that change": (_able(roots={"listChanged": True}), {}),
    "a list with a bad progress token": (_listed(progressToken={}), {}),
    "a list with a bad log level": (_listed(**{f"{META}logLevel": "x"}), {}),
    "a session that is ignored": (_request(), {"mcp_session_id": "none"}),
}


@pytest.mark.parametrize("name", _ODD)
def test_an_odd_request_gets_the_same_answer_both_ways(both: tuple[Running, Running], name: str):
    request, headers = _ODD[name]
    body = json.dumps(request).encode()

    short, long = (server.send(body, _headers(request["method"], **headers)) for server in both)

    assert _seen(short) == _seen(long)
    assert short.status < 500


def _session(server: Running) -> dict[str, str]:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    opened = server.ask_in_session("initialize", params)
    return {"mcp-session-id": opened.headers["mcp-session-id"]}


@pytest.mark.parametrize("name", _ODD)
def test_an_odd_request_of_a_session_gets_the_same_answer_both_ways(both: tuple[Running, Running], name: str):
    request, headers = _ODD[name]
    body = json.dumps(request).encode()
    known = {**_headers(request["method"], **headers), "mcp-protocol-version": "2025-11-25"}

    short, long = (server.send(body, {**known, **_session(server)}) for server in both)

    assert _seen(short) == _seen(long)
    assert short.status < 500


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null,"params":null}',
    ],
)
def test_t13_a_key_that_stands_twice_in_a_session_without_parameters_is_refused(server: Running, body: bytes):
    headers = {"content-type": "application/json", "accept": ACCEPT, "mcp-protocol-version": "2025-11-25"}

    answer = server.send(body, {**headers, **_session(server)})

    assert answer.status == 400
    assert "duplicate key" in answer.json["error"]["message"]


def test_t16_a_client_cannot_make_up_a_session(server: Running):
    made_up = {"mcp-session-id": "made-up"}
    served = server.ask("server/discover", headers=made_up)

    answer = server.ask_in_session("tools/list", {}, made_up)

    assert (served.status, answer.status) == (200, 404)
