"""The fault catalogue, reliability.md §4C: one test for each row, named after it. Expected is the "We must" column."""

import asyncio
import json
import logging
import math
import threading
import time
from typing import Any

import pytest

from policy import process_tools
from toolmason import Limits, Toolbox, ToolCall, ToolContext, ToolError, tool
from toolmason.errors import ExecutionError, InvalidArguments, ToolTimeout, UnknownTool
from toolmason.extend import EngineSettings

SECRET = "hunter2-secret"  # noqa: S105 - it is to be looked for, not to open anything


@tool
async def get_weather(city: str) -> str:
    return f"sunny in {city}"


@tool
async def fine() -> str:
    return "fine"


async def alive_after(box: Toolbox) -> bool:
    """Tell whether the toolbox still works."""
    box.add(fine, replace=True)
    return (await box.call("fine", timeout=5)).text == "fine"


# --- F20 to F24: calls ---------------------------------------------------------------------------


async def test_f20_a_hallucinated_name_is_told_near_names_and_its_siblings_run():
    box = Toolbox(get_weather)

    good, bad, also_good = await box.call_all(
        [("get_weather", {"city": "a"}), ("get_wether", {"city": "b"}), ("get_weather", {"city": "c"})]
    )

    assert (good.text, also_good.text) == ("sunny in a", "sunny in c")
    assert isinstance(bad.error, UnknownTool)
    assert "'get_weather'" in bad.text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{city: 'Prague'}", id="not JSON"),
        pytest.param('{"city": "Pra', id="truncated in a text"),
        pytest.param('{"city": "Prague"', id="truncated after a value"),
        pytest.param('{"city":', id="truncated before a value"),
        pytest.param("", id="empty"),
        pytest.param("   ", id="blank"),
        pytest.param("null", id="null"),
        pytest.param('"Prague"', id="text"),
        pytest.param("[1, 2]", id="list"),
        pytest.param("7", id="number"),
        pytest.param('"{\\"city\\": 1}"', id="double-encoded, wrong inside"),
        pytest.param('```json\n{"city": "Prague"}', id="half a fence"),
        pytest.param('{"city": "Prague"} trailing', id="trailing words"),
        pytest.param('{"city": NaN}', id="NaN"),
        pytest.param('{"city": "a", "city": "b"}', id="duplicate key"),
    ],
)
async def test_f21_arguments_that_cannot_be_read_are_told_where_and_the_tool_does_not_run(text):
    ran = []

    @tool
    async def look(city: str) -> str:
        ran.append(city)
        return city

    result = await Toolbox(look).call(ToolCall("c1", "look", text))

    assert isinstance(result.error, InvalidArguments)
    assert all(problem.path.startswith("$") and problem.message for problem in result.error.problems)
    assert json.loads(result.text)["error"]["parameters"]
    assert ran == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"{\\"city\\": \\"Prague\\"}"', id="double-encoded"),
        pytest.param('```json\n{"city": "Prague"}\n```', id="fenced"),
    ],
)
async def test_f21_what_is_repaired_is_never_repaired_in_silence(text):
    result = await Toolbox(get_weather).call(ToolCall("c1", "get_weather", text))

    assert isinstance(result.error, InvalidArguments) or (result.text == "sunny in Prague" and result.repairs)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"data": ' + "[" * 10_000 + "]" * 10_000 + "}", id="10,000 deep lists"),
        pytest.param('{"data": ' + '{"a":' * 10_000 + "1" + "}" * 10_001, id="10,000 deep objects"),
        pytest.param('{"data": "\\ud800"}', id="escaped lone surrogate"),
        pytest.param('{"data": "\ud800"}', id="lone surrogate"),
    ],
)
@pytest.mark.parametrize("policy", [{}, {"approval": True}], ids=["short way", "long way"])
async def test_f22_deep_arguments_and_lone_surrogates_are_error_results(text, policy):
    @tool(**policy)
    async def take(data: Any) -> str:
        return "taken"

    box = Toolbox(take, approver=lambda request: True)

    result = await box.call(ToolCall("c1", "take", text))

    assert isinstance(result.error, InvalidArguments)
    assert result.text.encode()
    assert await alive_after(box)


@pytest.mark.parametrize("ids", [["a", "a", "a"], ["", "", ""], ["a", "", "a"]], ids=["same", "empty", "mixed"])
async def test_f23_calls_with_duplicate_or_empty_ids_are_each_run_and_answered_once(ids):
    """Unique ids for the history are the chat's to give; the engine answers each call in its place."""
    ran = []

    @tool
    async def note(n: int) -> int:
        ran.append(n)
        return n

    results = await Toolbox(note).call_all([ToolCall(name, "note", {"n": n}) for n, name in enumerate(ids)])

    assert sorted(ran) == [0, 1, 2]
    assert [result.value for result in results] == [0, 1, 2]


async def test_f24_one_of_three_parallel_tools_that_raises_costs_one_error():
    @tool
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        if n == 1:
            raise ValueError("one")
        return n

    results = await Toolbox(work).call_all([("work", {"n": n}) for n in range(3)])

    assert [result.ok for result in results] == [True, False, True]


