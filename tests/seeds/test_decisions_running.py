"""Decisions where the seed systems differ (spec/seeds.md §3), C29 to C58; the design pages win where they differ."""

import asyncio
import json
import logging
import threading
from typing import Annotated, Any

import pytest

from toolmason import (
    Abort,
    Inject,
    Message,
    Retry,
    Sequential,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolError,
    converters,
    prompt,
    tool,
    tools_from,
)
from toolmason.errors import DefinitionError, ExecutionError, ToolTimeout


async def call(fn: Any, arguments: Any = None, **words: Any):
    box = Toolbox(fn, **words)
    return await box.call(box.tools[0].name, arguments)


async def value_of(fn: Any, arguments: Any = None, **words: Any) -> Any:
    return (await call(fn, arguments, **words)).unwrap()


# --- results -----------------------------------------------------------------------------------


@pytest.mark.row("SP-32", "AJ-9")
@pytest.mark.parametrize("text", ["plain", '"quoted"', '{"json": 1}', "null"], ids=repr)
async def test_c29_a_text_result_is_sent_as_it_is(text):
    def f() -> str:
        return text

    assert (await call(f)).text == text


async def test_c29_quoting_is_there_for_those_who_want_it():
    @tool(converter=converters.quoted_json)
    def f() -> str:
        return "plain"

    assert (await call(f)).text == '"plain"'


@pytest.mark.row("CO-10")
async def test_c30_nothing_is_success_and_a_null_value_is_null():
    def void() -> None: ...
    def unannotated(): ...
    def nullable() -> int | None:
        return None

    assert [(await call(fn)).text for fn in (void, unannotated, nullable)] == ["Success", "Success", "null"]


@pytest.mark.row("SP-34")
async def test_c31_an_error_is_never_returned_direct():
    @tool(return_direct=True)
    def f() -> str:
        raise ToolError("no")

    assert (await call(f)).return_direct is False


# --- errors ------------------------------------------------------------------------------------


async def test_c33_the_model_sees_the_message_or_a_safe_line():
    def f() -> None:
        raise ValueError("the disk is full")

    @tool
    def told() -> None:
        raise ToolError("Ask for another date.")

    open_text, safe_text = (await call(f)).text, (await call(f, on_error="redact")).text

    assert "f failed: ValueError: the disk is full" in open_text
    assert "disk" not in safe_text
    assert "Error id" in safe_text
    assert json.loads((await call(told)).text)["error"]["message"] == "Ask for another date."


@pytest.mark.parametrize(
    "error", [SystemExit(1), asyncio.CancelledError(), MemoryError()], ids=lambda e: type(e).__name__
)
async def test_c34_a_tool_cannot_end_a_server(error):
    """The design is stricter than C34 here: §5 of 01-core."""

    async def f() -> None:
        raise error

    assert isinstance((await call(f)).error, ExecutionError)


@pytest.mark.row("SP-52")
async def test_c34_abort_and_the_named_types_are_raised():
    async def stop() -> None:
        raise Abort

    async def fail() -> None:
        raise LookupError

    with pytest.raises(Abort):
        await call(stop)
    with pytest.raises(LookupError):
        await call(fail, rethrow=(LookupError,))


async def test_c34_our_own_cancellation_is_never_swallowed():
    begun = asyncio.Event()

    async def f() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(call(f))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_c34_throw_on_error_raises_every_failure():
    async def f() -> None:
        raise ValueError

    with pytest.raises(ExecutionError):
        await call(f, config={"tools": {"throw_on_error": True}})


async def test_c35_a_call_returns_and_unwrap_raises():
    async def f() -> None:
        raise ValueError

    result = await call(f)

    with pytest.raises(ExecutionError):
        result.unwrap()


async def test_c36_a_failure_never_falls_through_to_another_tool():
    ran = []

    def local() -> None:
        ran.append("local")
        raise ConnectionError

    class Other:
        def resolve(self, name: str) -> Tool | None:
            return Tool.from_schema(name, "", {}, lambda arguments, context: ran.append("other"))

    result = await Toolbox(local, resolvers=[Other()]).call("local")

    assert not result.ok
    assert ran == ["local"]


