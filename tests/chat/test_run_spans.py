"""Spans and metrics of runs: one tree from the run to the last tool, wherever the work goes on."""

import asyncio
import json

import pytest
from opentelemetry import trace

from toolmason import Allow, Chat, Message, Toolbox, ToolCall, tool
from toolmason.chat import Compact, Price, SqliteMemory, SqliteRuntime, Usage
from toolmason.errors import ModelError
from toolmason.models import ModelReply
from toolmason.testing import ScriptedModel

SECRET = "sk-0123456789abcdef"  # noqa: S105 - not a key of anybody


@tool
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool(destructive=True)
async def erase(name: str) -> str:
    """Erase a file."""
    return f"erased {name}"


def call(number):
    return [("double", {"number": number})]


def with_usage(text):
    return ModelReply(Message("assistant", text), usage=Usage(100, 20, cached_tokens=40, reasoning_tokens=5))


async def test_a_run_has_a_span_over_its_turns_and_calls(spans):
    chat = Chat(ScriptedModel([call(1), "2"], name="openai:gpt-5"), Toolbox(double, name="desk"))

    reply = await chat.send("1 + 1?")

    assert spans.tree() == ["invoke_agent desk", "  chat gpt-5", "  execute_tool double", "  chat gpt-5"]
    run = spans.one("invoke_agent desk")
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["toolmason.run.id"] == reply.run
    assert (run.attributes["toolmason.run.finish"], run.attributes["toolmason.run.turns"]) == ("stop", 2)
    assert reply.trace == f"00-{run.context.trace_id:032x}-{run.context.span_id:016x}-{run.context.trace_flags:02x}"


async def test_a_turn_has_its_tokens_and_its_cost(spans, metrics):
    model = ScriptedModel([with_usage("Hello.")], name="gemini:flash")

    await Chat(model, price=Price(input=2, output=10)).send("Hi")

    turn = spans.one("chat flash")
    assert turn.kind is trace.SpanKind.CLIENT
    shown = {name: value for name, value in turn.attributes.items() if "usage" in name or "provider" in name}
    assert shown == {
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.reasoning.output_tokens": 5,
    }
    assert turn.attributes["toolmason.cost"] == pytest.approx(0.0004)
    assert turn.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    kinds = {point["gen_ai.token.type"] for point, _ in metrics("gen_ai.client.token.usage")}
    assert kinds == {"input", "output"}
    [(_, cost)] = metrics("toolmason.run.cost")
    assert cost == pytest.approx(0.0004)
    assert [point["toolmason.run.finish"] for point, _ in metrics("toolmason.run.duration")] == ["stop"]


async def test_a_failed_turn_marks_its_span_and_the_run_without_the_message(spans):
    def break_down(_):
        raise ModelError("openai", f"bad key {SECRET}", status=401)

    with pytest.raises(ModelError):
        await Chat(ScriptedModel([break_down])).send("Hi")

    assert [span.attributes["error.type"] for span in spans] == ["401", "401"]
    assert not any(SECRET in span.to_json() for span in spans)


async def test_a_stream_has_the_same_tree(spans):
    async for _ in Chat(ScriptedModel([call(1), "2"]), [double]).stream("1 + 1?"):
        pass

    assert spans.tree() == ["invoke_agent", "  chat scripted", "  execute_tool double", "  chat scripted"]


async def test_a_delegated_chat_is_below_the_call_of_its_tool(spans):
    inner = Chat(ScriptedModel([call(1), "2"]), [double])
    outer = Chat(ScriptedModel([[("counter", {"prompt": "1 + 1?"})], "two"]), [inner.as_tool("counter", "Counts.")])

    await outer.send("Count.")

    assert spans.tree() == [
        "invoke_agent",
        "  chat scripted",
        "  execute_tool counter",
        "    invoke_agent counter",
        "      chat scripted",
        "      execute_tool double",
        "      chat scripted",
        "  chat scripted",
    ]


async def test_an_approver_has_a_span_below_the_call(spans):
    async def approve(_):
        return Allow()

    box = Toolbox(erase, approver=approve)

    await Chat(ScriptedModel([[("erase", {"name": "a"})], "done"]), box).send("Erase a.")

    assert spans.tree()[2:4] == ["  execute_tool erase", "    approve erase"]
    assert spans.one("approve erase").attributes["toolmason.approval.verdict"] == "allow"


