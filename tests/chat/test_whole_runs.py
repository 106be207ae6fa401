"""Findings about whole runs: results sent alone, names of resolvers, tools that come during a run, parts and events."""

import asyncio
import json

import pytest

from toolmason import Allow, Chat, Image, McpServer, Message, Retry, Toolbox, ToolCall, tool
from toolmason.chat import SqliteMemory, SqliteRuntime, WindowMemory
from toolmason.chat.loop import ToolLoop
from toolmason.errors import ConfigError, DefinitionError
from toolmason.extend import StaticResolver
from toolmason.models import ScriptedModel
from toolmason.providers import check_conversation


@tool
def mul(a: int, b: int) -> int:
    """Multiply."""
    return a * b


@tool
def half(a: int) -> float:
    """Halve."""
    return a / 2


def ask(*calls):
    return [(name, arguments) for name, arguments in calls]


MUL = ask(("mul", {"a": 6, "b": 8}))


@pytest.fixture(params=["window", "sqlite"])
def memory(request, tmp_path):
    kept = WindowMemory() if request.param == "window" else SqliteMemory(tmp_path / "chat.db")
    yield kept
    if isinstance(kept, SqliteMemory):
        kept.close()


# --- the caller runs the calls ---------------------------------------------------------------------


@pytest.mark.row("SP-50", "SP-49")
@pytest.mark.parametrize("history", [True, False])
async def test_results_that_are_sent_alone_reach_the_model(memory, history):
    model, box = ScriptedModel([MUL, "48"]), Toolbox(mul)
    chat = Chat(model, box, execute=False, memory=memory, history=history)
    reply = await chat.send("6 * 8?", conversation="u")

    results = await box.call_all(reply.calls)
    answer = await chat.send([Message("tool", results=results)], conversation="u")

    assert answer.text == "48"
    assert [result.text for message in model.requests[1].messages for result in message.results] == ["48"]
    assert [message.role for message in await memory.load("u")] == ["user", "assistant", "tool", "assistant"]


async def test_a_result_that_is_left_out_is_still_told_as_missing(memory):
    model, box = ScriptedModel([ask(("mul", {"a": 1, "b": 2}), ("half", {"a": 3})), "x"]), Toolbox(mul, half)
    chat = Chat(model, box, execute=False, memory=memory)
    reply = await chat.send("x", conversation="u")

    await chat.send([Message("tool", results=[await box.call(reply.calls[0])])], conversation="u")

    [first, second] = model.requests[1].messages[-1].results
    assert (first.text, second.error is not None) == ("2", True)


@pytest.mark.parametrize("history", [True, False], ids=["history", "memory only"])
async def test_results_that_come_after_another_message_still_join_their_calls(memory, history):
    model, box = (
        ScriptedModel([ask(("mul", {"a": 1, "b": 2}), ("half", {"a": 3})), "Wait.", "2", "?"]),
        Toolbox(mul, half),
    )
    chat = Chat(model, box, execute=False, memory=memory, history=history)
    reply = await chat.send("x", conversation="u")
    await chat.send("Hurry.", conversation="u")

    results = await box.call_all(reply.calls)
    await chat.send(Message("tool", results=results), conversation="u")

    assert [result.text for result in model.requests[2].messages[2].results] == [result.text for result in results]
    assert check_conversation(model.requests[2].messages) == []


async def test_the_rest_of_the_results_joins_the_first_ones(memory):
    model, box = ScriptedModel([ask(("mul", {"a": 1, "b": 2}), ("half", {"a": 3})), "Wait.", "2"]), Toolbox(mul, half)
    chat = Chat(model, box, execute=False, memory=memory)
    reply = await chat.send("x", conversation="u")
    results = await box.call_all(reply.calls)

    for result in results:
        await chat.send(Message("tool", results=[result]), conversation="u")

    assert [result.text for result in model.requests[2].messages[2].results] == [result.text for result in results]


async def test_a_durable_run_with_late_results_keeps_its_answer(tmp_path):
    """The key of an appended message was its index, which the repair of a conversation changes."""
    box, kept, runtime = Toolbox(mul), SqliteMemory(tmp_path / "chat.db"), SqliteRuntime(tmp_path / "runs.db")
    chat = Chat(ScriptedModel([MUL, "Wait.", "48"]), box, execute=False, memory=kept, runtime=runtime)
    reply = await chat.send("x", conversation="u")
    await chat.send("Hurry.", conversation="u")

    await chat.send(Message("tool", results=await box.call_all(reply.calls)), conversation="u")

    assert [message.text for message in await kept.load("u")][-1] == "48"
    kept.close()
    runtime.close()


