"""What a tool may do with asyncio and anyio inside itself: all that it may do in a task of its own."""

import asyncio
import threading

import anyio
import anyio.lowlevel
import pytest

from toolmason import Toolbox, tool
from toolmason.errors import ToolTimeout


def bound() -> asyncio.Timeout:
    """Return a limit that only a test that hangs reaches."""
    return asyncio.timeout(5)


waits_first = pytest.mark.parametrize("waits_first", [True, False], ids=["after a wait", "at once"])
with_timeout = pytest.mark.parametrize("timeout", [60, None], ids=["with a timeout", "without"])


@with_timeout
@waits_first
async def test_asyncio_timeout_works_inside_a_tool(waits_first, timeout):
    @tool(timeout=timeout)
    async def bounded() -> str:
        if waits_first:
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "in time"
        return "never"

    async with bound():
        result = await Toolbox(bounded).call("bounded")

    assert result.unwrap() == "in time"


@with_timeout
@waits_first
async def test_wait_for_works_inside_a_tool(waits_first, timeout):
    @tool(timeout=timeout)
    async def bounded() -> str:
        if waits_first:
            await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            return "in time"
        return "never"

    async with bound():
        result = await Toolbox(bounded).call("bounded")

    assert result.unwrap() == "in time"


@with_timeout
@waits_first
async def test_a_task_group_works_inside_a_tool(waits_first, timeout):
    async def part(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @tool(timeout=timeout)
    async def total() -> int:
        if waits_first:
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(part(n)) for n in range(4)]
        return sum(task.result() for task in parts)

    async with bound():
        result = await Toolbox(total).call("total")

    assert result.unwrap() == 6


@with_timeout
@waits_first
async def test_a_task_group_that_fails_inside_a_tool_cancels_its_tasks_and_fails_the_call(waits_first, timeout):
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async def fails() -> None:
        raise ValueError("part")

    @tool(timeout=timeout)
    async def total() -> None:
        if waits_first:
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            await asyncio.sleep(0)
            group.create_task(fails())

    async with bound():
        result = await Toolbox(total).call("total")

    assert isinstance(result.error.__cause__, ExceptionGroup)
    assert ended == [1]


@with_timeout
@waits_first
async def test_anyio_task_groups_and_cancel_scopes_work_inside_a_tool(waits_first, timeout):
    @tool(timeout=timeout)
    async def scoped() -> list[str]:
        seen = []
        if waits_first:
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0.01):
            await anyio.sleep_forever()
        seen.append("moved on")

        async def child(word: str) -> None:
            await anyio.lowlevel.checkpoint()
            seen.append(word)

        async with anyio.create_task_group() as group:
            group.start_soon(child, "child")
        try:
            with anyio.fail_after(0.01):
                await anyio.sleep_forever()
        except TimeoutError:
            seen.append("failed")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.cancel_scope.cancel()
        return [*seen, "cancelled"]

    async with bound():
        result = await Toolbox(scoped).call("scoped")

    assert result.unwrap() == ["moved on", "child", "failed", "cancelled"]


async def test_a_shielded_anyio_scope_inside_a_tool_finishes_its_clean_up():
    cleaned = []

    @tool(timeout=0.02)
    async def careful() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                cleaned.append(1)

    async with bound():
        result = await Toolbox(careful).call("careful")

    assert isinstance(result.error, ToolTimeout)
    assert cleaned == [1]


async def test_a_tool_may_use_anyio_threads():
    @tool
    async def hops() -> int:
        return await anyio.to_thread.run_sync(threading.get_ident)

    result = await Toolbox(hops).call("hops")

    assert result.unwrap() != threading.get_ident()


async def test_a_tool_may_name_its_task():
    @tool
    async def named() -> str:
        task = asyncio.current_task()
        task.set_name("mine")
        return task.get_name()

    result = await Toolbox(named).call("named")

    assert result.unwrap() == "mine"


async def test_a_tool_has_a_task_of_its_own_from_its_first_step_on():
    seen = []

    @tool
    async def looks() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    caller = asyncio.current_task()
    await Toolbox(looks).call("looks")

    assert seen[0] is seen[1]
    assert seen[0] is not caller
    assert asyncio.current_task() is caller
