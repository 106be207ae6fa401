"""A server loads the SDK when a request needs it, and answers the same with and without it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp.server import streamable_http
from mcp.shared import inbound
from mcp_types import jsonrpc, version

from mcp_server.sample_server import ENVELOPE
from mcp_server.test_stdio import Process, line, using
from mcp_server.test_streams import HELLO, SCHEMA, request, streams
from toolmason import Toolbox, ToolContext, prompt, tool
from toolmason.mcp_client import specification
from toolmason.mcp_server import handlers
from toolmason.mcp_server.sdk_server import make_server

SERVER = """
import sys
from toolmason import Toolbox, ToolContext, prompt, serve, tool

@tool
def loaded() -> list[str]:
    "Return the packages of the SDK that are loaded."
    return sorted({"anyio", "httpx2", "mcp", "mcp_types", "starlette"} & sys.modules.keys())

@tool
async def ask(ctx: ToolContext) -> str:
    "Ask for a name."
    return str((await ctx.client.elicit("Name?")).action)

@prompt
def greet(name: str) -> str:
    "Greet."
    return f"Greet {name}."

serve(Toolbox(loaded, ask, greet))
"""
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
MODERN = {"_meta": ENVELOPE}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Process]:
    # A new interpreter, because a fork has loaded the SDK already.
    (tmp_path / "server.py").write_text(SERVER, "utf-8")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with using(subprocess.Popen([sys.executable, str(tmp_path / "server.py")], env={"PATH": ""}, **pipes)) as found:
        yield found


def _ask(server: Process, method: str, params: dict[str, Any], number: int) -> Any:
    server.write(line(request(method, params, number)))
    return server.read()["result"]


def _greet(server: Process) -> None:
    _ask(server, "initialize", HELLO, 0)
    server.write(line(INITIALIZED))


def test_a_session_that_lists_and_calls_does_not_load_the_sdk(fresh: Process):
    _greet(fresh)
    listed = _ask(fresh, "tools/list", {}, 1)
    _ask(fresh, "ping", {}, 2)
    called = _ask(fresh, "tools/call", {"name": "loaded", "arguments": {}}, 3)

    assert len(listed["tools"]) == 2
    assert called["structuredContent"] == {"result": []}


def test_a_stateless_client_that_lists_and_calls_does_not_load_the_sdk(fresh: Process):
    _ask(fresh, "server/discover", MODERN, 0)
    _ask(fresh, "tools/list", MODERN, 1)
    called = _ask(fresh, "tools/call", {"name": "loaded", "arguments": {}, **MODERN}, 2)

    assert called["structuredContent"] == {"result": []}


def test_a_request_that_needs_the_sdk_works_in_a_session_that_began_without_it(fresh: Process):
    _greet(fresh)
    _ask(fresh, "tools/call", {"name": "loaded", "arguments": {}}, 1)
    prompts = _ask(fresh, "prompts/list", {}, 2)
    fresh.write(line(request("tools/call", {"name": "ask", "arguments": {}}, 3)))
    question = fresh.read()
    fresh.write(line({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}))
    answer = fresh.read()
    after = _ask(fresh, "tools/call", {"name": "loaded", "arguments": {}}, 4)

    assert [entry["name"] for entry in prompts["prompts"]] == ["greet"]
    assert question["method"] == "elicitation/create"
    assert answer["result"]["content"][0]["text"] == "decline"
    assert "mcp" in after["structuredContent"]["result"]


def test_requests_that_arrive_while_the_sdk_is_loaded_are_answered_once(fresh: Process):
    _greet(fresh)
    numbers = list(range(1, 40))
    for number in numbers:
        method = "prompts/list" if number % 2 else "tools/list"
        fresh.write(line(request(method, {}, number)))
    fresh.write(line({"jsonrpc": "1.0", "method": "prompts/list", "id": 40}))

    answers = [fresh.read() for _ in [*numbers, 40]]

    assert sorted(answer["id"] for answer in answers) == [*numbers, 40]
    assert [answer["id"] for answer in answers if "error" in answer] == [40]


HTTP_SERVER = """
import asyncio, json, sys
from mcp_server.sample_server import Running
from toolmason import Toolbox, tool

@tool
def loaded() -> list[str]:
    return sorted({"mcp", "mcp_types", "starlette"} & sys.modules.keys())