@pytest.mark.row("SP-42")
async def test_with_a_predicate_the_calls_of_a_reply_are_those_that_were_not_run():
    model = ScriptedModel([MUL, ask(("half", {"a": 3}))])

    reply = await Chat(model, [mul, half], execute=lambda _, asked: asked.calls[0].name != "half").send("x")

    assert reply.finish == "calls"
    assert [call.name for call in reply.calls] == ["half"]
    assert [result.name for result in reply.results] == ["mul"]


# --- tools of a request ----------------------------------------------------------------------------


@pytest.mark.row("SP-16", "SP-17", "SP-54")
@pytest.mark.parametrize("fallback", [{}, {"resolution_fallback": False}], ids=["default", "closed"])
@pytest.mark.parametrize("word", ["tools", "add_tools"])
async def test_a_name_in_a_request_may_be_one_that_a_resolver_knows(word, fallback):
    model = ScriptedModel([MUL, "48"])
    box = Toolbox(half, resolvers=[StaticResolver(mul)], **fallback)

    reply = await Chat(model, box).send("x", **{word: ["mul"]})

    assert reply.results[0].value == 48
    offered = {"tools": ["mul"], "add_tools": ["half", "mul"]}[word]
    assert [item.name for item in model.requests[0].tools] == offered


async def test_a_selected_tool_and_an_added_name_go_together():
    model = ScriptedModel(["x"])
    box = Toolbox(half, mul)

    await Chat(model, box).send("x", tools=["half"], add_tools="mul")

    assert [item.name for item in model.requests[0].tools] == ["half", "mul"]


async def test_a_name_that_nobody_knows_is_refused():
    chat = Chat(ScriptedModel([]), Toolbox(half, resolvers=[StaticResolver(mul)]))

    with pytest.raises(ConfigError, match=r"tools=\['add'\]: no such tool. Available: half"):
        await chat.send("x", add_tools=["add"])


async def test_a_tool_that_a_tool_adds_is_offered_in_the_next_turn():
    box = Toolbox()

    @tool
    def install() -> str:
        """Install another tool."""
        box.add(mul)
        return "installed"

    box.add(install)
    model = ScriptedModel([ask(("install", {})), MUL, "48"])

    reply = await Chat(model, box).send("x")

    assert [item.name for item in model.requests[0].tools] == ["install"]
    assert [item.name for item in model.requests[1].tools] == ["install", "mul"]
    assert [result.text for result in reply.results] == ["installed", "48"]


async def test_a_tool_that_a_server_announces_during_a_run_is_offered_in_the_next_turn():
    inner = Toolbox()

    @tool
    def install() -> str:
        """Install another tool."""
        inner.add(mul)
        return "installed"

    inner.add(install)
    model = ScriptedModel([ask(("install", {})), MUL, "48"])

    async with Toolbox(half, McpServer.of("s", inner)) as box:
        reply = await Chat(model, box).send("x")

    assert [item.name for item in model.requests[1].tools] == ["half", "install", "mul"]
    assert [result.text for result in reply.results] == ["installed", "48"]


async def test_what_an_advisor_took_away_stays_away_if_the_tools_change():
    box = Toolbox(half)

    @tool
    def install() -> str:
        """Install another tool."""
        box.add(mul)
        return "installed"

    box.add(install)

    class WithoutHalf(ToolLoop):
        async def on_start(self, turn):
            tools = tuple(item for item in turn.request.tools if item.name != "half")
            request = turn.request.with_messages(turn.messages, tools=tools)
            return type(turn)(request, turn.number, turn.conversation, turn.run)

    model = ScriptedModel([ask(("install", {})), "x"])

    await Chat(model, box, advisors=[WithoutHalf()]).send("x")

    assert [item.name for item in model.requests[1].tools] == ["install", "mul"]


# --- advisors, history, resuming -------------------------------------------------------------------


@pytest.mark.row("SP-44")
def test_a_second_tool_loop_is_refused():
    with pytest.raises(ConfigError, match="advisors= contains 2 tool loops, but a chat runs one"):
        Chat(ScriptedModel([]), [mul], advisors=[ToolLoop(), ToolLoop()])


@pytest.mark.row("SP-45")
async def test_without_history_the_question_and_the_last_calls_are_shown_whatever_the_memory_shows():
    class Forgetful:
        def __init__(self):
            self.messages = []

        async def load(self, conversation):
            return self.messages[-1:]

        async def append(self, conversation, messages):
            self.messages.extend(messages)

    model = ScriptedModel([MUL, ask(("half", {"a": 48})), "24"])

    await Chat(model, [mul, half], system="Be brief.", memory=Forgetful(), history=False).send("x")

    for request, name in zip(model.requests[1:], ["mul", "half"], strict=True):
        assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
        assert request.messages[2].calls[0].name == name
        assert check_conversation(request.messages) == []


