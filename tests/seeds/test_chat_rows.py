"""The rows SP-33 to SP-50 of the seeds, and promises 7 to 11, as a chat keeps them; others are in tests/chat."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolmason import (
    Chat,
    Message,
    Sequential,
    SqliteMemory,
    Toolbox,
    ToolContext,
    ToolError,
    WindowMemory,
    tool,
)
from toolmason.chat.events import CallFinished, CallStarted, Done, StepFinished
from toolmason.chat.loop import ToolLoop, before_loop
from toolmason.errors import ConfigError, DefinitionError
from toolmason.models import TextDelta
from toolmason.models.scripted import ScriptedModel
from toolmason.providers import check_conversation


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(return_direct=True)
def show(text: str) -> str:
    """Show a text to the user."""
    if text == "fail":
        raise ToolError("no")
    return text


ADDING = [("add", {"a": 1, "b": 2})]


@pytest.mark.row("SP-34")
async def test_sp_34_an_error_of_a_direct_tool_is_told_to_the_model_and_not_to_the_user():
    model = ScriptedModel([[("show", {"text": "yes"}), ("show", {"text": "fail"})], "One of them failed."])

    reply = await Chat(model, [show]).send("go")

    assert (reply.finish, reply.text) == ("stop", "One of them failed.")
    assert [result.ok for result in model.requests[1].messages[-1].results] == [True, False]


@pytest.mark.row("SP-35")
async def test_sp_35_a_model_never_sees_the_context():
    @tool
    def who(ctx: ToolContext) -> str:
        """Say who asks."""
        return "known" if ctx["user"] == "ada-7781" else "unknown"

    model = ScriptedModel([[("who", {})], "done"])

    reply = await Chat(model, [who], context={"user": "ada-7781"}).send("Who am I?")

    assert reply.results[0].text == "known"
    assert "ada-7781" not in repr(model.requests)
    assert model.requests[0].tools[0].input_schema["properties"] == {}


@pytest.mark.row("SP-37")
async def test_sp_37_a_tool_that_asks_for_a_context_gets_an_empty_one_where_there_is_none():
    """C43: the seed's code ends the whole run instead."""

    @tool
    def who(ctx: ToolContext) -> str:
        """Say who asks."""
        return str(ctx.get("user", "nobody"))

    reply = await Chat(ScriptedModel([[("who", {})], "done"]), [who]).send("go")

    assert reply.results[0].text == "nobody"


@pytest.mark.row("SP-38")
async def test_sp_38_definitions_and_execution_can_be_had_without_a_chat():
    box = Toolbox(add)
    model = ScriptedModel([ADDING])

    reply = await Chat(model, box, execute=False).send("1 + 2?")
    results = await box.call_all(reply.calls)

    assert box.definitions("openai-chat")[0]["function"]["name"] == "add"
    assert [message.role for message in reply.extended(results)] == ["user", "assistant", "tool"]
    assert check_conversation(reply.extended(results)) == []


@pytest.mark.row("SP-39")
async def test_sp_39_a_name_is_offered_once_and_one_that_nobody_knows_is_an_error():
    chat = Chat(ScriptedModel(["x"]), [add])

    @tool(name="add")
    def other(a: int) -> int:
        """Add something else."""
        return a

    with pytest.raises(DefinitionError, match="Two tools are named 'add'"):
        await chat.send("go", add_tools=[other])
    with pytest.raises(ConfigError, match=r"tools=\['no_such'\]: no such tool. Available: add."):
        await chat.send("go", tools=["add", "no_such"])
    assert chat.model.requests == []


@pytest.mark.row("SP-40")
async def test_sp_40_calls_in_order_with_unknown_tools_and_empty_results_answered():
    order = []

    @tool
    async def note(n: int) -> None:
        """Note a number."""
        order.append(n)

    calls = [("note", {"n": 1}), ("Note_", {"n": 2}), ("note", {"n": 3})]
    model = ScriptedModel([calls, "done"])

    reply = await Chat(model, [note], strategy=Sequential()).send("go")

    assert order == [1, 3]
    assert [result.ok for result in reply.results] == [True, False, True]
    assert reply.results[1].error.code == "unknown_tool"
    assert reply.results[0].text == "Success"
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]


