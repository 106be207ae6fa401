"""The pool of worker threads: bounded, never starved by a stuck tool, never in the way of the end."""

import asyncio
import contextvars
import logging
import threading

from toolmason import Toolbox, tool
from toolmason._core.run.threads import Job, ThreadPool
from toolmason.errors import ToolTimeout
from toolmason.extend import EngineSettings

BOUND = 5.0


def submit(pool: ThreadPool, work) -> Job:
    job = Job(work, contextvars.copy_context(), asyncio.get_running_loop())
    pool.submit(job)
    return job


async def until(condition) -> None:
    """Wait until another thread has done its part."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 - the pool tells nobody; a bound ends a test that hangs
            await asyncio.sleep(0.001)


# --- the pool ----------------------------------------------------------------------------------


async def test_a_job_gives_its_value_or_its_error():
    pool = ThreadPool(2)
    failure = ValueError("x")

    def fail() -> None:
        raise failure

    assert await submit(pool, lambda: 7).future == (7, None)
    assert await submit(pool, fail).future == (None, failure)


async def test_an_idle_thread_is_used_again():
    pool = ThreadPool(8)
    idents = set()

    for _ in range(100):
        value, _ = await submit(pool, threading.get_ident).future
        idents.add(value)

    assert len(idents) <= 2
    assert pool.threads == len(idents)


async def test_there_are_never_more_threads_than_the_limit():
    pool = ThreadPool(3)
    release = threading.Event()
    now, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        release.wait(BOUND)
        with lock:
            now -= 1

    jobs = [submit(pool, work) for _ in range(10)]
    await until(lambda: now == 3)
    release.set()
    await asyncio.gather(*(job.future for job in jobs))

    assert most == 3
    assert pool.threads <= 3


async def test_a_job_given_up_while_it_waits_never_runs():
    pool = ThreadPool(1)
    release = threading.Event()
    ran = []

    blocker = submit(pool, lambda: release.wait(BOUND))
    waiting = submit(pool, lambda: ran.append(1))
    pool.abandon(waiting)
    release.set()
    await blocker.future
    await submit(pool, lambda: None).future

    assert ran == []


async def test_a_thread_given_up_is_replaced_for_those_that_wait():
    pool = ThreadPool(1)
    begun, release = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        release.wait(BOUND)

    blocker = submit(pool, stuck)
    waiting = submit(pool, lambda: "ran")
    await until(begun.is_set)
    pool.abandon(blocker)
    async with asyncio.timeout(BOUND):
        outcome = await waiting.future
    release.set()

    assert outcome == ("ran", None)


async def test_the_value_of_a_thread_given_up_is_dropped_counted_and_logged(caplog):
    pool = ThreadPool(1)
    begun, release = threading.Event(), threading.Event()

    def stuck() -> str:
        begun.set()
        release.wait(BOUND)
        return "late"

    job = submit(pool, stuck)
    await until(begun.is_set)
    with caplog.at_level(logging.WARNING, logger="toolmason"):
        pool.abandon(job)
        release.set()
        await until(lambda: pool.late_results == 1)
        await until(lambda: "dropped" in caplog.text)

    assert not job.future.done()


async def test_giving_up_what_is_done_changes_nothing():
    pool = ThreadPool(1)
    job = submit(pool, lambda: 1)
    await job.future

    pool.abandon(job)

    assert pool.late_results == 0
    assert await submit(pool, lambda: 2).future == (2, None)


async def test_the_threads_are_daemons_with_a_name_of_ours():
    pool = ThreadPool(1)

    thread, _ = await submit(pool, threading.current_thread).future

    assert thread.daemon
    assert thread.name.startswith("toolmason")


def test_a_job_whose_loop_was_closed_is_dropped_and_logged(caplog):
    pool = ThreadPool(1)
    begun, release = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        release.wait(BOUND)

    async def main() -> None:
        submit(pool, stuck)
        await until(begun.is_set)

    with caplog.at_level(logging.WARNING, logger="toolmason"):
        asyncio.run(main())
        release.set()
        asyncio.run(until(lambda: "closed" in caplog.text))

    assert "dropped" in caplog.text


# --- tools in it -------------------------------------------------------------------------------


async def test_a_hundred_stuck_tools_in_a_row_do_not_stop_the_next():
    """reliability.md P8: peers go deaf at the fortieth stuck sync tool."""
    release = threading.Event()

    @tool(timeout=0.005)
    def stuck() -> None:
        release.wait(30)

    @tool
    def fine() -> str:
        return "fine"

    box = Toolbox(stuck, fine, settings=EngineSettings(threads=4))

    stuck_results = [await box.call("stuck") for _ in range(100)]
    result = await box.call("fine")
    release.set()

    assert all(isinstance(result.error, ToolTimeout) for result in stuck_results)
    assert result.unwrap() == "fine"


async def test_stuck_tools_side_by_side_do_not_stop_those_that_wait_for_a_thread():
    release = threading.Event()

    @tool(timeout=0.05)
    def stuck() -> None:
        release.wait(30)

    @tool(timeout=BOUND)
    def fine() -> str:
        return "fine"

    box = Toolbox(stuck, fine, settings=EngineSettings(threads=2))

    results = await box.call_all([("stuck", {})] * 2 + [("fine", {})] * 4)
    release.set()

    assert [result.ok for result in results] == [False, False, True, True, True, True]


async def test_a_tool_that_waited_for_a_thread_beyond_its_deadline_is_never_run():
    release = threading.Event()
    ran = []

    @tool(timeout=BOUND)
    def holds() -> None:
        release.wait(BOUND)

    @tool(timeout=0.02)
    def late() -> None:
        ran.append(1)

    box = Toolbox(holds, late, settings=EngineSettings(threads=1))
    holding = asyncio.create_task(box.call("holds"))
    await asyncio.sleep(0)

    result = await box.call("late")
    release.set()
    await holding
    await box.call("holds")

    assert isinstance(result.error, ToolTimeout)
    assert ran == []


async def test_toolboxes_of_the_same_size_share_one_pool():
    @tool
    def where() -> str:
        return threading.current_thread().name

    first = Toolbox(where, settings=EngineSettings(threads=3))
    second = Toolbox(where, settings=EngineSettings(threads=3))
    before = threading.active_count()

    for _ in range(20):
        await first.call("where")
        await second.call("where")

    assert threading.active_count() - before <= 3


def test_the_end_of_the_program_does_not_wait_for_a_stuck_tool(run_script):
    """reliability.md F35l: process exit within 5 s, whatever a thread does."""
    done = run_script("""
        import threading
        from toolmason import Toolbox, tool

        @tool(timeout=0.05)
        def stuck() -> None:
            threading.Event().wait()

        print(Toolbox(stuck).call_sync("stuck").error.code)
    """)

    assert (done.stdout.strip(), done.returncode) == ("timeout", 0)
    [line] = done.stderr.splitlines()
    assert line.startswith("stuck [call_1] failed, id ")


def test_a_forked_child_has_threads_of_its_own(run_script):
    done = run_script("""
        import os, warnings
        from toolmason import Toolbox, tool

        @tool
        def ident() -> int:
            return os.getpid()

        box = Toolbox(ident)
        assert box.call_sync("ident").value == os.getpid()
        warnings.simplefilter("ignore")
        if (child := os.fork()) == 0:
            ok = box.call_sync("ident", timeout=5).value == os.getpid()
            os._exit(0 if ok else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)

    assert done.stdout.strip() == "0", done.stderr
