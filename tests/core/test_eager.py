"""A coroutine started at once, in a task of its own, behaves as it would in one of asyncio's tasks."""

import asyncio
import contextvars
import functools

import pytest

from toolmason import Toolbox, tool
from toolmason._core.run import eager_task
from toolmason.errors import ToolTimeout

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="outside")


def start(awaitable) -> eager_task.StartResult:
    return eager_task.start(awaitable)


def started(awaitable) -> asyncio.Task:
    """Start what is sure to wait, and return its task."""
    task, _, _ = start(awaitable)
    assert task is not None
    return task


async def end_of(task: asyncio.Task) -> eager_task.TaskOutcome:
    async with asyncio.timeout(5):
        return await task


async def test_a_coroutine_that_never_waits_is_done_when_start_returns_and_costs_no_task():
    async def quick() -> int:
        return 42

    assert start(quick()) == (None, 42, None)


async def test_a_coroutine_that_waits_runs_up_to_its_first_wait():
    steps = []

    async def waits() -> int:
        steps.append("begun")
        await asyncio.sleep(0)
        steps.append("ended")
        return 1

    task = started(waits())
    seen_at_once = list(steps)
    outcome = await end_of(task)

    assert outcome == (1, None)
    assert seen_at_once == ["begun"]
    assert steps == ["begun", "ended"]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
async def test_what_it_raises_at_once_is_a_value(kind):
    async def fails() -> None:
        raise kind("at once")

    task, value, error = start(fails())

    assert (task, value) == (None, None)
    assert isinstance(error, kind)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
async def test_what_it_raises_later_is_a_value(kind):
    async def fails() -> None:
        await asyncio.sleep(0)
        raise kind("later")

    value, error = await end_of(started(fails()))

    assert value is None
    assert isinstance(error, kind)


async def test_it_takes_any_awaitable():
    future = asyncio.get_running_loop().create_future()

    task = started(future)
    future.set_result("there")

    assert await end_of(task) == ("there", None)


async def test_it_is_the_current_task_in_every_step_and_the_caller_is_afterwards():
    seen = []

    async def looks() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    caller = asyncio.current_task()
    task = started(looks())
    between = asyncio.current_task()
    await end_of(task)

    assert seen == [task, task]
    assert between is caller
    assert asyncio.current_task() is caller


async def test_the_caller_is_the_current_task_also_after_a_failure_at_once():
    async def fails() -> None:
        raise ValueError

    caller = asyncio.current_task()
    start(fails())

    assert asyncio.current_task() is caller


async def test_one_that_waits_is_among_all_tasks_until_it_is_done():
    go = asyncio.Event()

    task = started(go.wait())
    listed_while_it_waits = task in asyncio.all_tasks()
    go.set()
    await end_of(task)

    assert listed_while_it_waits
    assert task not in asyncio.all_tasks()


async def test_one_that_starts_another_has_each_in_its_own_task():
    async def inner() -> asyncio.Task:
        await asyncio.sleep(0)
        return asyncio.current_task()

    async def outer() -> tuple:
        task = started(inner())
        before = asyncio.current_task()
        seen_inside, _ = await task
        return before, task, seen_inside, asyncio.current_task()

    task = started(outer())
    (before, inner_task, seen_inside, after), _ = await end_of(task)

    assert before is after is task
    assert seen_inside is inner_task
    assert inner_task is not task


async def test_it_can_be_cancelled_while_it_waits():
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    task = started(waits())
    accepted = task.cancel()
    _, error = await end_of(task)

    assert accepted
    assert isinstance(error, asyncio.CancelledError)
    assert ended == [1]


async def test_it_can_be_cancelled_while_it_only_yields():
    async def yields() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    task = started(yields())
    task.cancel()
    _, error = await end_of(task)

    assert isinstance(error, asyncio.CancelledError)


async def test_it_can_swallow_a_cancellation():
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return f"{asyncio.current_task().cancelling()} request"
        return "never"

    task = started(stubborn())
    task.cancel()

    assert await end_of(task) == ("1 request", None)


async def test_cancellations_are_counted_and_can_be_taken_back():
    async def stubborn() -> list[int]:
        me = asyncio.current_task()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return [me.cancelling(), me.uncancel(), me.uncancel(), me.uncancel()]
        return []

    task = started(stubborn())
    task.cancel()
    task.cancel()

    assert await end_of(task) == ([2, 1, 0, 0], None)