@pytest.mark.row("SP-44")
async def test_sp_44_where_an_advisor_stands_is_said_in_words_and_the_loop_may_be_another():
    seen = []

    class Counting(ToolLoop):
        async def on_start(self, turn):
            seen.append("start")
            return turn

    @before_loop
    async def outside(turn, following):
        seen.append("outside")
        return await following(turn)

    async def inside(turn, following):
        seen.append(turn.number)
        return await following(turn)

    model = ScriptedModel([ADDING, "3"])
    await Chat(model, [add], advisors=[inside, Counting(), outside]).send("go")

    assert seen == ["outside", "start", 1, 2]


@pytest.mark.row("SP-45")
async def test_sp_45_with_history_off_the_model_still_has_the_system_message_and_the_results():
    model = ScriptedModel([ADDING, [("add", {"a": 3, "b": 4})], "7"])
    memory = WindowMemory(1)

    chat = Chat(model, [add], system="Be brief.", memory=memory, history=False)
    await chat.send("1 + 2?", conversation="c")

    for request in model.requests:
        assert request.messages[0].role == "system"
        assert check_conversation(request.messages) == []
    assert model.requests[2].messages[-1].results[0].value == 7


@pytest.mark.row("SP-46", "P7")
@pytest.mark.parametrize("kind", ["window", "sqlite"])
async def test_sp_46_promise_7_a_memory_is_asked_in_every_turn_and_nothing_that_was_said_is_lost(kind, tmp_path):
    memory = WindowMemory(50) if kind == "window" else SqliteMemory(tmp_path / "chat.db", 50)
    model = ScriptedModel([ADDING, "3", ADDING, "3 again"])
    chat = Chat(model, [add], memory=memory, history=False)

    await chat.send("1 + 2?", conversation="c")
    await chat.send("Once more?", conversation="c")

    said = [[message.text for message in request.messages if message.role == "user"] for request in model.requests]
    assert said == [["1 + 2?"], ["1 + 2?"], ["1 + 2?", "Once more?"], ["1 + 2?", "Once more?"]]
    if isinstance(memory, SqliteMemory):
        memory.close()


@pytest.mark.row("SP-46")
def test_sp_46_history_off_without_a_memory_inside_is_an_error():
    with pytest.raises(ConfigError, match="Pass `memory=` as well"):
        Chat(ScriptedModel([]), [add], history=False)


@pytest.mark.row("SP-48")
async def test_sp_48_a_stream_tells_everything_in_order_and_memory_gets_whole_messages():
    memory = WindowMemory()
    chat = Chat(ScriptedModel([ADDING, "It is 3"]), [add], memory=memory)

    events = [event async for event in chat.stream("1 + 2?", conversation="c")]

    kinds = [type(event) for event in events if isinstance(event, CallStarted | CallFinished | StepFinished | Done)]
    assert kinds == [CallStarted, CallFinished, StepFinished, StepFinished, Done]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It is 3"
    assert [message.role for message in await memory.load("c")] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.row("SP-50")
async def test_sp_50_a_loop_of_ones_own_with_a_memory_keeps_each_message_once():
    memory, box = WindowMemory(), Toolbox(add)
    chat = Chat(ScriptedModel([ADDING, "3"]), box, execute=False, memory=memory)

    reply = await chat.send("1 + 2?", conversation="c")
    while reply.finish == "calls":
        results = await box.call_all(reply.calls)
        reply = await chat.send(Message("tool", results=results), conversation="c")

    said = await memory.load("c")
    assert reply.text == "3"
    assert [message.role for message in said] == ["user", "assistant", "tool", "assistant"]
    assert check_conversation(said) == []


@pytest.mark.row("P9")
async def test_promise_9_an_augmented_direct_tool_ends_a_run_too():
    @dataclass
    class Thought:
        reason: str

    box = Toolbox(show).augmented(Thought)
    model = ScriptedModel([[("show", {"text": "here", "reason": "asked"})]])

    reply = await Chat(model, box).send("go")

    assert (reply.finish, reply.text) == ("direct", "here")


def test_every_row_of_the_chat_has_a_test_by_its_number():
    folder = Path(__file__).parents[1]
    files = [*(folder / "seeds").glob("test_*.py"), *(folder / "chat").glob("test_*.py")]
    files.append(folder / "policy" / "test_augmented.py")
    text = "\n".join(file.read_text("utf-8") for file in files)

    rows = {int(number) for number in re.findall(r"def test_sp_(\d+)_", text)}
    promises = {int(n) for n in re.findall(r"promise_(\d+)_", text)}

    assert rows >= set(range(33, 51))
    assert promises >= set(range(7, 12))
