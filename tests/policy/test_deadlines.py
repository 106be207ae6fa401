"""Deadlines that hold: one clock for run, batch and call; what overstays is dropped, logged and counted."""

import asyncio
import logging
import multiprocessing.process
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from policy import process_tools
from toolmason import Allow, Chat, Limits, McpServer, Retry, Toolbox, ToolContext, tool
from toolmason._core.run.execute import ABANDONED_TASKS
from toolmason._core.run.threads import get_thread_pool
from toolmason.errors import ToolCancelled, ToolTimeout
from toolmason.extend import EngineSettings
from toolmason.testing import ScriptedModel

BOUND = 5.0


async def until(condition) -> None:
    """Wait until another thread or task has done its part."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 - nobody tells; a bound ends a test that hangs
            await asyncio.sleep(0.001)


@pytest.fixture
def release():
    """An event that stuck threads wait for; set at the end of the test, whatever happens."""
    event = threading.Event()
    yield event
    event.set()


# --- threads that are given up -------------------------------------------------------------------


async def test_two_hundred_abandoned_threads_in_a_row_do_not_stop_later_calls(release):
    """Issue 3: the pool never starves."""

    @tool(timeout=0.002)
    def stuck() -> None:
        release.wait(30)

    @tool(timeout=BOUND)
    def fine() -> str:
        return "fine"

    box = Toolbox(stuck, fine, settings=EngineSettings(threads=5))

    outcomes = [await box.call("stuck") for _ in range(200)]
    later = await box.call_all([("fine", {})] * 10)

    assert {result.error.code for result in outcomes} == {"timeout"}
    assert [result.text for result in later] == ["fine"] * 10


async def test_the_threads_of_abandoned_calls_end_when_their_tools_do(release):
    before = threading.active_count()

    @tool(timeout=0.002)
    def stuck() -> None:
        release.wait(30)

    box = Toolbox(stuck, settings=EngineSettings(threads=6))
    await box.call_all([("stuck", {})] * 50)
    release.set()

    await until(lambda: threading.active_count() <= before + 6)


async def test_the_late_value_of_a_thread_is_dropped_logged_and_counted(release, caplog):
    begun = threading.Event()

    @tool
    def stuck() -> str:
        begun.set()
        release.wait(30)
        return "late"

    box = Toolbox(stuck, settings=EngineSettings(threads=7))
    counted = get_thread_pool(7, "tools").late_results
    call = asyncio.create_task(box.call("stuck", timeout=0.2))
    await until(begun.is_set)
    result = await call
    with caplog.at_level(logging.WARNING, logger="toolmason"):
        release.set()
        await until(lambda: get_thread_pool(7, "tools").late_results == counted + 1)
        await until(lambda: "dropped" in caplog.text)

    assert isinstance(result.error, ToolTimeout)
    assert result.value is None


async def test_a_call_that_timed_out_in_the_queue_never_starts(release):
    ran = []

    @tool(timeout=None)
    def holds() -> None:
        release.wait(30)

    @tool(timeout=0.02)
    def late() -> None:
        ran.append(1)

    @tool
    def fine() -> str:
        return "fine"

    box = Toolbox(holds, late, fine, settings=EngineSettings(threads=1))
    holding = asyncio.create_task(box.call("holds"))
    await asyncio.sleep(0)

    results = await box.call_all([("late", {})] * 5)
    release.set()
    await holding
    assert (await box.call("fine")).text == "fine"

    assert {result.error.code for result in results} == {"timeout"}
    assert ran == []


def test_the_end_of_the_program_does_not_wait_for_a_stuck_thread(tmp_path):
    program = """
        import threading, sys
        from toolmason import Toolbox, tool

        @tool
        def stuck() -> None:
            threading.Event().wait()

        box = Toolbox(stuck)
        codes = [box.call_sync("stuck", timeout=0.05).error.code for _ in range(3)]
        print(*codes)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
        cwd=tmp_path,
    )

    assert (done.stdout.split(), done.returncode) == (["timeout"] * 3, 0), done.stderr


