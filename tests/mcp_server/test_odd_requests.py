"""Requests that are odd: the answer depends on the request, not on what carries it."""

import json
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, VERSION, Answer, Running

META = "io.modelcontextprotocol/"


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


def _outcome(answer: Answer) -> tuple[int, int | None]:
    """Return the status, and the code of the error if there is one."""
    return answer.status, answer.json.get("error", {}).get("code") if answer.body else None


_ODD = {
    "an id of many digits": (_request(id=10**30), {}, (200, None), (200, None)),
    "an id that is a fraction": (_request(id=1.5), {}, (400, -32600), (202, None)),
    "no parameters": (_request(params=None), {}, (400, -32602), (200, -32602)),
    "an error beside the method": (_request(error={"code": 1, "message": "m"}), {}, (200, None), (202, None)),
    "a stranger beside the method": (_request(other=1), {}, (200, None), (200, None)),
    "a kind that only begins like JSON": (
        _request(),
        {"content_type": "application/jsonx"},
        (200, None),
        (415, -32600),
    ),
    "a kind with a charset": (
        _request(),
        {"content_type": "application/json; charset=utf-8"},
        (200, None),
        (200, None),
    ),
    "kinds that only contain JSON": (
        _request(),
        {"accept": "xapplication/json, text/event-stream"},
        (406, None),
        (406, -32600),
    ),
    "kinds in parameters": (
        _request(),
        {"accept": "a/b;x=application/json, c/d;y=text/event-stream"},
        (406, None),
        (406, -32600),
    ),
    "kinds with weights": (
        _request(),
        {"accept": "application/json;q=0.5,text/event-stream;q=0.1"},
        (200, None),
        (200, None),
    ),
    "a capability of a wrong kind": (_able(sampling={"tools": 3}), {}, (400, -32602), (200, None)),
    "an extension of a wrong kind": (_able(extensions={"a": 3}), {}, (400, -32602), (200, None)),
    "folders that change": (_able(roots={"listChanged": True}), {}, (200, None), (200, None)),
    "a list with a bad progress token": (_listed(progressToken={}), {}, (400, -32602), (200, -32602)),
    "a list with a bad log level": (_listed(**{f"{META}logLevel": "x"}), {}, (400, -32602), (200, None)),
    "a session that is ignored": (_request(), {"mcp_session_id": "none"}, (200, None), (200, None)),
}
"""Request, headers, and the outcome in the stateless era and in a session."""


@pytest.mark.parametrize("name", _ODD)
def test_an_odd_request_gets_its_own_answer(server: Running, name: str):
    request, headers, outcome, _ = _ODD[name]

    answer = server.send(json.dumps(request).encode(), _headers(request["method"], **headers))

    assert _outcome(answer) == outcome


def _session(server: Running) -> dict[str, str]:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    opened = server.ask_in_session("initialize", params)
    return {"mcp-session-id": opened.headers["mcp-session-id"]}


@pytest.mark.parametrize("name", _ODD)
def test_an_odd_request_of_a_session_gets_its_own_answer(server: Running, name: str):
    request, headers, _, outcome = _ODD[name]
    known = {**_headers(request["method"], **headers), "mcp-protocol-version": "2025-11-25", **_session(server)}

    answers = [server.send(json.dumps(request).encode(), known) for _ in range(2)]

    assert [_outcome(answer) for answer in answers] == [outcome, outcome]


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


@pytest.mark.parametrize("version", [None, "2025-11-25", "2027-01-01"])
@pytest.mark.parametrize("request_id", [7, None])
def test_a_body_of_the_stateless_era_needs_its_version_in_the_headers(
    server: Running, version: str | None, request_id: int | None
):
    known = {name: value for name, value in _headers("tools/call").items() if name != "mcp-protocol-version"}
    headers = known if version is None else {**known, "mcp-protocol-version": version}

    answer = server.send(json.dumps(_request(id=request_id)).encode(), headers)

    assert (*_outcome(answer), answer.json["id"]) == (400, -32020, request_id)
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS", "POST"])
def test_an_error_names_no_session(server: Running, method: str):
    answer = server.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', _headers("ping") | {"accept": "x/y"}, method)
    other = server.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"accept": ACCEPT}, method)

    assert (answer.status >= 400, other.status >= 400) == (True, True)
    assert not {"mcp-session-id"} & {*answer.headers, *other.headers}
