"""Factories make the values of parameters, for a call or a run, and are closed once, whatever happens."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import pytest

from toolmason import Depends, Inject, Param, Retry, Toolbox, ToolContext, ToolError, prompt, tool
from toolmason.errors import DefinitionError

LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    LOG.clear()


def make_value(ctx: ToolContext, user: Annotated[str, Inject("user")] = "anonymous") -> str:
    return f"{ctx.tool_name} of {user}"


async def make_async() -> str:
    return "async"


def open_sync(base: Annotated[str, Depends(make_value)]) -> Iterator[str]:
    LOG.append(f"open sync in {threading.current_thread() is threading.main_thread()}")
    try:
        yield f"sync over {base}"
    except BaseException as error:
        LOG.append(f"sync saw {type(error).__name__}")
        raise
    finally:
        LOG.append("close sync")


async def open_async(sync: Annotated[str, Depends(open_sync)]) -> AsyncIterator[str]:
    LOG.append("open async")
    try:
        yield f"async over {sync}"
    except BaseException as error:
        LOG.append(f"async saw {type(error).__name__}")
        raise
    finally:
        LOG.append("close async")


Value = Annotated[str, Depends(open_async)]
OPENED = ["open sync in False", "open async"]
CLOSED = ["close async", "close sync"]


@pytest.mark.parametrize("runs_on", ["loop", "thread"])
async def test_a_call_opens_its_dependencies_and_closes_them_in_reverse_order(runs_on):
    def show(value: Value, plain: Annotated[str, Depends(make_async)], n: int = 1) -> str:
        """Show."""
        LOG.append("call")
        return f"{plain}, {value}, {n}"

    box = Toolbox(tool(show, runs_on=runs_on), context={"user": "ann"})
    result = await box.call("show", {"n": 2})

    assert result.text == "async, async over sync over show of ann, 2"
    assert [*OPENED, "call", *CLOSED] == LOG
    assert list(box["show"].definition.input_schema["properties"]) == ["n"]


async def test_a_model_cannot_send_a_dependency():
    @tool
    async def show(value: Annotated[str, Depends(make_async)]) -> str:
        """Show."""
        return value

    result = await Toolbox(show).call("show", {"value": "mine"})

    assert result.text == "async"


async def test_the_error_of_a_tool_reaches_its_factories():
    @tool
    async def fail(value: Value) -> str:
        """Fail."""
        raise ToolError("no")

    result = await Toolbox(fail).call("fail")

    assert result.error.message == "no"
    assert [*OPENED, "async saw ToolError", "close async", "sync saw ToolError", "close sync"] == LOG


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_call_that_times_out_closes_its_dependencies(kind):
    release = threading.Event()

    @tool(timeout=0.05)
    async def wait(value: Value) -> str:
        """Wait."""
        await asyncio.Event().wait()
        return value

    @tool(timeout=0.05, name="wait")
    def block(value: Value) -> str:
        """Wait."""
        release.wait(5)
        return value

    result = await Toolbox(wait if kind == "async" else block).call("wait")
    release.set()

    assert result.error.code == "timeout"
    assert LOG[-4:] == ["async saw CancelledError", "close async", "sync saw CancelledError", "close sync"]


async def test_a_cancelled_caller_and_a_cancelled_run_close_the_dependencies():
    started = asyncio.Event()

    @tool
    async def wait(value: Value) -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return value

    box = Toolbox(wait)
    task = asyncio.ensure_future(box.call("wait"))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line for line in LOG if line.startswith("close")] == CLOSED

    LOG.clear()
    started.clear()
    run = box.run()
    task = asyncio.ensure_future(run.call("wait"))
    await asyncio.wait_for(started.wait(), 5)
    run.cancel()
    assert (await task).error.code == "cancelled"
    assert [line for line in LOG if line.startswith("close")] == CLOSED


async def test_a_factory_that_opens_too_late_is_closed_all_the_same():
    release, closed = threading.Event(), threading.Event()

    def open_slowly() -> Iterator[int]:
        release.wait(5)
        try:
            yield 1
        finally:
            closed.set()

    @tool(timeout=0.05)
    async def use(value: Annotated[int, Depends(open_slowly)]) -> int:
        """Use it."""
        return value

    result = await Toolbox(use).call("use")
    release.set()

    assert result.error.code == "timeout"
    assert await asyncio.to_thread(closed.wait, 5)


async def test_if_one_factory_fails_those_before_it_are_closed():
    def fail(value: Value) -> str:
        raise ConnectionError(value)

    @tool
    async def use(value: Annotated[str, Depends(fail)]) -> str:
        """Use it."""
        LOG.append("call")
        return value

    result = await Toolbox(use).call("use")

    assert result.error.code == "execution_error"
    assert "call" not in LOG
    assert [line for line in LOG if line.startswith("close")] == CLOSED


async def test_a_call_fails_if_a_dependency_cannot_be_closed_and_the_others_are_closed():
    async def commit(value: Value) -> AsyncIterator[str]:
        yield value
        raise ToolError("the commit failed")

    @tool
    async def use(value: Annotated[str, Depends(commit)]) -> str:
        """Use it."""
        return value

    result = await Toolbox(use).call("use")

    assert result.error.message == "the commit failed"
    assert [line for line in LOG if line.startswith("close")] == CLOSED


async def test_each_attempt_opens_its_own():
    @tool(retry=Retry(attempts=2, delay=0.001, on=(ValueError,)))
    async def use(value: Value, ctx: ToolContext) -> str:
        """Fail once."""
        if ctx.attempt == 1:
            raise ValueError(value)
        return "done"

    result = await Toolbox(use).call("use")

    assert result.text == "done"
    assert [line for line in LOG if line.startswith("close")] == [*CLOSED, *CLOSED]


async def test_two_parameters_of_one_factory_share_its_value():
    @tool
    async def use(first: Value, second: Value) -> bool:
        """Use both."""
        return first is second

    assert (await Toolbox(use).call("use")).value is True
    assert [*OPENED, *CLOSED] == LOG


def count_in_process(value: Annotated[str, Depends(open_sync)], n: int) -> list[str]:
    """Return the log of the worker process."""
    return [value, *LOG]


async def test_a_worker_process_opens_them_itself():
    box = Toolbox(tool(count_in_process, runs_on="process"))

    result = await box.call("count_in_process", {"n": 1})

    assert result.value[0] == "sync over count_in_process of anonymous"
    assert result.value[-1] == "open sync in False"
    assert LOG == []


async def test_a_prompt_may_have_dependencies():
    @prompt
    def ask(topic: str, value: Annotated[list[str], Depends(open_for_run)]) -> str:
        """Ask."""
        return f"{topic}: {value[0]}"

    [message] = await Toolbox(ask).prompt("ask", {"topic": "tea"})

    assert message.text == "tea: value"
    assert LOG == ["open", "close"]


# --- runs ----------------------------------------------------------------------------------------


async def open_for_run() -> AsyncIterator[list[str]]:
    LOG.append("open")
    # A timeout must end in the task where it began.
    async with asyncio.timeout(60):
        yield ["value"]
    LOG.append("close")


async def open_above(below: Annotated[list[str], Depends(open_for_run, scope="run")]) -> AsyncIterator[list[str]]:
    LOG.append("open above")
    yield below
    LOG.append("close above")


@tool(repeats="allow")
async def use_run(value: Annotated[list[str], Depends(open_for_run, scope="run")]) -> int:
    """Use it."""
    return id(value)


@tool(repeats="allow")
async def use_above(value: Annotated[list[str], Depends(open_above, scope="run")]) -> int:
    """Use it."""
    return id(value)


async def test_the_calls_of_a_run_share_a_value_that_is_closed_with_the_run():
    async with Toolbox(use_run, use_above).run() as run:
        results = await run.call_all([("use_run", {}), ("use_above", {}), ("use_run", {})])
        before = [*LOG]

    assert len({result.value for result in results}) == 1
    assert before == ["open", "open above"]
    assert LOG == ["open", "open above", "close above", "close"]


def test_a_run_of_synchronous_code_closes_it_as_well():
    with Toolbox(use_run).run() as run:
        first, second = run.call_sync("use_run"), run.call_sync("use_run")

    assert first.value == second.value
    assert LOG == ["open", "close"]


async def test_without_a_run_it_lives_for_the_call():
    await Toolbox(use_run).call("use_run")

    assert LOG == ["open", "close"]


async def test_a_run_tries_again_if_it_could_not_be_opened():
    failures = [ConnectionError("down")]

    async def connect() -> AsyncIterator[int]:
        if failures:
            raise failures.pop()
        yield 1

    @tool(repeats="allow")
    async def use(value: Annotated[int, Depends(connect, scope="run")]) -> int:
        """Use it."""
        return value

    async with Toolbox(use).run() as run:
        first, second = await run.call("use"), await run.call("use")

    assert (first.ok, second.value) == (False, 1)


async def test_a_value_of_a_run_that_fails_to_close_is_logged(caplog):
    async def connect() -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken pipe")

    @tool
    async def use(value: Annotated[int, Depends(connect, scope="run")]) -> int:
        """Use it."""
        return value

    async with Toolbox(use).run() as run:
        await run.call("use")

    assert "the dependency connect failed to close: ValueError" in caplog.text


# --- definitions ---------------------------------------------------------------------------------


def needs_itself(value: "Annotated[str, Depends(needs_itself)]") -> str:
    return value


def lacks_source(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Depends(1), "must be a function", id="no-function"),
        pytest.param(lambda: Depends(make_async, scope="app"), "must be 'call' or 'run'", id="scope"),
        pytest.param(lambda: Depends(lacks_source), "'name' of this factory has no source", id="no-source"),
        pytest.param(lambda: Depends(needs_itself), "depends on itself", id="cycle"),
        pytest.param(lambda: Depends(open_sync, scope="run"), "is closed after a call", id="lifetimes"),
    ],
)
def test_a_wrong_dependency_is_refused_when_the_tool_is_defined(make, message):
    def define() -> None:
        marker = make()

        def use(value: Annotated[str, marker]) -> str:
            """Use it."""
            return value

        Toolbox(use)

    with pytest.raises(DefinitionError, match=message):
        define()


def test_a_parameter_with_a_description_may_have_a_dependency():
    def use(value: Annotated[str, Depends(make_async), Param(description="A value.")], n: int) -> str:
        """Use it."""
        return value

    assert list(Toolbox(use)["use"].definition.input_schema["properties"]) == ["n"]