# --- F25 to F29: what a tool does ----------------------------------------------------------------


class Odd:
    """Has no JSON form."""


def circular() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    return nested


async def result_of(value: Any, **options: Any):
    @tool(**options)
    async def give() -> Any:
        return value

    box = Toolbox(give)
    result = await box.call("give")
    assert await alive_after(box)
    return result


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [1.0, math.nan], {"a": math.inf}], ids=str)
async def test_f25_nan_and_infinity_are_never_rewritten_in_silence(value):
    result = await result_of(value)

    assert result.error is not None or "null" not in result.text
    if result.error is None:
        json.loads(result.text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    else:
        assert result.error.code == "result_error"


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", ["\ud800"], {"\ud800": 1}], ids=ascii)
async def test_f26_and_f31_a_lone_surrogate_never_enters_the_history(value):
    result = await result_of(value)

    assert json.dumps(result.text, ensure_ascii=False).encode()
    assert all(getattr(part, "text", "").encode() is not None for part in result.content)
    if result.structured is not None:
        assert json.dumps(result.structured, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "make",
    [Odd, lambda: [Odd()], circular, deep, lambda: {"f": print}],
    ids=["object", "in a list", "circular", "deep", "function"],
)
async def test_f27_an_object_without_a_json_form_is_an_error_result_at_once(make):
    value, started = make(), time.monotonic()

    result = await result_of(value)

    assert result.error.code == "result_error"
    assert "object at 0x" not in result.text
    assert time.monotonic() - started < 2


RAISED = {
    "SystemExit": SystemExit(7),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "BaseException": BaseException("base"),
    "CancelledError": asyncio.CancelledError(),
    "GeneratorExit": GeneratorExit(),
}


@pytest.mark.parametrize("kind", ["SystemExit", "BaseException", "CancelledError"])
async def test_f28_an_exception_that_would_end_a_program_is_an_error_result_async(kind):
    @tool
    async def explode() -> None:
        await asyncio.sleep(0)
        raise RAISED[kind]

    box = Toolbox(explode)
    (result,) = await box.call_all([("explode", {})])

    assert isinstance(result.error, ExecutionError)
    assert await alive_after(box)


@pytest.mark.parametrize("kind", sorted(RAISED))
@pytest.mark.parametrize("policy", [{}, {"max_calls": 9}], ids=["short way", "long way"])
async def test_f28_an_exception_that_would_end_a_program_is_an_error_result_in_a_thread(kind, policy):
    @tool(**policy)
    def explode() -> None:
        raise RAISED[kind]

    box = Toolbox(explode)
    result = await box.call("explode")

    assert isinstance(result.error, ExecutionError)
    assert await alive_after(box)


async def test_f28_a_process_that_is_ended_by_its_tool_is_an_error_result():
    box = Toolbox(process_tools.die)

    result = await box.call("die", {"how": "exit"})

    assert isinstance(result.error, ExecutionError)
    assert await alive_after(box)


@pytest.mark.parametrize("policy", [{}, {"max_calls": 9}], ids=["short way", "long way"])
async def test_f29_and_f61_an_exceptions_text_is_masked_under_redact(policy):
    """The default in the application's own process is "message" (01-core.md §5); a served toolbox redacts."""

    @tool(**policy)
    async def connect() -> None:
        raise ConnectionError(f"password={SECRET} at db.internal")

    result = await Toolbox(connect, on_error="redact").call("connect")

    assert SECRET not in result.text
    assert "db.internal" not in result.text
    error = json.loads(result.text)["error"]
    assert (error["code"], error["retryable"]) == ("execution_error", True)
    assert error["id"]


async def test_f29_words_that_a_tool_means_for_the_model_are_not_masked():
    @tool
    async def refuse() -> None:
        raise ToolError("Give a date in the future.")

    result = await Toolbox(refuse, on_error="redact").call("refuse")

    assert "Give a date in the future." in result.text


# --- F30 to F33: results and runs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(b"\x00\xff", '"AP8="', id="bytes"),
        pytest.param({1}, "[1]", id="set"),
        pytest.param([], "[]", id="empty list"),
        pytest.param("", "(no output)", id="empty text"),
    ],
)
async def test_f30_a_result_has_a_defined_form(value, text):
    result = await result_of(value)

    assert result.text == text or result.error.code == "result_error"
    assert result.text


async def test_f30_a_generator_is_collected():
    @tool
    def count() -> Any:
        yield 1
        yield 2

    result = await Toolbox(count).call("count")

    assert result.value == [1, 2]


async def test_f32_fifty_megabytes_are_cut_with_a_marker():
    result = await result_of("x" * 50_000_000)

    assert len(result.text) <= 1024 * 1024
    assert "of 50000000 bytes left out" in result.text


async def test_f33_a_model_that_never_stops_meets_limits_as_results():
    @tool
    async def add(n: int) -> int:
        return n + 1

    run = Toolbox(get_weather, add).run(Limits(calls=5, per_tool=3))

    results = [await run.call("get_weather", {"city": str(n)}) for n in range(4)]
    results += [await run.call("add", {"n": n}) for n in range(3)]

    assert [result.ok for result in results] == [True, True, True, False, True, True, False]
    assert "limit of 3 calls per tool" in results[3].text
    assert "limit of 5 calls" in results[6].text


