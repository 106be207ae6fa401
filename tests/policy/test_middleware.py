"""Hooks around every call: order, changed calls, short circuits, failures; and what no hook can go round."""

import asyncio
import threading
from dataclasses import replace

import pytest

from toolmason import Abort, Deny, Toolbox, ToolCall, ToolContext, ToolError, ToolResult, tool
from toolmason.errors import ExecutionError, InvalidArguments, ToolTimeout

ran: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@tool
async def double(n: int) -> int:
    ran.append(n)
    return n * 2


@tool
async def fail() -> None:
    raise ValueError("broken")


async def pass_on(call, call_next):
    return await call_next(call)


# --- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["call", "call_all", "view", "run", "sync tool"])
async def test_the_first_hook_is_outermost(way):
    log = []

    def hook(name):
        async def middleware(call, call_next):
            log.append(f"{name} in")
            result = await call_next(call)
            log.append(f"{name} out")
            return result

        return middleware

    @tool(name="double")
    def double_sync(n: int) -> int:
        return n * 2

    box = Toolbox(double_sync if way == "sync tool" else double)
    box.use(hook("a"))
    box.use(hook("b"))

    if way == "call_all":
        (result,) = await box.call_all([("double", {"n": 2})])
    elif way == "view":
        result = await box.prefixed("my_").call("my_double", {"n": 2})
    else:
        result = await (box.run() if way == "run" else box).call("double", {"n": 2})

    assert result.unwrap() == 4
    assert log == ["a in", "b in", "b out", "a out"]


async def test_a_hook_that_is_added_later_sees_the_next_call():
    box, seen = Toolbox(double), []

    async def note(call, call_next):
        seen.append(call.name)
        return await call_next(call)

    await box.call("double", {"n": 1})
    box.use(note)
    await box.call("double", {"n": 1})

    assert seen == ["double"]


# --- what a hook sees ----------------------------------------------------------------------------


async def test_a_hook_sees_the_call_as_it_came_and_the_result():
    seen = []

    async def note(call, call_next):
        result = await call_next(call)
        seen.append((call, result))
        return result

    box = Toolbox(double, fail)
    box.use(note)
    calls = [ToolCall("c1", "double", '{"n": 2}'), ToolCall("c2", "double", '{"n": "x"}'), ToolCall("c3", "fail")]
    results = await box.call_all(calls)

    by_id = {call.id: (call, result) for call, result in seen}
    assert [by_id[call.id] for call in calls] == list(zip(calls, results, strict=True))
    assert [result.ok for result in results] == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "timeout", "code"),
    [
        pytest.param({"n": "x"}, 5, "invalid_arguments", id="arguments"),
        pytest.param({"n": 1}, 0.02, "timeout", id="timeout"),
    ],
)
async def test_a_hook_that_passes_on_changes_no_outcome(arguments, timeout, code):
    @tool
    async def slow(n: int) -> None:
        await asyncio.Event().wait()

    box = Toolbox(slow)
    plain = await box.call("slow", arguments, timeout=timeout)
    box.use(pass_on)

    hooked = await box.call("slow", arguments, timeout=timeout)

    assert plain.error.code == hooked.error.code == code


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        pytest.param("double", {"n": "x"}, InvalidArguments, id="arguments"),
        pytest.param("slow", {}, ToolTimeout, id="timeout"),
        pytest.param("says_no", {}, ToolError, id="tool error"),
        pytest.param("fail", {}, ExecutionError, id="failure"),
    ],
)
async def test_under_on_error_raise_a_hook_that_passes_on_changes_no_error(name, arguments, expected):
    @tool(timeout=0.02)
    async def slow() -> None:
        await asyncio.Event().wait()

    @tool
    async def says_no() -> None:
        raise ToolError("no")

    box = Toolbox(double, slow, says_no, fail, on_error="raise")
    box.use(pass_on)

    with pytest.raises(expected):
        await box.call(name, arguments)


# --- changed calls -------------------------------------------------------------------------------


async def test_a_hook_may_change_the_arguments():
    async def one_more(call, call_next):
        return await call_next(replace(call, arguments={"n": call.arguments["n"] + 1}))

    box = Toolbox(double)
    box.use(one_more)

    assert (await box.call("double", {"n": 1})).unwrap() == 4


async def test_changed_arguments_are_validated():
    async def spoil(call, call_next):
        return await call_next(replace(call, arguments={"n": "many"}))

    box = Toolbox(double)
    box.use(spoil)

    result = await box.call("double", {"n": 1})

    assert isinstance(result.error, InvalidArguments)
    assert ran == []


async def test_the_tool_sees_the_changed_call():
    @tool
    async def who(ctx: ToolContext, n: int) -> object:
        return ctx.call.arguments

    async def change(call, call_next):
        return await call_next(replace(call, arguments={"n": 7}))

    box = Toolbox(who)
    box.use(change)

    assert (await box.call("who", {"n": 1})).unwrap() == {"n": 7}


# --- short circuits ------------------------------------------------------------------------------


async def test_a_hook_may_answer_by_itself():
    async def answer(call, call_next):
        return ToolResult(call.id, call.name, value=0, text="from the cache")

    box = Toolbox(double)
    box.use(answer)

    result = await box.call("double", {"n": 1})

    assert (result.text, result.ok) == ("from the cache", True)
    assert ran == []


