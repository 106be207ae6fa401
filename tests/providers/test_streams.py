"""A stream of any provider becomes the same calls and text, however its bytes are cut, and as its own SDK reads it."""

import json
import random

import httpx2
import pytest

from providers.recordings import ARGUMENTS, STREAMS, chat, responses, sse
from providers.samples import CHATS
from toolmason.errors import ModelError
from toolmason.models import ArgumentsDelta, CallClosed, CallOpened, TextDelta, ThoughtDelta
from toolmason.models.http.sse import EventStream
from toolmason.providers import codec
from toolmason.providers.content_parts import get_arguments_object

TEXT = "Let me look. ☀"
LAST = {
    "openai": b'"type": "response.completed"',
    "openai-chat": b'"finish_reason": "tool_calls"',
    "anthropic": b'"type": "message_stop"',
    "gemini": b'"finishReason"',
}
"""What only the event at the end of a stream has."""
CALLS = [("call_a", "get_weather", json.loads(ARGUMENTS)), ("call_b", "now", {})]


def read(provider, chunks):
    """Return the events and the reply that chunks of bytes lead to."""
    made = codec(provider)
    stream, reader = EventStream(provider), made.reader(made.no_names)
    events = [event for chunk in chunks for told in stream.feed(chunk) for event in reader.feed(told)]
    events += [event for told in stream.end() for event in reader.feed(told)]
    return events, reader.end()


def calls_of(reply):
    return [(call.id, call.name, get_arguments_object(call)) for call in reply.calls]


@pytest.mark.parametrize("provider", CHATS)
def test_a_stream_gives_text_calls_usage_and_the_reason_for_its_end(provider):
    events, reply = read(provider, [STREAMS[provider]])

    assert reply.text == TEXT
    assert calls_of(reply) == CALLS
    assert reply.finish == "calls"
    assert (reply.usage.output_tokens, reply.usage.total_tokens - reply.usage.cached_tokens in (11, 15)) == (5, True)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == TEXT
    opened = [(event.id, event.name) for event in events if isinstance(event, CallOpened)]
    assert opened == [(call_id, name) for call_id, name, _ in CALLS]
    assert [event.call for event in events if isinstance(event, CallClosed)] == list(reply.calls)


@pytest.mark.parametrize("provider", CHATS)
def test_the_pieces_of_the_arguments_are_the_arguments(provider):
    events, reply = read(provider, [STREAMS[provider]])

    told = "".join(event.text for event in events if isinstance(event, ArgumentsDelta) and event.id == "call_a")

    assert json.loads(told) == get_arguments_object(reply.calls[0])


@pytest.mark.parametrize("provider", CHATS)
def test_cut_at_every_byte_it_is_the_same(provider):
    whole = STREAMS[provider]

    assert read(provider, [bytes([byte]) for byte in whole]) == read(provider, [whole])


@pytest.mark.parametrize("provider", CHATS)
def test_cut_in_two_at_any_byte_it_is_the_same(provider):
    whole = STREAMS[provider]
    expected = read(provider, [whole])[1]

    places = range(0, len(whole), 1 if len(whole) < 1500 else 37)

    assert all(read(provider, [whole[:place], whole[place:]])[1] == expected for place in places)


@pytest.mark.parametrize("provider", CHATS)
def test_cut_at_random_bytes_it_is_the_same(provider):
    whole, chance = STREAMS[provider], random.Random(7)  # noqa: S311 - a test that repeats
    expected = read(provider, [whole])[1]

    for _ in range(50):
        places = sorted(chance.sample(range(len(whole)), 12))
        chunks = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
        assert read(provider, chunks)[1] == expected


@pytest.mark.parametrize("provider", CHATS)
def test_a_stream_that_ends_too_early_is_an_error_that_may_go_away(provider):
    whole = STREAMS[provider]
    cut = whole[: whole.rindex(LAST[provider])].rpartition(b"data:")[0]

    with pytest.raises(ModelError, match="ended before the reply was complete") as caught:
        read(provider, [cut])

    assert caught.value.provider == provider
    assert caught.value.retryable


RATED = {"promptFeedback": {"safetyRatings": [{"category": "X", "probability": "LOW"}]}}
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}}
BEGUN = {"candidates": [{"content": {"parts": [{"text": "Hello wo"}]}}]}


@pytest.mark.parametrize("event", [RATED, {**BEGUN, **RATED}, {**BEGUN, **BLOCKED}], ids=["rated", "begun", "blocked"])
def test_a_stream_of_gemini_that_is_cut_was_not_blocked(event):
    with pytest.raises(ModelError, match="ended before the reply was complete"):
        read("gemini", [sse([event])])