@pytest.mark.parametrize("first", [None, "Be brief."], ids=["later", "from the start"])
async def test_a_resumed_run_knows_which_messages_are_new_with_a_system_message(first):
    box = Toolbox(mul, approve="all", approval_key="k" * 16)
    waiting = await Chat(ScriptedModel([MUL]), box, system=first).send("6 * 8?")
    decisions = [box.approvals.decide(request, Allow()) for request in waiting.pending]

    reply = await Chat(ScriptedModel(["48"]), box, system="Be brief.").resume(waiting.save(), decisions)

    assert reply.text == "48"
    assert reply.history_length == 1
    assert [message.role for message in reply.new] == ["user", "assistant", "tool", "assistant"]


# --- what is sent, what is reported ----------------------------------------------------------------


@pytest.mark.parametrize("listed", [True, False])
async def test_text_and_images_are_one_message(listed):
    picture = Image(b"\x89PNG", "image/png")
    model = ScriptedModel(["a cat"])

    await Chat(model).send(["Look:", picture] if listed else picture)

    [message] = model.requests[0].messages
    assert message == Message("user", ["Look:", picture] if listed else picture)


async def test_parts_and_messages_do_not_mix():
    with pytest.raises(ConfigError, match=r"send\(\) takes a str, a Message, a list of Message or parts"):
        await Chat(ScriptedModel([])).send(["look", Message("user", "x")])


async def test_every_event_of_a_stream_has_a_json_form():
    chat = Chat(ScriptedModel([MUL, "It is 48."]), [mul])

    events = [json.loads(json.dumps(event.to_dict())) async for event in chat.stream("6 * 8?")]

    by_type = {event["type"]: event for event in events}
    assert by_type["TextDelta"]["text"]
    assert by_type["CallStarted"]["call"]["arguments"] == {"a": 6, "b": 8}
    assert by_type["CallFinished"]["result"]["structured"] == {"result": 48}
    assert by_type["StepFinished"]["reply"]["finish"]
    assert events[-1]["type"] == "Done"
    assert events[-1]["reply"]["text"] == "It is 48."


# --- batches ---------------------------------------------------------------------------------------


@pytest.mark.row("L4-23")
async def test_each_call_of_a_batch_is_retried():
    failures = iter([OSError("away"), OSError("away")])

    @tool
    def flaky(n: int) -> int:
        """Fail sometimes."""
        for error in failures:
            raise error
        return n

    calls = [ToolCall("1", "flaky", {"n": 1}), ToolCall("2", "flaky", {"n": 2})]

    results = await Toolbox(flaky).call_all(calls, retry=Retry(3, delay=0))

    assert [result.value for result in results] == [1, 2]
    assert sum(result.attempts for result in results) == 4


@pytest.mark.row("L4-23")
async def test_each_call_of_a_batch_has_a_timeout_of_its_own():
    @tool
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    results = await Toolbox(hang, mul).call_all([("hang", {}), ("mul", {"a": 1, "b": 2})], call_timeout=0.01)

    assert [None if result.ok else result.error.code for result in results] == ["timeout", None]


@pytest.mark.parametrize("options", [{"retry": 3}, {"call_timeout": -1}], ids=repr)
async def test_options_of_a_batch_that_are_none_are_refused(options):
    with pytest.raises(DefinitionError):
        await Toolbox(mul).call_all([], **options)


async def test_a_run_keeps_its_tools_if_the_new_ones_clash(caplog):
    box = Toolbox()

    @tool
    def install() -> str:
        """Install another tool."""
        box.add(Toolbox(half).renamed({"half": "mul"}))
        return "installed"

    box.add(install)
    model = ScriptedModel([ask(("install", {})), MUL, "48"])

    reply = await Chat(model, box).send("x", add_tools=[mul])

    assert reply.results[1].value == 48
    assert "the tools of a run changed, but cannot be listed: Two tools are named 'mul'" in caplog.text


@pytest.mark.row("SP-19", "SP-17")
async def test_a_tool_of_one_request_is_offered_in_no_other():
    model = ScriptedModel(["x", "y"])
    chat = Chat(model, [half])

    await chat.send("x", add_tools=[mul])
    await chat.send("y")

    assert [[item.name for item in request.tools] for request in model.requests] == [["half", "mul"], ["half"]]


@pytest.mark.row("SP-19")
async def test_a_destructive_tool_that_all_requests_share_waits_for_approval():
    @tool(destructive=True)
    def wipe() -> str:
        """Wipe."""
        raise AssertionError

    reply = await Chat(ScriptedModel([ask(("wipe", {}))]), [wipe]).send("x")

    assert reply.finish == "pending"