# --- running -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words", "runs"),
    [
        ({}, {"retry": Retry(attempts=3, delay=0)}, 1),
        ({"idempotent": True}, {"retry": Retry(attempts=3, delay=0)}, 3),
        ({"retry": Retry(attempts=2, delay=0)}, {}, 2),
        ({"idempotent": True}, {}, 1),
    ],
    ids=["toolbox, not said", "toolbox, idempotent", "tool", "nobody asked"],
)
async def test_c37_only_what_may_run_twice_is_run_twice(options, words, runs):
    ran = []

    @tool(**options)
    async def f() -> None:
        ran.append(1)
        raise ConnectionError

    await call(f, **words)

    assert len(ran) == runs


async def test_c38_a_stuck_thread_is_abandoned_and_its_late_result_dropped_and_logged(caplog):
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "dropped" in record.getMessage():
                ended.set()

    @tool(timeout=0.3)
    def stuck() -> str:
        begun.set()
        release.wait(5)
        return "late"

    watch = Watch()
    logging.getLogger("toolmason").addHandler(watch)
    result = await call(stuck)
    release.set()
    logged = await asyncio.to_thread(ended.wait, 5)
    logging.getLogger("toolmason").removeHandler(watch)

    assert isinstance(result.error, ToolTimeout)
    assert begun.is_set()
    assert logged


async def test_c39_results_come_in_the_order_of_the_requests_and_a_failure_cancels_nobody():
    """The design runs a batch in parallel by default; `Sequential()` is there for the seeds' way."""
    ran = []

    async def f(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0)
        if n == 1:
            raise ValueError
        return n

    box = Toolbox(f)
    calls = [ToolCall(str(n), "f", {"n": n}) for n in range(4)]

    parallel = await box.call_all(calls)
    sequential = await box.call_all(calls, strategy=Sequential())

    assert [result.value for result in parallel] == [0, None, 2, 3]
    assert [result.value for result in sequential] == [0, None, 2, 3]
    assert ran[4:] == [0, 1, 2, 3]


# --- context, prompts, bundles -----------------------------------------------------------------


@pytest.mark.row("SP-37")
async def test_c43_an_empty_context_is_legal():
    async def f(ctx: ToolContext) -> int:
        return len(ctx)

    assert await value_of(f) == 0


async def test_c45_the_role_of_a_prompt_is_user_unless_said_otherwise():
    @prompt
    def first() -> str:
        return "a"

    @prompt(role="assistant")
    def second() -> str:
        return "b"

    @prompt
    def third() -> Message:
        return Message("system", "c")

    box = Toolbox(first, second, third)

    assert [(await box.prompt(name))[0].role for name in ("first", "second", "third")] == [
        "user",
        "assistant",
        "system",
    ]


async def test_c46_prompts_are_stored_and_rendered():
    @prompt
    def hello(name: str) -> str:
        return f"Hello {name}"

    box = Toolbox(hello)

    assert [found.name for found in box.prompts] == ["hello"]
    assert (await box.prompt("hello", {"name": "Ada"}))[0].text == "Hello Ada"


def test_c55_every_parameter_is_the_models_unless_it_is_injected_and_none_is_untyped():
    class Bundle:
        @tool
        def good(self, n: int, ctx: ToolContext, db: Annotated[object, Inject]) -> None: ...

    class Broken:
        @tool
        def bad(self, n) -> None: ...

    [found] = tools_from(Bundle())

    assert list(found.definition.input_schema["properties"]) == ["n"]
    with pytest.raises(DefinitionError, match="'n'"):
        tools_from(Broken())


def test_c57_the_decorator_is_the_consent():
    class Bundle:
        @tool
        def _hidden(self) -> None: ...

        def public(self) -> None: ...

    assert [found.name for found in tools_from(Bundle())] == ["_hidden"]


def test_c58_bundles_follow_the_method_resolution_order():
    class Base:
        @tool(read_only=True, description="Base.")
        def kept(self) -> str:
            return "base"

        @tool(read_only=True)
        def again(self) -> str:
            return "base"

        @tool
        def gone(self) -> str:
            return "base"

    class Child(Base):
        def kept(self) -> str:
            return "child"

        @tool
        def again(self) -> str:
            return "child"

        @tool.exclude
        def gone(self) -> str:
            return "child"

    box = Toolbox(Child())

    assert [found.name for found in box.tools] == ["again", "kept"]
    assert [box.call_sync(name).text for name in ("again", "kept")] == ["child", "child"]
    assert (box["kept"].options.read_only, box["kept"].description) == (True, "Base.")
    assert box["again"].options.read_only is None