# --- what a sync tool can see --------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"max_calls": 5}], ids=["short way", "long way"])
async def test_a_sync_tool_sees_its_deadline(policy):
    @tool(timeout=7, **policy)
    def looks(ctx: ToolContext) -> float:
        return ctx.deadline - time.monotonic()

    result = await Toolbox(looks).call("looks")

    assert 6 < result.unwrap() <= 7


@pytest.mark.parametrize("how", ["deadline", "caller", "run"])
async def test_a_sync_tool_sees_that_nobody_waits_for_it(how, release):
    begun, seen = threading.Event(), threading.Event()

    @tool
    def looks(ctx: ToolContext) -> None:
        begun.set()
        while not release.wait(0.002):
            if ctx.cancelled:
                seen.set()
                return

    box = Toolbox(looks).run()
    call = asyncio.create_task(box.call("looks", timeout=0.1 if how == "deadline" else None))
    await until(begun.is_set)
    if how == "caller":
        call.cancel()
    elif how == "run":
        box.cancel()
    await asyncio.wait([call])

    await until(seen.is_set)


# --- one clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "batch", "call", "expected"),
    [
        pytest.param(None, None, 3.0, 3.0, id="call alone"),
        pytest.param(None, 2.0, 3.0, 2.0, id="batch under call"),
        pytest.param(1.0, 2.0, 3.0, 1.0, id="run under batch"),
        pytest.param(3.0, 2.0, 1.0, 1.0, id="call under batch under run"),
        pytest.param(3.0, None, None, 3.0, id="run alone"),
    ],
)
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_nearest_of_run_batch_and_call_is_the_deadline(run, batch, call, expected, kind):
    @tool(name="looks", timeout=call)
    async def looks_async(ctx: ToolContext) -> float:
        return ctx.deadline - time.monotonic()

    @tool(name="looks", timeout=call)
    def looks(ctx: ToolContext) -> float:
        return ctx.deadline - time.monotonic()

    box = Toolbox(looks if kind == "thread" else looks_async)
    box = box if run is None else box.run(Limits(seconds=run))

    (result,) = await box.call_all([("looks", {})], timeout=batch)

    assert expected - 0.5 < result.unwrap() <= expected


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("run", "batch", "words"),
    [
        pytest.param(0.05, None, "run", id="run"),
        pytest.param(30.0, 0.05, "batch timeout of 0.05 s", id="batch within a run"),
        pytest.param(None, 0.05, "batch timeout of 0.05 s", id="batch"),
    ],
)
async def test_a_timeout_names_the_limit_that_was_reached_and_its_number(run, batch, words):
    """01-core.md §8: every limit has a name, a number and an error that says both."""
    box = Toolbox(tool(name="never")(never))
    box = box if run is None else box.run(Limits(seconds=run))

    (result,) = await box.call_all([("never", {})], timeout=batch)

    assert isinstance(result.error, ToolTimeout)
    assert words in result.error.message
    assert "0.05 s" in result.error.message


async def test_a_call_in_a_run_whose_time_is_up_is_not_started():
    ran = []

    @tool
    async def acts() -> None:
        ran.append(1)

    box = Toolbox(acts).run(Limits(seconds=0.001))
    await asyncio.sleep(0.01)

    result = await box.call("acts")

    assert not result.ok
    assert ran == []


@pytest.mark.parametrize("options", [{"lock": "path"}, {"max_concurrency": 1}], ids=["lock", "slot"])
async def test_a_batch_ends_at_its_deadline_also_for_calls_that_wait_for_their_turn(options):
    @tool(**options)
    async def writes(path: str) -> None:
        await asyncio.Event().wait()

    box = Toolbox(writes)
    holding = asyncio.create_task(box.call("writes", {"path": "a"}))
    await asyncio.sleep(0)

    try:
        async with asyncio.timeout(2):
            (result,) = await box.call_all([("writes", {"path": "a"})], timeout=0.05)
    finally:
        holding.cancel()
        await asyncio.wait([holding])

    assert isinstance(result.error, ToolTimeout)


