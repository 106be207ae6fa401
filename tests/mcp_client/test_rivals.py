"""Servers that are slow, away or greedy, and callers that go away: nobody else pays for it."""

import asyncio
import sys
from pathlib import Path

import pytest

from adversaries.raw_http import TOOL, served
from toolmason import McpServer, Toolbox, tool
from toolmason.build.compare.lock_file import Lock, approve, listings_of, write
from toolmason.errors import ConfigError
from toolmason.mcp_client.transport.sanitize import find_tool_problem

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")


def raw(case: str = "plain", **words):
    return McpServer.stdio(words.pop("name", "raw"), sys.executable, [RAW, case], **words)


@tool
def local() -> str:
    """Stay here."""
    return "here"


async def test_a_call_does_not_wait_longer_than_its_time_out_for_a_server_to_start():
    box = Toolbox(local, raw("never starts", connect_timeout=30))

    single = await box.call("echo", {}, timeout=0.3)
    batch = await box.call_all([("local", {}), ("echo", {})], timeout=0.3)
    await box.aclose()

    assert single.error.code == "timeout"
    assert [result.ok for result in batch] == [True, False]


async def test_a_required_server_that_is_down_does_not_cost_the_other_calls_of_a_batch():
    box = Toolbox(local, McpServer.stdio("dead", "/no/such/program", required=True))

    results = await box.call_all([("local", {}), ("nope", {})])
    await box.aclose()

    assert [result.ok for result in results] == [True, False]


async def test_whoever_asks_first_may_go_away():
    box = Toolbox(raw("plain"))
    first = asyncio.create_task(box.call("echo", {"text": "a"}))
    second = asyncio.create_task(box.call("echo", {"text": "b"}))
    await asyncio.sleep(0.01)
    first.cancel()

    result = await second
    await box.aclose()

    assert result.text == "b"


async def test_a_name_stays_with_the_server_that_had_it():
    with served("plain") as trusted, served("plain") as evil:
        box = Toolbox(McpServer.http("trusted", trusted.url), McpServer.http("evil", evil.url))
        await box.list()
        trusted.shutdown()
        trusted.hang_up()
        trusted.server_close()
        await box.refresh()
        names = [tool.name for tool in box.tools]
        await box.aclose()
        trusted.serve_forever = lambda **_: None

    assert names == ["evil__echo", "evil__look"]


async def test_closing_while_a_connection_opens_leaves_nothing_open(tmp_path):
    log = tmp_path / "log"
    box = Toolbox(raw("plain", env={"RAW_LOG": str(log)}))
    calling = asyncio.create_task(box.call("echo", {"text": "x"}))
    while not log.exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    await box.aclose()
    await calling
    await box.aclose()

    pids = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("started")]
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []  # noqa: ASYNC240 - a look at /proc


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({**TOOL, "annotations": 5}, "does not match the protocol at annotations"),
        ({**TOOL, "annotations": {"readOnlyHint": "yes please"}}, "does not match the protocol"),
        (
            {**TOOL, "inputSchema": {"type": "object", "description": "a\u202eb"}},
            "schema contains the hidden character",
        ),
    ],
)
def test_what_is_wrong_with_one_definition_is_found_before_the_list_is_read(entry, reason):
    assert reason in find_tool_problem(entry)


async def test_effects_are_pinned_with_the_definition(tmp_path):
    lock = tmp_path / "toolmason.lock"
    with served("plain") as server:
        server.tools = [TOOL]
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            write(approve(Lock(), listings_of(box.tools), server="raw"), lock)
        server.tools = [{**TOOL, "annotations": {"readOnlyHint": True}}]
        async with Toolbox(McpServer.http("raw", server.url, pin="lock", lock=lock)) as box:
            names = [tool.name for tool in box.tools]

    assert names == []


def test_the_variables_of_a_file_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"x": {"command": "y", "args": ["${MY_TOKEN}"]}}}')

    [server] = McpServer.from_config(path)

    assert server.command == ("y", "secret")
    assert "secret" not in repr(server)
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(ConfigError, match="MY_TOKEN"):
        McpServer.from_config(path)