async def test_every_call_is_answered_under_its_own_id_also_from_a_cache():
    """reliability.md P1: every call id gets exactly one result."""
    kept = {}

    async def cache(call, call_next):
        key = str(call.arguments)
        kept[key] = kept.get(key) or await call_next(call)
        return kept[key]

    box = Toolbox(double)
    box.use(cache)
    calls = [ToolCall("c1", "double", {"n": 1}), ToolCall("c2", "double", {"n": 1})]
    first, second = await box.call(calls[0]), await box.call(calls[1])

    assert ran == [1]
    assert (first.call_id, second.call_id) == ("c1", "c2")


async def test_a_hook_may_run_the_rest_twice():
    async def again(call, call_next):
        await call_next(call)
        return await call_next(call)

    box = Toolbox(double)
    box.use(again)
    await box.call("double", {"n": 3})

    assert ran == [3, 3]


@pytest.mark.parametrize("has_limit", [False, True])
async def test_a_hook_may_try_again_in_a_run_as_often_as_outside(has_limit):
    @tool(read_only=True, max_concurrency=2 if has_limit else None)
    async def flaky() -> str:
        ran.append("flaky")
        if len(ran) % 5:
            raise ConnectionError("down")
        return "ok"

    async def again(call, call_next):
        for _ in range(5):
            if (result := await call_next(call)).ok:
                break
        return result

    box = Toolbox(flaky)
    box.use(again)
    run = box.run()

    assert [(await run.call("flaky")).text for _ in range(2)] == ["ok", "ok"]
    assert len(ran) == 10


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_hook_that_fails_is_an_error_result(when):
    async def broken(call, call_next):
        if when == "after":
            await call_next(call)
        raise ValueError("hook broke")

    box = Toolbox(double)
    box.use(broken)

    result, other = await box.call_all([("double", {"n": 1}), ("double", {"n": 2})])

    assert isinstance(result.error, ExecutionError)
    assert "hook broke" in result.error.message
    assert not other.ok
    assert ran == ([1, 2] if when == "after" else [])


async def test_the_words_of_a_failing_hook_are_redacted_where_failures_are():
    async def broken(call, call_next):
        raise ValueError("password=hunter2")

    box = Toolbox(double, on_error="redact")
    box.use(broken)

    assert "hunter2" not in (await box.call("double", {"n": 1})).text


async def test_an_outer_hook_sees_the_result_of_a_failing_inner_one():
    seen = []

    async def outer(call, call_next):
        seen.append(await call_next(call))
        return seen[-1]

    async def inner(call, call_next):
        raise ValueError("inner")

    box = Toolbox(double)
    box.use(outer)
    box.use(inner)
    await box.call("double", {"n": 1})

    assert [result.error.code for result in seen] == ["execution_error"]


@pytest.mark.parametrize("wrong", [None, "text", {"value": 1}], ids=["nothing", "text", "mapping"])
async def test_a_hook_that_returns_no_result_is_an_error_that_says_so(wrong):
    async def forgets(call, call_next):
        await call_next(call)
        return wrong

    box = Toolbox(double)
    box.use(forgets)

    result = await box.call("double", {"n": 1})

    assert isinstance(result.error, ExecutionError)
    assert f"returned {type(wrong).__name__}, not a ToolResult" in result.error.message


async def test_a_hook_that_is_not_async_runs_in_a_thread():
    box = Toolbox(double)
    box.use(lambda call, call_next: ToolResult(call.id, call.name, text=threading.current_thread().name))

    assert (await box.call("double", {"n": 1})).text == "toolmason-tool"


async def test_an_abort_passes_through_a_hook():
    @tool
    async def stop() -> None:
        raise Abort("enough")

    box = Toolbox(stop)
    box.use(pass_on)

    with pytest.raises(Abort):
        await box.call("stop")


async def test_a_cancelled_caller_cancels_the_tool_through_a_hook():
    ended = asyncio.Event()

    @tool
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    box = Toolbox(slow)
    box.use(pass_on)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await box.call("slow")

    assert ended.is_set()


# --- what no hook goes round ---------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"n": 1}, {"n": 2}], ids=["as they came", "changed"])
async def test_no_hook_goes_round_approval(arguments):
    async def insist(call, call_next):
        await call_next(replace(call, arguments=arguments))
        return await call_next(replace(call, arguments=arguments))

    @tool(approval=True)
    async def delete(n: int) -> None:
        ran.append(n)

    box = Toolbox(delete, approver=lambda request: Deny("no"))
    box.use(insist)

    result = await box.call("delete", {"n": 1})

    assert result.error.code == "approval_denied"
    assert ran == []


async def test_what_is_approved_is_what_the_hook_made_of_the_call():
    asked = []

    async def change(call, call_next):
        return await call_next(replace(call, arguments={"n": 5}))

    def approve(request):
        asked.append(dict(request.arguments))
        return True

    @tool(approval=True)
    async def delete(n: int) -> None:
        ran.append(n)

    box = Toolbox(delete, approver=approve)
    box.use(change)
    await box.call("delete", {"n": 1})

    assert asked == [{"n": 5}]
    assert ran == [5]


async def test_no_hook_goes_round_a_limit():
    async def again(call, call_next):
        for _ in range(5):
            result = await call_next(call)
        return result

    @tool(max_calls=2)
    async def send() -> None:
        ran.append(1)

    box = Toolbox(send)
    box.use(again)

    result = await box.call("send")

    assert result.error.code == "limit_exceeded"
    assert ran == [1, 1]
