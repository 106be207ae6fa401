"""`serve` and the command, as processes; what they refuse; a gateway."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_server.sample_server import ENVELOPE, Running, eventually, running, shelf
from toolmason import McpServer, Toolbox, ToolContext, serve, tool
from toolmason.errors import ConfigError
from toolmason.mcp import Bearer, token_is
from toolmason.mcp_server.http.app import asgi_app

SLOW = """
import asyncio, threading
from pathlib import Path
from toolmason import Toolbox, tool, serve

@tool
async def nap() -> str:
    Path(__file__).with_name("begun").touch()
    while not Path(__file__).with_name("wake").exists():
        await asyncio.sleep(0.01)
    return "awake"

@tool(timeout=100)
def stuck() -> str:
    Path(__file__).with_name("begun").touch()
    threading.Event().wait(60)
    return "late"

serve(Toolbox(nap, stuck), "http", port=PORT, grace=2)
"""


DESK = """
from toolmason import Toolbox, tool

@tool
def hours() -> str:
    return "9 to 17"

box = Toolbox(hours)
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(port: int) -> None:
    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    assert eventually(listens, 30)


def begin(port: int, name: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    params = {"name": name, "arguments": {}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
    json_headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    connection.request("POST", "/mcp", body, {**headers, **json_headers})
    return connection


def test_f39b_sigterm_answers_what_was_accepted_and_exits_0(tmp_path: Path):
    port = free_port()
    (tmp_path / "slow.py").write_text(SLOW.replace("PORT", str(port)), "utf-8")
    process = subprocess.Popen([sys.executable, str(tmp_path / "slow.py")])
    try:
        wait_for(port)
        connection = begin(port, "nap")
        assert eventually((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        (tmp_path / "wake").touch()
        answer = json.loads(connection.getresponse().read())
        connection.close()
        code = process.wait(10)
    finally:
        process.kill()
        process.wait()

    assert answer["result"]["content"][0]["text"] == "awake"
    assert code == 0


def test_f39b_a_stuck_tool_does_not_keep_the_process(tmp_path: Path):
    port = free_port()
    (tmp_path / "slow.py").write_text(SLOW.replace("PORT", str(port)), "utf-8")
    process = subprocess.Popen([sys.executable, str(tmp_path / "slow.py")], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        connection = begin(port, "stuck")
        assert eventually((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        code = process.wait(15)
        connection.close()
    finally:
        process.kill()
        process.wait()

    assert code == 0


def test_the_command_serves_over_stdio(tmp_path: Path):
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    params = {"name": "hours", "arguments": {}, "_meta": ENVELOPE}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + "\n"

    done = subprocess.run(
        [str(Path(sys.executable).with_name("toolmason")), "serve", "desk.py"],
        input=line.encode(),
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["content"][0]["text"] == "9 to 17"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"transport": "http", "host": "0.0.0.0"}, "opens the server"),  # noqa: S104 - it is refused
        ({"transport": "carrier pigeon"}, "stdio"),
        ({"port": 1}, "transport='http'"),
        ({"transport": "http", "state_key": "short"}, "state_key"),
    ],
    ids=["open host", "transport", "port for stdio", "short key"],
)
def test_options_that_make_no_sense_are_refused(words: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        serve(Toolbox(), **words)


@pytest.mark.parametrize("function", [serve, asgi_app])
def test_a_misspelt_option_is_refused_by_python(function: Any):
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        function(Toolbox(), colour="red")


def test_a_token_that_is_too_short_is_refused():
    with pytest.raises(ConfigError, match="16"):
        token_is("short")


def test_the_metadata_of_the_protected_resource_are_served():
    bearer = Bearer(lambda token: None, "https://tools.example.com/mcp", ["https://login.example.com"], ["read"])
    with running(auth=bearer) as server:
        refused = server.ask("tools/list")
        found = server.send(b"", {}, "GET", "/.well-known/oauth-protected-resource/mcp")

    assert "resource_metadata=" in refused.headers["www-authenticate"]
    assert found.json["resource"] == "https://tools.example.com/mcp"
    assert found.json["authorization_servers"] == ["https://login.example.com"]


def test_a_check_that_raises_refuses(caplog: pytest.LogCaptureFixture):
    def verify(token: str) -> str:
        raise RuntimeError(f"cannot check {token}")

    with running(auth=verify) as server:
        answer = server.ask("tools/list", headers={"authorization": "Bearer hidden-token"})

    assert answer.status == 401
    assert "hidden-token" not in caplog.text


async def test_a_gateway_forwards_schemas_errors_progress_and_questions():
    @tool
    async def ask(ctx: ToolContext) -> str:
        answer = await ctx.client.elicit("Name?", {"type": "object", "properties": {"n": {"type": "string"}}})
        return str(dict(answer.content))

    behind = Toolbox(ask, shelf())
    told: list = []
    gateway = Toolbox(McpServer.of("behind", behind))
    async with gateway, Toolbox(McpServer.of("gate", gateway), on_elicit=lambda _: {"n": "Ada"}) as outer:
        schema = outer["region"].definition.input_schema
        asked = await outer.call("ask")
        failed = await outer.call("add", {"a": "x"})
        await outer.call("steps", on_progress=told.append)

    assert schema["properties"]["place"]["x-mcp-header"] == "Place"
    assert asked.text == "{'n': 'Ada'}"
    assert "$.a" in failed.text
    assert [report.done for report in told] == [1]


async def test_a_parameter_is_mirrored_in_a_header(server: Running):
    async with Toolbox(McpServer.http("shelf", server.url)) as box:
        result = await box.call("region", {"place": "north"})

    assert result.text == "north"


def test_an_application_says_where_it_is():
    assert asgi_app(Toolbox(), path="tools/").path == "/tools"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"allowed_hosts": "*.example.com"}, "a list of strings"),
        ({"allowed_hosts": [b"example.com"]}, "a list of strings"),
        ({"allowed_origins": "https://example.com"}, "a list of strings"),
        ({"path": 3}, "must be a string"),
        ({"max_sessions": 0}, "must be a positive integer"),
        ({"max_body_bytes": True}, "must be a positive integer"),
        ({"max_body_bytes": 1.5}, "must be a positive integer"),
        ({"auth": "a-token-of-many-letters"}, "token_is"),
    ],
)
def test_t1_options_that_make_no_sense_are_refused_at_once(words: Any, said: str):
    with pytest.raises(ConfigError, match=said) as caught:
        asgi_app(Toolbox(), **words)

    assert "a-token-of-many-letters" not in str(caught.value)


def test_only_a_toolbox_is_served():
    tools: Any = [print]

    with pytest.raises(ConfigError, match="pass a Toolbox"):
        asgi_app(tools)
    with pytest.raises(ConfigError, match="pass a Toolbox"):
        serve(tools)


@pytest.mark.parametrize("port", [-1, 65536, "8000", True, None])
def test_a_port_that_is_none_is_refused(port: Any):
    with pytest.raises(ConfigError, match="from 0 to 65535"):
        serve(Toolbox(), "http", port=port)
