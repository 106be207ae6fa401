"""What the page about chats promises, and what a caller may get wrong."""

import asyncio
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from toolmason import (
    Allow,
    Chat,
    Limits,
    McpServer,
    Message,
    Toolbox,
    ToolCall,
    WebSearch,
    WindowMemory,
    model,
    prompt,
    tool,
)
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.events import CallFinished, CallStarted, StepFinished
from toolmason.chat.loop import ModelTurn, ToolLoop, before_loop
from toolmason.chat.memory import SqliteMemory
from toolmason.errors import ConfigError, DefinitionError, LimitExceeded
from toolmason.models import ModelReply, ModelRequest
from toolmason.models.scripted import ScriptedModel
from toolmason.providers import check_conversation
from toolmason.testing import FakeMcpServer


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


ASKED = [("add", {"a": 1, "b": 2})]


# --- advisors -------------------------------------------------------------------------------------


async def guard(turn, following):
    await following(turn)
    return ModelReply(Message("assistant", "Blocked."))


async def instead(turn, following):
    return ModelReply(Message("assistant", "From the cache."))


class Last(ToolLoop):
    """Changes the last answer."""

    async def on_finish(self, turn, reply):
        return ModelReply(Message("assistant", f"{reply.text} Really."))


@pytest.mark.parametrize(
    ("advisor", "text"),
    [(before_loop(guard), "Blocked."), (before_loop(instead), "From the cache."), (Last(), "Three. Really.")],
    ids=["after the loop", "instead of it", "on_finish"],
)
async def test_what_stands_around_the_loop_has_the_last_word(advisor, text):
    memory = WindowMemory()

    reply = await Chat(ScriptedModel([ASKED, "Three."]), [add], advisors=[advisor], memory=memory).send("1 + 2?")

    assert (reply.text, reply.finish) == (text, "stop")
    assert [message.text for message in await memory.load("")][-1] == text


async def test_a_guard_also_answers_for_results_that_go_to_the_caller():
    @tool(return_direct=True)
    def secret() -> str:
        """Tell."""
        return "the secret"

    reply = await Chat(ScriptedModel([[("secret", {})]]), [secret], advisors=[before_loop(guard)]).send("Tell me.")

    assert (reply.text, reply.finish) == ("Blocked.", "stop")


async def test_a_tool_that_an_advisor_takes_out_of_the_request_cannot_run():
    async def hide(turn, following):
        return await following(ModelTurn(ModelRequest(turn.messages), turn.number, turn.conversation, turn.run))

    reply = await Chat(ScriptedModel([ASKED, "No."]), [add], advisors=[hide]).send("1 + 2?")

    assert [result.error.code for result in reply.results] == ["unknown_tool"]


def answer_with(*calls, after=0):
    """Return an advisor that asks the model in the first `after` turns, and gives the same calls in all others."""
    given = ModelReply(Message("assistant", "", [ToolCall(*call) for call in calls]), finish="calls")

    async def advisor(turn, following):
        return await following(turn) if turn.number <= after else given

    return advisor


@pytest.mark.parametrize("after", [0, 1])
async def test_turns_that_an_advisor_answers_count(after):
    advisor = answer_with(("1", "add", {"a": 1, "b": 2}), after=after)

    reply = await Chat(ScriptedModel([ASKED]), [add], advisors=[advisor], limits=Limits(steps=5)).send("x")

    assert (reply.finish, reply.limit, reply.turns) == ("limit", "limit of 5 steps", 5)
    assert len(reply.steps) == len(reply.results) == 5
    assert check_conversation(reply.messages) == []


async def test_a_run_that_only_an_advisor_answers_can_be_cancelled():
    advisor = answer_with(("1", "add", {"a": 1, "b": 2}))
    chat = Chat(ScriptedModel([]), [add], advisors=[advisor], limits=Limits(steps=None, calls=None, per_tool=None))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(chat.send("x"), 0.05)


