"""A server that cannot be had is down, with a reason: the reason is said once, and nobody waits for it again."""

import asyncio
import gc
import logging
import shlex
import socket
import sys
import threading
from pathlib import Path

import pytest
import uvicorn

from toolmason import McpServer, Toolbox, asgi_app, tool
from toolmason.errors import RemoteError
from toolmason.mcp_client import pool, session
from toolmason.mcp_client.calls.forwarding import ForwardedRequest
from toolmason.mcp_client.lists import list_cache
from toolmason.mcp_client.lists.list_cache import ListCache
from toolmason.mcp_client.pool import SessionPool

pytestmark = [pytest.mark.timeout(30), pytest.mark.usefixtures("short_termination")]

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")


def raw(case, log, **words):
    return McpServer.stdio("raw", sys.executable, [RAW, case], env={"RAW_LOG": str(log)}, **words)


def late(tmp_path, **words):
    """Return a server that hangs when it is started for the first time."""
    mark, plain = shlex.quote(str(tmp_path / "mark")), shlex.join([sys.executable, RAW, "plain"])
    return McpServer.stdio(
        "raw", "sh", ["-c", f"test -e {mark} || {{ touch {mark}; exec sleep 60; }}; {plain}"], **words
    )


def slow(tmp_path, case="plain", **words):
    """Return a server that is up once the file `mark` exists. The file `case` overrides how it behaves."""
    folder, raw_server = shlex.quote(str(tmp_path)), shlex.join([sys.executable, RAW])
    wait = f"echo started >> {folder}/log; while ! test -e {folder}/mark; do sleep 0.02; done"
    run = f'exec {raw_server} "$(cat {folder}/case 2>/dev/null || echo {shlex.quote(case)})"'
    return McpServer.stdio("raw", "sh", ["-c", f"{wait}; {run}"], **words)


@tool
def local() -> str:
    """Stay here."""
    return "here"


def raises(context):
    raise LookupError("no token")


def called_off(context):
    raise asyncio.CancelledError


def web(auth, **words):
    return McpServer.http("web", "http://127.0.0.1:9/mcp", auth=auth, **words)


@pytest.mark.parametrize(
    ("auth", "reason"),
    [
        (lambda _: 5, "auth= returned int. Return a token or headers"),
        (raises, "auth= failed: LookupError"),
        (called_off, "auth= failed: RuntimeError"),
    ],
    ids=["neither a token nor headers", "raises", "calls itself off"],
)
async def test_an_auth_that_is_wrong_is_a_server_that_is_down_with_the_reason(auth, reason, caplog):
    box = Toolbox(local, web(auth))

    listed = await box.list()
    await box.aclose()

    assert [tool.name for tool in listed] == ["local"]
    assert reason in caplog.text


@pytest.mark.parametrize("auth", [lambda _: 5, raises], ids=["neither a token nor headers", "raises"])
async def test_an_auth_that_is_wrong_for_a_required_server_is_raised(auth):
    with pytest.raises(RemoteError, match="Server 'web', authorize: auth= "):
        async with Toolbox(web(auth, required=True)):
            pass


async def test_a_lock_that_cannot_be_read_is_a_server_that_is_down_with_the_reason(tmp_path, caplog):
    lock = tmp_path / "toolmason.lock"
    lock.write_text("not json", "utf-8")
    box = Toolbox(McpServer.of("shop", Toolbox(local), pin="lock", lock=lock))

    listed = await box.list()
    await box.aclose()

    assert listed == []
    assert "is not valid JSON" in caplog.text
    assert "`toolmason lock`" in caplog.text


async def test_a_lock_that_cannot_be_read_is_raised_for_a_required_server(tmp_path):
    lock = tmp_path / "toolmason.lock"
    lock.write_text("not json", "utf-8")

    with pytest.raises(RemoteError, match=r"Server 'shop', list: .* is not valid JSON"):
        async with Toolbox(McpServer.of("shop", Toolbox(local), pin="lock", lock=lock, required=True)):
            pass


async def test_work_that_is_called_off_again_and_again_is_an_error():
    async def fetch():
        raise asyncio.CancelledError

    offer = ListCache(McpServer.of("shop", Toolbox(local)), fetch, lambda: None)

    with pytest.raises(RemoteError, match="cancelled before it finished"):
        await offer.fetch()


