"""A provider that stops in the midst of its own work is asked again; one that waits for a person is not."""

import pytest

from providers.judges import objections, typed
from toolmason import Limits, Message, RemoteMcp, Text
from toolmason.chat.chat import Chat
from toolmason.chat.events import Done, StepFinished
from toolmason.models import ModelReply, ModelRequest
from toolmason.models.scripted import ScriptedModel
from toolmason.providers import codec

SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
PAUSED = {"content": [{"type": "text", "text": "I look. "}, SEARCH, FOUND], "stop_reason": "pause_turn"}
ASKED = {"type": "mcp_approval_request", "id": "a1", "name": "f", "arguments": "{}", "server_label": "crm"}


def paused() -> ModelReply:
    return codec("anthropic").decode(PAUSED)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_turn_that_was_paused_goes_on(stream):
    model = ScriptedModel([paused(), "Tea is a plant."])
    chat = Chat(model)

    if stream:
        events = [event async for event in chat.stream("What is tea?")]
        reply = next(event.reply for event in events if isinstance(event, Done))
        assert len([event for event in events if isinstance(event, StepFinished)]) == 2
    else:
        reply = await chat.send("What is tea?")

    body = codec("anthropic").encode(ModelRequest(model.requests[1].messages), "claude")
    assert reply.text == "I look. Tea is a plant."
    assert reply.finish == "stop"
    assert body["messages"][1]["content"] == PAUSED["content"]
    assert objections("anthropic", body) == []


async def test_a_pause_does_not_outlast_the_limit_of_turns():
    reply = await Chat(ScriptedModel([paused(), paused(), "late"]), limits=Limits(steps=2)).send("What is tea?")

    assert reply.finish == "limit"
    assert [message.role for message in reply.messages] == ["user", "assistant", "assistant"]


async def test_who_drives_the_turns_sees_the_pause():
    reply = await Chat(ScriptedModel([paused(), "late"]), execute=False).send("What is tea?")

    assert reply.text == "I look. "


async def test_a_provider_that_asks_for_approval_waits_for_a_person():
    asking = codec("openai").decode({"status": "completed", "output": [ASKED]})
    model = ScriptedModel([asking, "Done."])

    reply = await Chat(model).send("Do it.")

    assert len(model.requests) == 1
    assert reply.messages[-1].provider_state["items"] == [ASKED]


@pytest.mark.parametrize("words", ["", "Go on."])
def test_the_answer_of_the_person_goes_to_that_provider_alone(words):
    asked = codec("openai").decode({"status": "completed", "output": [ASKED]}).message
    yes = {"type": "mcp_approval_response", "approval_request_id": "a1", "approve": True}
    answer = Message("user", [Text(words)] if words else (), provider_state={"provider": "openai", "items": [yes]})
    request = ModelRequest([Message("user", "Do it."), asked, answer], RemoteMcp("crm", "https://crm.example/mcp"))

    body = codec("openai").encode(request, "gpt-5")
    other = codec("gemini").encode(request, "gemini-3")

    said = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}] if words else []
    assert body["input"][1:] == [ASKED, *said, yes]
    assert typed("openai", body) == []  # OpenAI's document wants a `request_id`, which it does not describe
    assert "a1" not in str(other)