@pytest.mark.parametrize("execute", [True, False])
async def test_the_calls_of_an_advisor_get_ids_and_names_of_their_own(execute):
    async def add_calls(turn, following):
        reply = await following(turn)
        if not reply.calls:
            return reply
        calls = [*reply.calls, ToolCall(reply.calls[0].id, "add", {"a": 5, "b": 5}), ToolCall("", "", {})]
        return replace(reply, message=replace(reply.message, calls=tuple(calls)))

    model = ScriptedModel([[ToolCall("1", "add", {"a": 1, "b": 2})], "Three."])
    reply = await Chat(model, [add], advisors=[add_calls], execute=execute).send("x")
    calls = next(message.calls for message in reply.messages if message.calls)

    assert [(call.id, call.name) for call in calls] == [("1", "add"), ("1_2", "add"), ("call", "unknown")]
    assert [result.ok for result in reply.results] == ([True, True, False] if execute else [])


async def test_an_advisor_that_answers_first_can_call_only_what_is_offered():
    @tool(enabled=lambda ctx: False)
    def hidden() -> str:
        """Hide."""
        return "found"

    advisor = answer_with(("1", "add", {"a": 1, "b": 2}), ("2", "hidden", {}))

    reply = await Chat(ScriptedModel([]), [add, hidden], advisors=[advisor], limits=Limits(steps=1)).send("x")

    assert [(result.ok, result.error and result.error.code) for result in reply.results] == [
        (True, None),
        (False, "unknown_tool"),
    ]


async def test_what_was_left_out_of_a_result_can_be_read_in_the_next_turn():
    @tool(max_result_bytes=300)
    def log() -> str:
        """Read the log."""
        return "line\n" * 1000

    def read(request):
        handle = request.messages[-1].results[0].text.split("handle='")[1].split("'")[0]
        return [("read_result", {"handle": handle, "offset": 0, "length": 20})]

    scripted = ScriptedModel([[("log", {})], read, "Lines."])

    reply = await Chat(scripted, [log]).send("What is in the log?")

    assert [[each.name for each in request.tools] for request in scripted.requests][1:] == [["log", "read_result"]] * 2
    assert reply.results[1].text.startswith("line\nline\n")


# --- calls that are yours -------------------------------------------------------------------------


@pytest.fixture(params=["window", "file"])
def memory(request, tmp_path):
    made = WindowMemory() if request.param == "window" else SqliteMemory(tmp_path / "chat.db")
    yield made
    if isinstance(made, SqliteMemory):
        made.close()


