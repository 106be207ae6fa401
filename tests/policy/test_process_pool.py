"""Processes that start, are handed over and are kept: what no call of a tool shows by itself."""

import asyncio
import os
import threading
import time

from policy import process_tools as tools
from toolmason import Toolbox
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


async def test_a_worker_process_belongs_to_the_trace_of_its_call(spans):
    result = await Toolbox(tools.current_trace).call("current_trace")

    call, run = spans.one("execute_tool current_trace"), spans.one("run_in_process current_trace")
    assert spans.tree() == [
        "execute_tool current_trace",
        "  wait_for_process current_trace",
        "  run_in_process current_trace",
    ]
    assert result.text == f"{call.context.trace_id:032x}-{run.context.span_id:016x}"
    assert run.attributes["process.pid"] != os.getpid()
