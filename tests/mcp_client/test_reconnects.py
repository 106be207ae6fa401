"""A server that restarts, hangs or is away: its lists are new, its session is closed, and a call may be repeated."""

import asyncio
import dataclasses
import os
import signal
import sys
from pathlib import Path

import pytest

from adversaries.raw_http import TOOL, served
from mcp_server.sample_server import Running, running
from toolmason import McpServer, Retry, Toolbox, tool
from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import RemoteError
from toolmason.mcp_client.lists import list_cache

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("short_termination")]

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")


def raw(case, path, **options):
    return McpServer.stdio("raw", sys.executable, [RAW, case, str(path)], **options)


def connection(box):
    [source] = get_state(box).remotes.sources
    return source


async def until(condition):
    """Wait for what another process or task does."""
    while not condition():  # noqa: ASYNC110 - nothing here can set an event
        await asyncio.sleep(0.01)


async def killed(box):
    """End the process of the server, as a crash would."""
    [session] = connection(box).pool.sessions.values()
    os.kill(session.server_process.process.pid, signal.SIGKILL)
    await until(lambda: not session.usable)


@pytest.mark.row("L4-6")
@pytest.mark.parametrize("way", ["list", "call of a new tool", "call of a known tool"])
async def test_a_server_that_restarts_has_new_lists(tmp_path, way):
    names = tmp_path / "names"
    names.write_text("old both")
    async with Toolbox(raw("tools of a file", names)) as box:
        assert [tool.name for tool in box.tools] == ["both", "old"]
        names.write_text("both new")
        await killed(box)
        if way == "call of a new tool":
            assert (await box.call("new", {"text": "x"})).text == "x"
        elif way == "call of a known tool":
            assert (await box.call("both", {"text": "x"})).ok
        listed = [tool.name for tool in await box.list()]

    assert listed == ["both", "new"]


@tool
def both() -> str:
    """Stay."""
    return "x"


@tool
def new() -> str:
    """Come."""
    return "x"


@pytest.mark.row("L4-6")
@pytest.mark.parametrize("way", ["list", "call of a new tool", "call of a known tool"])
async def test_a_stateless_server_that_restarts_has_new_lists(way, monkeypatch):
    """It has no session that could expire; the stream for changes breaks, and that is noticed at once."""
    monkeypatch.setattr("toolmason.mcp_client.session.FIRST_RETRY_DELAY", 60.0)
    first = Running(Toolbox(both))
    first.start()
    async with Toolbox(McpServer.http("web", first.url)) as box:
        changed = asyncio.Event()
        await box.list()
        box.servers.watch(lambda _: changed.set())
        await asyncio.to_thread(first.stop)
        await asyncio.wait_for(changed.wait(), 10)
        with running(Toolbox(both, new), port=first.port):
            if way != "list":
                assert (await box.call("both" if way == "call of a known tool" else "new")).ok
            listed = [tool.name for tool in await box.list()]

    assert listed == ["both", "new"]


@pytest.mark.row("L4-6")
async def test_a_call_refreshes_lists_that_have_expired():
    with served("plain") as server:
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            server.tools = [TOOL, {**TOOL, "name": "new"}]
            await box.call("echo", {"text": "x"})
            fresh = server.seen.count("tools/list")
            connection(box).list_cache.lists.expires_at = 0.0
            await box.call("echo", {"text": "x"})
            await until(lambda: "new" in box)

    assert (fresh, server.seen.count("tools/list")) == (1, 2)


@pytest.mark.row("L4-11", "P2")
async def test_a_server_that_hangs_in_a_call_is_closed_and_the_next_call_starts_it_again(tmp_path, caplog):
    async with Toolbox(raw("hangs in the first call", tmp_path / "mark", connect_timeout=3)) as box:
        hung = await box.call("echo", {"text": "x"}, timeout=0.2)
        await until(lambda: not connection(box).pool.sessions)
        again = await box.call("echo", {"text": "x"})

    assert (hung.error.code, again.text) == ("timeout", "x")
    assert "server 'raw' does not respond; its session is closed" in caplog.text


@pytest.mark.row("L4-11", "P2")
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_of_either_era_that_stops_is_closed_and_started_again(era, tmp_path, caplog, forks):
    program = tmp_path / "server.py"
    program.write_text(
        "import os, pathlib, signal\n"
        "from mcp.server.mcpserver import MCPServer\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "server = MCPServer('s')\n"
        "@server.tool()\n"
        "def stop() -> str:\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    return 'alive'\n"
        "server.run()\n",
        "utf-8",
    )
    async with Toolbox(McpServer.stdio("sdk", forks.python, [str(program)], era=era)) as box:
        patient = connection(box).server
        connection(box).server = dataclasses.replace(patient, connect_timeout=0.5)
        hung = await box.call("stop", timeout=0.2)
        await until(lambda: not connection(box).pool.sessions)
        connection(box).server = patient
        again = await box.call("stop")

    assert (hung.error.code, again.text) == ("timeout", "alive")
    assert "server 'sdk' does not respond; its session is closed" in caplog.text


async def test_a_server_that_answers_a_ping_keeps_its_session():
    async with Toolbox(McpServer.stdio("raw", sys.executable, [RAW, "never answers"])) as box:
        [session] = connection(box).pool.sessions.values()
        slow = await box.call("echo", {"text": "x"}, timeout=0.1)
        await until(lambda: not connection(box).checked_sessions)
        kept = list(connection(box).pool.sessions.values())

    assert slow.error.code == "timeout"
    assert kept == [session]


@pytest.mark.row("L4-9", "L4-11")
async def test_a_list_that_hangs_costs_connect_timeout_and_starts_the_server_again(tmp_path, monkeypatch):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 0.01)
    async with (
        asyncio.timeout(30),
        Toolbox(raw("hangs in the first list", tmp_path / "mark", connect_timeout=3)) as box,
    ):
        assert box.tools == []
        await until(lambda: "echo" in box)
        assert (await box.call("echo", {"text": "x"})).text == "x"


async def test_a_server_that_keeps_hanging_is_tried_less_often(tmp_path):
    box = Toolbox(raw("tools of a file", tmp_path / "none"))
    pool = connection(box).pool

    class Session:
        last_stderr_line = ""

    for reason in ("first", "second"):
        pool.evict_hung("", Session(), reason)

    with pytest.raises(RemoteError, match=r"Server 'raw', connect: second; next attempt in 0\.\d s"):
        await pool.get_session("", {})


@pytest.mark.row("L4-20")
async def test_a_server_that_cannot_be_reached_is_retried_because_nothing_was_sent():
    with served("plain") as server:
        box = Toolbox(McpServer.http("raw", server.url))
        await box.list()
    result = await box.call("echo", {"text": "x"}, retry=Retry(3, delay=0.001))
    once = await box.call("echo", {"text": "x"})
    await box.aclose()

    assert (result.error.code, result.error.retryable, result.attempts) == ("remote_error", True, 3)
    assert once.attempts == 1


async def test_a_call_that_may_have_run_is_not_retried(tmp_path):
    async with Toolbox(raw("dies in a call", tmp_path)) as box:
        result = await box.call("echo", {"text": "x"}, retry=Retry(3, delay=0.001))

    assert (result.error.code, result.error.retryable, result.attempts) == ("remote_error", False, 1)