def test_a_reply_of_gemini_with_only_ratings_was_not_blocked():
    with pytest.raises(ModelError, match="the response has no candidate"):
        codec("gemini").decode(RATED)
    assert read("gemini", [sse([BLOCKED])])[1].finish == codec("gemini").decode(BLOCKED).finish == "filter"


@pytest.mark.parametrize(
    ("provider", "event"),
    [
        ("openai", {"type": "error", "code": "server_error", "message": "it broke"}),
        ("openai", {"type": "response.failed", "response": {"status": "failed", "error": {"message": "it broke"}}}),
        ("openai-chat", {"error": {"message": "it broke", "code": "server_error"}}),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "it broke"}}),
        ("gemini", {"error": {"code": 503, "status": "UNAVAILABLE", "message": "it broke"}}),
    ],
    ids=["responses", "failed", "chat", "anthropic", "gemini"],
)
def test_an_error_inside_a_stream_is_raised_with_its_words(provider, event):
    with pytest.raises(ModelError, match="it broke"):
        read(provider, [sse([event])])


def test_thoughts_are_told_apart_from_the_answer():
    events, _ = read("anthropic", [STREAMS["anthropic"]])

    assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["Hm."]


def test_an_answer_after_a_thought_is_not_a_part_of_it():
    """`thought` may be false instead of absent."""
    thought = {"candidates": [{"content": {"parts": [{"text": "Hm.", "thought": True}]}}]}
    answer = {"candidates": [{"content": {"parts": [{"text": "Yes.", "thought": False}]}, "finishReason": "STOP"}]}

    assert read("gemini", [sse([thought, answer])])[1].text == "Yes."


def test_a_server_that_leaves_out_the_index_of_its_calls_is_understood():
    """Some compatible servers do; an id begins a call."""
    events = chat()
    for event in events:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                del call["index"]

    assert calls_of(read("openai-chat", [sse(events)])[1]) == CALLS


@pytest.mark.parametrize("named", ["once", "in every piece"])
def test_a_server_that_gives_every_call_the_index_0_is_understood(named):
    """ollama/ollama#15457: the arguments of all calls became those of the first."""
    events = chat()
    call_id = name = ""
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        call_id, name = call.get("id", call_id), call["function"].get("name", name)
        call["index"] = 0
        if named == "in every piece":
            call["id"], call["function"]["name"] = call_id, name

    assert calls_of(read("openai-chat", [sse(events)])[1]) == CALLS


@pytest.mark.parametrize(
    "omitted", [("output_index",), ("output_index", "item_id", "id")], ids=["number", "number and id"]
)
def test_a_server_that_does_not_number_its_items_is_understood(omitted):
    """Every item stood twice in the reply, and every call ran twice."""
    whole = responses()
    events = [{key: value for key, value in event.items() if key not in omitted} for event in whole]
    for event in events:
        event.get("response", {}).pop("output", None)
        for key in omitted:
            event.get("item", {}).pop(key, None)

    told, reply = read("openai", [sse(events)])

    assert (reply.text, calls_of(reply)) == (TEXT, CALLS)
    assert [event.call for event in told if isinstance(event, CallClosed)] == list(reply.calls)


def test_calls_without_an_id_get_different_ones():
    call = {"type": "function_call", "name": "now", "arguments": "{}"}
    events = [
        {"type": f"response.output_item.{step}", "output_index": n, "item": call}
        for n in (0, 1)
        for step in ("added", "done")
    ]

    told, reply = read("openai", [sse([*events, {"type": "response.completed", "response": {}}])])
    plain = codec("openai").decode({"output": [call, call]})

    assert len({call.id for call in reply.calls}) == len({call.id for call in plain.calls} - {"", "None"}) == 2
    assert [event.id for event in told if isinstance(event, CallOpened)] == [call.id for call in reply.calls]