async def test_whoever_needs_a_server_that_hangs_does_not_wait_for_it_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 600.0)
    log = tmp_path / "log"
    box = Toolbox(local, raw("never starts", log, connect_timeout=0.5))

    with caplog.at_level(logging.WARNING):
        async with box:
            listed = [[tool.name for tool in await box.list()] for _ in range(4)]
            unknown = await box.call("echo", {})

    assert listed == [["local"]] * 4
    assert unknown.error.code == "unknown_tool"
    assert log.read_text().count("started") == 1
    assert caplog.text.count("retrying in the background") == 1


async def test_a_server_that_hung_for_all_its_time_is_started_again_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 0.05)
    monkeypatch.setattr(session, "MIN_START_SECONDS", 0.0)
    monkeypatch.setattr(session, "START_FACTOR", 1)
    box, there = Toolbox(late(tmp_path, connect_timeout=2)), asyncio.Event()
    before = await box.list()
    box.servers.watch(lambda _: there.set() if box.tools else None)

    await asyncio.wait_for(there.wait(), 20)
    result = await box.call("echo", {"text": "hello"})
    await box.aclose()

    assert before == []
    assert result.text == "hello"


async def test_a_server_that_starts_slowly_joins_by_itself_with_the_process_that_was_started_first(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 600.0)
    joined, mark = asyncio.Event(), tmp_path / "mark"
    async with Toolbox(local, slow(tmp_path, connect_timeout=0.5)) as box:
        before = [tool.name for tool in box.tools]
        health = (await box.health())["raw"]
        box.servers.watch(lambda _: joined.set() if "echo" in box else None)
        mark.touch()
        await joined.wait()
        result = await box.call("echo", {"text": "hello"})

    assert before == ["local"]
    assert health.error.startswith("no response within connect_timeout=0.5 s; it is still starting")
    assert result.text == "hello"
    assert (tmp_path / "log").read_text().count("started") == 1


@pytest.mark.parametrize("ask", ["refresh", "health"])
async def test_a_server_that_starts_slowly_can_be_waited_for_again(tmp_path, monkeypatch, ask):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 600.0)
    box = Toolbox(slow(tmp_path, connect_timeout=0.5))
    before = await box.list()

    (tmp_path / "mark").touch()
    while not box.tools:
        await getattr(box, ask)()
    await box.aclose()

    assert before == []
    assert (tmp_path / "log").read_text().count("started") == 1


async def test_a_server_that_fails_after_a_slow_start_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 0.05)
    joined, mark = asyncio.Event(), tmp_path / "mark"
    box = Toolbox(slow(tmp_path, "dies at once", connect_timeout=0.5))
    await box.list()

    mark.touch()
    while "its process exited with code 3" not in (await box.health())["raw"].error:
        pass
    (tmp_path / "case").write_text("plain", "utf-8")
    box.servers.watch(lambda _: joined.set() if box.tools else None)
    await joined.wait()
    names = [tool.name for tool in box.tools]
    await box.aclose()

    assert names == ["echo"]


async def test_processes_that_hang_for_many_identities_are_not_all_kept(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(pool, "MAX_LATE", 1)
    box = Toolbox(slow(tmp_path, connect_timeout=0.2, auth=lambda context: context.get("user")))

    listed = [await box.with_policy(context={"user": user}).list() for user in "ab"]
    await box.aclose()

    assert listed == [[], []]
    assert [record.getMessage().endswith("it is still starting.") for record in caplog.records] == [True, False]


async def test_a_server_over_http_that_answers_late_joins_by_itself(monkeypatch):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 600.0)
    joined = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:  # connections wait until the server accepts them
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server = uvicorn.Server(uvicorn.Config(asgi_app(Toolbox(local)), log_level="error"))
        async with Toolbox(McpServer.http("web", url, connect_timeout=0.5)) as box:
            before = box.tools
            box.servers.watch(lambda _: joined.set() if box.tools else None)
            serving = asyncio.create_task(server.serve([listening]))
            await joined.wait()
            result = await box.call("local")
        server.should_exit = True
        await serving

    assert before == []
    assert result.text == "here"


async def test_a_server_that_failed_three_times_is_not_asked_again_at_once(monkeypatch):
    monkeypatch.setattr(pool, "FIRST_RETRY_DELAY", 600.0)
    box, errors = Toolbox(web(None, required=True)), []

    for _ in range(4):
        with pytest.raises(RemoteError) as caught:
            await box.list()
        errors.append(caught.value)
    await box.aclose()

    assert ["next attempt in" in error.reason for error in errors] == [False, False, False, True]
    assert errors[-1].retryable


