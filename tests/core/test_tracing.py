"""Spans of calls: one for each, with the names of the conventions and only the content that is allowed."""

import asyncio
import contextlib
import subprocess
import sys
import textwrap

import pytest
from opentelemetry import trace
from pydantic import BaseModel, SecretStr

from toolmason import Chat, McpServer, Retry, Toolbox, ToolCall, ToolError, tool
from toolmason._core.run.call_log import describe_shape
from toolmason.testing import ScriptedModel

SECRET = "hunter2-in-no-span"  # noqa: S105 - not a password of anybody


@tool
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool
def fail(password: str) -> str:
    """Fail with a secret."""
    raise ValueError(f"bad password {password}")


@pytest.mark.row("SP-58")
async def test_a_call_has_a_span_with_the_names_of_the_conventions(spans):
    await Toolbox(double).call(ToolCall("call_7", "double", {"number": 2}))

    [span] = spans
    assert (span.name, span.status.is_ok) == ("execute_tool double", True)
    assert span.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.call.id": "call_7",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Double a number.",
        "toolmason.arguments.size": 12,
        "toolmason.result.size": 1,
    }


@pytest.mark.row("SP-58")
async def test_a_failure_marks_the_span_although_the_model_reads_it(spans):
    result = await Toolbox(fail).call("fail", {"password": SECRET})

    [span] = spans
    assert not span.status.is_ok
    assert span.attributes["error.type"] == "execution_error"
    assert span.attributes["toolmason.error.id"] == result.error.log_id
    assert SECRET not in span.to_json()


@pytest.mark.row("SP-58")
async def test_with_the_setting_a_span_has_content_without_secrets(spans):
    box = Toolbox(double, fail, config={"tools.include_content": True, "tools.spring_names": True})

    await box.call("double", {"number": 2})
    await box.call("fail", {"password": SECRET})

    good, bad = spans
    assert good.attributes["gen_ai.tool.call.arguments"] == '{"number":2}'
    assert good.attributes["spring.ai.tool.call.result"] == good.attributes["gen_ai.tool.call.result"] == "4"
    assert good.attributes["spring.ai.tool.definition.name"] == "double"
    assert bad.attributes["gen_ai.tool.call.arguments"] == '{"password":"…"}'


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


class Login(BaseModel):
    """Login of a user."""

    user: str
    pin: SecretStr


@pytest.mark.parametrize(
    ("record", "setting", "shown"),
    [
        pytest.param(None, False, {"toolmason.arguments.size", "toolmason.result.size"}, id="sizes"),
        pytest.param("none", True, set(), id="nothing"),
        pytest.param(
            "shape",
            True,
            {f"toolmason.{part}.{word}" for part in ("arguments", "result") for word in ("size", "shape")},
            id="shape",
        ),
        pytest.param(
            "full",
            False,
            {"toolmason.arguments.size", "toolmason.result.size"}
            | {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"},
            id="full",
        ),
    ],
)
async def test_a_tool_says_what_its_spans_show(record, setting, shown, spans, caplog):
    @tool(record=record)
    async def greet(name: str) -> str:
        """Greet."""
        return f"Hello, {name}."

    caplog.set_level("DEBUG", "toolmason")
    await Toolbox(greet, config={"tools": {"include_content": setting}}).call("greet", {"name": "Ada"})

    [span] = spans
    described = {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"}
    assert set(span.attributes) - described - {"gen_ai.tool.description"} == shown
    assert ("Ada" in span.to_json()) is ("Ada" in caplog.text) is (record == "full")
    if record == "shape":
        assert span.attributes["toolmason.arguments.shape"] == '{"name":"str, 3 characters"}'
        assert span.attributes["toolmason.result.shape"] == '"str, 11 characters"'


async def test_content_is_masked_by_name_by_type_and_by_pattern(spans):
    @tool(record="full")
    async def log_in(login: Login, api_key: str, note: str) -> str:
        """Log in."""
        return f"{login.user} {note}"

    arguments = {"login": {"user": "ada", "pin": "1234567"}, "api_key": "swordfish", "note": "Bearer abcdefgh123"}
    await Toolbox(log_in).call("log_in", arguments)

    [span] = spans
    shown = span.attributes["gen_ai.tool.call.arguments"]
    assert shown == '{"login":{"user":"ada","pin":"…"},"api_key":"…","note":"…"}'
    assert span.attributes["gen_ai.tool.call.result"] == "ada …"


@pytest.mark.parametrize("record", [None, "shape", "full"])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"text": b"\xff"}, id="bytes"),
        pytest.param({"text": "\ud800"}, id="a lone surrogate"),
        pytest.param({"text": float("nan")}, id="NaN"),
        pytest.param({"text": nested(5000)}, id="deep"),
        pytest.param("{" * 5000, id="not JSON"),
        pytest.param(b"\xff", id="not text"),
    ],
)
async def test_no_arguments_can_break_the_span_or_the_call(arguments, record, spans, caplog):
    caplog.set_level("DEBUG", "toolmason")

    @tool(record=record)
    async def take(text: str) -> str:
        """Take a text."""
        return text

    result = await Toolbox(take).call(ToolCall("id\ud800", "take", arguments))

    [span] = spans
    assert span.attributes.get("error.type") == (None if result.error is None else result.error.code)
    span.to_json().encode()