@pytest.mark.parametrize("is_saved", [True, False], ids=["as JSON", "as a reply"])
async def test_a_resumed_run_links_the_trace_that_it_came_from(is_saved, spans):
    chat = Chat(ScriptedModel([[("erase", {"name": "a"})], "done"]), Toolbox(erase))
    waiting = await chat.send("Erase a.")
    decisions = [chat.box.approvals.decide(request, Allow()) for request in waiting.pending]

    await chat.resume(json.loads(json.dumps(waiting.save())) if is_saved else waiting, decisions)

    first, second = spans.named("invoke_agent")
    assert first.context.trace_id != second.context.trace_id
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert [span.attributes.get("error.type") for span in spans.named("execute_tool erase")] == [
        "approval_required",
        None,
    ]


async def test_a_journalled_run_that_is_executed_again_links_its_first_trace(spans, metrics, tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")
    for _ in range(2):
        await Chat(ScriptedModel([call(1), "2"]), [double], runtime=runtime).send("1 + 1?", run="r")

    first, second = spans.named("invoke_agent")
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    effects = spans.named("effect scripted") + spans.named("effect double")
    assert [span.attributes["toolmason.effect.replayed"] for span in effects] == [False, False, True, True, False, True]
    assert spans.parent_of(spans.one("execute_tool double")).name == "effect double"
    assert metrics("toolmason.cache.hits") == [({"toolmason.cache": "journal"}, 3)]
    runtime.close()


async def test_a_saved_link_that_is_not_a_trace_is_ignored(spans):
    chat = Chat(ScriptedModel([[("erase", {"name": "a"})], "done"]), Toolbox(erase))
    waiting = await chat.send("Erase a.")
    decisions = [chat.box.approvals.decide(request, Allow()) for request in waiting.pending]

    await chat.resume(waiting.save() | {"trace": "00-zz-1-01"}, decisions)

    assert [span.links for span in spans.named("invoke_agent")] == [(), ()]


async def test_work_in_the_background_stays_below_the_run_that_started_it(spans, tmp_path):
    may_end = asyncio.Event()

    @tool(background=True)
    async def work() -> str:
        """Work for long."""
        await may_end.wait()
        return "done"

    memory = SqliteMemory(tmp_path / "chats.db")
    chat = Chat(ScriptedModel([[("work", {})], "Started.", "Ended."]), [work], memory=memory)
    await chat.send("Go.", conversation="a")
    may_end.set()
    await chat.wait_for_tickets("a")
    await chat.send("And?", conversation="a")

    first, _ = spans.named("invoke_agent")
    assert spans.parent_of(spans.one("execute_tool work")) == first
    assert first.attributes["gen_ai.conversation.id"] == "a"


async def test_parallel_runs_do_not_mix(spans):
    chats = [Chat(ScriptedModel([call(number), "ok"]), Toolbox(double, name=f"box{number}")) for number in range(5)]

    await asyncio.gather(*[chat.send("Go.") for chat in chats])

    for number in range(5):
        run = spans.one(f"invoke_agent box{number}")
        assert len([span for span in spans if span.context.trace_id == run.context.trace_id]) == 4


async def test_a_summary_is_a_turn_of_its_model(spans):
    summarizer = ScriptedModel(["They said hello."], name="small")
    chat = Chat(ScriptedModel(["Hello."], name="large"), compact=Compact(keep=1, at=2, model=summarizer))

    await chat.send([Message("user", "a"), Message("assistant", "b"), Message("user", "c")])

    assert spans.tree() == ["invoke_agent", "  chat small", "  chat large"]


async def test_messages_are_in_a_span_only_with_the_setting_and_without_secrets(spans):
    for setting in (False, True):
        box = Toolbox(double, config={"tools": {"include_content": setting}})
        model = ScriptedModel([[ToolCall("c", "double", {"number": 7})], f"It is 14, not {SECRET}."])
        await Chat(model, box, system="Be brief.").send(f"Twice 7 with {SECRET}?")

    off, _, on, last = spans.named("chat scripted")
    assert not [name for name in off.attributes if "messages" in name or "instructions" in name]
    assert json.loads(on.attributes["gen_ai.input.messages"])[0]["role"] == "user"
    assert "Be brief." in on.attributes["gen_ai.system_instructions"]
    assert json.loads(on.attributes["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "tool_call", "id": "c", "name": "double"}
    ]
    assert "It is 14" in last.attributes["gen_ai.output.messages"]
    assert not any(SECRET in span.to_json() for span in spans)