async def test_results_of_your_own_go_on_with_a_conversation_that_is_remembered(memory):
    scripted = ScriptedModel(["Hello.", ASKED, "Three.", "Bye."])
    chat = Chat(scripted, [add], memory=memory, execute=False)

    await chat.send("Hi", conversation="c")
    asked = await chat.send("1 + 2?", conversation="c")
    results = await chat.box.call_all(asked.calls)
    done = await chat.send(asked.extended(results), conversation="c")
    await chat.send([*done.messages, Message("user", "Bye")], conversation="c")

    roles = ["user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert [message.role for message in scripted.requests[2].messages] == roles[:5]
    assert scripted.requests[2].messages[-1].results[0].text == "3"
    assert [message.role for message in scripted.requests[3].messages] == roles
    assert [message.role for message in await memory.load("c")] == [*roles, "assistant"]


async def test_a_question_that_is_asked_twice_is_two_questions(memory):
    scripted = ScriptedModel(["One.", "Two."])
    chat = Chat(scripted, memory=memory)

    await chat.send("Hi", conversation="c")
    await chat.send([Message("user", "Hi")], conversation="c")

    assert [message.text for message in scripted.requests[1].messages] == ["Hi", "One.", "Hi"]


async def test_a_stream_of_one_turn_ends_its_step():
    chat = Chat(ScriptedModel([ASKED]), [add], execute=False)

    events = [event async for event in chat.stream("1 + 2?")]

    assert [event.reply.calls[0].name for event in events if isinstance(event, StepFinished)] == ["add"]


async def test_a_prompt_of_the_toolbox_opens_a_conversation():
    @prompt
    def greeting(name: str) -> str:
        """Greet."""
        return f"Greet {name}."

    scripted = ScriptedModel(["Hello."])
    box = Toolbox(greeting)

    await Chat(scripted, box).send(box.prompt("greeting", {"name": "Ada"}))

    assert scripted.requests[0].messages[0].text == "Greet Ada."


# --- tools of one request -------------------------------------------------------------------------


async def test_names_and_tools_may_be_mixed():
    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    scripted = ScriptedModel(["Hello."])

    await Chat(scripted, [add]).send("Hi", tools=["add", now])

    assert [each.name for each in scripted.requests[0].tools] == ["add", "now"]


def children():
    listed = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
    return listed.read_text().split()


@pytest.mark.parametrize("word", ["tools", "add_tools"])
async def test_a_server_that_is_given_for_one_request_ends_with_it(word):
    source = FakeMcpServer({"add": "3"})
    chat = Chat(ScriptedModel([ASKED, "Three."]), ())
    before = children()

    reply = await chat.send("1 + 2?", **{word: [source]})

    assert reply.results[0].ok
    assert set(children()) <= set(before)


def test_a_tool_that_the_provider_cannot_run_is_refused_when_the_chat_is_built():
    with pytest.raises(DefinitionError):
        Chat(model("openai-chat:m", base_url="http://127.0.0.1:1"), Toolbox(WebSearch()))


# --- approval, limits, endings --------------------------------------------------------------------


@tool(approval=True)
def wipe(x: int) -> str:
    """Wipe."""
    WIPED.append(x)
    return "wiped"


WIPED: list[int] = []


async def test_limits_go_on_where_a_run_goes_on():
    WIPED.clear()
    box = Toolbox(wipe)
    chat = Chat(ScriptedModel([[("wipe", {"x": number})] for number in range(9)]), box, limits=Limits(calls=2))

    reply = await chat.send("Wipe.")
    for _ in range(8):
        if reply.finish == "pending":
            saved = json.loads(json.dumps(reply.save()))
            reply = await chat.resume(saved, [box.approvals.decide(reply.pending[0], Allow())])

    assert (reply.finish, WIPED) == ("limit", [0, 1])
    assert [call.arguments["x"] for call in reply.calls] == [0, 1, 2]
    assert len(reply.results) == 3


async def test_a_decision_is_good_once_whichever_toolbox_it_comes_to():
    WIPED.clear()
    key = "k" * 32
    held = await Chat(ScriptedModel([[("wipe", {"x": 1})]]), Toolbox(wipe, approval_key=key)).send("Wipe.")
    saved, decision = held.save(), Toolbox(wipe, approval_key=key).approvals.decide(held.pending[0], Allow())

    for _ in range(3):
        await Chat(ScriptedModel(["Done."]), Toolbox(wipe, approval_key=key)).resume(saved, [decision])

    assert WIPED == [1]


async def test_a_decision_under_another_key_is_told(caplog):
    held = await Chat(ScriptedModel([[("wipe", {"x": 1})]]), Toolbox(wipe, approval_key="k" * 32)).send("Wipe.")
    other = Toolbox(wipe, approval_key="o" * 32)
    decision = Toolbox(wipe, approval_key="k" * 32).approvals.decide(held.pending[0], Allow())

    again = await Chat(ScriptedModel([]), other).resume(held.save(), [decision])

    assert again.finish == "pending"
    assert "approval_key" in caplog.text


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(steps=2), "limit of 2 steps"),
        (Limits(calls=2), "limit of 2 calls"),
        (Limits(seconds=0.05), "limit of 0.05 seconds"),
    ],
)
async def test_a_limit_that_raises_is_named(limits, told):
    @tool(repeats="allow")
    async def nap(n: int) -> int:
        """Sleep a little."""
        await asyncio.sleep(0.02)
        return n

    script = [[("nap", {"n": number})] for number in range(30)]

    with pytest.raises(LimitExceeded, match=told):
        await Chat(ScriptedModel(script), [nap], limits=limits, on_limit="raise").send("Sleep.")


async def test_what_is_called_off_while_it_is_prepared_is_called_off():
    loading = asyncio.Event()

    class Slow(WindowMemory):
        async def load(self, conversation):
            loading.set()
            await asyncio.Event().wait()

    chat = Chat(ScriptedModel([]), memory=Slow())
    sending = asyncio.ensure_future(chat.send("Hi", conversation="c"))
    await loading.wait()

    chat.cancel("c")

    assert (await sending).finish == "cancelled"