server = Running(Toolbox(loaded))
server.start()
found = [server.ask("tools/list").status, server.call("loaded")["structuredContent"]["result"]]
hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
found.append(server.ask_in_session("initialize", hello).status)
found.append("mcp" in server.call("loaded")["structuredContent"]["result"])
server.stop()
print(json.dumps(found))
"""


def test_a_server_over_http_loads_the_sdk_for_the_first_session():
    tests = Path(__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-c", HTTP_SERVER],
        cwd=tests,
        env={"PATH": "", "PYTHONPATH": str(tests)},
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )

    assert json.loads(answer.stdout) == [200, [], 200, True]


@tool
async def name_of(ctx: ToolContext) -> str:
    """Ask for a name."""
    return str((await ctx.client.elicit("Name?", SCHEMA)).content.get("name"))


@prompt
def greet(name: str) -> str:
    """Greet."""
    return f"Greet {name}."


async def _open(hello: dict[str, Any], *, with_sdk: bool) -> Any:
    async with streams(Toolbox(name_of, name="shop")) as client:
        if with_sdk:  # it loads the SDK, which then carries the rest
            await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return (await client.asked("initialize", hello, 1))["result"]


@pytest.mark.parametrize("protocol_version", ["2025-06-18", "2025-11-25"])
async def test_a_session_is_opened_as_the_sdk_opens_it(protocol_version: str):
    hello = {**HELLO, "protocolVersion": protocol_version}

    assert await _open(hello, with_sdk=False) == await _open(hello, with_sdk=True)


async def test_a_server_describes_itself_as_the_sdk_does():
    async with streams(Toolbox(name_of, name="shop")) as client:
        ours = await client.asked("server/discover", MODERN, 1)
        # The SDK carries a request for progress.
        theirs = await client.asked("server/discover", {"_meta": {**ENVELOPE, "progressToken": 1}}, 1)

    capabilities = make_server(handlers.Handlers(Toolbox(name_of))).get_capabilities(protocol_version="2026-07-28")
    derived = capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)

    assert ours == theirs
    assert ours["result"]["capabilities"] == derived


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"protocolVersion": "2024-11-05"}, id="an old version"),
        pytest.param({"protocolVersion": "2099-01-01"}, id="an unknown version"),
        pytest.param({"capabilities": {"elicitation": {"form": {"extra": 1}}}}, id="settings of a capability"),
        pytest.param({"capabilities": {"elicitation": {}, "tasks": {"list": {}}}}, id="another capability"),
        pytest.param({"clientInfo": {**HELLO["clientInfo"], "icons": []}}, id="icons"),  # type: ignore[dict-item]
        pytest.param({"_meta": {"progressToken": 1}}, id="meta"),
    ],
)
async def test_the_sdk_opens_an_unusual_session(change: dict[str, Any]):
    async with streams(Toolbox(name_of)) as client:
        opened = await client.asked("initialize", {**HELLO, **change}, 1)
        listed = await client.asked("tools/list", {}, 2)

    assert opened["result"]["serverInfo"]["name"] == "toolmason"
    assert len(listed["result"]["tools"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"protocolVersion": []}, id="a version that is a list"),
        pytest.param({"capabilities": {"roots": {"listChanged": {}}}}, id="a flag that is an object"),
        pytest.param({"capabilities": {"sampling": {"context": 1}}}, id="a capability that is a number"),
        pytest.param({"capabilities": {"experimental": {"x": 1}}}, id="settings that are a number"),
        pytest.param({"capabilities": []}, id="capabilities that are a list"),
        pytest.param({"clientInfo": {"name": "t"}}, id="no client version"),
        pytest.param({"clientInfo": {"name": "t", "version": 1}}, id="a client version that is a number"),
    ],
)
async def test_an_invalid_session_is_refused(change: dict[str, Any]):
    async with streams(Toolbox(name_of)) as client:
        opened = await client.asked("initialize", {**HELLO, **change}, 1)

    assert opened["error"]["code"] == specification.INVALID_PARAMS


@pytest.mark.parametrize("with_sdk", [False, True])
async def test_a_session_hears_of_changed_lists(with_sdk: bool):
    box = Toolbox(name_of)
    async with streams(box) as client:
        await client.asked("initialize", HELLO, 0)
        await client.send(INITIALIZED)
        await client.asked("prompts/list" if with_sdk else "ping", {}, 1)

        box.add(greet)

        heard = await client.read()

    assert heard == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}


async def test_notifications_do_not_load_the_sdk():
    async with streams(Toolbox(name_of)) as client:
        await client.asked("initialize", HELLO, 0)
        await client.send(INITIALIZED, INITIALIZED, {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}})
        await client.asked("ping", {}, 1)

        assert client.session.handlers.subscriptions.publish is None  # the SDK's server sets it


async def test_an_invalid_notification_is_reported():
    async with streams(Toolbox(name_of)) as client:
        await client.send({"jsonrpc": "2.0", "method": "notifications/initialized", "params": []})

        assert (await client.read())["error"]["message"] == "The message is not valid JSON-RPC 2.0."


def test_the_names_and_numbers_are_those_of_the_sdk():
    for name in ("INVALID_REQUEST", "METHOD_NOT_FOUND", "INVALID_PARAMS", "INTERNAL_ERROR", "HEADER_MISMATCH"):
        assert getattr(specification, name) == getattr(jsonrpc, name)
    for name in vars(specification):
        if name.endswith("_META_KEY"):
            assert getattr(specification, name) == getattr(mcp_types, name)
    assert specification.MISSING_CAPABILITY == jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert specification.REQUEST_CANCELLED == streamable_http.REQUEST_CANCELLED
    assert specification.HTTP_STATUS_BY_CODE == inbound.ERROR_CODE_HTTP_STATUS
    assert specification.MODERN_VERSION == version.LATEST_MODERN_VERSION
    assert set(version.HANDSHAKE_PROTOCOL_VERSIONS) >= specification.SESSION_VERSIONS


def test_serving_without_the_sdk_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handlers, "find_spec", lambda name: None)

    with pytest.raises(ImportError, match=r"pip install 'toolmason\[serve\]'"):
        handlers.Handlers(Toolbox(name_of))
