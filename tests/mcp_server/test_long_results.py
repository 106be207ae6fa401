"""Results that were cut, read on over the wire: by whoever's call it was, and by nobody else."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from mcp_server.sample_server import Running, running
from toolmason import Toolbox, tool
from toolmason._core.catalog.catalog import READ_RESULT
from toolmason._core.values.policy import EngineSettings

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
Caller = Callable[[str, dict[str, Any]], dict[str, Any]]


@tool
def log(lines: int) -> str:
    """Return many lines."""
    return "a line of the log\n" * lines


def box() -> Toolbox:
    return Toolbox(log, settings=EngineSettings(result_bytes=2000))


def stateless(server: Running, token: str = "") -> Caller:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return lambda name, arguments: server.call(name, arguments, headers=headers)


def in_session(server: Running, token: str = "") -> Caller:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    headers["mcp-session-id"] = server.ask_in_session("initialize", HELLO, headers).headers["mcp-session-id"]

    def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments}
        return server.ask_in_session("tools/call", params, headers).json["result"]

    return call


def handle_in(result: dict[str, Any]) -> str:
    found = re.search(r"result_\d+_\w+", result["content"][0]["text"])
    assert found is not None, result
    return found[0]


@pytest.mark.parametrize("era", [stateless, in_session])
def test_the_rest_of_a_cut_result_is_read_over_http(era: Any):
    with running(box()) as server:
        call = era(server)
        handle = handle_in(call("log", {"lines": 1000}))

        found = call(READ_RESULT, {"handle": handle, "offset": 18, "length": 17})

    assert found["isError"] is False
    assert found["content"][0]["text"].startswith("a line of the log\n[characters 18 to 35 of")


def test_it_is_listed_when_there_is_something_to_read():
    with running(box()) as server:
        before = [entry["name"] for entry in server.ask("tools/list").json["result"]["tools"]]
        server.call("log", {"lines": 1000})
        after = [entry["name"] for entry in server.ask("tools/list").json["result"]["tools"]]

    assert before == ["log"]
    assert after == ["log", READ_RESULT]


@pytest.mark.parametrize("era", [stateless, in_session])
def test_t16_a_cut_result_of_another_user_is_not_read(era: Any):
    with running(box(), auth=str) as server:
        alice, bob = era(server, "alice"), era(server, "bob")
        handle = handle_in(alice("log", {"lines": 1000}))

        stolen = bob(READ_RESULT, {"handle": handle})
        own = alice(READ_RESULT, {"handle": handle})

    assert stolen["isError"] is True
    assert "a line" not in json.dumps(stolen)
    assert own["isError"] is False


def test_t16_a_cut_result_of_another_session_is_not_read():
    with running(box()) as server:
        one, other = in_session(server), in_session(server)
        handle = handle_in(one("log", {"lines": 1000}))

        stolen = [other(READ_RESULT, {"handle": handle}), stateless(server)(READ_RESULT, {"handle": handle})]
        own = one(READ_RESULT, {"handle": handle})

    assert [found["isError"] for found in stolen] == [True, True]
    assert own["isError"] is False


def test_t16_a_handle_cannot_be_guessed():
    found = box().call_sync("log", {"lines": 1000})

    assert len(str(found.meta["handle"]).rpartition("_")[2]) == 32


def test_a_toolbox_gives_the_tool_that_it_says_it_has():
    known = box()
    before = READ_RESULT in known
    known.call_sync("log", {"lines": 1000})

    assert not before
    assert READ_RESULT in known
    assert known[READ_RESULT].name == READ_RESULT
