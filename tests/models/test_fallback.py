"""The next model answers if one is not available: never in silence, and never after the first word."""

import pytest

from chat.simulated_replies import BASES, reply
from models.server import HANG_UP, answer, provider
from toolmason import Chat, Message, ToolCall, ToolResult, WebSearch, model
from toolmason.errors import ConfigError, DefinitionError, ModelError
from toolmason.models import FallbackModel, Finished, ModelReply, ModelRequest, ScriptedModel, TextDelta
from toolmason.providers import NativeTool

OVERLOADED = ModelError("first", "overloaded", status=529, retryable=True)
WRONG = ModelError("first", "wrong key", status=401)


class Failing:
    """A model that fails, after some words of a stream."""

    def __init__(self, error=OVERLOADED, words=(), name="first"):
        self.name, self.error, self.words, self.asked = name, error, words, 0

    async def respond(self, request):
        self.asked += 1
        raise self.error

    async def stream(self, request):
        self.asked += 1
        for word in self.words:
            yield TextDelta(word)
        raise self.error


def second(*turns):
    return ScriptedModel(turns or ["Hello."], name="second")


async def collect(made, seen):
    async for event in made.stream(ModelRequest("Hi")):
        seen.append(event)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_the_next_model_answers_if_one_is_not_available(stream, caplog):
    made = FallbackModel([Failing(), second()])

    if stream:
        got = [event async for event in made.stream(ModelRequest("Hi"))][-1].reply
    else:
        got = await made.respond(ModelRequest("Hi"))

    assert (got.text, got.model) == ("Hello.", "second")
    assert got.notes == ("first was not available: first answered 529: overloaded",)
    assert "fallback: first was not available" in caplog.text


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_an_error_that_is_not_an_outage_is_raised(stream):
    other = second()
    made = FallbackModel([Failing(WRONG), other])

    with pytest.raises(ModelError, match="wrong key"):
        await (collect(made, []) if stream else made.respond(ModelRequest("Hi")))

    assert other.requests == []


async def test_no_other_model_is_asked_after_the_first_word():
    other, seen = second(), []

    with pytest.raises(ModelError, match="overloaded"):
        await collect(FallbackModel([Failing(words=["He"]), other]), seen)

    assert (seen, other.requests) == ([TextDelta("He")], [])


async def test_the_error_of_the_last_model_is_raised():
    made = FallbackModel([Failing(), Failing(ModelError("b", "down", status=503, retryable=True), name="b")])

    with pytest.raises(ModelError, match="b answered 503: down"):
        await made.respond(ModelRequest("Hi"))


async def test_a_model_that_keeps_failing_is_skipped_for_a_while():
    now = [0.0]
    first = Failing()
    made = FallbackModel([first, second(*["Hi."] * 9)], failures=2, seconds=10, clock=lambda: now[0])

    for _ in range(4):
        await made.respond(ModelRequest("Hi"))
    skipped = first.asked
    now[0] = 11.0
    await made.respond(ModelRequest("Hi"))
    await made.respond(ModelRequest("Hi"))

    assert (skipped, first.asked) == (2, 3)


async def test_all_models_are_asked_if_all_are_skipped():
    first, other = Failing(), Failing(name="b")
    made = FallbackModel([first, other], failures=1)

    for _ in range(2):
        with pytest.raises(ModelError):
            await made.respond(ModelRequest("Hi"))

    assert (first.asked, other.asked) == (2, 2)


async def test_a_success_closes_the_circuit():
    class Shaky(Failing):
        async def respond(self, request):
            self.asked += 1
            if self.asked % 2:
                raise self.error
            return ModelReply(Message("assistant", "Yes."))

    shaky = Shaky()
    made = FallbackModel([shaky, second(*["No."] * 9)], failures=2)

    texts = [(await made.respond(ModelRequest("Hi"))).text for _ in range(6)]

    assert texts == ["No.", "Yes."] * 3


async def test_the_state_of_one_model_is_not_sent_to_another():
    state = {"provider": "anthropic", "items": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]}
    call = ToolCall("c", "now", {})
    thought = ModelReply(Message("assistant", (), [call], provider_state=state), finish="calls")

    class Tired(ScriptedModel):
        async def respond(self, request):
            if self.requests:
                raise OVERLOADED
            return await super().respond(request)

    other = second("Noon.")
    made = FallbackModel([Tired([thought], name="first"), other])
    first = await made.respond(ModelRequest("What time is it?"))
    results = Message("tool", results=[ToolResult("c", "now", text="12:00")])

    last = await made.respond(ModelRequest([Message("user", "What time is it?"), first.message, results]))

    assert first.message.provider_state["model"] == "first"
    assert all(message.provider_state is None for message in other.requests[0].messages)
    assert "second does not get the reasoning state of 1 messages of another model" in last.notes


async def test_a_chat_says_which_model_answered():
    reply = await Chat([Failing(), second()]).send("Hi")

    assert (reply.text, reply.model, len(reply.notes)) == ("Hello.", "second", 1)
    assert type(reply).load(reply.save()).notes == reply.notes


async def test_real_connections_fall_over_at_once():
    with provider(HANG_UP) as down, provider(answer(reply("openai", "Hello."))) as up:
        first = model("anthropic:claude-opus-5", base_url=down.url, api_key="k", max_retries=0)
        last = model("openai:gpt-5", base_url=up.url + BASES["openai"], api_key="k")
        async with model([first, last]) as made:
            got = await made.respond(ModelRequest("Hi"))

    assert (got.text, got.model, len(down.requests)) == ("Hello.", "openai:gpt-5", 1)


def test_names_make_models_that_do_not_wait(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    made = model(["anthropic:claude-opus-5", "openai:gpt-5"], options={"max_tokens": 100})

    assert made.name == "anthropic:claude-opus-5 or openai:gpt-5"
    assert made.codec is None


def test_what_only_one_model_has_is_refused(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    names = ["openai:gpt-5", "anthropic:claude-opus-5"]

    with pytest.raises(ConfigError, match="anthropic does not support the option 'temperature'"):
        Chat(names, options={"temperature": 0})
    with pytest.raises(DefinitionError, match="the application would have to"):
        Chat(names, [NativeTool("anthropic", {"type": "bash_20250124", "name": "bash"})])
    with pytest.raises(ConfigError, match=r"api_key=….*fits only one of the models"):
        model(names, api_key="k")
    with pytest.raises(ConfigError, match="name at least two models"):
        model(names[:1])
    assert Chat(names, [WebSearch()]).model.name == "openai:gpt-5 or anthropic:claude-opus-5"


async def test_a_request_may_have_a_model_of_its_own():
    chat = Chat(second("a"))

    got = await chat.send("Hi", model=ScriptedModel(["b"], name="third"))

    assert (got.text, got.model) == ("b", "third")
    assert (await chat.send("Hi")).model == "second"
    with pytest.raises(ConfigError, match="this is not a model"):
        await chat.send("Hi", model=5)


async def test_the_last_event_of_a_stream_is_the_end():
    events = [event async for event in FallbackModel([Failing(), second()]).stream(ModelRequest("Hi"))]

    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