async def test_a_cancellation_that_comes_after_the_answer_does_not_cancel_what_the_caller_does_next():
    @tool
    async def stop() -> str:
        """Cancel the conversation."""
        chat.cancel("c")
        return "ok"

    chat = Chat(ScriptedModel([[("stop", {})], "Done."]), [stop])

    reply = await chat.send("Stop.", conversation="c")
    for _ in range(3):
        await asyncio.sleep(0)

    assert reply.text == "Done."
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_a_cancellation_at_any_moment_ends_the_run_and_nothing_else(times, steps):
    @tool
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(0.001)
        return "ok"

    box = Toolbox(McpServer.of("served", Toolbox(nap)), approve="all")
    chat = Chat(ScriptedModel([[("nap", {})], "Done."]), box)

    async def work():
        reply = await chat.send("Sleep.")
        while reply.pending:
            reply = await chat.resume(reply, [box.approvals.decide(each, Allow()) for each in reply.pending])
        await asyncio.sleep(0.001)
        return reply.finish, asyncio.current_task().cancelling()

    async with box:
        working = asyncio.ensure_future(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        for _ in range(times):
            chat.cancel()
        finish, cancelling = await working

    assert finish in ("cancelled", "stop")
    assert cancelling == 0


async def test_a_run_that_its_caller_cancels_as_well_ends_the_caller():
    begun = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    chat = Chat(ScriptedModel([[("hang", {})]]), [hang])
    sending = asyncio.ensure_future(chat.send("Hang."))
    await begun.wait()
    chat.cancel()
    asyncio.get_running_loop().call_soon(sending.cancel)

    with pytest.raises(asyncio.CancelledError):
        await sending


@pytest.mark.parametrize("on_limit", ["stop", "raise"])
async def test_the_time_of_a_run_begins_before_the_memory_has_answered(on_limit):
    class Silent(WindowMemory):
        async def load(self, conversation):
            await asyncio.Event().wait()

    chat = Chat(ScriptedModel([]), memory=Silent(), limits=Limits(seconds=0.05), on_limit=on_limit)

    if on_limit == "raise":
        with pytest.raises(LimitExceeded, match=r"limit of 0\.05 seconds"):
            await chat.send("Hi")
    else:
        assert (await chat.send("Hi")).finish == "limit"


async def test_a_stream_that_is_called_off_tells_the_end_of_every_call_that_began():
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    chat, events = Chat(ScriptedModel([[("hang", {}), ("hang", {})]]), [hang]), []
    async for event in chat.stream("Hang.", conversation="c"):
        events.append(event)
        if sum(isinstance(each, CallStarted) for each in events) == 2:
            chat.cancel("c")

    finished = [event.result.error.code for event in events if isinstance(event, CallFinished)]
    assert finished == ["cancelled", "cancelled"]


@pytest.mark.parametrize(("way", "state"), [("cancel", "cancelled"), ("seconds", "limit"), ("task", "interrupted")])
async def test_a_journal_knows_how_a_run_ended(tmp_path, way, state):
    begun = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    runtime = SqliteRuntime(tmp_path / "runs.db")
    limits = Limits(seconds=0.2) if way == "seconds" else Limits()
    chat = Chat(ScriptedModel([[("hang", {})]]), [hang], runtime=runtime, limits=limits)
    sending = asyncio.ensure_future(chat.send("Hang.", run="r", conversation="c"))
    await begun.wait()
    if way == "cancel":
        chat.cancel("c")
    elif way == "task":
        sending.cancel()
    await asyncio.wait((sending,))

    assert runtime.run("r").state == state
    runtime.close()


# --- what a caller may get wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"memory": "chat.db"}, r"memory='chat.db' is a path.*SqliteMemory\('chat.db'\)"),
        ({"runtime": "runs.db"}, r"runtime='runs.db' is a path.*SqliteRuntime\('runs.db'\)"),
    ],
)
def test_a_path_in_place_of_what_keeps_it_is_refused(words, told):
    with pytest.raises(ConfigError, match=told):
        Chat(ScriptedModel([]), (), **words)


@pytest.mark.parametrize("said", [None, 5, [{"role": "user", "content": "Hi"}], [5]])
async def test_what_cannot_be_said_is_refused(said):
    with pytest.raises(ConfigError, match=r"send\(\) takes a str, a Message, a list of Message or parts"):
        await Chat(ScriptedModel([]), ()).send(said)


def test_a_script_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="script"):
        ScriptedModel("hello")
    with pytest.raises(ConfigError, match="script"):
        ScriptedModel([("weather", {"city": "Oslo"}), "x"])


def test_the_local_model_takes_no_words_it_does_not_know():
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        model("offline", bogus=1)
