"""One call from the outside: whatever happens in it, one result comes of it."""

import asyncio
import logging
import time

import pytest

from toolmason import Abort, Tool, Toolbox, ToolCall, ToolContext, ToolError, tool
from toolmason.errors import DefinitionError, ExecutionError, InvalidArguments, ToolTimeout, UnknownTool
from toolmason.extend import EngineSettings


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


@tool
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


# --- what a result says ------------------------------------------------------------------------


async def test_a_result_says_which_call_it_answers_and_what_came_of_it():
    box = Toolbox(double)

    result = await box.call(ToolCall("c-7", "double", '{"n": 21}'))

    assert (result.call_id, result.name, result.ok) == ("c-7", "double", True)
    assert (result.value, result.text, result.error) == (42, "42", None)
    assert result.attempts == 1
    assert result.repairs == ()
    assert result.duration >= 0
    assert result.return_direct is False


@pytest.mark.row("L4-15")
@pytest.mark.parametrize(
    "arguments",
    ['{"n": 21}', b'{"n": 21}', {"n": 21}],
    ids=["text", "bytes", "mapping"],
)
async def test_arguments_come_as_text_bytes_or_mapping(arguments):
    box = Toolbox(double)

    result = await box.call("double", arguments)

    assert result.unwrap() == 42


@pytest.mark.parametrize("arguments", [None, "", "  \n", b"", "{}", {}], ids=repr)
async def test_no_arguments_can_be_said_in_many_ways(arguments):
    @tool
    def ping() -> str:
        return "pong"

    box = Toolbox(ping)

    result = await box.call("ping", arguments)

    assert result.unwrap() == "pong"


async def test_calls_by_name_get_ids_of_their_own():
    box = Toolbox(double)

    first = await box.call("double", {"n": 1})
    second = await box.call("double", {"n": 1})

    assert first.call_id
    assert first.call_id != second.call_id


async def test_unwrap_gives_the_value_or_raises_the_error():
    @tool
    def fail() -> int:
        raise ToolError("not today")

    box = Toolbox(double, fail)

    assert (await box.call("double", {"n": 2})).unwrap() == 4
    with pytest.raises(ToolError, match="not today"):
        (await box.call("fail")).unwrap()


async def test_a_result_cannot_be_changed():
    result = await Toolbox(double).call("double", {"n": 1})

    with pytest.raises(AttributeError):
        result.value = 3


# --- names -------------------------------------------------------------------------------------


@pytest.mark.row("MA-30")
async def test_a_misspelt_tool_is_answered_with_the_nearest_name():
    box = Toolbox(double, shout)

    result = await box.call("dubble", {})

    assert isinstance(result.error, UnknownTool)
    assert result.error.close == ("double",)
    assert "'double'" in result.text
    assert result.attempts == 0


async def test_a_name_with_nothing_near_it_is_answered_with_what_there_is():
    box = Toolbox(double, shout)

    result = await box.call("zzzzzzzz", {})

    assert isinstance(result.error, UnknownTool)
    assert "double, shout" in result.text


async def test_an_empty_toolbox_says_that_it_is_empty():
    result = await Toolbox().call("anything")

    assert isinstance(result.error, UnknownTool)
    assert "No tools are available" in result.text


@pytest.mark.parametrize("name", ["", " ", "x" * 100_000, "\udcff", "dou\x00ble"], ids=ascii)
async def test_a_name_that_no_tool_could_have_is_unknown_and_its_text_is_bounded(name):
    box = Toolbox(double)

    result = await box.call(ToolCall("1", name, "{}"))

    assert isinstance(result.error, UnknownTool)
    assert len(result.text.encode()) < 1_000


async def test_a_large_toolbox_does_not_list_every_name():
    box = Toolbox([Tool.from_schema(f"tool_{n:03}", "", {}, lambda arguments, context: None) for n in range(200)])

    result = await box.call("zzzzzzzz")

    assert "tool_000" in result.text
    assert "tool_199" not in result.text
    assert "180 more" in result.text


