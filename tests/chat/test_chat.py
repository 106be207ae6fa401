"""The loop and its three ways of control: rows SP-33 to SP-50 and promises 7 to 11, by name."""

import asyncio
import threading

import pytest

from toolmason import Limits, Sequential, Toolbox, ToolCall, ToolContext, ToolError, WebSearch, tool
from toolmason.chat.chat import Chat
from toolmason.chat.events import CallFinished, CallProgress, CallStarted, Done, StepFinished
from toolmason.chat.loop import ToolLoop, before_loop
from toolmason.chat.memory import WindowMemory
from toolmason.errors import ConfigError, LimitExceeded
from toolmason.models.scripted import ScriptedModel
from toolmason.providers.conversation import check_conversation


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(return_direct=True)
def direct(text: str) -> str:
    """Answer for the model."""
    if text == "fail":
        raise ToolError("no")
    return text


def sum_of(*pairs):
    return [("add", {"a": a, "b": b}) for a, b in pairs]


@pytest.mark.row("SP-41", "SP-1", "MA-28")
async def test_sp_41_the_loop_runs_until_the_model_answers_without_calls():
    model = ScriptedModel([sum_of((1, 2), (3, 4)), sum_of((3, 7)), "10"])

    reply = await Chat(model, [add]).send("1 + 2 + 3 + 4?")

    assert (reply.text, reply.finish) == ("10", "stop")
    assert [result.value for result in reply.results] == [3, 7, 10]
    assert [message.role for message in reply.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert check_conversation(reply.messages) == []


async def test_what_the_model_sees_are_the_offered_tools_and_everything_said():
    model = ScriptedModel([sum_of((1, 2)), "3"])

    await Chat(model, [add], system="Be brief.").send("1 + 2?")

    first, second = model.requests
    assert [definition.name for definition in first.tools] == ["add"]
    assert [message.role for message in first.messages] == ["system", "user"]
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.row("P11", "SP-17", "SP-18")
async def test_promise_11_tools_replace_and_add_tools_append():
    @tool
    def other() -> str:
        """Do something else."""
        return "other"

    model = ScriptedModel(["a", "b", "c"])
    chat = Chat(model, [add])

    await chat.send("x", tools=[other])
    await chat.send("x", add_tools=[other])
    await chat.send("x")

    assert [[t.name for t in request.tools] for request in model.requests] == [["other"], ["add", "other"], ["add"]]


async def test_tools_can_be_named():
    model = ScriptedModel(["a"])

    await Chat(model, [add, direct]).send("x", tools=["add"])

    assert [t.name for t in model.requests[0].tools] == ["add"]


@pytest.mark.row("SP-36")
async def test_sp_36_context_merges_key_by_key_and_the_call_wins():
    seen = {}

    @tool
    def look(ctx: ToolContext) -> str:
        """Look."""
        seen.update(ctx)
        return "seen"

    model = ScriptedModel([[("look", {})], "done"])
    chat = Chat(model, [look], context={"tenant": "acme", "user": "a"})

    await chat.send("x", context={"user": "b"})

    assert seen == {"tenant": "acme", "user": "b"}


async def test_c22_only_what_was_offered_can_run_and_the_rest_is_answered():
    ran = []

    @tool
    def hidden() -> str:
        """Do not run."""
        ran.append(1)
        return "ran"

    model = ScriptedModel([[("hidden", {}), ("invented", {})], "sorry"])

    reply = await Chat(model, [add, hidden]).send("x", tools=["add"])

    assert [result.error.code for result in reply.results] == ["unknown_tool", "unknown_tool"]
    assert ran == []
    assert reply.text == "sorry"


@pytest.mark.row("SP-33")
async def test_sp_33_direct_results_end_the_run_where_all_are_direct():
    model = ScriptedModel([[("direct", {"text": "a"}), ("direct", {"text": "b"})]])

    reply = await Chat(model, [direct]).send("x")

    assert (reply.finish, reply.text) == ("direct", "a\nb")


@pytest.mark.row("SP-33")
async def test_sp_33_one_that_is_not_direct_sends_all_back_to_the_model():
    model = ScriptedModel([[("direct", {"text": "a"}), *sum_of((1, 2))], "done"])

    reply = await Chat(model, [direct, add]).send("x")

    assert (reply.finish, reply.text) == ("stop", "done")


@pytest.mark.row("P8")
async def test_promise_8_a_direct_tool_that_fails_goes_back_to_the_model():
    model = ScriptedModel([[("direct", {"text": "fail"})], "it failed"])

    reply = await Chat(model, [direct]).send("x")

    assert (reply.finish, reply.text) == ("stop", "it failed")


@pytest.mark.row("P10")
async def test_promise_10_bad_json_is_told_to_the_model():
    model = ScriptedModel([[ToolCall("c1", "add", '{"a": 1, "b": ')], sum_of((1, 2)), "3"])

    reply = await Chat(model, [add]).send("x")

    assert "truncated" in reply.results[0].text
    assert reply.text == "3"


@pytest.mark.row("SP-49")
async def test_sp_49_calls_can_be_left_to_the_caller():
    model = ScriptedModel([sum_of((1, 2)), "3"])
    box = Toolbox(add)
    chat = Chat(model, box, execute=False)

    first = await chat.send("1 + 2?")
    results = await box.call_all(first.calls)
    second = await chat.send(first.extended(results))

    assert first.finish == "calls"
    assert second.text == "3"
    assert check_conversation(second.messages) == []


async def test_one_step_at_a_time():
    model = ScriptedModel([sum_of((1, 2)), "3"])

    reply = await Chat(model, [add]).step("1 + 2?")

    assert (reply.finish, [call.name for call in reply.calls]) == ("calls", ["add"])


@pytest.mark.row("SP-42")
async def test_sp_42_a_predicate_decides_what_is_executed():
    model = ScriptedModel([sum_of((1, 2)), sum_of((100, 1))])

    def small(request, reply):
        return all(call.arguments["a"] < 100 for call in reply.calls)

    reply = await Chat(model, [add], execute=small).send("x")

    assert (reply.finish, len(reply.results)) == ("calls", 1)


@pytest.mark.row("SP-43")
async def test_sp_43_advisors_stand_around_the_loop_or_inside_it():
    seen = []

    async def inside(turn, following):
        seen.append(f"inside {turn.number}")
        return await following(turn)

    @before_loop
    async def outside(turn, following):
        seen.append("before")
        reply = await following(turn)
        seen.append("after")
        return reply

    model = ScriptedModel([sum_of((1, 2)), "3"])

    await Chat(model, [add], advisors=[inside, outside]).send("x")

    assert seen == ["before", "inside 1", "inside 2", "after"]


@pytest.mark.row("SP-47")
async def test_sp_47_the_loop_can_be_looked_into():
    seen = []

    class Watched(ToolLoop):
        async def on_start(self, turn):
            seen.append("start")
            return turn

        async def before_turn(self, turn):
            seen.append(f"before {turn.number}")
            return turn

        async def after_turn(self, turn, reply):
            seen.append(f"after {len(reply.calls)}")
            return reply

        async def on_finish(self, turn, reply):
            seen.append("finish")
            return reply

    model = ScriptedModel([sum_of((1, 2)), "3"])

    await Chat(model, [add], advisors=[Watched()]).send("x")

    assert seen == ["start", "before 1", "after 1", "before 2", "after 0", "finish"]


async def test_an_advisor_may_answer_by_itself():
    async def cached(turn, following):
        from toolmason._core.toolbox.exchange import ModelReply
        from toolmason._core.values.messages import Message

        return ModelReply(Message("assistant", "from the cache"))

    model = ScriptedModel([])

    reply = await Chat(model, [add], advisors=[cached]).send("x")

    assert reply.text == "from the cache"
    assert model.requests == []


@pytest.mark.row("P7")
async def test_promise_7_with_history_off_the_memory_keeps_what_the_user_said():
    model = ScriptedModel([sum_of((1, 2)), "3"])

    await Chat(model, [add], memory=WindowMemory(), history=False).send("1 + 2?", conversation="c")

    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
    assert model.requests[1].messages[0].text == "1 + 2?"


def test_history_off_needs_a_memory():
    with pytest.raises(ConfigError, match="Pass `memory=` as well"):
        Chat(ScriptedModel([]), [add], history=False)


async def test_a_forced_choice_holds_once():
    model = ScriptedModel([sum_of((1, 2)), "3"])

    await Chat(model, [add]).send("x", tool_choice="add")

    assert [request.tool_choice for request in model.requests][1] is None
    assert model.requests[0].tool_choice.names == ("add",)


@pytest.mark.parametrize(
    ("limits", "turns"), [(Limits(steps=3), 3), (Limits(calls=2, steps=50), 3)], ids=["turns", "calls"]
)
async def test_a_run_ends_at_its_limits_with_what_it_has(limits, turns):
    model = ScriptedModel([sum_of((number, 1)) for number in range(20)])

    reply = await Chat(model, [add], limits=limits).send("x")

    assert reply.finish == "limit"
    assert len(model.requests) == turns
    assert check_conversation(reply.messages) == []


async def test_a_limit_can_raise():
    model = ScriptedModel([sum_of((number, 1)) for number in range(5)])

    with pytest.raises(LimitExceeded):
        await Chat(model, [add], limits=Limits(steps=2), on_limit="raise").send("x")


async def test_time_for_the_whole_run_is_a_limit():
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel([[("hang", {})], "never"])

    reply = await Chat(model, [hang], limits=Limits(seconds=0.1)).send("x")

    assert reply.finish == "limit"
    assert not reply.results[0].ok


async def test_ids_that_come_twice_are_told_apart():
    model = ScriptedModel([[ToolCall("x", "add", {"a": 1, "b": 1}), ToolCall("x", "add", {"a": 2, "b": 2})], "done"])

    reply = await Chat(model, [add]).send("x")

    assert [result.call_id for result in reply.results] == ["x", "x_2"]
    assert check_conversation(reply.messages) == []


async def test_calls_can_run_in_order():
    order = []

    @tool
    async def note(n: int) -> int:
        """Note."""
        order.append(n)
        await asyncio.sleep(0)
        order.append(n)
        return n

    model = ScriptedModel([[("note", {"n": 1}), ("note", {"n": 2})], "done"])

    await Chat(model, [note], strategy=Sequential()).send("x")

    assert order == [1, 1, 2, 2]


async def test_everything_that_happens_is_told_as_it_happens():
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await ctx.progress(1, 2, "half")
        await asyncio.sleep(0.01)
        return "done"

    model = ScriptedModel([[("work", {})], "All done."])

    events = [event async for event in Chat(model, [work]).stream("x")]

    kinds = [type(event).__name__ for event in events]
    assert [kind for kind in kinds if kind in {"CallStarted", "CallProgress", "CallFinished", "Done"}] == [
        "CallStarted",
        "CallProgress",
        "CallFinished",
        "Done",
    ]
    assert "".join(event.text for event in events if type(event).__name__ == "TextDelta") == "All done."
    assert isinstance(events[-1], Done)
    assert events[-1].reply.text == "All done."
    assert sum(isinstance(event, StepFinished) for event in events) == 2
    assert any(isinstance(event, CallStarted | CallProgress | CallFinished) for event in events)


async def test_a_stream_that_is_left_stops_the_run():
    stopped = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    stream = Chat(ScriptedModel([[("hang", {})]]), [hang]).stream("x")
    async for event in stream:
        if isinstance(event, CallStarted):
            break
    await stream.aclose()

    await asyncio.wait_for(stopped.wait(), 5)


async def test_a_run_that_is_called_off_leaves_a_valid_conversation():
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    chat = Chat(ScriptedModel([[("hang", {}), *sum_of((1, 2))]]), [hang, add])
    sending = asyncio.create_task(chat.send("x", conversation="c"))
    await asyncio.sleep(0.05)
    chat.cancel("c")
    reply = await sending

    assert reply.finish == "cancelled"
    assert [result.ok for result in reply.messages[-1].results] == [False, True]
    assert check_conversation(reply.messages) == []


async def test_cancelling_the_task_ends_it():
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    sending = asyncio.create_task(Chat(ScriptedModel([[("hang", {})]]), [hang]).send("x"))
    await asyncio.sleep(0.05)
    sending.cancel()

    with pytest.raises(asyncio.CancelledError):
        await sending


def test_sync_code_can_chat():
    model = ScriptedModel([sum_of((1, 2)), "3"])

    assert Chat(model, [add]).send_sync("1 + 2?").text == "3"


@pytest.mark.parametrize("tools", [[], Toolbox(), None], ids=["list", "toolbox", "none"])
async def test_settings_of_a_chat_switch_on_what_the_provider_runs(tools):
    model = ScriptedModel(["a", "b"])
    chat = Chat(model, tools=tools, config={"WebSearchTool.type": "default"})

    await chat.send("x")
    await chat.send("x", add_tools=[WebSearch(city="Brno")])

    assert [item.city for item in model.requests[0].native] == [None]
    assert "Brno" in [item.city for item in model.requests[1].native]


async def test_a_toolbox_says_more_of_a_search_than_the_settings():
    model = ScriptedModel(["a"])

    await Chat(model, tools=Toolbox(WebSearch(city="Brno")), config={"WebSearchTool.type": "default"}).send("x")

    assert [item.city for item in model.requests[0].native] == ["Brno"]


@pytest.mark.parametrize("answer", [True, False])
async def test_an_async_execute_predicate_is_awaited(answer):
    """review/seeds.md, bug 4: the coroutine counted as True, and the tools ran."""

    async def execute(request, reply):
        await asyncio.sleep(0)
        return answer

    reply = await Chat(ScriptedModel([sum_of((1, 2)), "3"]), [add], execute=execute).send("1 + 2?")

    assert (reply.finish, len(reply.results)) == (("stop", 1) if answer else ("calls", 0))


async def test_an_execute_predicate_that_blocks_does_not_block_the_loop():
    released = threading.Event()

    def execute(request, reply):
        return released.wait(5)

    async def release():
        released.set()

    chat = Chat(ScriptedModel([sum_of((1, 2)), "3"]), [add], execute=execute)
    sending = asyncio.create_task(chat.send("1 + 2?"))
    await asyncio.sleep(0)
    await asyncio.create_task(release())

    assert (await sending).finish == "stop"


async def test_a_chat_starts_no_more_calls_at_once_than_its_toolbox_allows():
    """07-redesign.md, opening: all calls started, and their time-outs ran while they waited for a slot."""

    @tool
    async def count(n: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    box = Toolbox(count, max_concurrency=2)
    chat = Chat(ScriptedModel([[("count", {"n": n}) for n in range(6)], "Done."]), box)
    running, peak, finished = 0, 0, 0

    async for event in chat.stream("Go."):
        running += isinstance(event, CallStarted)
        running -= isinstance(event, CallFinished)
        finished += isinstance(event, CallFinished)
        peak = max(peak, running)

    assert (peak, finished) == (2, 6)
