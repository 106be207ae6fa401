"""Servers that speak Chat Completions put more into it: thoughts and signatures, which they want to see again."""

import json

import pytest

from toolmason import Message, Text, ToolResult
from toolmason.models import Finished, ModelRequest, ThoughtDelta
from toolmason.providers import codec

SIGNED = {"google": {"thought_signature": "c2ln"}}
DETAILS = [
    {"type": "reasoning.text", "index": 0, "text": "Where is Oslo? North.", "signature": "c2ln"},
    {"type": "reasoning.encrypted", "index": 1, "data": "gAAA"},
]
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": SIGNED},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]
SAID = {"role": "assistant", "content": None, "reasoning_content": "Hm.", "reasoning_details": DETAILS}
BODY = {
    "model": "deepseek-v4-2026",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {**SAID, "tool_calls": CALLS}}],
}
PIECES = [
    {"reasoning_content": "H", "reasoning_details": [{**DETAILS[0], "text": "Where is", "signature": None}]},
    {"reasoning_content": "m.", "reasoning_details": [{**DETAILS[0], "text": " Oslo? North."}, DETAILS[1]]},
    {"tool_calls": [{"index": 0, **CALLS[0]}]},
    {"tool_calls": [{"index": 1, **CALLS[1]}]},
]


def streamed():
    reader = codec("openai-chat").reader(codec("openai-chat").no_names)
    chunks = [{"model": BODY["model"], "choices": [{"index": 0, "delta": piece}]} for piece in PIECES]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    events = [event for chunk in [*chunks, end] for event in reader.feed(chunk)]
    return [*events, Finished(reader.end())]


def sent(provider, model, message):
    stored = Message.from_dict(json.loads(json.dumps(message.to_dict())))
    results = Message("tool", results=[ToolResult(call.id, call.name, content=(Text("1"),)) for call in message.calls])
    return codec(provider).encode(ModelRequest([Message("user", "x"), stored, results]), model)


def test_thoughts_and_signatures_go_back_to_the_model_that_sent_them():
    reply = codec("openai-chat").decode(BODY)

    body = sent("openai-chat", "deepseek-v4", reply.message)

    assert body["messages"][1] == {**SAID, "tool_calls": CALLS}


@pytest.mark.parametrize(("provider", "model"), [("openai-chat", "gpt-5"), ("openai", "deepseek-v4"), ("gemini", "g")])
def test_no_other_model_or_provider_sees_them(provider, model):
    reply = codec("openai-chat").decode(BODY)

    body = sent(provider, model, reply.message)

    assert not any(secret in json.dumps(body) for secret in ("c2ln", "gAAA", "Hm."))


def test_a_stream_keeps_what_a_plain_answer_keeps():
    events = streamed()

    assert events[-1].reply.message.provider_state == codec("openai-chat").decode(BODY).message.provider_state
    assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["H", "m."]


def test_a_call_more_or_less_leaves_signatures_out():
    message = codec("openai-chat").decode(BODY).message
    fewer = Message("assistant", message.content, message.calls[:1], provider_state=message.provider_state)

    body = sent("openai-chat", "deepseek-v4", fewer)

    assert "extra_content" not in body["messages"][1]["tool_calls"][0]
    assert body["messages"][1]["reasoning_content"] == "Hm."


@pytest.mark.parametrize("items", [[], ["x"], [{"tool_calls": ["x", None]}], [{"model": 3}], "x"], ids=str)
def test_a_state_that_is_none_is_left_out(items):
    message = codec("openai-chat").decode(BODY).message
    odd = Message("assistant", (), message.calls, provider_state={"provider": "openai-chat", "items": items})

    body = sent("openai-chat", "m", odd)

    assert set(body["messages"][1]) == {"role", "content", "tool_calls"}
    assert [set(call) for call in body["messages"][1]["tool_calls"]] == [{"id", "type", "function"}] * 2


def test_a_plain_answer_keeps_nothing():
    reply = codec("openai-chat").decode({"choices": [{"message": {"role": "assistant", "content": "Hello"}}]})

    assert reply.message.provider_state is None
