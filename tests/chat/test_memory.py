"""Conversations that are kept: windows, files, two processes, what was cut off."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from providers.body_checks import check_body
from toolmason import Message, ToolCall, ToolResult, tool
from toolmason.chat import CallOpened, CallStarted
from toolmason.chat.chat import Chat
from toolmason.chat.memory import SqliteMemory, WindowMemory, take_window
from toolmason.errors import ConfigError
from toolmason.models import ModelRequest
from toolmason.models.scripted import ScriptedModel
from toolmason.providers import check_conversation, codec, repair


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def turn(number: int) -> list[Message]:
    call = ToolCall(f"c{number}", "add", {"a": number, "b": 1})
    return [
        Message("user", f"question {number}"),
        Message("assistant", (), [call]),
        Message("tool", results=[ToolResult(call.id, "add", value=number, text=str(number))]),
        Message("assistant", f"answer {number}"),
    ]


@pytest.mark.parametrize("most", range(1, 13))
def test_a_window_never_parts_a_call_from_its_result(most):
    messages = [message for number in range(5) for message in turn(number)]

    shown = take_window(messages, most, None)

    assert shown
    assert shown[0].role == "user"
    assert len(shown) <= max(most, 4)
    assert check_conversation(shown) == []


def test_a_window_may_be_measured_in_tokens():
    messages = [message for number in range(50) for message in turn(number)]

    assert len(take_window(messages, 1000, 400)) < len(take_window(messages, 1000, 4000)) < 200


@pytest.fixture(params=["window", "sqlite"])
def memory(request, tmp_path):
    kept = WindowMemory() if request.param == "window" else SqliteMemory(tmp_path / "chat.db")
    yield kept
    if isinstance(kept, SqliteMemory):
        kept.close()


async def test_a_conversation_goes_on(memory):
    model = ScriptedModel([[("add", {"a": 1, "b": 2})], "3", "I said 3."])
    chat = Chat(model, [add], memory=memory)

    await chat.send("1 + 2?", conversation="a")
    await chat.send("What did you say?", conversation="a")

    assert [message.role for message in model.requests[-1].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert check_conversation(model.requests[-1].messages) == []


async def test_conversations_are_kept_apart(memory):
    model = ScriptedModel(["a", "b"])
    chat = Chat(model, [add], memory=memory)

    await chat.send("one", conversation="a")
    await chat.send("two", conversation="b")

    assert [message.text for message in model.requests[1].messages] == ["two"]


async def test_what_was_cut_off_is_repaired_when_it_is_loaded(memory):
    await memory.append("c", turn(1)[:2])

    shown = await memory.load("c")

    assert check_conversation(shown) == []
    assert shown[-1].results[0].ok is False


async def test_a_new_file_waits_for_another_process_that_writes_its_first_tables(tmp_path):
    """SQLite refuses the switch to a write-ahead log at once if another connection writes, whatever the time-out."""
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE first (x)")
        other.execute("BEGIN IMMEDIATE")
        memory = SqliteMemory(tmp_path / "c.db", 10)
        loading = asyncio.create_task(memory.load("c"))
        await asyncio.sleep(0.05)
        assert not loading.done()

        other.execute("COMMIT")

        assert list(await loading) == []
        memory.close()


async def test_a_file_survives_and_two_processes_share_it(tmp_path):
    path = tmp_path / "chat.db"
    code = (
        "import asyncio, sys\n"
        "from toolmason import Message\n"
        "from toolmason.chat.memory import SqliteMemory\n"
        "async def main():\n"
        "    memory = SqliteMemory(sys.argv[1])\n"
        "    for number in range(50):\n"
        "        await memory.append('c', [Message('user', f'{sys.argv[2]} {number}')])\n"
        "asyncio.run(main())\n"
    )
    processes = []
    for name in ("one", "two"):
        processes.append(subprocess.Popen([sys.executable, "-c", code, str(path), name]))  # noqa: ASYNC220, PERF401 - two
    assert [process.wait(60) for process in processes] == [0, 0]

    memory = SqliteMemory(path, 1000)
    found = [message.text for message in await memory.load("c")]
    memory.close()

    assert len(found) == 100
    assert [text for text in found if text.startswith("one")] == [f"one {number}" for number in range(50)]


@pytest.mark.parametrize("most", [1, 4, 6, 9, 100])
@pytest.mark.parametrize("tokens", [None, 300])
async def test_the_end_of_a_long_conversation_is_shown_as_if_all_of_it_were_read(tmp_path, most, tokens):
    said = [message for number in range(30) for message in turn(number)]
    said[-3:] = [Message("assistant", (), [ToolCall("open", "add", {"a": 1, "b": 1})])]
    inside, file = WindowMemory(most, tokens=tokens), SqliteMemory(tmp_path / "chat.db", most, tokens=tokens)

    for kept in (inside, file):
        for n in range(0, len(said), 7):
            await kept.append("c", said[n : n + 7])

    expected = take_window(repair(said), most, tokens)
    assert list(await inside.load("c")) == expected
    assert list(await file.load("c")) == expected
    file.close()


async def test_what_has_left_the_window_is_not_even_read(tmp_path):
    memory = SqliteMemory(tmp_path / "chat.db", 4)
    for number in range(5):
        await memory.append("c", turn(number))
    with closing(sqlite3.connect(tmp_path / "chat.db")) as db, db:
        db.execute("UPDATE messages SET message='not JSON' WHERE id <= 8")

    assert (await memory.load("c"))[0].text == "question 4"
    memory.close()


async def test_a_damaged_message_is_no_silent_loss(tmp_path):
    path = tmp_path / "chat.db"
    memory = SqliteMemory(path)
    await memory.append("c", [Message("user", "hello")])
    memory.close()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE messages SET message='{'")
    file.close()

    again = SqliteMemory(path)
    with pytest.raises(ConfigError, match="is damaged"):
        await again.load("c")
    again.close()


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ConfigError):
        WindowMemory(0)


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "gemini"])
async def test_a_conversation_goes_on_with_another_provider(memory, provider):
    """What one provider thought goes back to it alone; what was said goes to all."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret thought"}
    item = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": 1}'}
    question, asked, answered, told = turn(1)
    asked = Message("assistant", (), asked.calls, provider_state={"provider": "openai", "items": [thought, item]})
    await memory.append("c", [question, asked, answered, told])

    said = [*await memory.load("c"), Message("user", "and now?")]
    own, other = (json.dumps(codec(name).encode(ModelRequest(said), "m")) for name in ("openai", provider))

    assert "secret thought" in own
    assert "secret thought" not in other
    assert all(text in other for text in ("question 1", "answer 1", "and now?"))
    assert check_body(provider, json.loads(other)) == []