async def test_a_name_in_another_case_finds_the_tool_and_the_result_carries_its_true_name():
    seen = []

    @tool
    async def getWeather(ctx: ToolContext) -> None:  # noqa: N802 - a name as other languages write it
        seen.append(ctx.tool_name)

    result = await Toolbox(getWeather).call("GETWEATHER")

    assert result.ok
    assert result.name == "getWeather"
    assert seen == ["getWeather"]


# --- failures ----------------------------------------------------------------------------------


class Unusual(BaseException):
    """What no `except Exception` sees."""


FAILURES = [
    ValueError("bad"),
    SystemExit(3),
    asyncio.CancelledError("mine"),
    MemoryError(),
    RecursionError("deep"),
    StopIteration(1),
    StopAsyncIteration(),
    Unusual("odd"),
    ExceptionGroup("two", [ValueError("a"), TypeError("b")]),
    BaseExceptionGroup("two", [SystemExit(1), KeyboardInterrupt()]),
]


@pytest.mark.row("L4-14")
@pytest.mark.parametrize("timeout", [60, None], ids=["with a timeout", "without"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_whatever_an_async_tool_raises_becomes_a_result(failure, timeout):
    @tool
    async def fail() -> None:
        await asyncio.sleep(0)
        raise failure

    result = await Toolbox(fail, timeout=timeout).call("fail")

    assert isinstance(result.error, ExecutionError)
    assert result.error.tool == "fail"
    assert not result.ok


@pytest.mark.parametrize("timeout", [60, None], ids=["with a timeout", "without"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_whatever_an_async_tool_raises_before_its_first_wait_becomes_a_result(failure, timeout):
    @tool
    async def fail() -> None:
        raise failure

    result = await Toolbox(fail, timeout=timeout).call("fail")

    assert isinstance(result.error, ExecutionError)


@pytest.mark.row("L4-14")
@pytest.mark.parametrize("runs_on", ["thread", "loop"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_whatever_a_sync_tool_raises_becomes_a_result(failure, runs_on):
    @tool(runs_on=runs_on)
    def fail() -> None:
        raise failure

    result = await Toolbox(fail).call("fail")

    assert isinstance(result.error, ExecutionError)


async def test_a_generator_exit_from_a_thread_becomes_a_result():
    """§5 lists what passes through; a GeneratorExit that a tool raises in its thread is not on it."""

    @tool
    def fail() -> None:
        raise GeneratorExit

    result = await Toolbox(fail).call("fail")

    assert isinstance(result.error, ExecutionError)


def test_a_keyboard_interrupt_raised_in_a_worker_thread_becomes_a_result(run_script):
    """reliability.md §5, rule 6: only the main thread's KeyboardInterrupt ends anything."""
    done = run_script("""
        import asyncio
        from toolmason import Toolbox, tool

        @tool
        def stop() -> None:
            raise KeyboardInterrupt

        @tool
        def fine() -> str:
            return "fine"

        async def main():
            box = Toolbox(stop, fine)
            alone = await box.call("stop")
            batch = await box.call_all([("fine", {}), ("stop", {}), ("fine", {})])
            print([result.ok for result in (alone, *batch)])

        asyncio.run(main())
    """)

    assert done.stdout.strip() == "[False, True, False, True]", done.stderr


@pytest.mark.parametrize("wait", ["", "await asyncio.sleep(0)"], ids=["at once", "after a wait"])
def test_a_keyboard_interrupt_of_the_main_thread_ends_the_program(run_script, wait):
    done = run_script(f"""
        import asyncio
        from toolmason import Toolbox, tool

        @tool
        async def stop() -> None:
            {wait}
            raise KeyboardInterrupt

        try:
            asyncio.run(Toolbox(stop).call("stop"))
        except KeyboardInterrupt:
            print("interrupted")
    """)

    assert done.stdout.strip() == "interrupted", done.stderr


def test_control_c_reaches_a_program_that_waits_in_call_sync_for_a_stuck_tool(run_script):
    done = run_script("""
        import os, signal, threading
        from toolmason import Toolbox, tool

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background is deaf to it

        @tool
        def stuck() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()

        try:
            Toolbox(stuck, timeout=None).call_sync("stuck")
        except KeyboardInterrupt:
            print("interrupted")
    """)

    assert done.stdout.strip() == "interrupted", done.stderr


async def test_an_exception_that_cannot_say_what_it_is_still_becomes_a_result():
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @tool
    async def fail() -> None:
        raise Mute

    result = await Toolbox(fail).call("fail")

    assert isinstance(result.error, ExecutionError)
    assert "fail failed: Mute" in result.text


async def test_an_exception_with_half_a_surrogate_in_its_text_still_becomes_a_text():
    @tool
    async def fail() -> None:
        raise ValueError("caf\udce9")

    result = await Toolbox(fail).call("fail")

    assert "ValueError" in result.text
    result.text.encode()


async def test_a_tool_error_with_half_a_surrogate_in_its_text_still_becomes_a_text():
    @tool
    async def fail() -> None:
        raise ToolError("caf\udce9")

    result = await Toolbox(fail).call("fail")

    assert result.error is not None
    result.text.encode()


async def test_an_abort_passes_through_a_call():
    @tool
    async def stop() -> None:
        raise Abort("enough")

    with pytest.raises(Abort, match="enough"):
        await Toolbox(stop).call("stop")


async def test_an_abort_passes_through_a_call_from_a_thread():
    @tool
    def stop() -> None:
        raise Abort("enough")

    with pytest.raises(Abort, match="enough"):
        await Toolbox(stop).call("stop")


async def test_bad_arguments_do_not_reach_the_tool():
    ran = []

    @tool
    async def note(n: int) -> None:
        ran.append(n)

    result = await Toolbox(note).call("note", '{"n": "many"}')

    assert isinstance(result.error, InvalidArguments)
    assert ran == []


@pytest.mark.parametrize("arguments", [[1], 5, True, object()], ids=["list", "number", "bool", "object"])
async def test_arguments_that_are_no_object_are_refused(arguments):
    result = await Toolbox(double).call(ToolCall("1", "double", arguments))

    assert isinstance(result.error, InvalidArguments)


async def test_a_call_works_after_every_kind_of_failure():
    @tool
    async def fail(kind: int) -> None:
        raise FAILURES[kind]

    box = Toolbox(fail, double)
    for kind in range(len(FAILURES)):
        await box.call("fail", {"kind": kind})

    result = await box.call("double", {"n": 4})

    assert result.unwrap() == 8


async def test_the_failure_of_an_inner_call_is_not_taken_for_a_mistake_of_the_model():
    """A tool that uses another tool wrongly has failed itself; the model's arguments were right."""
    box = Toolbox(double)

    @tool
    async def outer(n: int) -> int:
        return (await box.call("double", {"number": n})).unwrap()

    result = await Toolbox(outer).call("outer", {"n": 3})

    assert isinstance(result.error, ExecutionError)
    assert result.error.tool == "outer"


# --- policy ------------------------------------------------------------------------------------


@pytest.mark.row("L4-19")
@pytest.mark.parametrize(
    ("setting", "of_box", "of_tool", "of_call", "expected"),
    [
        (40, ..., ..., ..., 40),
        (40, 30, ..., ..., 30),
        (40, 30, 20, ..., 20),
        (40, 30, 20, 10, 10),
        (40, None, ..., ..., None),
        (40, 30, None, ..., None),
        (40, 30, 20, None, None),
        (None, ..., ..., ..., None),
        (40, 5_000, ..., ..., 600),
        (40, ..., 5_000, ..., 600),
        (40, ..., ..., 5_000, 600),
    ],
    ids=[
        "setting",
        "toolbox",
        "tool",
        "call",
        "toolbox says none",
        "tool says none",
        "call says none",
        "setting says none",
        "hard maximum for toolbox",
        "hard maximum for tool",
        "hard maximum for call",
    ],
)
async def test_the_nearest_level_decides_the_timeout(setting, of_box, of_tool, of_call, expected):
    def given(value):
        return {} if value is ... else {"timeout": value}

    @tool(**given(of_tool))
    async def left(ctx: ToolContext) -> float | None:
        return None if ctx.deadline is None else ctx.deadline - time.monotonic()

    box = Toolbox(left, settings=EngineSettings(call_timeout=setting), **given(of_box))

    result = await box.call("left", **given(of_call))

    assert result.unwrap() == (None if expected is None else pytest.approx(expected, abs=4))


@pytest.mark.parametrize("seconds", [0, -1, float("nan")], ids=str)
async def test_a_timeout_that_makes_no_sense_is_told_to_the_developer_not_to_the_model(seconds):
    """`@tool(timeout=0)` is refused; the toolbox's own option is the same word and follows the same rule."""
    with pytest.raises(DefinitionError, match="timeout"):
        Toolbox(double, timeout=seconds)


async def test_a_timed_out_call_says_the_limit_by_name_and_number():
    @tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    result = await Toolbox(slow).call("slow")

    assert isinstance(result.error, ToolTimeout)
    assert (result.error.seconds, result.error.tool) == (0.01, "slow")
    assert "0.01 s" in result.text


# --- what is logged ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    ['{"key": "SENTINEL"}', '{"key": "SENTINEL", "more": "SENTINEL"}', '{"key": ["SENTINEL"]}', '{"key": "SENTINEL'],
    ids=["good", "with a stranger", "wrong type", "cut off"],
)
async def test_the_values_of_arguments_are_never_logged(caplog, arguments):
    """reliability.md F60: a secret in the arguments, every logger at DEBUG, no hit."""

    @tool
    def use(key: str) -> str:
        return key

    with caplog.at_level(logging.DEBUG):
        await Toolbox(use).call("use", arguments)

    assert caplog.records
    assert "SENTINEL" not in caplog.text


async def test_each_call_leaves_a_debug_line_with_its_name_id_and_outcome(caplog):
    with caplog.at_level(logging.DEBUG, logger="toolmason"):
        await Toolbox(double).call(ToolCall("c-1", "double", {"n": 1}))
        await Toolbox(double).call(ToolCall("c-2", "double", {}))

    assert "double [c-1] ok" in caplog.text
    assert "double [c-2] invalid_arguments" in caplog.text


# --- a forgotten await ---------------------------------------------------------------------------


def fetch(ctx: ToolContext) -> str:
    return "page"


async def pass_on(call, call_next):
    return await call_next(call)


def wrap(box: Toolbox) -> Toolbox:
    box.use(pass_on)
    return box


FORGOTTEN = {
    "plain": lambda: Toolbox(double).call("double", {"n": 2}),
    "with a context": lambda: Toolbox(fetch).call("fetch"),
    "with steps": lambda: Toolbox(double, max_concurrency=1, approve="all").call("double", {"n": 2}),
    "in a run": lambda: Toolbox(double, approve="all").run().call("double", {"n": 2}),
    "conditional": lambda: Toolbox(Tool.from_function(double, enabled=lambda ctx: True)).call("double", {"n": 2}),
    "with middleware": lambda: wrap(Toolbox(double)).call("double", {"n": 2}),
    "of a view with middleware": lambda: wrap(Toolbox(double)).run().call("double", {"n": 2}),
    "an unknown tool": lambda: Toolbox(double).call("triple", {"n": 2}),
}


@pytest.mark.parametrize("forget", FORGOTTEN.values(), ids=FORGOTTEN)
def test_the_warning_about_a_forgotten_await_names_the_method(forget):
    coroutine = forget()

    with pytest.warns(RuntimeWarning) as warned:
        del coroutine

    assert [str(each.message) for each in warned] == ["coroutine 'Toolbox.call' was never awaited"]
