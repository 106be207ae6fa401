"""Each message is looked at and written once, and the body is the same as if it were written anew."""

import json

import pytest

from providers.samples import CHATS, get_weather
from toolmason import Message, Toolbox, ToolCall, ToolResult, tool
from toolmason.models import ModelRequest
from toolmason.providers import codec
from toolmason.providers.tool_set import RequestCache

BOX = Toolbox(get_weather)


def turns(count):
    said = [Message("system", "Be kind."), Message("user", "go")]
    for number in range(count):
        call = ToolCall(f"c{number}", "get_weather", {"city": f"City {number}"})
        said += [
            Message("assistant", f"turn {number}", [call]),
            Message("tool", results=[ToolResult(call.id, call.name, text=f"sunny {number}")]),
        ]
    return said


def plain(body):
    return json.loads(json.dumps(body))


@pytest.mark.parametrize("provider", CHATS)
def test_the_body_of_every_turn_is_what_it_would_be_without(provider):
    made, kept, said = codec(provider), RequestCache(), turns(6)
    for end in range(2, len(said) + 1, 2):
        request = ModelRequest(said[:end], BOX)

        assert plain(made.encode(request, "m", cache=kept)) == plain(made.encode(request, "m"))


def test_a_message_is_written_once():
    kept, made = RequestCache(), []
    message = Message("user", "go")
    names = codec("openai").fit_tools((), ()).names

    for _ in range(3):
        kept.encode([message], names, lambda given: made.append(given) or [1])

    assert made == [message]


@pytest.mark.parametrize("provider", CHATS)
def test_another_conversation_with_the_same_model_is_another_body(provider):
    made, kept = codec(provider), RequestCache()
    made.encode(ModelRequest(turns(3), BOX), "m", cache=kept)
    other = ModelRequest([Message("user", "something else"), *turns(2)[2:]], BOX)

    assert plain(made.encode(other, "m", cache=kept)) == plain(made.encode(other, "m"))


@pytest.mark.parametrize("provider", CHATS)
def test_tools_of_other_names_are_written_under_them(provider):
    @tool(name="wetter für heute")
    def today(city: str) -> str:
        """Weather."""
        return city

    made, kept = codec(provider), RequestCache()
    call = ToolCall("c", "wetter für heute", {"city": "Oslo"})
    said = [Message("user", "go"), Message("assistant", (), [call])]
    said.append(Message("tool", results=[ToolResult("c", call.name, text="sunny")]))
    made.encode(ModelRequest(said, BOX), "m", cache=kept)
    request = ModelRequest(said, Toolbox(today))

    assert plain(made.encode(request, "m", cache=kept)) == plain(made.encode(request, "m"))


@pytest.mark.parametrize("provider", CHATS)
def test_tools_are_written_again_if_what_they_depend_on_changes(provider):
    made, kept = codec(provider), RequestCache()
    changes = [
        {},
        {"tool_choice": "get_weather"},
        {"tool_choice": "none"},
        {"options": {"strict": True}},
        {"options": {"strict": False}},
        {"options": {"parallel": provider == "gemini"}},
        {"tools": ()},
        {},
    ]
    for change in changes:
        request = ModelRequest("go", **{"tools": BOX, **change})

        assert plain(made.encode(request, "m", cache=kept)) == plain(made.encode(request, "m"))


def test_tools_are_written_once():
    kept, request = RequestCache(), ModelRequest("go", BOX)
    first, second = (codec("openai").encode(request, "m", cache=kept) for _ in range(2))

    assert first["tools"] is second["tools"]


def test_what_comes_after_a_right_conversation_is_looked_at():
    kept, said = RequestCache(), turns(2)
    assert kept.is_valid(tuple(said))

    dangling = Message("assistant", (), [ToolCall("c9", "get_weather", {})])
    again = [
        Message("assistant", (), [ToolCall("c0", "get_weather", {})]),
        Message("tool", results=[ToolResult("c0", "get_weather", text="x")]),
    ]

    assert not kept.is_valid((*said, dangling))
    assert not kept.is_valid((*said, *again))
    assert kept.is_valid((*said, Message("user", "more")))


@pytest.mark.parametrize("provider", CHATS)
def test_what_is_not_in_order_is_repaired(provider):
    made, kept = codec(provider), RequestCache()
    said = [*turns(2), Message("assistant", (), [ToolCall("c9", "get_weather", {})])]

    body = made.encode(ModelRequest(said, BOX), "m", cache=kept)

    assert plain(body) == plain(made.encode(ModelRequest(said, BOX), "m"))


def test_messages_of_long_ago_are_let_go():
    kept, names = RequestCache(), codec("openai").fit_tools((), ()).names
    for number in range(2000):
        message = Message("user", str(number))
        kept.is_valid((message,))
        kept.encode([message], names, lambda _: [1])

    made = []
    kept.encode([Message("user", "new")], names, lambda _: made.append(1) or [1])

    assert made == [1]
    assert kept.count < 600


def test_messages_of_a_conversation_that_is_repaired_each_time_are_let_go():
    """A repair makes new messages; a conversation with an id that is used twice needs one for every request."""
    call = ToolCall("same", "get_weather", {"city": "Oslo"})
    turn = [Message("assistant", (), [call]), Message("tool", results=[ToolResult("same", call.name, text="sunny")])]
    made, kept, said = codec("openai"), RequestCache(), [Message("user", "go"), *turn * 20]

    for _ in range(100):
        made.encode(ModelRequest(said, BOX), "m", cache=kept)

    assert kept.count < 600