async def test_waiting_for_a_turn_and_running_share_one_timeout():
    @tool(lock="path", timeout=0.4)
    async def writes(path: str, seconds: float) -> None:
        await asyncio.sleep(seconds)

    box = Toolbox(writes)
    holding = asyncio.create_task(box.call("writes", {"path": "a", "seconds": 0.3}))
    await asyncio.sleep(0)

    result = await box.call("writes", {"path": "a", "seconds": 0.3})
    await holding

    assert isinstance(result.error, ToolTimeout)


async def test_a_batch_ends_at_its_deadline_also_while_an_approver_thinks():
    async def thinks(request):
        await asyncio.Event().wait()

    ran = []

    @tool(approval=True)
    async def acts() -> None:
        ran.append(1)

    box = Toolbox(acts, approver=thinks)

    async with asyncio.timeout(2):
        (result,) = await box.call_all([("acts", {})], timeout=0.05)

    assert isinstance(result.error, ToolTimeout)
    assert ran == []


async def test_a_batch_ends_at_its_deadline_also_while_a_hook_hangs():
    async def hangs(call, call_next):
        await asyncio.Event().wait()

    box = Toolbox(tool(name="never")(never))
    box.use(hangs)

    async with asyncio.timeout(2):
        (result,) = await box.call_all([("never", {})], timeout=0.05)

    assert isinstance(result.error, ToolTimeout)


async def test_a_retry_does_not_go_on_beyond_the_run():
    attempts = []

    @tool(read_only=True, retry=Retry(attempts=50, delay=0.02, jitter=False, factor=1))
    async def fails() -> None:
        attempts.append(1)
        raise ConnectionError

    box = Toolbox(fails).run(Limits(seconds=0.1))

    async with asyncio.timeout(2):
        result = await box.call("fails")

    assert not result.ok
    assert 1 < len(attempts) < 15


# --- the hard maximum ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["tool", "toolbox", "call", "setting"])
async def test_the_hard_maximum_caps_a_longer_timeout(where):
    longer = {"timeout": 1000.0}

    @tool(**(longer if where == "tool" else {}))
    def looks(ctx: ToolContext) -> float:
        return ctx.deadline - time.monotonic()

    settings = EngineSettings(max_timeout=600, call_timeout=1000.0 if where == "setting" else 60.0)
    box = Toolbox(looks, settings=settings, **(longer if where == "toolbox" else {}))

    result = await box.call("looks", **(longer if where == "call" else {}))

    assert 590 < result.unwrap() <= 600


@pytest.mark.parametrize("policy", [{}, {"max_calls": 5}], ids=["short way", "long way"])
async def test_a_call_ends_at_the_hard_maximum(policy):
    slow = tool(name="slow", timeout=30, **policy)(never)

    async with asyncio.timeout(2):
        result = await Toolbox(slow, settings=EngineSettings(max_timeout=0.05)).call("slow")

    assert (result.error.code, result.error.seconds) == ("timeout", 0.05)


async def test_none_means_none():
    @tool(timeout=None)
    def looks(ctx: ToolContext) -> bool:
        return ctx.deadline is None

    assert (await Toolbox(looks, settings=EngineSettings(max_timeout=0.5)).call("looks")).unwrap()


# --- tools that do not go ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"max_calls": 5}], ids=["short way", "long way"])
async def test_a_tool_that_swallows_its_cancellation_is_answered_dropped_and_counted(policy, caplog):
    go = asyncio.Event()

    @tool(timeout=0.05, **policy)
    async def stubborn() -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    counted, started = ABANDONED_TASKS.late_results, time.monotonic()
    result = await Toolbox(stubborn, settings=EngineSettings(cancel_grace=0.05)).call("stubborn")
    took = time.monotonic() - started
    with caplog.at_level(logging.WARNING, logger="toolmason"):
        go.set()
        await until(lambda: ABANDONED_TASKS.late_results == counted + 1)

    assert isinstance(result.error, ToolTimeout)
    assert took < 0.5
    assert "stubborn" in caplog.text


