"""Whatever type a provider sends in whatever place, the reply is one or the error says what is wrong."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.recordings import STREAMS
from providers.samples import CHATS, box
from toolmason import Message, Toolbox, tool
from toolmason.errors import ModelError
from toolmason.models import Finished, ModelRequest
from toolmason.models.http.remote import RemoteModel
from toolmason.models.http.sse import EventStream
from toolmason.providers import codec

ODD = [None, 5, -1, 1.5, True, "", [], {}, "xxxxxxxxxx", [None], [5], {"a": None}, [[]], "\0", 10**25]
GONE = object()
BODIES = {
    "openai": {
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
            {"type": "function_call", "id": "f", "call_id": "c", "name": "now", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 1}},
    },
    "openai-chat": {
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "content": "Hello.",
                    "refusal": "No.",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
                },
            }
        ],
        "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
    },
    "anthropic": {
        "content": [{"type": "text", "text": "Hello."}, {"type": "tool_use", "id": "c", "name": "now", "input": {}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 1}},
    },
    "gemini": {
        "candidates": [
            {
                "content": {"parts": [{"text": "Hello."}, {"functionCall": {"name": "now", "args": {"a": 1}}}]},
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "thoughtsTokenCount": 1},
    },
}


BOX = box()


class Told:
    """A provider that answers what it is told."""

    secrets = ()

    def __init__(self, body, events=()):
        self.body, self.given = body, events

    async def post(self, body):
        return self.body

    async def events(self, body):
        for event in self.given:
            yield event

    async def wait_for_retry(self, error, attempt):
        return False

    async def aclose(self):
        pass


def events_of(kind):
    stream = EventStream(kind)
    return [*stream.feed(STREAMS[kind]), *stream.end()]


def paths(data, path=()):
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key))


def put(data, path, value):
    made = copy.deepcopy(data)
    place = made
    for key in path[:-1]:
        place = place[key]
    if not path:
        return None if value is GONE else value
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


async def see_that_it_is_one(kind, reply):
    """A reply can be shown, added up, kept, sent back, and its calls can be made."""
    assert all(type(call.id) is str and type(call.name) is str for call in reply.calls)
    assert type(reply.text) is str
    assert all(type(getattr(reply.usage, name)) is int for name in reply.usage.__slots__)
    json.dumps(reply.message.to_dict())
    codec(kind).encode(ModelRequest((Message("user", "hi"), reply.message), BOX), "m")
    assert len(await BOX.call_all(reply.calls)) == len(reply.calls)


async def run(kind, body, events=None):
    made = RemoteModel(f"{kind}:m", lambda: codec(kind), lambda: Told(body, events or ()), codec(kind).service)
    try:
        if events is None:
            reply = await made.respond(ModelRequest("hi", BOX))
        else:
            told = [event async for event in made.stream(ModelRequest("hi", BOX))]
            assert isinstance(told[-1], Finished)
            reply = told[-1].reply
    except ModelError as error:
        assert str(error)  # noqa: PT017 - either is right
        return
    await see_that_it_is_one(kind, reply)


@pytest.mark.parametrize("kind", CHATS)
async def test_any_odd_value_at_any_place_of_a_body(kind):
    for path in paths(BODIES[kind]):
        for odd in (*ODD, GONE):
            await run(kind, put(BODIES[kind], path, odd))


@pytest.mark.parametrize("kind", CHATS)
async def test_any_odd_value_at_any_place_of_a_stream(kind):
    events = events_of(kind)
    alike = {str(list(paths(event))) + str(event.get("type")): number for number, event in enumerate(events)}
    for path in paths(events):
        for odd in (*ODD, GONE) if path and path[0] in alike.values() else ():
            await run(kind, None, [event for event in put(events, path, odd) if isinstance(event, dict)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", CHATS)
@given(data=st.data())
async def test_several_places_of_anything(kind, data):
    events = events_of(kind)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in paths(events) if path]))
        events = put(events, path, data.draw(JSON))
    body = put(BODIES[kind], data.draw(st.sampled_from(list(paths(BODIES[kind])))), data.draw(JSON))

    await run(kind, body)
    await run(kind, None, [event for event in events if isinstance(event, dict)])


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("body", [None, 5, "x", [], [[]], True])
def test_a_body_that_is_no_object_is_an_error(kind, body):
    with pytest.raises(ModelError, match="the response cannot be parsed"):
        codec(kind).decode(body)


def test_an_error_says_which_value_is_of_the_wrong_type():
    body = put(BODIES["openai-chat"], ("choices", 0, "message", "content"), 5)

    with pytest.raises(ModelError, match="the text is 5, not a string"):
        codec("openai-chat").decode(body)


ITEMS = {
    "openai": lambda body: body["output"],
    "openai-chat": lambda body: body["choices"][0]["message"]["tool_calls"],
    "anthropic": lambda body: body["content"],
    "gemini": lambda body: body["candidates"][0]["content"]["parts"],
}
IN_PIECES = {
    "openai": lambda items: [
        *({"type": f"response.output_item.{step}", "item": item} for item in items for step in ("added", "done")),
        {"type": "response.completed", "response": {}},
    ],
    "openai-chat": lambda items: [
        {"choices": [{"index": 0, "delta": {"tool_calls": items}, "finish_reason": "tool_calls"}]}
    ],
    "anthropic": lambda items: [
        *({"type": "content_block_start", "index": n, "content_block": item} for n, item in enumerate(items)),
        {"type": "message_stop"},
    ],
    "gemini": lambda items: [{"candidates": [{"content": {"parts": items}, "finishReason": "STOP"}]}],
}


@tool
def purge(days: int = 30) -> str:
    """Purge."""
    return f"purged {days}"


def read_with(kind, odd, *, in_pieces):
    """Return the calls of a reply with a right call, and with one that has odd fields."""
    body = copy.deepcopy(BODIES[kind])
    items = ITEMS[kind](body)
    items.append(copy.deepcopy(items[-1]))
    place = {"openai-chat": "function", "gemini": "functionCall"}.get(kind)
    (items[-1] if place is None else items[-1][place]).update(odd)
    items[-1].update({} if kind == "gemini" else {"id": "d", "call_id": "d"})
    if not in_pieces:
        return codec(kind).decode(body).calls
    reader = codec(kind).reader(codec(kind).no_names)
    for event in IN_PIECES[kind](items):
        [*reader.feed(event)]
    return reader.end().calls


@pytest.mark.parametrize("in_pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("odd", [[], [1], ["7"], 0, 7, 1.5, False, True, ["\ud800"]])
@pytest.mark.parametrize("kind", CHATS)
async def test_arguments_that_are_no_object_run_nothing_and_cost_no_other_call(kind, odd, in_pieces):
    key = {"anthropic": "input", "gemini": "args"}.get(kind, "arguments")
    right, wrong = read_with(kind, {"name": "purge", key: odd}, in_pieces=in_pieces)
    refused = await Toolbox(purge).call(wrong)

    assert (right.name, json.loads(wrong.raw)) == ("now", odd)
    assert refused.error.code == "invalid_arguments", refused.text


@pytest.mark.parametrize("in_pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize(("name", "read"), [(None, ""), ("", ""), (5, "5")])
@pytest.mark.parametrize("kind", CHATS)
def test_a_call_without_a_name_costs_no_other_call(kind, name, read, in_pieces):
    assert [call.name for call in read_with(kind, {"name": name}, in_pieces=in_pieces)] == ["now", read]


@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
def test_an_id_that_is_a_number_is_read_in_a_stream_as_in_a_body(kind):
    items = [{**ITEMS[kind](BODIES[kind])[-1], "id": 5}]
    reader = codec(kind).reader(codec(kind).no_names)
    opened = [event.id for sent in IN_PIECES[kind](items) for event in reader.feed(sent) if hasattr(event, "id")]

    assert {*opened, *(call.id for call in reader.end().calls)} == {"5"}


@pytest.mark.parametrize("odd", ["x", -1, 1.5, [1], True])
def test_a_count_that_is_none_does_not_cost_the_answer(odd):
    reply = codec("openai-chat").decode(put(BODIES["openai-chat"], ("usage", "prompt_tokens"), odd))

    assert reply.usage.input_tokens == 0
