"""Many servers on a small machine: they start in turn, each with its own time, and none is lost."""

import asyncio
import sys
from typing import ClassVar

import pytest

from toolmason import McpServer, Toolbox
from toolmason._core.remote.protocol import ServerRequestHandlers
from toolmason._core.remote.servers import Remotes
from toolmason.errors import RemoteError
from toolmason.mcp_client import session
from toolmason.mcp_client.session import UpstreamSession, get_start_slots


class Starting(UpstreamSession):
    """A session whose process is up after a few turns of the loop."""

    running: ClassVar[list[int]] = []
    most = 0

    async def _run_connection(self):
        Starting.running.append(1)
        Starting.most = max(Starting.most, len(Starting.running))
        for _ in range(5):
            await asyncio.sleep(0)
        Starting.running.pop()
        self._ready.set_result(None)


def starting(kind=Starting, **options):
    server = McpServer.stdio("raw", sys.executable, **options)
    return kind(server, ServerRequestHandlers(), {}, print)


async def test_processes_start_in_turn_as_many_as_there_are_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    await asyncio.gather(*(starting().open() for _ in range(12)))

    assert Starting.most == 3
    assert not Starting.running


async def test_the_time_of_a_server_begins_with_its_own_start(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    slots = get_start_slots()
    await slots.acquire()
    await slots.acquire()
    opening = asyncio.create_task(starting(connect_timeout=0.05).open())
    await asyncio.sleep(0.1)
    assert not opening.done()
    slots.release()
    slots.release()

    await opening


async def test_a_server_that_hangs_gives_its_slot_to_the_next(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(session, "MAX_SLOT_SECONDS", 0.01)

    class Hanging(UpstreamSession):
        async def _run_connection(self):
            await asyncio.Event().wait()

    hanging = [asyncio.create_task(starting(Hanging, connect_timeout=0.2).open()) for _ in range(2)]
    await asyncio.sleep(0)
    await starting().open()
    assert not any(task.done() for task in hanging)

    for task in hanging:
        with pytest.raises(RemoteError, match=r"no response within connect_timeout=0\.2 s"):
            await task


async def test_a_session_that_is_closed_before_its_turn_never_starts(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    slots = get_start_slots()
    await slots.acquire()
    await slots.acquire()
    waiting = starting()
    opening = asyncio.create_task(waiting.open())
    await asyncio.sleep(0)
    await waiting.close()
    slots.release()

    with pytest.raises(ConnectionAbortedError):
        await opening


@pytest.mark.timeout(30)
async def test_a_list_waits_for_all_servers_within_one_bound_and_a_late_one_joins(monkeypatch, caplog):
    started = asyncio.Event()
    inner = Toolbox()

    async def late(self, *, open_session=UpstreamSession.open):
        if self.server.name == "late":
            await started.wait()
        await open_session(self)

    def answer() -> str:
        """Answer."""
        return "here"

    inner.add(answer)
    monkeypatch.setattr(UpstreamSession, "open", late)
    monkeypatch.setattr("toolmason._core.remote.servers.EXTRA_SECONDS", 0.0)
    servers = [McpServer.of(name, inner, prefix=f"{name}_", connect_timeout=2) for name in ("early", "late")]
    async with Toolbox(*servers) as box:
        first = [tool.name for tool in box.tools]
        started.set()
        while len(box) < 2:  # noqa: ASYNC110 - the server joins without a request
            await asyncio.sleep(0.01)
        result = await box.call("late_answer")

    assert first == ["early_answer"]
    assert result.text == "here"
    assert "still starting" in caplog.text


async def test_a_list_waits_for_a_required_server_as_long_as_it_takes():
    class Slow:
        name, required, server = "slow", True, McpServer.stdio("slow", "x", connect_timeout=0.01)
        done = False

        def watch(self, callback):
            """Take no notice."""

        async def prepare(self, *, revalidate):
            await asyncio.sleep(0.05)
            self.done = True

    slow = Slow()
    remotes = Remotes(ServerRequestHandlers(), sources=[slow])
    await remotes.prepare()

    assert slow.done
