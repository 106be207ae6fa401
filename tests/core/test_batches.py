"""The calls of one turn: one result for each, in call order, whatever fails; and how many run at once."""

import asyncio
import threading

import pytest

from core.gauges import Gauge, double, forever, settle, work_on
from toolmason import (
    Parallel,
    Retry,
    Sequential,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from toolmason.errors import DefinitionError, ToolTimeout
from toolmason.extend import EngineSettings

# --- one result for each call ------------------------------------------------------------------


async def test_an_empty_batch_has_no_results():
    assert await Toolbox(double).call_all([]) == []


@pytest.mark.row("L4-23")
async def test_results_come_in_call_order_whichever_ends_first():
    gates = [asyncio.Event() for _ in range(4)]

    @tool
    async def turn(n: int) -> int:
        await gates[n].wait()
        if n:
            gates[n - 1].set()
        return n

    gates[3].set()

    results = await Toolbox(turn).call_all([("turn", {"n": n}) for n in range(4)])

    assert [result.value for result in results] == [0, 1, 2, 3]


async def test_every_call_gets_its_result_in_order_whatever_fails(tasks_left):
    errors = {"error": ValueError(), "exit": SystemExit(), "cancel": asyncio.CancelledError(), "told": ToolError("x")}

    @tool
    async def fail(kind: str) -> None:
        raise errors[kind]

    @tool
    def fail_in_thread(kind: str) -> None:
        raise errors[kind]

    @tool(timeout=0.05)
    async def hang() -> None:
        await asyncio.Event().wait()

    calls = [
        ToolCall("ok", "double", '{"n": 1}'),
        ToolCall("raise", "fail", {"kind": "error"}),
        ToolCall("exit", "fail", {"kind": "exit"}),
        ToolCall("cancel", "fail", {"kind": "cancel"}),
        ToolCall("told", "fail", {"kind": "told"}),
        ToolCall("thread raise", "fail_in_thread", {"kind": "error"}),
        ToolCall("thread exit", "fail_in_thread", {"kind": "exit"}),
        ToolCall("thread cancel", "fail_in_thread", {"kind": "cancel"}),
        ToolCall("hang", "hang"),
        ToolCall("bad", "double", '{"n": "x"}'),
        ToolCall("cut", "double", '{"n": '),
        ToolCall("none", "doubel"),
        ToolCall("ok again", "double", '{"n": 2}'),
    ]
    box = Toolbox(double, fail, fail_in_thread, hang)

    results = await box.call_all(calls)

    assert [(result.call_id, result.error and result.error.code) for result in results] == [
        ("ok", None),
        ("raise", "execution_error"),
        ("exit", "execution_error"),
        ("cancel", "execution_error"),
        ("told", "tool_error"),
        ("thread raise", "execution_error"),
        ("thread exit", "execution_error"),
        ("thread cancel", "execution_error"),
        ("hang", "timeout"),
        ("bad", "invalid_arguments"),
        ("cut", "invalid_arguments"),
        ("none", "unknown_tool"),
        ("ok again", None),
    ]
    assert tasks_left() == []


async def test_calls_with_the_same_id_are_each_run_and_answered():
    ran = []

    @tool
    async def note(n: int) -> int:
        ran.append(n)
        return n

    calls = [ToolCall("same", "note", {"n": n}) for n in range(3)] + [ToolCall("", "note", {"n": 3})]

    results = await Toolbox(note).call_all(calls)

    assert [(result.call_id, result.value) for result in results] == [("same", 0), ("same", 1), ("same", 2), ("", 3)]
    assert sorted(ran) == [0, 1, 2, 3]


@pytest.mark.row("L4-15")
async def test_a_batch_takes_any_iterable_of_calls_and_pairs():
    calls = (call for call in [ToolCall("a", "double", {"n": 1}), ("double", '{"n": 2}')])

    results = await Toolbox(double).call_all(calls)

    assert [result.value for result in results] == [2, 4]


async def test_a_failure_leaves_its_siblings_alone():
    gauge = Gauge()

    @tool
    async def fail() -> None:
        await gauge.wait_for(2)
        raise ValueError

    batch = asyncio.create_task(
        Toolbox(work_on(gauge), fail).call_all([("work", {"n": 1}), ("fail", {}), ("work", {"n": 2})])
    )
    await gauge.wait_for(2)
    await settle()
    gauge.gate.set()
    results = await batch

    assert [result.value for result in results] == [1, None, 2]
    assert [result.ok for result in results] == [True, False, True]


async def test_a_resolver_that_fails_costs_only_its_own_call():
    class Broken:
        def resolve(self, name: str) -> Tool | None:
            raise OSError("the registry is down")

    box = Toolbox(double, resolvers=[Broken()])

    results = await box.call_all([("double", {"n": 1}), ("elsewhere", {}), ("double", {"n": 2})])

    assert [result.ok for result in results] == [True, False, True]


async def test_the_context_of_a_batch_reaches_every_call():
    @tool
    async def tenant(ctx: ToolContext) -> str:
        return ctx["tenant"]

    results = await Toolbox(tenant).call_all([("tenant", {}), ("tenant", {})], context={"tenant": "acme"})

    assert [result.value for result in results] == ["acme", "acme"]


# --- how many run at once ----------------------------------------------------------------------


async def test_calls_run_side_by_side_unless_told_otherwise():
    gauge = Gauge()
    batch = asyncio.create_task(Toolbox(work_on(gauge)).call_all([("work", {"n": n}) for n in range(10)]))

    await gauge.wait_for(10)
    gauge.gate.set()
    await batch

    assert gauge.most == 10


async def test_sync_tools_run_side_by_side():
    barrier = threading.Barrier(5)

    @tool
    def meet() -> str:
        barrier.wait(timeout=5)
        return "met"

    results = await Toolbox(meet).call_all([("meet", {})] * 5)

    assert [result.value for result in results] == ["met"] * 5


@pytest.mark.row("L4-23")
@pytest.mark.parametrize(
    ("strategy", "options", "width"),
    [
        (Parallel(), {}, 128),
        (Parallel(limit=3), {}, 3),
        (Sequential(), {}, 1),
        (Parallel(), {"max_concurrency": 2}, 2),
        (Parallel(limit=5), {"max_concurrency": 2}, 2),
        (Parallel(limit=2), {"max_concurrency": 5}, 2),
        (Parallel(), {"settings": EngineSettings(max_concurrency=3)}, 3),
        (Parallel(), {"config": {"engine": {"max_concurrency": 3}}}, 3),
    ],
    ids=[
        "default",
        "limit",
        "sequential",
        "toolbox",
        "toolbox below limit",
        "limit below toolbox",
        "setting",
        "configuration",
    ],
)
async def test_no_more_calls_run_at_once_than_the_strategy_and_the_toolbox_allow(strategy, options, width):
    gauge = Gauge()
    box = Toolbox(work_on(gauge), **options)
    batch = asyncio.create_task(box.call_all([("work", {"n": n}) for n in range(140)], strategy=strategy))

    await gauge.wait_for(width)
    await settle()
    begun_before_any_ended = gauge.begun
    gauge.gate.set()
    results = await batch

    assert begun_before_any_ended == width
    assert gauge.most == width
    assert [result.value for result in results] == list(range(140))


@pytest.mark.row("L4-23")
async def test_a_sequential_batch_runs_in_call_order():
    ran = []

    @tool
    async def note(n: int) -> None:
        ran.append(f"begin {n}")
        await settle()
        ran.append(f"end {n}")

    await Toolbox(note).call_all([("note", {"n": n}) for n in range(3)], strategy=Sequential())

    assert ran == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_width_below_one_is_refused(limit):
    with pytest.raises(DefinitionError, match="at least 1"):
        Parallel(limit=limit)
    with pytest.raises(DefinitionError, match="at least 1"):
        Toolbox(max_concurrency=limit)


async def test_a_sequential_tool_waits_for_those_before_it_and_holds_up_those_after_it():
    ran = []
    gates = {name: asyncio.Event() for name in ("first", "alone", "last")}

    async def step(name: str) -> None:
        ran.append(f"begin {name}")
        await gates[name].wait()
        ran.append(f"end {name}")

    @tool
    async def first() -> None:
        await step("first")

    @tool(sequential=True)
    async def alone() -> None:
        await step("alone")

    @tool
    async def last() -> None:
        await step("last")

    calls = [("first", {}), ("first", {}), ("alone", {}), ("last", {}), ("last", {})]
    batch = asyncio.create_task(Toolbox(first, alone, last).call_all(calls))
    for name in ("first", "alone", "last"):
        await settle()
        ran.append("--")
        gates[name].set()
    async with asyncio.timeout(5):
        await batch

    assert ran == [
        *["begin first", "begin first", "--", "end first", "end first"],
        *["begin alone", "--", "end alone"],
        *["begin last", "begin last", "--", "end last", "end last"],
    ]


async def test_a_sequential_tool_that_fails_does_not_hold_up_those_after_it():
    @tool(sequential=True)
    async def fail() -> None:
        raise ValueError

    results = await Toolbox(fail, double).call_all([("fail", {}), ("fail", {}), ("double", {"n": 1})])

    assert [result.ok for result in results] == [False, False, True]


# --- the time of a batch -----------------------------------------------------------------------


async def test_a_batch_that_runs_out_of_time_keeps_what_is_done_and_times_out_the_rest(tasks_left):
    box = Toolbox(double, forever)

    results = await box.call_all([("double", {"n": 1}), ("forever", {}), ("double", {"n": 2})], timeout=0.05)

    assert [result.value for result in results] == [2, None, 4]
    assert isinstance(results[1].error, ToolTimeout)
    assert tasks_left() == []


async def test_a_call_whose_turn_never_came_times_out_with_its_batch_and_is_not_run():
    ran = []

    @tool
    async def note() -> None:
        ran.append(1)

    box = Toolbox(forever, note)

    results = await box.call_all([("forever", {}), ("note", {})], strategy=Sequential(), timeout=0.05)

    assert [result.error.code for result in results] == ["timeout", "timeout"]
    assert results[1].error.limit == "batch timeout"
    assert ran == []


async def test_a_batch_bounds_a_tool_that_has_no_timeout_of_its_own():
    @tool(timeout=None)
    async def patient() -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        [result] = await Toolbox(patient).call_all([("patient", {})], timeout=0.05)

    assert isinstance(result.error, ToolTimeout)


async def test_a_tool_keeps_its_own_shorter_timeout_inside_a_batch():
    @tool(timeout=0.02)
    async def hasty() -> None:
        await asyncio.Event().wait()

    [result] = await Toolbox(hasty).call_all([("hasty", {})], timeout=30)

    assert isinstance(result.error, ToolTimeout)
    assert result.error.seconds == 0.02


async def test_a_call_that_its_batch_cut_short_names_the_limit_of_the_batch():
    """§8: every limit has a name, a number and an error that says both."""
    [result] = await Toolbox(forever).call_all([("forever", {})], timeout=0.05)

    assert result.error.limit == "batch timeout"
    assert result.error.seconds == 0.05


async def test_retries_do_not_outlive_the_time_of_their_batch():
    """§8: deadlines nest, batch ≥ call; a second attempt would start after the batch is over."""
    ran = []

    @tool(retry=Retry(attempts=3, delay=0))
    async def flaky() -> None:
        ran.append(1)
        await asyncio.Event().wait()

    [result] = await Toolbox(flaky).call_all([("flaky", {})], timeout=0.05)

    assert isinstance(result.error, ToolTimeout)
    assert ran == [1]


# --- around it ------------------------------------------------------------------------------------


async def test_results_given_to_a_batch_are_replaced_and_returned():
    results = [ToolResult("old", "old")]

    returned = await Toolbox(double).call_all([("double", {"n": 1})], results=results)

    assert [result.value for result in results] == [2]
    assert returned == results


async def test_a_tool_may_run_a_batch_of_its_own():
    inner = Toolbox(double)

    @tool
    async def outer() -> list[int]:
        return [result.value for result in await inner.call_all([("double", {"n": n}) for n in range(3)])]

    results = await Toolbox(outer).call_all([("outer", {})] * 2, strategy=Parallel(limit=1))

    assert [result.value for result in results] == [[0, 2, 4], [0, 2, 4]]


async def test_batches_side_by_side_keep_their_results_apart():
    box = Toolbox(double)

    async def batch(n: int) -> list[int]:
        return [result.value for result in await box.call_all([("double", {"n": n})] * 3)]

    assert await asyncio.gather(*(batch(n) for n in range(20))) == [[n * 2] * 3 for n in range(20)]


def test_a_batch_runs_from_code_that_is_not_async():
    results = Toolbox(double).call_all_sync([("double", {"n": 1}), ("nothing", {})])

    assert [result.ok for result in results] == [True, False]
