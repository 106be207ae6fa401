"""Metrics of calls: how many, how long, how they ended, and what was done for them."""

import asyncio

import anyio
import pytest

from toolmason import Allow, Deny, Retry, Toolbox, tool
from toolmason.errors import ToolTimeout


@tool
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool
async def fail() -> str:
    """Fail."""
    raise OSError("down")


async def test_calls_are_counted_by_tool_and_code(metrics):
    box = Toolbox(double, fail)

    await box.call_all([("double", {"number": 1}), ("double", {"number": "x"}), ("fail", {}), ("unknown", {})])

    points = metrics("toolmason.tool.duration")
    assert sorted((point["gen_ai.tool.name"], point.get("error.type", ""), count) for point, count in points) == [
        ("_OTHER", "unknown_tool", 1),
        ("double", "", 1),
        ("double", "invalid_arguments", 1),
        ("fail", "execution_error", 1),
    ]


@pytest.mark.parametrize("has_spans", [True, False], ids=["with spans", "metrics alone"])
async def test_a_program_with_metrics_alone_has_them_too(has_spans, metrics, request):
    if has_spans:
        request.getfixturevalue("spans")

    await Toolbox(double).call("double", {"number": 1})

    assert metrics("toolmason.tool.duration") == [({"gen_ai.tool.name": "double"}, 1)]


async def test_a_time_out_is_an_error_of_its_own_code(metrics):
    @tool(timeout=0.01)
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    result = await Toolbox(wait).call("wait")

    [(attributes, count)] = metrics("toolmason.tool.duration")
    assert isinstance(result.error, ToolTimeout)
    assert (attributes["error.type"], count) == (result.error.code, 1)


async def test_retries_repairs_and_repeats_are_counted(metrics):
    attempts = 0

    @tool(retry=Retry(3, delay=0))
    async def flaky(number: int) -> int:
        """Fail twice."""
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise TimeoutError
        return number

    with Toolbox(flaky).run() as run:
        for _ in range(3):
            await run.call("flaky", {"number": "1"})

    name = {"gen_ai.tool.name": "flaky"}
    assert metrics("toolmason.tool.retries") == [(name, 2)]
    assert metrics("toolmason.tool.repeats") == [(name, 2)]
    [(attributes, repairs)] = metrics("toolmason.tool.repairs")
    assert attributes == name
    assert repairs >= 2


@pytest.mark.parametrize("verdict", [Allow(), Deny("no")], ids=["allow", "deny"])
async def test_approvals_are_counted_by_verdict(verdict, metrics):
    box = Toolbox(double, approve="all", approver=lambda _: verdict)

    await box.call("double", {"number": 1})

    [(attributes, count)] = metrics("toolmason.approval.duration")
    word = type(verdict).__name__.lower()
    assert (attributes, count) == ({"gen_ai.tool.name": "double", "toolmason.approval.verdict": word}, 1)


async def test_the_depth_of_the_queue_rises_and_falls(metrics):
    depths = []

    @tool(max_concurrency=1)
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0)
        depths.append(metrics("toolmason.queue.depth"))
        return "done"

    await Toolbox(work).call_all([("work", {})] * 3)

    name = {"gen_ai.tool.name": "work"}
    assert depths == [[(name, 2)], [(name, 1)], [(name, 0)]]


async def test_metrics_change_nothing_about_how_a_call_is_cancelled(metrics):
    ended = []

    @tool
    async def slow() -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    with anyio.move_on_after(0.02) as scope:
        await Toolbox(slow).call("slow")

    assert (scope.cancelled_caught, ended) == (True, [1])