def test_a_shape_is_bounded_and_has_no_value():
    shape = describe_shape({f"k{number}": [number] * 5 for number in range(10_000)})

    assert len(shape) <= 501
    assert shape.startswith('{"k0":["int","5 items"],')


@pytest.mark.parametrize("way", ["call", "call_all", "hook", "run", "chat", "stream", "nested", "remote"])
async def test_every_way_of_calling_has_one_span_for_each_toolbox(way, spans):
    box = Toolbox(double)
    if way == "call":
        await box.call("double", {"number": 1})
    elif way == "call_all":
        await box.call_all([("double", {"number": 1})])
    elif way == "hook":
        box.use(lambda call, proceed: proceed(call))
        await box.call("double", {"number": 1})
    elif way == "run":
        with box.run() as run:
            await run.call("double", {"number": 1})
    elif way == "nested":
        await Toolbox(box).call("double", {"number": 1})
    elif way == "remote":
        async with Toolbox(McpServer.of("math", box)) as client:
            await client.call("double", {"number": 1})
    else:
        chat = Chat(ScriptedModel([[("double", {"number": 1})], "2"]), box)
        if way == "chat":
            await chat.send("1 + 1?")
        else:
            async for _ in chat.stream("1 + 1?"):
                pass

    assert len(spans.named("execute_tool double")) == (2 if way == "remote" else 1)


async def test_an_unknown_tool_has_a_span(spans):
    await Toolbox(double).call("triple", {"number": 1})

    [span] = spans
    assert (span.name, span.attributes["error.type"]) == ("execute_tool", "unknown_tool")
    assert span.attributes["gen_ai.tool.name"] == "triple"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_span_of_the_tool_is_a_child_of_its_call(kind, spans):
    def work() -> str:
        """Work."""
        with trace.get_tracer("application").start_as_current_span("inside"):
            return "done"

    async def work_async() -> str:
        """Work."""
        await asyncio.sleep(0)
        return work()

    box = Toolbox(work if kind == "thread" else work_async)

    await box.call_all([(box.tools[0].name, {})] * 3)

    assert spans.tree() == [f"execute_tool {box.tools[0].name}", "  inside"] * 3


async def test_attempts_after_the_first_have_spans_below_the_call(spans):
    attempts = 0

    @tool(retry=Retry(3, delay=0))
    async def flaky() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise TimeoutError
        return "done"

    await Toolbox(flaky).call("flaky")

    assert spans.tree() == ["execute_tool flaky", "  retry flaky", "  retry flaky"]
    call, (second, third) = spans.one("execute_tool flaky"), spans.named("retry flaky")
    assert (call.attributes["toolmason.attempts"], call.status.is_ok) == (3, True)
    assert (second.attributes["toolmason.attempt"], second.attributes["error.type"]) == (2, "TimeoutError")
    assert (third.attributes["toolmason.attempt"], third.status.is_ok) == (3, True)


@pytest.mark.parametrize("end", ["raise", "cancel"])
async def test_a_call_that_raises_ends_its_span(end, spans):
    @tool
    async def wait() -> str:
        if end == "raise":
            raise ToolError("no")
        await asyncio.Event().wait()
        return ""

    box = Toolbox(wait, on_error="raise")
    task = asyncio.create_task(box.call("wait"))
    await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(ToolError, asyncio.CancelledError):
        await task

    [span] = spans
    assert span.attributes["error.type"] == ("tool_error" if end == "raise" else "CancelledError")


def test_without_a_provider_nothing_is_imported():
    program = """
        import sys
        from toolmason import Toolbox, tool

        @tool
        def one() -> int:
            return 1

        assert Toolbox(one).call_sync("one").value == 1
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_a_provider_that_is_set_after_the_first_calls_is_noticed():
    program = """
        from toolmason import Toolbox, tool

        @tool
        async def one() -> int:
            return 1

        box = Toolbox(one)
        box.call_sync("one")

        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        box.call_sync("one")
        provider, exporter = TracerProvider(), InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        box.call_sync("one")
        assert [span.name for span in exporter.get_finished_spans()] == ["execute_tool one"]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
