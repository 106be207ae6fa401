"""Processes that start, are handed over and are kept: what no call of a tool shows by itself."""

import asyncio
import threading
import time

from toolmason._core.run.processes import ProcessPool

BOUND = 15.0


async def test_a_caller_that_comes_as_a_process_is_handed_to_another_starts_one():
    pool = ProcessPool(2)
    first = asyncio.create_task(pool.acquire(BOUND))
    await asyncio.sleep(0)
    while any(thread.name == "toolmason-start" for thread in threading.enumerate()):
        time.sleep(0.01)  # noqa: ASYNC251 - the loop must not run before the second caller waits

    second, _ = await pool.acquire(BOUND)

    worker, _ = await first
    assert worker is not second
    for each in (worker, second):
        pool.release(each, usable=False)
