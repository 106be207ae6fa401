"""A batch that is stopped: every call still has a result, and nothing is left behind."""

import asyncio
import threading

import pytest

from core.gauges import Gauge, double, forever, settle, work_on
from toolmason import Abort, Parallel, Toolbox, ToolCall, ToolResult, tool
from toolmason.errors import ToolCancelled, UnknownTool


async def test_a_cancelled_batch_fills_its_results_and_leaves_no_task_behind(tasks_left):
    gauge = Gauge()
    results: list[ToolResult] = []
    calls = [("double", {"n": 1}), ("work", {"n": 1}), ("work", {"n": 2}), ("nothing", {}), ("work", {"n": 3})]
    batch = asyncio.create_task(Toolbox(double, work_on(gauge)).call_all(calls, results=results))
    await gauge.wait_for(3)

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    assert [type(result.error) for result in results] == [
        type(None),
        ToolCancelled,
        ToolCancelled,
        UnknownTool,
        ToolCancelled,
    ]
    assert results[0].value == 2
    assert gauge.now == 0
    assert tasks_left() == []


async def test_a_batch_cancelled_while_calls_wait_for_their_turn_answers_those_too(tasks_left):
    gauge = Gauge()
    results: list[ToolResult] = []
    box = Toolbox(work_on(gauge))
    calls = [ToolCall(str(n), "work", {"n": n}) for n in range(5)]
    batch = asyncio.create_task(box.call_all(calls, strategy=Parallel(limit=2), results=results))
    await gauge.wait_for(2)
    await settle()

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    assert [result.call_id for result in results] == ["0", "1", "2", "3", "4"]
    assert {result.error.code for result in results} == {"cancelled"}
    assert gauge.begun == 2
    assert tasks_left() == []


async def test_a_batch_cancelled_before_it_began_still_answers_every_call():
    results: list[ToolResult] = []
    batch = asyncio.create_task(Toolbox(forever).call_all([("forever", {})] * 2, results=results))

    await asyncio.sleep(0)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    assert [result.error.code for result in results] == ["cancelled", "cancelled"]


async def test_a_batch_under_a_caller_that_runs_out_of_time_raises_its_timeout_error(tasks_left):
    results: list[ToolResult] = []

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Toolbox(double, forever).call_all([("double", {"n": 1}), ("forever", {})], results=results)

    assert [result.ok for result in results] == [True, False]
    assert tasks_left() == []


async def test_a_cancelled_batch_waits_for_the_clean_up_of_its_tools():
    cleaned = []
    begun = asyncio.Event()

    @tool
    async def careful() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await settle()
            cleaned.append(1)

    batch = asyncio.create_task(Toolbox(careful).call_all([("careful", {})]))
    await begun.wait()

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    assert cleaned == [1]


async def test_an_abort_stops_the_batch_and_the_siblings_are_called_off(tasks_left):
    gauge = Gauge()
    results: list[ToolResult] = []

    @tool
    async def stop() -> None:
        await gauge.wait_for(1)
        raise Abort("enough")

    box = Toolbox(double, work_on(gauge), stop)

    with pytest.raises(Abort, match="enough"):
        await box.call_all([("double", {"n": 1}), ("work", {}), ("stop", {}), ("work", {})], results=results)

    assert [result.ok for result in results] == [True, False, False, False]
    assert gauge.now == 0
    assert tasks_left() == []


async def test_an_abort_at_once_keeps_the_calls_after_it_from_running():
    ran = []

    @tool
    async def stop() -> None:
        raise Abort

    @tool
    async def note() -> None:
        ran.append(1)

    with pytest.raises(Abort):
        await Toolbox(stop, note).call_all([("stop", {}), ("note", {})])

    assert ran == []


async def test_a_cancelled_batch_does_not_wait_for_a_stuck_thread(tasks_left):
    begun, release = threading.Event(), threading.Event()
    results: list[ToolResult] = []

    @tool
    def stuck() -> None:
        begun.set()
        release.wait(5)

    batch = asyncio.create_task(Toolbox(double, stuck).call_all([("double", {"n": 1}), ("stuck", {})], results=results))
    await asyncio.to_thread(begun.wait, 5)

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    still_stuck = not release.is_set()
    release.set()

    assert still_stuck
    assert [result.error and result.error.code for result in results] == [None, "cancelled"]
    assert tasks_left() == []


async def test_a_batch_cancelled_twice_ends_at_once_and_still_answers_every_call(tasks_left):
    cleaning, go = asyncio.Event(), asyncio.Event()
    results: list[ToolResult] = []

    @tool
    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go.wait()

    batch = asyncio.create_task(Toolbox(careful).call_all([("careful", {})] * 2, results=results))
    await settle()
    batch.cancel()
    await cleaning.wait()

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    go.set()
    await settle()

    assert [result.error.code for result in results] == ["cancelled", "cancelled"]
    assert tasks_left() == []