async def test_the_failure_of_an_old_session_leaves_the_new_one_open():
    class Session:
        usable, active_requests = True, 0

        async def open(self):
            """Connect."""

        async def close(self):
            """Disconnect."""

    async def ignore(session):
        """Run on each new session."""

    sessions = SessionPool("raw", lambda headers: Session(), ignore, lambda: None)
    old = await sessions.get_session("ada", {})
    old.usable = False
    new = await sessions.get_session("ada", {})

    sessions.evict("ada", old)

    assert await sessions.get_session("ada", {}) is new


async def test_a_server_that_never_lists_is_asked_once(tmp_path, monkeypatch):
    monkeypatch.setattr(list_cache, "FIRST_RETRY_DELAY", 600.0)
    log = tmp_path / "log"
    box = Toolbox(raw("never lists", log, timeout=0.3, required=True))

    with pytest.raises(RemoteError, match=r"Server 'raw', list: no response within timeout=0\.3 s"):
        await box.list()
    with pytest.raises(RemoteError, match="retrying in the background"):
        await box.list()
    await box.aclose()

    assert log.read_text().count("tools/list") == 1


async def test_what_hangs_is_ended_when_the_toolbox_is_closed(tmp_path):
    log = tmp_path / "log"
    box = Toolbox(raw("never starts", log, connect_timeout=0.5))
    await box.list()
    waiting = asyncio.create_task(box.refresh())
    while not log.exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)

    await box.aclose()
    await waiting

    pids = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("started")]
    assert len(pids) == 1
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []  # noqa: ASYNC240 - a look at /proc


async def test_an_error_that_nobody_waits_for_any_more_is_no_news(tmp_path):
    heard, loop = [], asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: heard.append(about))
    box = Toolbox(raw("never starts", tmp_path / "log", connect_timeout=0.4))

    gone = await box.call("echo", {}, timeout=0.1)
    await box.list()
    await box.aclose()
    gc.collect()
    await asyncio.sleep(0)
    loop.set_exception_handler(None)

    assert gone.error.code == "timeout"
    assert heard == []


@tool
async def stay() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


class Loop(threading.Thread):
    """An event loop in a thread, which ends as that of a program does that closes nothing."""

    def __init__(self):
        super().__init__(daemon=True)
        self.loop = asyncio.new_event_loop()
        self.start()

    def run(self):
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.close()

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.join(5)


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_a_call_from_another_loop_ends_with_the_loop_of_the_session(moment, monkeypatch):
    monkeypatch.setattr("toolmason.mcp_client.session.LOOP_CHECK_SECONDS", 0.01)
    other, box = Loop(), Toolbox(McpServer.of("far", Toolbox(stay)))
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(box.list(), other.loop))
    if moment == "before":
        # The check for a closed loop comes too early to see it.
        monkeypatch.setattr("toolmason.mcp_client.session.UpstreamSession.usable", True)
        await asyncio.to_thread(other.end)
    calling = asyncio.create_task(box.call("stay"))
    await asyncio.sleep(0.05)
    if moment == "during":
        await asyncio.to_thread(other.end)

    result = await asyncio.wait_for(calling, 5)
    gc.collect()

    assert result.error.code == "remote_error"


async def test_a_name_that_a_silent_server_might_have_costs_the_time_out_and_runs_nothing():
    silent = McpServer.stdio("silent", sys.executable, ["-c", "import time; time.sleep(60)"])
    async with Toolbox(silent, timeout=0.2, eager=False) as box:
        result = await box.call("missing")

    assert result.error.code == "timeout"
    assert result.error.retryable
    assert result.error.message == ("missing was not found within 0.2 s: a server did not answer. Nothing was run.")


async def test_a_connection_that_fails_while_its_caller_leaves_is_no_lost_exception():
    lost, started = [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))

    async def work():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RemoteError("s", "call", "the connection was closed")

    async def forward():
        await ForwardedRequest(caller=None).run(work())

    call = asyncio.create_task(forward())
    await started.wait()
    call.cancel()
    await asyncio.wait((call,))
    assert call.cancelled()
    del call
    gc.collect()

    assert lost == []


async def test_an_unknown_name_says_which_servers_are_down(tmp_path):
    gone = McpServer.stdio("gone", str(tmp_path / "missing"))

    async with Toolbox(tool(name="here")(lambda: 1), gone) as box:
        error = (await box.call("search")).error

    assert error.down == ("gone",)
    assert error.message.endswith("These servers do not answer, so their tools are not known: gone.")
    assert (await Toolbox(tool(name="here")(lambda: 1)).call("search")).error.down == ()