async def test_a_second_cancellation_reaches_the_clean_up_after_the_first():
    cleaning = asyncio.Event()

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.Event().wait()

    task = started(cleans_up())
    task.cancel()
    await cleaning.wait()
    task.cancel()
    _, error = await end_of(task)

    assert isinstance(error, asyncio.CancelledError)


async def test_a_cancellation_reaches_what_it_waits_for():
    inner = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        await inner

    task = started(waits())
    task.cancel()
    await end_of(task)

    assert inner.cancelled()


async def test_the_reason_of_a_cancellation_is_kept():
    async def waits() -> None:
        await asyncio.Event().wait()

    task = started(waits())
    task.cancel("because")
    _, error = await end_of(task)

    assert error.args == ("because",)


async def test_a_done_one_cannot_be_cancelled():
    async def waits() -> None:
        await asyncio.sleep(0)

    task = started(waits())
    await end_of(task)

    assert task.cancel() is False


async def test_it_may_cancel_itself_before_its_first_wait():
    async def gives_up() -> None:
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    _, error = await end_of(started(gives_up()))

    assert isinstance(error, asyncio.CancelledError)


async def test_an_error_of_a_future_that_it_awaits_is_raised_inside_it():
    future = asyncio.get_running_loop().create_future()

    async def waits() -> str:
        try:
            await future
        except ValueError as error:
            return f"saw {error}"
        return "nothing"

    task = started(waits())
    future.set_exception(ValueError("it"))

    assert await end_of(task) == ("saw it", None)


async def test_it_can_be_gathered_and_waited_for_like_any_task():
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    gathered = await asyncio.gather(*(started(later(n)) for n in range(3)))
    done, pending = await asyncio.wait([started(later(4)), started(later(5))])

    assert gathered == [(0, None), (1, None), (2, None)]
    assert {task.result() for task in done} == {(4, None), (5, None)}
    assert pending == set()


async def test_it_sees_the_context_of_its_caller_and_keeps_its_own():
    async def changes() -> list[str]:
        seen = [var.get()]
        var.set("inside")
        await asyncio.sleep(0)
        return [*seen, var.get()]

    var.set("caller")
    task = started(changes())

    assert await end_of(task) == (["caller", "inside"], None)
    assert var.get() == "caller"


async def test_one_that_never_waits_keeps_its_own_context_too():
    async def changes() -> None:
        var.set("inside")

    var.set("caller")
    start(changes())

    assert var.get() == "caller"


async def test_awaiting_what_is_no_future_fails_it_and_not_the_loop():
    class Odd:
        def __await__(self):
            yield "odd"

    async def waits() -> None:
        await Odd()

    _, error = await end_of(started(waits()))

    assert isinstance(error, RuntimeError)
    assert "odd" in str(error)


async def test_awaiting_a_future_of_another_loop_fails_it_at_once():
    other = asyncio.new_event_loop()

    async def waits() -> None:
        await other.create_future()

    _, error = await end_of(started(waits()))
    other.close()

    assert isinstance(error, RuntimeError)


async def test_a_shielded_part_outlives_its_cancellation():
    part = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        await asyncio.shield(part)

    task = started(waits())
    task.cancel()
    _, error = await end_of(task)

    assert isinstance(error, asyncio.CancelledError)
    assert not part.done()


async def test_it_describes_itself_as_tasks_do():
    async def waits() -> None:
        await asyncio.Event().wait()

    task = started(waits())

    task.set_name("mine")

    assert asyncio.iscoroutine(task.get_coro())
    assert task.get_name() == "mine"
    assert len(task.get_stack()) == 1
    task.cancel()
    await end_of(task)


def test_the_end_of_the_loop_cancels_what_still_waits():
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async def main() -> None:
        start(waits())

    asyncio.run(main())

    assert ended == [1]


def test_it_works_in_debug_mode():
    async def waits() -> int:
        await asyncio.sleep(0)
        return 1

    async def main() -> eager_task.TaskOutcome:
        return await started(waits())

    assert asyncio.run(main(), debug=True) == (1, None)


def test_it_works_from_a_callback_where_no_task_is_running():
    async def waits() -> int:
        await asyncio.sleep(0)
        return 1

    async def main() -> eager_task.TaskOutcome:
        loop = asyncio.get_running_loop()
        made = loop.create_future()
        loop.call_soon(lambda: made.set_result(eager_task.start(waits())))
        task, _, _ = await made
        return await task

    assert asyncio.run(main()) == (1, None)


