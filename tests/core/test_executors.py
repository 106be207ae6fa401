"""Tools that run in an executor of the application, or return a future of one."""

import asyncio
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from toolmason import Tool, Toolbox, ToolContext, tool
from toolmason.errors import DefinitionError

TENANT = ContextVar("tenant", default="none")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1, thread_name_prefix="own") as executor:
        yield executor


@pytest.mark.row("CO-11")
async def test_a_tool_runs_in_the_executor_that_it_names(pool):
    @tool(runs_on=pool)
    def where(ctx: ToolContext, text: str) -> str:
        return f"{text} {threading.current_thread().name[:3]} {TENANT.get()} {ctx.tool_name}"

    TENANT.set("acme")
    result = await Toolbox(where).call("where", {"text": "in"})

    assert result.text == "in own acme where"


@pytest.mark.row("CO-11")
async def test_a_failure_in_an_executor_is_a_result(pool):
    @tool(runs_on=pool)
    def fail(kind: str) -> str:
        raise {"value": ValueError, "cancel": asyncio.CancelledError}[kind]("no")

    results = await Toolbox(fail).call_all([("fail", {"kind": "value"}), ("fail", {"kind": "cancel"})])

    assert [result.error.code for result in results] == ["execution_error"] * 2


@pytest.mark.row("CO-11")
async def test_an_executor_keeps_the_deadline(pool):
    release = threading.Event()

    @tool(runs_on=pool, timeout=0.05)
    def wait() -> str:
        release.wait(10)
        return "late"

    result = await Toolbox(wait).call("wait")
    release.set()

    assert result.error.code == "timeout"


async def test_what_is_async_in_an_executor_is_awaited_on_the_loop(pool):
    @tool(runs_on=pool)
    async def now() -> str:
        return threading.current_thread().name

    result = await Toolbox(now).call("now")

    assert result.text == threading.current_thread().name


@pytest.mark.row("CO-11")
def test_an_executor_of_processes_is_refused():
    with ProcessPoolExecutor(1) as processes, pytest.raises(DefinitionError, match='Use "process"'):
        tool(runs_on=processes)


@pytest.mark.row("CO-11")
@pytest.mark.parametrize("runs_on", ["loop", "thread"])
async def test_a_returned_future_is_awaited(pool, runs_on):
    @tool(runs_on=runs_on)
    def count(text: str) -> Future[int]:
        return pool.submit(len, text)

    box = Toolbox(count)
    result = await box.call("count", {"text": "abc"})

    assert (result.value, result.text) == (3, "3")
    assert box["count"].definition.output_schema["properties"] == {"result": {"type": "integer"}}


async def test_a_future_of_a_handler_may_fail_or_come_too_late(pool):
    never: Future[int] = Future()
    failed: Future[int] = Future()
    failed.set_exception(OSError("disk"))
    box = Toolbox(
        Tool.from_schema("late", "Late", {}, lambda arguments, context: never, timeout=0.05),
        Tool.from_schema("broken", "Broken", {}, lambda arguments, context: failed),
    )

    late, broken = await box.call_all([("late", {}), ("broken", {})])

    assert late.error.code == "timeout"
    assert never.cancelled()
    assert "disk" in broken.text