def call_of_anthropic(arguments, *, is_closed):
    block = {"type": "tool_use", "id": "c", "name": "now", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    return sse(
        [
            {"type": "message_start", "message": {"role": "assistant"}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            *([{"type": "content_block_stop", "index": 0}] if is_closed else []),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ]
    )


@pytest.mark.parametrize("is_closed", [True, False])
def test_arguments_with_a_key_twice_keep_their_text(is_closed):
    """The second value was taken, and the call ran."""
    text = '{"to": "ann", "amount": 1, "amount": 1000}'

    _, reply = read("anthropic", [call_of_anthropic(text, is_closed=is_closed)])

    assert [call.raw for call in reply.calls] == [text]


def test_a_block_that_is_not_closed_keeps_its_arguments():
    """They were empty, and the tool ran without them."""
    events, reply = read("anthropic", [call_of_anthropic('{"a": 1}', is_closed=False)])

    assert [call.arguments for call in reply.calls] == [{"a": 1}]
    assert [event.call for event in events if isinstance(event, CallClosed)] == list(reply.calls)


@pytest.mark.parametrize("arguments", ["[1]", "5", "null", '"x"'])
def test_arguments_that_are_no_object_are_a_mistake_of_the_model_and_not_of_the_provider(arguments):
    (call,) = read("anthropic", [call_of_anthropic(arguments, is_closed=True)])[1].calls

    assert call.raw == arguments


def test_an_event_that_is_not_json_is_an_error():
    with pytest.raises(ModelError, match="is not JSON"):
        read("openai-chat", [b"data: {oops\n\n"])


def test_data_on_several_lines_is_one_event():
    stream = EventStream("x")

    assert list(stream.feed(b'data: {"a":\r\ndata: 1}\r\n\r\n')) == [{"a": 1}]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_end_of_a_line_may_fall_between_two_chunks(size):
    content = b'data: {"a":\r\ndata: 1}\r\n\r\n\n: x\ndata: {"b": 2}\n\ndata: {"c": 3}\r\rdata: {"d": 4}'
    stream = EventStream("x")

    found = [event for at in range(0, len(content), size) for event in stream.feed(content[at : at + size])]

    assert [*found, *stream.end()] == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]


def test_an_event_in_very_many_chunks_is_put_together_once():
    stream = EventStream("x")
    chunk = b"x" * 64

    for _ in range(500_000):
        assert list(stream.feed(chunk)) == []
        assert list(stream.feed(b"")) == []

    with pytest.raises(ModelError, match="is not JSON"):
        list(read_to_end(stream))


def read_to_end(stream):
    yield from stream.feed(b"\ndata: x")
    yield from stream.end()


@pytest.mark.parametrize("line", [b"x" * 1024 * 1024, b"data: " + b"x" * 1024 * 1024 + b"\n"], ids=["line", "event"])
def test_an_event_that_never_ends_is_an_error(line):
    stream = EventStream("x")

    with pytest.raises(ModelError, match="exceeds 67,108,864 characters"):
        [event for _ in range(65) for event in stream.feed(line)]


def test_what_is_no_part_of_an_event_is_not_kept():
    stream = EventStream("x")

    found = [event for _ in range(70) for event in stream.feed(b": " + b"x" * 1024 * 1024 + b"\n")]

    assert [*found, *stream.feed(b"data: {}\n\n")] == [{}]


# --- the SDKs as the oracle -----------------------------------------------------------------------


def answering(content):
    def answer(_):
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    return httpx2.MockTransport(answer)


async def by_openai(content):
    import openai

    async with (
        openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient(transport=answering(content))) as client,
        client.responses.stream(model="gpt-5", input="x") as stream,
    ):
        final = await stream.get_final_response()
    calls = [(i.call_id, i.name, json.loads(i.arguments)) for i in final.output if i.type == "function_call"]
    return final.output_text, calls


async def by_openai_chat(content):
    import openai

    async with (
        openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient(transport=answering(content))) as client,
        client.chat.completions.stream(model="gpt-5", messages=[]) as stream,
    ):
        said = (await stream.get_final_completion()).choices[0].message
    return said.content, [(c.id, c.function.name, json.loads(c.function.arguments)) for c in said.tool_calls]


async def by_anthropic(content):
    import anthropic

    async with (
        anthropic.AsyncAnthropic(api_key="k", http_client=httpx2.AsyncClient(transport=answering(content))) as client,
        client.messages.stream(model="claude", max_tokens=1, messages=[]) as stream,
    ):
        final = await stream.get_final_message()
    text = "".join(block.text for block in final.content if block.type == "text")
    return text, [(b.id, b.name, b.input) for b in final.content if b.type == "tool_use"]


async def by_gemini(content):
    from google import genai

    options = genai.types.HttpOptions(httpx_async_client=httpx2.AsyncClient(transport=answering(content)))
    client = genai.Client(api_key="k", http_options=options)
    text, calls = "", []
    async for chunk in await client.aio.models.generate_content_stream(model="gemini-3", contents="x"):
        parts = chunk.candidates[0].content.parts or []
        text += "".join(part.text for part in parts if part.text and not part.thought)
        calls += [(p.function_call.id, p.function_call.name, p.function_call.args) for p in parts if p.function_call]
    return text, calls


ORACLES = {"openai": by_openai, "openai-chat": by_openai_chat, "anthropic": by_anthropic, "gemini": by_gemini}


@pytest.mark.parametrize("provider", CHATS)
async def test_the_providers_own_sdk_reads_the_same_out_of_a_stream(provider):
    content = STREAMS[provider]

    theirs = await ORACLES[provider](content)

    reply = read(provider, [content])[1]
    assert theirs == (reply.text, calls_of(reply)) == (TEXT, CALLS)
