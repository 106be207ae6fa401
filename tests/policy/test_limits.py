"""How many, how often, one at a time, and until when; what is used up is told, not raised (demand.md 26, 31)."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

from policy.samples import BOUND, Door, Work, answers, noting, take_free, turns
from toolmason import Allow, Limits, Rate, Sequential, Tool, Toolbox, ToolCall, tool
from toolmason._core.call import current_call, limits
from toolmason._core.run.slots import KeyedLock, KeyedLocks, Semaphore
from toolmason.errors import DefinitionError, LimitExceeded, ToolCancelled, ToolTimeout

A = {"path": "a"}


# --- how many ------------------------------------------------------------------------------------


async def paths(box, *values, name="delete"):
    return [await box.call(name, {"path": value}) for value in values]


async def test_a_tool_that_is_used_up_in_a_run_says_so_and_others_go_on():
    ran = []
    run = Toolbox(noting(ran, max_calls=2), noting(ran, "other")).run()

    *_, third = await paths(run, "a", "b", "c")
    (other,) = await paths(run, "d", name="other")

    assert isinstance(third.error, LimitExceeded)
    assert "max_calls of 2 for this tool" in third.text
    assert (third.attempts, third.error.retryable) == (0, False)
    assert other.ok
    assert ran == ["a", "b", "d"]


async def test_a_new_run_has_all_its_calls():
    box = Toolbox(noting([], max_calls=1))

    results = [*await paths(box.run(), "a", "b"), *await paths(box.run(), "c")]

    assert [result.ok for result in results] == [True, False, True]


async def test_outside_a_run_the_toolbox_counts_and_its_views_share_the_count():
    box = Toolbox(noting([], max_calls=2))

    results = [*await paths(box, "a"), *await paths(box.select("delete"), "b"), *await paths(box, "c")]

    assert [result.ok for result in results] == [True, True, False]


async def test_a_run_has_a_number_of_calls_over_all_tools():
    run = Toolbox(noting([]), noting([], "other")).run(Limits(calls=2))

    results = [*await paths(run, "a"), *await paths(run, "b", name="other"), *await paths(run, "c")]

    assert [result.ok for result in results] == [True, True, False]
    assert "limit of 2 calls" in results[-1].text


@pytest.mark.parametrize(
    ("options", "limits", "named"),
    [
        ({}, Limits(per_tool=1), "the limit of 1 calls per tool"),
        ({}, Limits(calls=1), "the limit of 1 calls has"),
        ({"max_calls": 1}, Limits(per_tool=5), "the max_calls of 1 for this tool has"),
    ],
    ids=["per tool", "of the run", "of the tool"],
)
async def test_a_used_up_limit_is_named_after_the_option_that_sets_it(options, limits, named):
    _, refused = await paths(Toolbox(noting([], **options)).run(limits), "a", "b")

    assert named in refused.text


async def test_a_run_has_a_number_of_calls_for_tools_that_say_none():
    run = Toolbox(noting([]), noting([], "other", max_calls=3)).run(Limits(per_tool=1))

    results = await paths(run, "a", "b") + await paths(run, "a", "b", "c", "d", name="other")

    assert [result.ok for result in results] == [True, False, True, True, True, False]


async def test_the_defaults_of_a_run_are_40_for_a_tool_and_150_in_all():
    tools = [noting([], f"tool_{number}", repeats="allow") for number in range(5)]
    run = Toolbox(*tools).run()

    results = await run.call_all([(f"tool_{n % 5}", A) for n in range(5 * 31)], strategy=Sequential())
    one = await Toolbox(noting([], repeats="allow")).run().call_all([("delete", A)] * 41, strategy=Sequential())

    assert sum(result.ok for result in results) == 150
    assert sum(result.ok for result in one) == 40


async def test_a_batch_that_is_over_a_limit_has_a_result_for_each_call():
    run = Toolbox(noting([], max_calls=2)).run()

    results = await run.call_all([ToolCall(path, "delete", {"path": path}) for path in "abcd"])

    assert [result.call_id for result in results] == ["a", "b", "c", "d"]
    assert [result.ok for result in results] == [True, True, False, False]


async def test_arguments_that_do_not_fit_use_nothing_up():
    run = Toolbox(noting([], max_calls=1)).run()

    await run.call("delete", {})

    assert (await run.call("delete", A)).ok


@pytest.mark.parametrize("word", ["max_calls", "max_concurrency"])
def test_a_limit_of_nothing_is_refused(word):
    with pytest.raises(DefinitionError, match=word):
        noting([], **{word: 0})


# --- how often -----------------------------------------------------------------------------------


async def test_a_rate_is_a_window_that_slides(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: clock.now))
    box, outcomes = Toolbox(noting([], rate=Rate(2, per=10))), []

    for now in (100.0, 104.0, 109.0, 110.0, 111.0, 114.0):
        clock.now = now
        outcomes.append((await box.call("delete", A)).ok)

    assert outcomes == [True, True, False, True, False, True]


async def test_a_rate_that_is_used_up_says_when_to_come_back(monkeypatch):
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: 100.0))
    box = Toolbox(noting([], rate=Rate(1, per=10)))

    _, second = await box.call_all([("delete", A)] * 2)

    assert isinstance(second.error, LimitExceeded)
    assert second.error.retryable
    assert "rate of 1 calls per 10 s" in second.text
    assert "in 10 s" in second.text


# --- how many at once ----------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_a_tool_runs_so_many_times_at_once_and_no_more(most):
    work = Work()

    results = await Toolbox(work.tool(max_concurrency=most)).call_all([("work", None)] * 6)

    assert all(result.ok for result in results)
    assert work.peak == most


async def test_calls_that_are_not_in_one_batch_take_turns_too():
    work = Work()
    box = Toolbox(work.tool(max_concurrency=2))

    await asyncio.gather(*[box.call("work") for _ in range(6)])

    assert work.peak == 2


async def test_the_width_of_a_toolbox_holds_over_all_its_tools_and_calls():
    work = Work()
    box = Toolbox(work.tool("one"), work.tool("two"), max_concurrency=2)

    await asyncio.gather(*[box.call(name) for name in ("one", "two") * 3])

    assert work.peak == 2


async def test_a_toolbox_that_says_no_width_does_not_hold_up_single_calls():
    work = Work()
    box = Toolbox(work.tool())

    await asyncio.gather(*[box.call("work") for _ in range(100)])

    assert work.peak == 100


async def test_threads_and_loops_share_the_turns():
    running, peak, lock = [], [], threading.Lock()

    def work() -> str:
        with lock:
            running.append(1)
            peak.append(len(running))
        threading.Event().wait(0.01)
        with lock:
            running.pop()
        return "done"

    box = Toolbox(Tool.from_function(work, max_concurrency=1))
    results = await asyncio.gather(*[asyncio.to_thread(box.call_sync, "work") for _ in range(4)], box.call("work"))

    assert all(result.ok for result in results)
    assert max(peak) == 1


async def test_a_tool_may_call_another_where_the_toolbox_runs_one_at_a_time():
    async def outer() -> str:
        return (await box.call("answers", A)).text

    box = Toolbox(outer, answers, max_concurrency=1, timeout=0.5)

    assert (await box.call("outer")).text == "a"


# --- one at a time for each value ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [({"path": "a"}, {"path": "a"}), ({"path": "a"}, '{"path": "a"}'), ({}, {"path": "a"}), (None, '{"path":"a"}')],
    ids=["mappings", "mapping and JSON", "left out", "nothing and JSON"],
)
async def test_calls_with_the_same_value_take_turns(first, second):
    work = Work()

    results = await Toolbox(work.tool(lock="path")).call_all([("work", first), ("work", second)])

    assert [result.ok for result in results] == [True, True]
    assert work.peak == 1


async def test_calls_with_other_values_overlap():
    work = Work()

    await Toolbox(work.tool(lock="path")).call_all([("work", {"path": path}) for path in "abab"])

    assert work.peak == 2


async def test_a_lock_is_held_by_value_whatever_the_order_of_its_keys():
    work = Work()

    async def store(where: dict[str, int]) -> None:
        await work("x")

    box = Toolbox(Tool.from_function(store, lock="where"))
    await box.call_all([("store", {"where": {"x": 1, "y": 2}}), ("store", '{"where": {"y": 2, "x": 1}}')])

    assert work.peak == 1


async def test_a_lock_is_free_again_after_a_failure():
    async def store(path: str) -> str:
        raise ValueError(path)

    box = Toolbox(Tool.from_function(store, lock="path", max_concurrency=1), max_concurrency=1, timeout=1)
    results = await box.call_all([("store", A)] * 3)

    assert [result.error.code for result in results] == ["execution_error"] * 3


# --- the limits of a tool under another name -------------------------------------------------------


@pytest.mark.parametrize("options", [{"max_concurrency": 1}, {"lock": "path"}], ids=["max_concurrency", "lock"])
async def test_a_tool_under_another_name_takes_turns_with_itself(options):
    work = Work()
    box = Toolbox(work.tool(**options))

    await asyncio.gather(box.call("work"), box.prefixed("x_").call("x_work"), box.renamed({"work": "b"}).call("b"))

    assert work.peak == 1


@pytest.mark.parametrize("options", [{"max_calls": 1}, {"rate": Rate(1, per=1000)}], ids=["max_calls", "rate"])
async def test_a_tool_under_another_name_is_used_up_all_the_same(options):
    box = Toolbox(noting([], **options))

    await box.call("delete", A)
    again = await box.prefixed("x_").call("x_delete", A)

    assert isinstance(again.error, LimitExceeded)


# --- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"max_concurrency": 1}, {"lock": "path"}], ids=["max_concurrency", "lock"])
async def test_waiting_for_a_turn_ends_with_the_timeout(options):
    door = Door()
    box = Toolbox(door.tool(**options))
    inside = asyncio.create_task(box.call("wait"))
    await door.entered.wait()

    async with asyncio.timeout(BOUND):
        late = await box.call("wait", timeout=0.05)
    door.open.set()

    assert isinstance(late.error, ToolTimeout)
    assert "waiting for a slot" in late.text
    assert (await inside).ok
    assert door.ran == ["a"]
    assert (await box.call("wait")).ok


async def test_waiting_for_a_turn_ends_with_the_batch():
    door = Door()
    box = Toolbox(door.tool(max_concurrency=1))
    inside = asyncio.create_task(box.call("wait"))
    await door.entered.wait()

    async with asyncio.timeout(BOUND):
        (late,) = await box.call_all([("wait", None)], timeout=0.05)
    door.open.set()

    assert isinstance(late.error, ToolTimeout)
    assert (await inside).ok
    assert door.ran == ["a"]


async def test_a_caller_that_stops_waiting_leaves_nothing_behind():
    door = Door()
    box = Toolbox(door.tool(max_concurrency=1, lock="path"))
    inside = asyncio.create_task(box.call("wait"))
    await door.entered.wait()
    waiting = [asyncio.create_task(box.call("wait")) for _ in range(5)]
    await turns()

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    door.open.set()
    await inside

    async with asyncio.timeout(BOUND):
        assert (await box.call("wait")).ok
    assert door.ran == ["a", "a"]


async def test_slots_are_idle_when_everybody_has_left():
    slots = Semaphore(1)
    await slots.acquire()
    waiting = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await turns()

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    slots.release()

    assert take_free(slots) == 1


async def test_a_slot_that_was_handed_to_someone_who_just_left_goes_to_the_next():
    slots = Semaphore(1)
    await slots.acquire()
    first, second = asyncio.create_task(slots.acquire()), asyncio.create_task(slots.acquire())
    await turns()

    slots.release()
    first.cancel()
    async with asyncio.timeout(BOUND):
        await second
    slots.release()

    assert first.cancelled()
    assert take_free(slots) == 1


async def test_the_longest_waiter_is_next():
    slots, order = Semaphore(1), []
    await slots.acquire()

    async def wait(number):
        await slots.acquire()
        order.append(number)
        slots.release()

    waiting = [asyncio.create_task(wait(number)) for number in range(10)]
    await turns()
    slots.release()
    await asyncio.gather(*waiting)

    assert order == list(range(10))
    assert take_free(slots) == 1


async def test_a_slot_is_not_lost_to_a_loop_that_is_closed():
    slots = Semaphore(1)
    await slots.acquire()

    def leave_a_loop_waiting():
        loop = asyncio.new_event_loop()
        task = loop.create_task(slots.acquire())
        loop.run_until_complete(turns(3))
        task._log_destroy_pending = False  # noqa: SLF001 - that it is destroyed is the test
        loop.close()
        return task

    gone = await asyncio.to_thread(leave_a_loop_waiting)
    waiting = asyncio.create_task(slots.acquire())
    await turns()
    slots.release()

    async with asyncio.timeout(BOUND):
        await waiting
    assert not gone.done()


async def test_a_lock_that_nobody_wants_takes_no_memory():
    locks = KeyedLocks()

    async def hold(key):
        turn = KeyedLock(locks, key)
        if not turn.try_acquire():
            await turn.acquire()
        await asyncio.sleep(0)
        turn.release()

    await asyncio.gather(*[hold(number % 3) for number in range(12)])

    assert locks._users == {}  # noqa: SLF001 - memory shows nowhere else


# --- alone in a batch ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({"sequential": True}, True),
        ({"destructive": True}, True),
        ({"destructive": True, "sequential": False}, False),
        ({}, False),
    ],
    ids=["sequential", "destructive", "destructive, not sequential", "nothing said"],
)
async def test_a_barrier_waits_for_those_before_it_and_holds_up_those_after_it(options, alone):
    work, order = Work(), []

    async def barrier() -> None:
        order.append(work.running)
        await turns(3)
        order.append(work.running)

    box = Toolbox(work.tool(), Tool.from_function(barrier, **options))
    await box.call_all([("work", None), ("work", None), ("barrier", None), ("work", None)])

    assert (order == [0, 0]) is alone


# --- until when ----------------------------------------------------------------------------------


async def test_a_run_that_is_over_ends_its_call_and_says_which_limit():
    door = Door()
    run = Toolbox(door.tool()).run(Limits(seconds=0.05))

    async with asyncio.timeout(BOUND):
        result = await run.call("wait")

    assert isinstance(result.error, ToolTimeout)
    assert "run" in result.error.limit
    assert result.error.seconds == pytest.approx(0.05)


@pytest.mark.parametrize("runs_on", ["loop", "thread"])
async def test_a_run_that_is_over_starts_nothing(runs_on, monkeypatch):
    ran = []

    def work() -> str:
        ran.append(1)
        return "done"

    run = Toolbox(Tool.from_function(work, runs_on=runs_on)).run(Limits(seconds=10))
    monkeypatch.setattr(current_call, "monotonic", lambda: time.monotonic() + 11)
    result = await run.call("work")

    assert isinstance(result.error, ToolTimeout)
    assert ran == []


async def test_a_run_with_time_left_does_not_stretch_the_timeout_of_a_call():
    run = Toolbox(Door().tool(timeout=0.05)).run(Limits(seconds=60))

    async with asyncio.timeout(BOUND):
        result = await run.call("wait")

    assert (result.error.code, result.error.seconds) == ("timeout", pytest.approx(0.05))


# --- called off ----------------------------------------------------------------------------------


@pytest.mark.parametrize("from_a_thread", [False, True], ids=["loop", "thread"])
async def test_cancel_ends_what_runs_and_refuses_what_comes(from_a_thread):
    door = Door()
    run = Toolbox(door.tool()).run()
    calls = asyncio.create_task(run.call_all([("wait", None), ("wait", {"path": "b"})]))
    await door.entered.wait()

    await asyncio.to_thread(run.cancel) if from_a_thread else run.cancel()
    async with asyncio.timeout(BOUND):
        results = await calls
    after = await run.select("wait").call("wait")

    assert all(isinstance(result.error, ToolCancelled) for result in [*results, after])
    assert door.ran == ["a", "b"]


async def test_cancel_ends_a_sync_tool_from_the_callers_view():
    entered, leave = threading.Event(), threading.Event()

    def work() -> str:
        entered.set()
        leave.wait(BOUND)
        return "late"

    run = Toolbox(work).run()
    call = asyncio.create_task(run.call("work"))
    await asyncio.to_thread(entered.wait, BOUND)

    run.cancel()
    async with asyncio.timeout(BOUND / 2):
        result = await call
    leave.set()

    assert isinstance(result.error, ToolCancelled)


async def test_cancel_leaves_the_toolbox_and_other_runs_alone():
    box = Toolbox(noting([]))
    run, other = box.run(), box.run()

    run.cancel()

    assert [(await it.call("delete", A)).ok for it in (run, other, box)] == [False, True, True]


async def test_a_call_that_was_called_off_while_it_waited_for_a_decision_does_not_run():
    ran, question, answer = [], asyncio.Event(), asyncio.Event()

    async def approver(request):
        question.set()
        await answer.wait()
        return Allow()

    run = Toolbox(noting(ran, approval=True), approver=approver).run()
    call = asyncio.create_task(run.call("delete", A))
    await question.wait()

    run.cancel()
    await turns()
    answer.set()
    async with asyncio.timeout(BOUND):
        result = await call

    assert isinstance(result.error, ToolCancelled)
    assert ran == []


async def test_a_call_that_was_called_off_while_it_waited_for_its_turn_does_not_run():
    door = Door()
    box = Toolbox(door.tool(max_concurrency=1))
    run = box.run()
    inside = asyncio.create_task(box.call("wait"))
    await door.entered.wait()
    waiting = asyncio.create_task(run.call("wait", {"path": "b"}))
    await turns()

    run.cancel()
    await turns()
    door.open.set()
    async with asyncio.timeout(BOUND):
        results = await inside, await waiting

    assert [result.ok for result in results] == [True, False]
    assert isinstance(results[1].error, ToolCancelled)
    assert door.ran == ["a"]


async def test_a_call_that_is_over_holds_no_turn_for_what_its_caller_does_next():
    running, peak = 0, []

    @tool(max_concurrency=1)
    async def work() -> None:
        nonlocal running
        running += 1
        peak.append(running)
        await asyncio.sleep(0)
        running -= 1

    box = Toolbox(work)
    await box.call("work")

    await asyncio.gather(*[box.call("work") for _ in range(3)])

    assert max(peak) == 1
