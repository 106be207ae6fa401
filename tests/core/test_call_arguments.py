"""The arguments of a call are a mapping for every model; the form that the model sent stays as `raw`."""

import json
from dataclasses import replace

import pytest

from chat.simulated_replies import reply
from providers.samples import CHATS
from toolmason import Message, Toolbox, ToolCall, tool
from toolmason.providers import codec


@pytest.mark.parametrize("kind", CHATS)
def test_every_format_gives_a_mapping(kind):
    [call] = codec(kind).decode(reply(kind, call=("f", {"x": [1, {"y": None}]}))).calls

    assert call.arguments == {"x": [1, {"y": None}]}
    assert isinstance(call.raw, str) == kind.startswith("openai")


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (b'{"a": 1}', {"a": 1}),
        (None, {}),
        ("", {}),
        ("null", {}),
        ('{"a": ', {}),
        ("[1]", {}),
    ],
    ids=repr,
)
def test_arguments_are_a_mapping_whatever_was_sent(raw, arguments):
    call = ToolCall("c", "f", raw)

    assert call.arguments == arguments
    assert call.raw == raw
    assert Message.from_dict(json.loads(json.dumps(Message("assistant", (), [call]).to_dict()))).calls == (call,)


async def test_invalid_text_is_still_reported_with_every_problem():
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    cut = await Toolbox(add).call(ToolCall("c", "add", '{"a": 1, "b": '))
    wrong = await Toolbox(add).call(ToolCall("c", "add", '{"a": "x", "b": "y"}'))

    assert not cut.ok
    assert cut.error.code == "invalid_arguments"
    assert {"a", "b"} <= set(wrong.text.replace("$.", " ").replace('"', " ").split())


def test_calls_are_equal_if_their_arguments_are():
    text, mapping = ToolCall("c", "f", '{"a": 1}'), ToolCall("c", "f", {"a": 1})

    assert text == mapping
    assert hash(text) == hash(mapping)
    assert ToolCall("c", "f", "x") != ToolCall("c", "f", "y")
    assert ToolCall("c", "f", "x") != ToolCall("c", "f", {})
    assert ToolCall("c", "f", {}) != ToolCall("c", "f", "x")
    assert text != ToolCall("d", "f", {"a": 1})


def test_a_call_is_copied_with_other_fields():
    call = ToolCall("c", "f", '{"a": 1}')

    assert replace(call, id="d").raw == call.raw
    assert replace(call, raw={"b": 2}).arguments == {"b": 2}
    assert repr(call) == """ToolCall(id='c', name='f', arguments='{"a": 1}')"""
    with pytest.raises(AttributeError):
        call.raw = {}