# --- hearing of the end ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, KeyError("x"), SystemExit(1)], ids=repr)
async def test_whoever_waits_for_the_end_is_woken_when_the_task_is_done(error):
    async def waits() -> int:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return 1

    task = started(waits())
    await eager_task.watch_completion(task)

    assert task.done()
    assert task.result() == ((1, None) if error is None else (None, error))


async def test_the_end_of_what_is_done_is_now():
    async def waits() -> None:
        await asyncio.sleep(0)

    task = started(waits())
    await end_of(task)

    assert eager_task.watch_completion(task).done()


async def test_nobody_need_wait_for_the_end_any_more():
    async def waits() -> int:
        await asyncio.sleep(0)
        return 1

    task = started(waits())
    eager_task.watch_completion(task).cancel()

    assert await end_of(task) == (1, None)


async def test_the_end_is_heard_of_without_a_turn_of_the_loop_between():
    loop = asyncio.get_running_loop()
    awaited, turns = loop.create_future(), 0

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    async def waits() -> None:
        await awaited

    task = started(waits())
    waiter = eager_task.watch_completion(task)
    awaited.set_result(None)
    loop.call_soon(count)
    await waiter

    assert turns == 1  # `asyncio.wait` takes two


# --- functions without an await ------------------------------------------------------------------


async def add(a: int, b: int = 1) -> int:
    var.set("inside")
    return a + b


def wrap(function):
    @functools.wraps(function)
    async def wrapper(*args, **options):
        await asyncio.sleep(0)
        return await function(*args, **options)

    return wrapper


class Adder:
    async def add(self, a: int) -> int:
        return a + 1


async def waits_in_a_with(lock):
    async with lock:
        return 1


async def waits_in_a_loop(items):
    async for _ in items:
        pass


async def waits_in_a_list(items):
    return [item async for item in items]


async def generates():
    yield 1


async def asks_for_its_task():
    return asyncio.current_task()


@pytest.mark.parametrize(
    "function",
    [
        *(waits_in_a_with, waits_in_a_loop, waits_in_a_list, generates, asks_for_its_task, wrap(add)),
        *(len, None, lambda: None, functools.partial(add, 1)),
    ],
)
def test_a_function_that_may_wait_or_asks_for_its_task_gets_one(function):
    assert eager_task.choose_start(function) is eager_task.start


@pytest.mark.parametrize("function", [add, Adder().add])
async def test_another_one_runs_in_one_step_in_a_context_of_its_own(function):
    begin = eager_task.choose_start(function)

    assert begin is not eager_task.start
    assert [begin(function(number)) for number in range(3)] == [(None, number + 1, None) for number in range(3)]
    assert var.get() == "outside"


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit])
async def test_its_error_is_returned_and_the_next_one_runs(error):
    async def fails() -> None:
        raise error

    _, _, failure = eager_task.choose_start(fails)(fails())

    assert isinstance(failure, error)
    assert eager_task.choose_start(add)(add(1)) == (None, 2, None)


async def test_it_may_run_another_one_inside():
    begin = eager_task.choose_start(add)

    async def outer() -> int:
        return begin(add(1))[1] + 1

    assert eager_task.choose_start(outer)(outer()) == (None, 3, None)


async def test_an_awaitable_of_other_code_gets_a_task():
    task, _, _ = eager_task.choose_start(add)(wrap(add)(1))

    assert await end_of(task) == (2, None)


@pytest.mark.parametrize("options", [{}, {"max_calls": 5}, {"timeout": None}, {"lock": "a"}])
async def test_a_tool_without_an_await_gives_its_value_and_its_error(options):
    @tool(**options)
    async def divide(a: int, b: int, numbers: list[int] = []) -> float:  # noqa: B006 - the binder copies it
        numbers.append(a)
        return a / b

    box = Toolbox(divide)
    results = await box.call_all([("divide", {"a": 1, "b": 2}), ("divide", {"a": 1, "b": 0})])

    assert results[0].value == 0.5
    assert "ZeroDivisionError" in str(results[1].error)
    assert [(await view.call("divide", '{"a": 1, "b": 4}')).value for view in (box, box.run())] == [0.25, 0.25]


async def test_a_wrapper_that_awaits_is_not_taken_for_the_function_inside():
    slow = tool(timeout=0.05)(wrap(add))

    @tool(timeout=0.05)
    @functools.wraps(add)
    async def stuck(a: int, b: int = 1) -> int:
        await asyncio.Event().wait()

    assert (await Toolbox(slow).call("add", {"a": 1})).value == 2
    assert isinstance((await Toolbox(stuck).call("add", {"a": 1})).error, ToolTimeout)
