"""Answers of every provider are read alike; what only that provider understands goes back to it as it came."""

import json

import pytest

from providers.body_checks import check_body
from providers.judges import objections
from providers.recordings import anthropic, gemini, responses
from providers.samples import CHATS, box
from toolmason import Message, ToolCall, ToolResult
from toolmason.errors import ModelError
from toolmason.models import ModelRequest
from toolmason.providers import codec


def chat_body(finish="stop", **message):
    return {"choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}]}


def blocks(*content, stop="end_turn"):
    return {"content": list(content), "stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 2}}


def parts(*content, finish="STOP"):
    return {"candidates": [{"content": {"role": "model", "parts": list(content)}, "finishReason": finish}]}


def output(*items, **more):
    return {"status": "completed", "output": list(items), **more}


def said(text):
    return {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [text]}


@pytest.mark.parametrize(
    ("provider", "body", "finish"),
    [
        ("openai", output(said({"type": "output_text", "text": "x", "annotations": []})), "stop"),
        ("openai", output(said({"type": "refusal", "refusal": "no"})), "refusal"),
        ("openai", output(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        ("openai", output(status="incomplete", incomplete_details={"reason": "content_filter"}), "filter"),
        ("openai", output({"type": "mcp_approval_request", "id": "a"}), "pause"),
        ("openai-chat", chat_body(content="x"), "stop"),
        ("openai-chat", chat_body("length", content="x"), "length"),
        ("openai-chat", chat_body("content_filter", content=""), "filter"),
        ("openai-chat", chat_body(content=None, refusal="no"), "refusal"),
        ("openai-chat", chat_body("odd", content="x"), "error"),
        ("openai-chat", chat_body(tool_calls=[{"id": "c", "function": {"name": "t", "arguments": "{}"}}]), "calls"),
        ("anthropic", blocks({"type": "text", "text": "x"}), "stop"),
        ("anthropic", blocks(stop="max_tokens"), "length"),
        ("anthropic", blocks(stop="refusal"), "refusal"),
        ("anthropic", blocks(stop="pause_turn"), "pause"),
        ("anthropic", blocks({"type": "tool_use", "id": "c", "name": "t", "input": {}}, stop="tool_use"), "calls"),
        ("anthropic", blocks({"type": "tool_use", "id": "c", "name": "t", "input": {}}), "calls"),
        ("gemini", parts({"text": "x"}), "stop"),
        ("gemini", parts({"functionCall": {"name": "t"}}), "calls"),
        ("gemini", parts({"functionCall": {"name": "t"}}, finish="FUNCTION_CALL"), "calls"),
        ("gemini", parts(finish="SAFETY"), "filter"),
        ("gemini", parts(finish="MALFORMED_FUNCTION_CALL"), "error"),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, "filter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_for_the_end_is_the_same_word_for_every_provider(provider, body, finish):
    assert codec(provider).decode(body).finish == finish


@pytest.mark.parametrize("provider", CHATS)
@pytest.mark.parametrize(
    "body",
    [None, [], {}, "x", 3, {"choices": []}, {"output": 3}, {"content": [3]}, {"candidates": [None]}, {"choices": [{}]}],
    ids=str,
)
def test_an_answer_that_cannot_be_read_is_an_error_with_the_provider_in_it(provider, body):
    with pytest.raises(ModelError) as caught:
        codec(provider).decode(body)

    assert caught.value.provider == provider


def whole(provider):
    """An answer with thoughts, a text and two calls."""
    if provider == "openai":
        return responses()[-1]["response"]
    if provider == "anthropic":
        made = codec(provider)
        reader = made.reader(made.no_names)
        for event in anthropic():
            list(reader.feed(event))
        return reader.end().raw
    return parts(
        *(part for event in gemini() for part in event["candidates"][0]["content"]["parts"] if part != {"text": ""})
    )


def turn(provider, message, **changes):
    results = [ToolResult(call.id, call.name, text="ok") for call in message.calls]
    asked = Message(message.role, message.content, changes.get("calls", message.calls), (), message.provider_state)
    history = [Message("user", "x"), asked, Message("tool", results=results)]
    return codec(provider).encode(ModelRequest(history, box()), "gemini-3")


def items(provider, body):
    if provider == "openai":
        return [i for i in body["input"] if i.get("role") != "user" and i["type"] != "function_call_output"]
    if provider == "anthropic":
        return body["messages"][1]["content"]
    return body["contents"][1]["parts"]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_what_came_from_a_provider_goes_back_to_it_as_it_came(provider):
    raw = whole(provider)
    reply = codec(provider).decode(raw)

    body = turn(provider, reply.message)

    sent = {"openai": "output", "anthropic": "content"}.get(provider)
    assert items(provider, body) == (raw[sent] if sent else raw["candidates"][0]["content"]["parts"])
    assert objections(provider, body) == []


@pytest.mark.parametrize("provider", CHATS)
@pytest.mark.parametrize("other", ["openai", "anthropic", "gemini"])
def test_what_came_from_another_provider_stays_at_home(provider, other):
    if provider == other:
        return
    reply = codec(other).decode(whole(other))

    body = turn(provider, Message.from_dict(json.loads(json.dumps(reply.message.to_dict()))))

    text = json.dumps(body)
    assert "c2ln" not in text
    assert "gAAA" not in text
    assert "Let me look." in text
    assert objections(provider, body) == []


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_a_call_that_was_changed_since_goes_as_it_is_now(provider):
    reply = codec(provider).decode(whole(provider))
    first, second = reply.calls

    body = turn(provider, reply.message, calls=[ToolCall(first.id, first.name, {"city": "Brno"}), second])

    text = json.dumps(body)
    assert "Brno" in text
    assert "Orl" not in text
    assert "c2ln" in text or "gAAA" in text


def with_thought(provider, call_id="c", arguments="{}"):
    """An answer with a thought, so that its items are kept, and a call."""
    if provider == "openai":
        call = {"type": "function_call", "call_id": call_id, "name": "now", "arguments": arguments}
        return output({"type": "reasoning", "id": "r", "summary": []}, call)
    given = json.loads(arguments) if arguments.endswith("}") else arguments
    return blocks(
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "tool_use", "id": call_id, "name": "now", "input": given},
    )


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("call_id", ["functions.now:0", "c" * 65, "c 1"])
def test_the_id_of_a_call_that_goes_back_is_that_of_its_result(provider, call_id):
    """Kimi K2 sends ids such as `functions.now:0`; the result had another id, and the item that went back this one."""
    body = turn(provider, codec(provider).decode(with_thought(provider, call_id)).message)

    assert len(items(provider, body)) == 2
    assert check_body(provider, body) == []


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_arguments_that_are_cut_go_back_as_an_object(provider):
    """Anthropic rejects a call whose `input` is text, and with it every later request."""
    body = turn(provider, codec(provider).decode(with_thought(provider, arguments='{"a": "b')).message)

    _, call = items(provider, body)
    sent = call["input"] if provider == "anthropic" else json.loads(call["arguments"])
    assert sent == {"invalid_json": '{"a": "b'}
    assert objections(provider, body) == []


@pytest.mark.parametrize("text", ["\n", " \t ", "\u3000"])
def test_anthropic_gets_no_text_of_nothing_but_spaces(text):
    def encode(*messages):
        return codec("anthropic").encode(ModelRequest([Message("user", "q"), *messages, Message("user", "r")]), "m")

    thought, blank = {"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": text}
    state = {"provider": "anthropic", "items": [blank, thought, blank, thought, blank]}
    alone = encode(Message("system", text), Message("assistant", text), Message("assistant", "a"))
    kept = encode(Message("assistant", text * 3, provider_state=state))

    assert [turn["content"][0]["text"] for turn in alone["messages"]] == ["q", "a", "r"]
    assert "system" not in alone
    assert kept["messages"][1]["content"] == [thought, blank, thought]


def test_a_call_that_gemini_made_without_an_id_has_one_here_and_none_there():
    reply = codec("gemini").decode(parts({"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "c2ln"}))

    body = turn("gemini", reply.message)

    assert reply.calls[0].id
    assert body["contents"][1]["parts"] == [{"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "c2ln"}]
    assert "id" not in body["contents"][2]["parts"][0]["functionResponse"]


def test_gemini_3_gets_a_signature_for_a_call_that_another_model_made():
    message = Message("assistant", (), [ToolCall("c", "now", "{}"), ToolCall("d", "now", "{}")])

    body = turn("gemini", message)

    assert [("thoughtSignature" in part) for part in body["contents"][1]["parts"]] == [True, False]


def test_usage_counts_alike():
    usage = (
        codec("anthropic")
        .decode(
            {
                "content": [],
                "usage": {
                    "input_tokens": 3,
                    "cache_read_input_tokens": 5,
                    "cache_creation_input_tokens": 2,
                    "output_tokens": 7,
                },
            }
        )
        .usage
    )

    assert (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.total_tokens) == (10, 5, 2, 17)
    assert (usage + usage).total_tokens == 34


async def test_whoever_uses_an_sdk_gives_the_toolbox_to_read_names_back():
    said = {"content": [{"type": "tool_use", "id": "1", "name": "shop_find_it", "input": {"filters": {}}}]}
    made = codec("anthropic")

    (call,) = made.decode(said, box()).calls
    same = made.decode(said, made.names_of(box())).calls

    assert (await box().call(call)).text == "none"
    assert same == (call,)
    assert made.decode(said).calls[0].name == "shop_find_it"


def test_an_alias_is_read_back_as_the_tools_own_name():
    made = codec("openai-chat")
    names = made.fit_request_tools(ModelRequest("x", box())).names
    body = chat_body(tool_calls=[{"id": "c", "function": {"name": "shop_find_it", "arguments": "{}"}}])

    assert made.decode(body, names).calls[0].name == "shop.find it"
