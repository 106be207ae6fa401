"""Progress: from any place a tool runs, bounded, in order, and never in the tool's way."""

import asyncio
import logging
import threading
import time

import pytest

from policy import process_tools
from toolmason import Allow, Toolbox, ToolContext, tool
from toolmason._core.run.progress import Reporter
from toolmason.extend import EngineSettings, ProgressReport

BOUND = 5.0


async def until(condition) -> None:
    """Wait until another thread or task has done its part."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 - nobody tells; a bound ends a test that hangs
            await asyncio.sleep(0.001)


@tool
async def count_async(ctx: ToolContext, times: int) -> str:
    for number in range(times):
        await ctx.progress(number, times, f"step {number}")
    return "done"


@tool
def count(ctx: ToolContext, times: int) -> str:
    for number in range(times):
        ctx.progress(number, times, f"step {number}")
    return "done"


PLACES = [
    pytest.param(count_async, id="async"),
    pytest.param(count, id="thread"),
    pytest.param(process_tools.report, id="process"),
]


# --- where it comes from -------------------------------------------------------------------------


@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("way", ["call", "call_all", "run"])
async def test_reports_come_in_order_and_before_the_result(source, way):
    box, seen = Toolbox(source), []
    name = box.tools[0].name

    if way == "call_all":
        (result,) = await box.call_all([(name, {"times": 3})], on_progress=seen.append)
    else:
        box = box.run() if way == "run" else box
        result = await box.call(name, {"times": 3}, on_progress=seen.append)

    assert result.text == "done"
    assert seen == [ProgressReport(result.call_id, name, number, 3, f"step {number}") for number in range(3)]


async def test_a_call_reports_progress_after_its_approval():
    @tool(approval=True)
    async def deploy(ctx: ToolContext) -> str:
        await ctx.progress(1, 2)
        return "done"

    box, seen = Toolbox(deploy), []
    waiting = await box.call("deploy", on_progress=seen.append)

    result = await box.approvals.resume(box.approvals.decide(waiting.error.request, Allow()), on_progress=seen.append)

    assert result.text == "done"
    assert [(report.call_id, report.done) for report in seen] == [(waiting.call_id, 1)]


async def test_an_async_tool_in_a_process_reports():
    seen = []

    await Toolbox(process_tools.report_async).call("report_async", on_progress=seen.append)

    assert [(report.done, report.total, report.message) for report in seen] == [(1, 2, None)]


@pytest.mark.parametrize("source", PLACES)
async def test_without_a_callback_a_report_goes_nowhere(source):
    box = Toolbox(source)

    result = await box.call(box.tools[0].name, {"times": 3})

    assert result.text == "done"


def test_reports_come_from_a_sync_call_too():
    seen = []

    Toolbox(count).call_sync("count", {"times": 2}, on_progress=seen.append)

    assert [report.done for report in seen] == [0, 1]


async def test_each_report_of_a_batch_names_its_call():
    seen = []

    results = await Toolbox(count).call_all([("count", {"times": 1})] * 3, on_progress=seen.append)

    assert {report.call_id for report in seen} == {result.call_id for result in results}


async def test_a_late_report_from_a_process_is_not_taken_for_the_next_calls(tmp_path):
    box = Toolbox(process_tools.report_afterwards, process_tools.wait_for, settings=EngineSettings(processes=1))
    release, reported = tmp_path / "release", tmp_path / "reported"
    await box.call("report_afterwards", {"release": str(release), "reported": str(reported)})

    seen = []
    process_tools.write_whole(release, "")
    result = await box.call("wait_for", {"place": str(reported)}, on_progress=seen.append)

    assert result.unwrap() is True
    assert seen == []


# --- callbacks -----------------------------------------------------------------------------------


async def test_an_async_callback_is_awaited():
    seen = []

    async def look(report):
        await asyncio.sleep(0)
        seen.append(report.done)

    await Toolbox(count).call("count", {"times": 3}, on_progress=look)

    await until(lambda: seen == [0, 1, 2])


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_failing_callback_is_logged_and_neither_the_tool_nor_later_reports_are_lost(kind, caplog):
    seen = []

    def look(report):
        seen.append(report.done)
        raise ValueError("callback broke")

    async def look_async(report):
        look(report)

    with caplog.at_level(logging.ERROR, logger="toolmason"):
        result = await Toolbox(count).call("count", {"times": 3}, on_progress=look if kind == "sync" else look_async)
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(0)

    assert result.text == "done"
    assert seen == [0, 1, 2]
    assert caplog.text.count("progress callback failed") == 3


# --- bounds --------------------------------------------------------------------------------------


async def test_reports_that_nobody_reads_in_time_push_out_the_oldest_and_are_counted():
    seen = []
    reporter = Reporter(lambda report: seen.append(report.done), "c1", "count", 10)

    for number in range(25):
        reporter(number)
    reporter.flush()

    assert seen == list(range(15, 25))
    assert reporter.dropped == 15


async def test_the_bound_is_a_setting():
    seen = []
    box = Toolbox(count_async, settings=EngineSettings(progress_queue=5))

    result = await box.call("count_async", {"times": 100}, on_progress=seen.append)
    await until(lambda: seen)

    assert result.text == "done"
    assert [report.done for report in seen] == [95, 96, 97, 98, 99]


async def test_a_slow_async_callback_does_not_pile_up_tasks():
    go = asyncio.Event()

    @tool
    async def reports(ctx: ToolContext) -> str:
        for number in range(200):
            await ctx.progress(number)
            await asyncio.sleep(0)
        return "done"

    async def look(report):
        await go.wait()

    box = Toolbox(reports, settings=EngineSettings(progress_queue=10))
    before = len(asyncio.all_tasks())

    await box.call("reports", on_progress=look)
    waiting = len(asyncio.all_tasks()) - before
    go.set()
    await until(lambda: len(asyncio.all_tasks()) <= before)

    assert waiting <= 10


async def test_a_callback_that_blocks_does_not_hold_up_the_tool():
    finished, looked = threading.Event(), []

    @tool
    def works(ctx: ToolContext) -> str:
        for number in range(5000):
            ctx.progress(number)
        finished.set()
        return "done"

    def look(report):
        if not looked:
            looked.append(finished.wait(BOUND))

    result = await Toolbox(works).call("works", on_progress=look)

    assert looked == [True]
    assert result.text == "done"


async def test_ten_thousand_reports_take_no_time_to_speak_of():
    box = Toolbox(count)

    started = time.monotonic()
    result = await box.call("count", {"times": 10_000}, on_progress=lambda report: None)

    assert result.text == "done"
    assert time.monotonic() - started < 2


async def test_nothing_is_reported_of_a_call_after_its_result():
    """MCP: progress notifications stop when the request is answered."""
    go, ended, seen = threading.Event(), threading.Event(), []

    @tool(timeout=0.02)
    def late(ctx: ToolContext) -> None:
        go.wait(BOUND)
        ctx.progress(1)
        ended.set()

    await Toolbox(late).call("late", on_progress=seen.append)
    go.set()
    await until(ended.is_set)
    await asyncio.sleep(0)

    assert seen == []


def test_a_report_after_the_loop_was_closed_does_not_hurt_the_tool():
    go, outcome, ended = threading.Event(), [], threading.Event()

    @tool(timeout=0.02)
    def late(ctx: ToolContext) -> None:
        go.wait(BOUND)
        try:
            ctx.progress(1)
            ctx.progress(2)
            outcome.append("fine")
        except BaseException as error:  # noqa: BLE001 - whatever comes is what the test is about
            outcome.append(error)
        ended.set()

    asyncio.run(Toolbox(late).call("late", on_progress=lambda report: None))
    go.set()

    assert ended.wait(BOUND)
    assert outcome == ["fine"]