async def test_a_long_clean_up_goes_on_after_the_result_is_given():
    go, cleaned = asyncio.Event(), asyncio.Event()

    @tool(timeout=0.05)
    async def messy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()
            cleaned.set()

    started = time.monotonic()
    result = await Toolbox(messy, settings=EngineSettings(cancel_grace=0.05)).call("messy")
    took, done_before = time.monotonic() - started, cleaned.is_set()
    go.set()
    await until(cleaned.is_set)

    assert isinstance(result.error, ToolTimeout)
    assert took < 0.5
    assert not done_before


async def test_a_short_clean_up_is_done_when_the_result_is_given():
    cleaned = []

    @tool(timeout=0.02)
    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(1)

    await Toolbox(tidy, settings=EngineSettings(cancel_grace=2)).call("tidy")

    assert cleaned == [1]


# --- a run that is called off --------------------------------------------------------------------


async def test_a_call_that_waits_for_its_turn_does_not_start_after_the_run_was_cancelled():
    ran = []

    @tool(lock="path")
    async def writes(path: str) -> None:
        ran.append(path)
        await asyncio.Event().wait()

    run = Toolbox(writes).run()
    calls = [asyncio.create_task(run.call("writes", {"path": "a"})) for _ in range(2)]
    await until(lambda: ran == ["a"])

    run.cancel()
    done, _ = await asyncio.wait(calls, timeout=1)
    started = list(ran)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)

    assert started == ["a"]
    assert [isinstance(call.result().error, ToolCancelled) for call in done] == [True, True]


async def test_a_call_that_is_approved_after_the_run_was_cancelled_does_not_start():
    ran = []

    @tool(approval=True)
    async def acts() -> None:
        ran.append(1)

    def approve(request):
        run.cancel()
        return Allow()

    run = Toolbox(acts, approver=approve).run()

    result = await run.call("acts")

    assert isinstance(result.error, ToolCancelled)
    assert ran == []


# --- tools elsewhere -------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [{}, {"timeout": 30}, {"timeout": None}], ids=["default", "longer", "none"])
async def test_the_time_out_of_a_toolbox_bounds_the_tools_of_its_servers(server):
    """review/peers.md §3, bug 3: the 60 s that a server has by default counted as set by the tool."""

    @tool
    async def hang() -> None:
        await asyncio.Event().wait()

    box = Toolbox(McpServer.of("memory", Toolbox(hang), **server), timeout=0.05)

    async with box:
        result = await asyncio.wait_for(box.call("hang"), BOUND)

    assert isinstance(result.error, ToolTimeout)


@pytest.fixture
def slow_start(release, monkeypatch):
    """Worker processes that do not start before the end of the test. No other test uses pools of these sizes."""
    start = multiprocessing.process.BaseProcess.start

    def start_late(process):
        release.wait(30)
        start(process)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start_late)


async def test_the_start_of_a_worker_process_counts(slow_start):
    """review/peers.md §3, bug 4: a cold worker was outside of every deadline."""
    box = Toolbox(process_tools.pid, timeout=0.05, settings=EngineSettings(processes=5))

    result = await asyncio.wait_for(box.call("pid"), BOUND)

    assert isinstance(result.error, ToolTimeout)


async def test_the_start_of_a_worker_process_counts_for_the_run(slow_start):
    box = Toolbox(process_tools.pid, settings=EngineSettings(processes=6))
    chat = Chat(ScriptedModel([[("pid", {})], "Done."]), box, limits=Limits(seconds=0.05))

    reply = await asyncio.wait_for(chat.send("Go."), BOUND)

    assert reply.finish == "limit"
    assert not any(result.ok for result in reply.results)


async def test_the_time_out_of_a_toolbox_bounds_the_wait_for_the_list_of_a_server():
    async def hang(context: ToolContext) -> str:
        await asyncio.Event().wait()
        return "token"

    box = Toolbox(McpServer.of("memory", Toolbox(), auth=hang), timeout=0.05)

    result = await asyncio.wait_for(box.call("any"), 1)

    assert isinstance(result.error, ToolTimeout)