async def test_f33_the_same_call_again_and_again_is_stopped():
    run = Toolbox(fine).run()

    codes = [result.error.code if result.error else "ok" for result in [await run.call("fine") for _ in range(5)]]

    assert codes[:3] == ["ok"] * 3
    assert codes[3:] == ["limit_exceeded"] * 2


# --- F34 to F37: deadlines -----------------------------------------------------------------------


async def took(box: Toolbox, name: str) -> tuple[float, Any]:
    started = time.monotonic()
    result = await box.call(name, timeout=0.3)
    return time.monotonic() - started, result


async def test_f34_a_stuck_async_tool_is_answered_at_the_deadline():
    @tool
    async def stuck() -> None:
        await asyncio.Event().wait()

    seconds, result = await took(Toolbox(stuck), "stuck")

    assert isinstance(result.error, ToolTimeout)
    assert 0.29 <= seconds <= 0.5


async def test_f35_a_stuck_sync_tool_is_answered_at_the_deadline():
    release = threading.Event()

    @tool
    def stuck() -> None:
        release.wait(8)

    seconds, result = await took(Toolbox(stuck), "stuck")
    release.set()

    assert isinstance(result.error, ToolTimeout)
    assert 0.29 <= seconds <= 0.5


@pytest.mark.parametrize("kind", ["f36 swallows its cancellation", "f37 cleans up for long"])
async def test_f36_and_f37_a_tool_that_does_not_go_is_answered_at_the_deadline(kind):
    go = asyncio.Event()

    @tool
    async def stubborn() -> str:
        try:
            await go.wait()
        except asyncio.CancelledError:
            await go.wait()
            if kind.startswith("f37"):
                raise
        return "late"

    seconds, result = await took(Toolbox(stubborn), "stubborn")
    go.set()

    assert isinstance(result.error, ToolTimeout)
    assert result.value is None
    assert 0.29 <= seconds <= 0.8


# --- F58 to F61: defaults ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_f58_without_a_timeout_configured_a_call_has_sixty_seconds(kind):
    @tool(name="look")
    async def look_async(ctx: ToolContext) -> float:
        return ctx.deadline - time.monotonic()

    @tool(name="look")
    def look(ctx: ToolContext) -> float:
        return ctx.deadline - time.monotonic()

    result = await Toolbox(look if kind == "thread" else look_async).call("look")

    assert 55 < result.unwrap() <= 60


@pytest.mark.parametrize("way", ["call_all", "gather"])
async def test_f59_a_hundred_sync_tools_run_at_once(way):
    together = threading.Barrier(100)

    @tool
    def work() -> None:
        together.wait(60)  # broken, and so an error, if fewer run at once

    box = Toolbox(work)
    if way == "call_all":
        results = await box.call_all([("work", {})] * 100)
    else:
        results = await asyncio.gather(*(box.call("work") for _ in range(100)))

    assert all(result.ok for result in results)


async def test_f59_the_number_of_threads_is_a_setting():
    now, most, lock = 0, 0, threading.Lock()

    @tool
    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1

    await Toolbox(work, settings=EngineSettings(threads=3)).call_all([("work", {})] * 12)

    assert most == 3


@pytest.mark.parametrize("policy", [{}, {"max_calls": 9}], ids=["short way", "long way"])
@pytest.mark.parametrize("fault", ["none", "raises", "bad arguments", "timeout", "injected"])
async def test_f60_no_log_at_debug_holds_a_secret(fault, policy, caplog):
    @tool(**policy)
    async def login(password: str, count: int = 0) -> str:
        if fault == "raises":
            raise ValueError(f"bad password {password}")
        if fault == "timeout":
            await asyncio.Event().wait()
        return f"logged in with {password}"

    sent = {"password": SECRET, **({"count": "many"} if fault == "bad arguments" else {})}
    box = Toolbox(login, context={"token": SECRET})

    with caplog.at_level(logging.DEBUG):
        await box.call("login", sent, timeout=0.02)

    assert SECRET not in caplog.text


async def test_f60_a_tool_error_and_a_nested_argument_are_masked_in_the_log(caplog):
    @tool
    async def login(account: dict[str, str], note: str) -> str:
        raise ToolError(f"no account {account['api_key']!r} for {note}")

    with caplog.at_level(logging.DEBUG):
        await Toolbox(login).call("login", {"account": {"api_key": "se'cret"}, "note": "visible"})

    assert "se'cret" not in caplog.text
    assert "se\\'cret" not in caplog.text
    assert "visible" in caplog.text


async def test_f60_a_call_with_very_many_secrets_is_logged_without_a_message(caplog):
    @tool
    async def login(tokens: list[str]) -> str:
        raise ValueError(tokens[-1])

    with caplog.at_level(logging.DEBUG):
        await Toolbox(login).call("login", {"tokens": [f"token {number}" for number in range(500)]})

    assert "token 499" not in caplog.text
