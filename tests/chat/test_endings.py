"""A reply says why the run ended, in one vocabulary and in the provider's own word; an empty answer is never silent."""

import json

import pytest

from chat.simulated_replies import reply as body_of
from providers.samples import CHATS
from toolmason import Chat, Limits, Message, Toolbox, tool
from toolmason.chat import Done, Reply, SqliteRuntime, StepFinished
from toolmason.chat.frontends.ag_ui import AgUiEncoder
from toolmason.chat.frontends.frontend import KnownCalls
from toolmason.chat.reply import CONTINUE_TEXT
from toolmason.errors import LimitExceeded
from toolmason.models import ModelReply, ScriptedModel
from toolmason.providers import codec

WORDS = {
    "length": ("max_output_tokens", "length", "max_tokens", "MAX_TOKENS"),
    "stop": ("completed", "stop", "end_turn", "STOP"),
}
ODD = {
    "openai approval": ("openai", {"status": "completed", "output": [{"type": "mcp_approval_request", "id": "a"}]}),
    "openai computer": ("openai", {"status": "completed", "output": [{"type": "computer_call", "call_id": "a"}]}),
    "openai cancelled": ("openai", {"status": "cancelled", "output": []}),
    "openrouter": ("openai-chat", {"choices": [{"finish_reason": "error", "message": {"content": ""}}]}),
    "gemini call": ("gemini", {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}),
    "gemini prompt": ("gemini", {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
    "gemini filter": ("gemini", {"candidates": [{"finishReason": "SAFETY"}]}),
    "anthropic refusal": ("anthropic", {"content": [{"type": "text", "text": "No."}], "stop_reason": "refusal"}),
}
ENDINGS = {
    "openai approval": ("pending", "mcp_approval_request"),
    "openai computer": ("calls", "computer_call"),
    "openai cancelled": ("error", "cancelled"),
    "openrouter": ("error", "error"),
    "gemini call": ("error", "MALFORMED_FUNCTION_CALL"),
    "gemini prompt": ("filter", "PROHIBITED_CONTENT"),
    "gemini filter": ("filter", "SAFETY"),
    "anthropic refusal": ("refusal", "refusal"),
}


def ended(text, finish="length", reason="max_tokens"):
    return ModelReply(Message("assistant", text), finish=finish, finish_reason=reason)


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("finish", WORDS)
async def test_a_run_ends_as_its_model_ended_in_every_format(kind, finish):
    made = codec(kind).decode(body_of(kind, "Once upon", finish=finish))

    reply = await Chat(ScriptedModel([made])).send("Tell me a story.")

    word = WORDS[finish][CHATS.index(kind)]
    assert (reply.finish, reply.finish_reason, reply.text) == (finish, word, "Once upon")
    assert (word in reply.problem) == (finish == "length")


@pytest.mark.parametrize("case", ODD)
async def test_other_endings_are_told_apart(case):
    kind, body = ODD[case]

    reply = await Chat(ScriptedModel([codec(kind).decode(body)])).send("Do it.")

    assert (reply.finish, reply.finish_reason) == ENDINGS[case]


@pytest.mark.parametrize("text", ["", " \n"], ids=["empty", "blank"])
async def test_an_empty_answer_is_an_error(text, caplog):
    reply = await Chat(ScriptedModel([ended(text, "stop", "end_turn")])).send("Hello?")

    assert (reply.finish, reply.finish_reason) == ("error", "end_turn")
    assert "without an answer (the provider said 'end_turn')" in reply.problem
    assert "the model ended without an answer (end_turn)" in caplog.text


async def test_an_ending_survives_saving_streams_and_front_ends():
    chat = Chat(ScriptedModel([ended("Once")]))

    events = [event async for event in chat.stream("Tell me a story.")]

    done = Done.from_dict(json.loads(json.dumps(events[-1].to_dict()))).reply
    step = next(event for event in events if isinstance(event, StepFinished))
    assert (done.finish, done.finish_reason) == ("length", "max_tokens")
    assert StepFinished.from_dict(json.loads(json.dumps(step.to_dict()))).reply.finish_reason == "max_tokens"
    assert Reply.load(json.loads(json.dumps(done.save()))).problem == done.problem
    [shown] = [item for item in AgUiEncoder("t", "r", KnownCalls(), ()).finish(done) if item["type"] == "RUN_FINISHED"]
    assert shown["result"]["finish"] == "length"
    assert shown["result"]["finish_reason"] == "max_tokens"


async def test_the_journal_keeps_the_ending(tmp_path):
    chat = Chat(ScriptedModel([ended("Once")]), runtime=SqliteRuntime(tmp_path / "runs.db"))

    await chat.send("Tell me a story.", run="r")
    again = await Chat(ScriptedModel([]), runtime=SqliteRuntime(tmp_path / "runs.db")).send("Tell me a story.", run="r")

    assert (again.finish, again.finish_reason) == ("length", "max_tokens")


# --- the rest of a cut answer ----------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_cut_answer_is_continued(stream):
    model = ScriptedModel([ended("Once upon a ti"), ended("me there was"), " tea."])
    chat = Chat(model, on_length="continue")

    if stream:
        events = [event async for event in chat.stream("Tell me a story.")]
        reply = events[-1].reply
    else:
        reply = await chat.send("Tell me a story.")

    assert (reply.finish, reply.text) == ("stop", "Once upon a time there was tea.")
    assert [message.text for message in model.requests[1].messages][1:] == ["Once upon a ti", CONTINUE_TEXT]


async def test_a_cut_answer_is_not_continued_without_end():
    model = ScriptedModel([ended("a")] * 9)

    reply = await Chat(model, on_length="continue", limits=Limits(continuations=2)).send("Tell me a story.")

    assert (reply.finish, reply.limit, reply.text) == ("limit", "limit of 2 continuations", "aaa")
    assert len(model.requests) == 3
    with pytest.raises(LimitExceeded, match="limit of 0 continuations"):
        await Chat(
            ScriptedModel([ended("a")] * 9), on_length="continue", on_limit="raise", limits=Limits(continuations=0)
        ).send("x")


async def test_the_steps_of_a_run_bound_its_continuations():
    chat = Chat(ScriptedModel([ended("a")] * 9), on_length="continue", limits=Limits(steps=2))

    reply = await chat.send("Tell me a story.")

    assert (reply.finish, reply.limit) == ("limit", "limit of 2 steps")


async def test_a_journaled_run_continues_its_answer_once(tmp_path):
    first = Chat(ScriptedModel([ended("On"), "ce."]), on_length="continue", runtime=SqliteRuntime(tmp_path / "runs.db"))
    await first.send("Tell me a story.", run="r")

    again = Chat(ScriptedModel([]), on_length="continue", runtime=SqliteRuntime(tmp_path / "runs.db"))
    reply = await again.send("Tell me a story.", run="r")

    assert (reply.finish, reply.text) == ("stop", "Once.")


async def test_a_chat_as_a_tool_does_not_pass_a_cut_answer_off_as_one():
    inner = Chat(ScriptedModel([ended("Half an ans")])).as_tool("ask", "Ask.")
    outer = Chat(ScriptedModel([[("ask", {"prompt": "x"})], "Done."]), [inner])

    reply = await outer.send("Go.")

    assert not reply.results[0].ok
    assert "cut at the token limit" in reply.results[0].text
    assert "Half an ans" in reply.results[0].text


async def test_calls_and_direct_results_end_as_before():
    @tool(return_direct=True)
    def now() -> str:
        """Return the time."""
        return "12:00"

    direct = await Chat(ScriptedModel([[("now", {})]]), Toolbox(now)).send("What time is it?")
    calls = await Chat(ScriptedModel([[("now", {})]]), Toolbox(now), execute=False).send("What time is it?")

    assert (direct.finish, calls.finish) == ("direct", "calls")
    assert direct.problem == calls.problem == ""
