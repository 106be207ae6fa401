"""Where a tool runs and until when: loop and thread, deadlines, cancellation, context variables."""

import asyncio
import contextvars
import logging
import sys
import threading

import anyio
import pytest

from toolmason import Toolbox, ToolContext, tool
from toolmason.errors import ExecutionError, ToolTimeout

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def bound() -> asyncio.Timeout:
    """Return a limit that only a test that hangs reaches."""
    return asyncio.timeout(5)


async def settle() -> None:
    """Give every task that can run its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


# --- where -------------------------------------------------------------------------------------


@pytest.mark.row("CO-11")
async def test_a_sync_tool_runs_in_a_thread_and_an_async_one_on_the_loop():
    @tool
    def blocks() -> int:
        return threading.get_ident()

    @tool
    async def waits() -> int:
        return threading.get_ident()

    box = Toolbox(blocks, waits)

    assert (await box.call("blocks")).value != threading.get_ident()
    assert (await box.call("waits")).value == threading.get_ident()


async def test_a_sync_tool_may_ask_for_the_loop():
    @tool(runs_on="loop")
    def quick() -> int:
        return threading.get_ident()

    result = await Toolbox(quick).call("quick")

    assert result.value == threading.get_ident()


async def test_the_loop_goes_on_while_a_sync_tool_blocks():
    released = threading.Event()

    @tool
    def blocks() -> bool:
        return released.wait(5)

    call = asyncio.create_task(Toolbox(blocks).call("blocks"))
    await settle()
    released.set()

    assert (await call).value is True


@pytest.mark.row("CO-9")
@pytest.mark.parametrize("runs_on", ["thread", "loop"])
async def test_an_awaitable_that_a_sync_tool_returns_is_awaited(runs_on):
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    @tool(runs_on=runs_on)
    def now() -> str:
        return later()

    result = await Toolbox(now).call("now")

    assert result.unwrap() == "later"


async def test_an_awaitable_that_a_sync_tool_returns_is_under_its_timeout():
    ended = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    @tool(timeout=0.05)
    def now() -> None:
        return never()

    async with bound():
        result = await Toolbox(now).call("now")

    assert isinstance(result.error, ToolTimeout)
    assert ended == [1]


# --- deadlines ---------------------------------------------------------------------------------


async def test_an_async_tool_is_cancelled_at_its_deadline(tasks_left):
    ended = []

    @tool(timeout=0.02)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with bound():
        result = await Toolbox(slow).call("slow")

    assert isinstance(result.error, ToolTimeout)
    assert ended == ["cancelled"]
    assert tasks_left() == []


async def test_an_async_tool_that_swallows_its_cancellation_is_answered_at_the_deadline_all_the_same(
    caplog, tasks_left
):
    """reliability.md F36: the late task is tracked, its value dropped and logged."""
    release = asyncio.Event()

    @tool(timeout=0.02)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    async with bound():
        result = await Toolbox(stubborn).call("stubborn")
    still_running = len(tasks_left())
    with caplog.at_level(logging.WARNING, logger="toolmason"):
        release.set()
        await settle()

    assert isinstance(result.error, ToolTimeout)
    assert still_running == 1
    assert tasks_left() == []
    assert "stubborn" in caplog.text
    assert "dropped" in caplog.text


async def test_a_value_returned_after_the_cancellation_is_not_taken_for_a_result():
    @tool(timeout=0.02)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    async with bound():
        result = await Toolbox(stubborn).call("stubborn")

    assert isinstance(result.error, ToolTimeout)


async def test_an_error_raised_while_cleaning_up_does_not_replace_the_timeout():
    @tool(timeout=0.02)
    async def messy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("clean-up failed")

    async with bound():
        result = await Toolbox(messy).call("messy")

    assert isinstance(result.error, ToolTimeout)


@pytest.mark.row("AJ-6", "L4-21")
async def test_a_sync_tool_is_abandoned_at_its_deadline_and_later_calls_work():
    release = threading.Event()

    @tool(timeout=0.02)
    def stuck() -> None:
        release.wait(5)

    @tool
    def fine() -> str:
        return "fine"

    box = Toolbox(stuck, fine)

    async with bound():
        first = await box.call("stuck")
        second = await box.call("fine")
    release.set()

    assert isinstance(first.error, ToolTimeout)
    assert second.unwrap() == "fine"


async def test_without_a_timeout_a_tool_may_take_as_long_as_it_likes():
    go = asyncio.Event()

    @tool(timeout=None)
    async def patient(ctx: ToolContext) -> None:
        assert ctx.deadline is None
        await go.wait()

    call = asyncio.create_task(Toolbox(patient, timeout=0.001).call("patient"))
    await asyncio.sleep(0.02)
    go.set()

    assert (await call).ok


async def test_a_timeout_error_of_the_tool_itself_is_not_taken_for_ours():
    @tool
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    result = await Toolbox(impatient).call("impatient")

    assert isinstance(result.error, ExecutionError)
    assert isinstance(result.error.__cause__, TimeoutError)


async def test_a_tool_in_a_thread_sees_that_nobody_waits_for_it_any_more():
    seen = threading.Event()
    stop = threading.Event()

    @tool(timeout=0.5)
    def looks(ctx: ToolContext) -> None:
        while not stop.is_set():
            if ctx.cancelled:
                seen.set()
                return

    async with bound():
        await Toolbox(looks).call("looks")
        noticed = await asyncio.to_thread(seen.wait, 20)
    stop.set()

    assert noticed


# --- cancellation from outside -----------------------------------------------------------------


@pytest.mark.parametrize("timeout", [60, None], ids=["with a timeout", "without"])
async def test_a_caller_that_runs_out_of_time_cancels_the_tool_and_gets_its_own_timeout_error(timeout, tasks_left):
    ended = []

    @tool(timeout=timeout)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await Toolbox(slow).call("slow")

    assert ended == [1]
    assert tasks_left() == []


@pytest.mark.parametrize("timeout", [60, None], ids=["with a timeout", "without"])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_cancelled_caller_gets_the_cancellation_and_no_result(kind, timeout):
    begun, release = threading.Event(), threading.Event()

    @tool(name="slow", timeout=timeout)
    async def slow_async() -> None:
        begun.set()
        await asyncio.Event().wait()

    @tool(name="slow", timeout=timeout)
    def slow_sync() -> None:
        begun.set()
        release.wait(5)

    call = asyncio.create_task(Toolbox(slow_async if kind == "async" else slow_sync).call("slow"))
    await asyncio.to_thread(begun.wait, 5)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    release.set()

    assert call.cancelled()


async def test_a_cancelled_caller_does_not_wait_for_ever_for_a_stubborn_tool(tasks_left):
    release = asyncio.Event()
    begun = asyncio.Event()

    @tool
    async def stubborn() -> None:
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    call = asyncio.create_task(Toolbox(stubborn).call("stubborn"))
    await begun.wait()

    call.cancel()
    async with bound():
        with pytest.raises(asyncio.CancelledError):
            await call
    release.set()
    await settle()

    assert tasks_left() == []


async def test_a_cancel_scope_around_a_call_ends_it():
    ended = []

    @tool
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    with anyio.move_on_after(0.02) as scope:
        await Toolbox(slow).call("slow")

    assert scope.cancelled_caught
    assert ended == [1]


async def test_a_cancelled_task_group_around_a_call_ends_it():
    begun, ended = asyncio.Event(), []

    @tool
    async def slow() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with bound(), anyio.create_task_group() as group:
        group.start_soon(Toolbox(slow).call, "slow")
        await begun.wait()
        group.cancel_scope.cancel()

    assert ended == [1]


async def test_a_tool_that_cancels_its_own_task_has_failed_and_its_caller_goes_on():
    @tool
    async def gives_up() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    result = await Toolbox(gives_up).call("gives_up")

    assert isinstance(result.error, ExecutionError)
    assert asyncio.current_task().cancelling() == 0


# --- context variables -------------------------------------------------------------------------


async def test_context_variables_reach_async_tools_and_threads():
    @tool
    async def waits() -> str:
        await asyncio.sleep(0)
        return who.get()

    @tool
    def blocks() -> str:
        return who.get()

    who.set("caller")
    results = await Toolbox(waits, blocks).call_all([("waits", {}), ("blocks", {})])

    assert [result.value for result in results] == ["caller", "caller"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_context_variables_that_a_tool_sets_do_not_leak_back(kind):
    @tool(name="sets")
    async def sets_async() -> None:
        who.set("tool")
        await asyncio.sleep(0)

    @tool(name="sets")
    def sets_sync() -> None:
        who.set("tool")

    box = Toolbox(sets_async if kind == "async" else sets_sync)
    who.set("caller")

    await box.call("sets")
    await box.call_all([("sets", {})] * 3)

    assert who.get() == "caller"


async def test_context_variables_of_one_caller_are_not_seen_by_another():
    @tool
    def blocks() -> str:
        return who.get()

    box = Toolbox(blocks)

    async def caller(name: str) -> str:
        who.set(name)
        return (await box.call("blocks")).value

    names = [f"caller {n}" for n in range(20)]
    assert await asyncio.gather(*map(caller, names)) == names


# --- memory ------------------------------------------------------------------------------------


async def test_an_async_tool_that_never_waits_costs_no_task():
    """Issue 2: default time-outs must not cost a task per call."""
    seen = []

    @tool
    async def quick() -> None:
        seen.append(len(asyncio.all_tasks()))

    before = len(asyncio.all_tasks())
    await Toolbox(quick).call("quick")

    # From 3.12 on Python's own eager task stands in the list while it runs; it costs no turn of the loop either.
    assert seen == [before + (sys.version_info >= (3, 12))]
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize(("read_only", "ends"), [(True, "0.02 s."), (None, "It may still have had an effect.")])
async def test_a_read_only_tool_that_is_late_has_had_no_effect(read_only, ends):
    """Review, newcomer 26."""

    @tool(read_only=read_only, timeout=0.02)
    async def look() -> None:
        await asyncio.Event().wait()

    result = await Toolbox(look).call("look", {})

    assert result.error.message.endswith(ends)
