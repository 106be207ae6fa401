"""Limits on the short way: the same promises as on the long one, while a turn is free."""

import asyncio
import threading

import pytest

from policy.samples import take_free
from toolmason import Toolbox, ToolError, tool
from toolmason._core.run.slots import Semaphore


@tool(max_concurrency=1)
async def hold(gate: str) -> str:
    """Wait until told."""
    await GATES[gate].wait()
    return gate


GATES: dict[str, asyncio.Event] = {}


async def test_a_newcomer_does_not_overtake_who_waits():
    GATES.update({name: asyncio.Event() for name in "abc"})
    box, order = Toolbox(hold), []

    async def call(name: str) -> None:
        order.append((await box.call("hold", {"gate": name})).value)

    first, second = asyncio.create_task(call("a")), asyncio.create_task(call("b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    GATES["b"].set()
    GATES["c"].set()
    GATES["a"].set()
    third = asyncio.create_task(call("c"))
    await asyncio.gather(first, second, third)

    assert order == ["a", "b", "c"]


async def test_a_turn_comes_back_however_the_call_ends():
    @tool(max_concurrency=1)
    async def ends(how: str) -> str:
        if how == "fails":
            raise ToolError("no")
        if how == "hangs":
            await asyncio.Event().wait()
        return how

    box = Toolbox(ends)

    assert (await box.call("ends", {"how": "fails"})).error is not None
    assert (await box.call("ends", {"wrong": 1})).error is not None
    assert (await box.call("ends", {"how": "hangs"}, timeout=0.01)).error is not None
    hanging = asyncio.create_task(box.call("ends", {"how": "hangs"}))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert (await box.call("ends", {"how": "well"})).value == "well"


async def test_a_call_that_does_not_fit_is_not_counted():
    @tool(max_calls=1, max_concurrency=2)
    async def once(n: int) -> int:
        return n

    box = Toolbox(once)

    refused = [await box.call("once", {"n": "x"}) for _ in range(3)]
    results = [await box.call("once", {"n": 1}) for _ in range(2)]

    assert {result.error.code for result in refused} == {"invalid_arguments"}
    assert [result.ok for result in results] == [True, False]
    assert results[1].error.code == "limit_exceeded"
    assert results[1].attempts == 0


async def test_limits_hold_for_single_calls_and_batches_together():
    @tool(max_calls=5)
    async def few(n: int) -> int:
        return n

    box = Toolbox(few)

    single = [await box.call("few", {"n": n}) for n in range(3)]
    batch = await box.call_all([("few", {"n": n}) for n in range(4)], timeout=5)

    assert sum(result.ok for result in (*single, *batch)) == 5


@pytest.mark.parametrize("in_a_run", [False, True], ids=["fast path", "full path"])
async def test_a_tool_inside_a_tool_does_not_wait_for_its_own_turn(in_a_run):
    @tool(max_concurrency=1)
    async def outer(depth: int) -> int:
        if depth:
            inner = await box.call("outer", {"depth": depth - 1}, timeout=5)
            return inner.unwrap() + 1
        return 0

    box = Toolbox(outer).run() if in_a_run else Toolbox(outer)

    assert (await box.call("outer", {"depth": 5})).value == 5


async def test_a_hook_sees_each_call_once_also_when_it_has_to_wait():
    GATES.update({name: asyncio.Event() for name in "de"})
    box, seen = Toolbox(hold), []

    @box.use
    async def count(call, following):
        seen.append(call.id)
        return await following(call)

    calls = [asyncio.create_task(box.call("hold", {"gate": name})) for name in "de"]
    await asyncio.sleep(0)
    GATES["d"].set()
    GATES["e"].set()
    results = await asyncio.gather(*calls)

    assert [result.value for result in results] == ["d", "e"]
    assert len(seen) == 2


def test_slots_are_never_given_out_twice_over_threads_and_loops():
    slots, running, most, lock = Semaphore(3), 0, 0, threading.Lock()

    async def use() -> None:
        nonlocal running, most
        for turn in range(200):
            if not slots.try_acquire():
                await slots.acquire()
            with lock:
                running += 1
                most = max(most, running)
            if turn % 3 == 0:
                await asyncio.sleep(0)
            with lock:
                running -= 1
            slots.release()

    async def several() -> None:
        await asyncio.gather(*(use() for _ in range(5)))

    threads = [threading.Thread(target=asyncio.run, args=(several(),), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert not any(thread.is_alive() for thread in threads)
    assert most == 3
    assert take_free(slots) == 3