async def test_a_memory_can_forget(memory):
    await memory.append_once("c", "k", turn(1))
    memory.forget("c")

    await memory.append_once("c", "k", turn(2))

    assert (await memory.load("c"))[0].text == "question 2"


@pytest.mark.parametrize("words", [{"messages": 0}, {"tokens": 0}])
def test_a_window_of_nothing_over_a_file_is_refused(tmp_path, words):
    with pytest.raises(ConfigError, match="must be at least 1"):
        SqliteMemory(tmp_path / "chat.db", **words)


@pytest.mark.parametrize("text", ["{}", "[]", "null", "5", "not JSON", '{"role": "user", "content": [5]}'])
async def test_a_message_that_is_none_is_told(tmp_path, text):
    memory = SqliteMemory(tmp_path / "chat.db")
    await memory.append("c", turn(1))
    with closing(sqlite3.connect(tmp_path / "chat.db")) as db, db:
        db.execute("UPDATE messages SET message=? WHERE id=2", (text,))

    with pytest.raises(ConfigError, match=r"conversation 'c' in .* is damaged"):
        await memory.load("c")
    memory.close()


async def test_the_events_of_a_stream_have_the_ids_of_its_calls_after_a_restart(tmp_path):
    for _ in range(2):
        chat = Chat("offline", add, memory=SqliteMemory(tmp_path / "chat.db"))
        events = [event async for event in chat.stream("Add a=1 and b=2")]
        opened, started = (
            next(event for event in events if isinstance(event, kind)) for kind in (CallOpened, CallStarted)
        )

        assert opened.id == started.call.id


async def send_for(contexts, **options):
    chat = Chat(ScriptedModel(["Hi"] * len(contexts)), memory=WindowMemory())
    for context in contexts:
        await chat.send("Hello", context=context, **options)


WARNING = "several users share one conversation of a chat"


async def test_users_that_share_the_conversation_without_a_key_are_warned_of_once(caplog):
    await send_for([{"user": "ada"}, {"user": "bob"}, {"user": "eve"}])

    assert caplog.text.count(WARNING) == 1


@pytest.mark.parametrize(
    ("contexts", "options"),
    [
        ([None, None], {}),
        ([{"user": "ada"}] * 2, {}),
        ([{"user": "ada"}, None], {}),
        ([{"shop": "a"}, {"shop": "b"}], {}),
        ([{"user": "ada"}, {"user": "bob"}], {"conversation": "team"}),
    ],
    ids=["no context", "one user", "one context", "no user", "a key"],
)
async def test_one_user_or_a_conversation_with_a_key_needs_no_warning(caplog, contexts, options):
    await send_for(contexts, **options)

    assert WARNING not in caplog.text
