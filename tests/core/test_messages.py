"""Messages are frozen values that go to JSON and back."""

import json
import pickle

import pytest

from toolmason import (
    Audio,
    EmbeddedResource,
    Image,
    Message,
    ResourceLink,
    Text,
    Toolbox,
    ToolCall,
    ToolError,
    ToolResult,
    tool,
)

PARTS = (
    Text("Grüße"),
    Image(b"\x89PNG\x00", "image/png"),
    Audio(b"RIFF", "audio/wav"),
    ResourceLink("file:///a.txt", "a", "text/plain", "A file"),
    EmbeddedResource("file:///b.txt", text="contents"),
    EmbeddedResource("file:///c.bin", data=b"\x00\x01", mime_type="application/octet-stream"),
)


def there_and_back(message: Message) -> Message:
    return Message.from_dict(json.loads(json.dumps(message.to_dict())))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hello", (Text("hello"),)),
        ("", (Text(""),)),
        (Text("hello"), (Text("hello"),)),
        (["a", Image(b"x")], (Text("a"), Image(b"x"))),
        ((part for part in ("a", "b")), (Text("a"), Text("b"))),
        ((), ()),
    ],
    ids=["text", "empty text", "part", "list", "generator", "nothing"],
)
def test_content_is_kept_as_a_tuple_of_parts(content, expected):
    assert Message("user", content).content == expected


def test_a_message_is_frozen():
    message = Message("user", "hello")

    with pytest.raises(AttributeError):
        message.role = "system"


def test_the_text_of_a_message_names_what_is_not_text_and_never_holds_its_bytes():
    text = Message("user", PARTS).text

    assert "Grüße" in text
    assert "[image: image/png, 5 bytes]" in text
    assert "contents" in text
    assert "iVBOR" not in text


@pytest.mark.parametrize(
    "message",
    [
        Message("system", "Be brief."),
        Message("user", PARTS),
        Message("assistant", "", calls=[ToolCall("c-1", "f", '{"n": 1}'), ToolCall("c-2", "g", {"a": [1, None]})]),
        Message("assistant", "hm", provider_state={"openai": [{"id": "r1"}]}),
        Message("user"),
    ],
    ids=["text", "every part", "calls", "provider state", "nothing"],
)
def test_a_message_comes_back_from_json_as_it_was(message):
    assert there_and_back(message) == message


def test_bytes_in_a_call_become_text():
    message = Message("assistant", calls=[ToolCall("c-1", "f", b'{"n": 1}')])

    assert there_and_back(message).calls[0].raw == '{"n": 1}'


async def test_results_come_back_with_what_the_model_read():
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool(return_direct=True)
    async def see() -> list:
        return ["Here:", Image(b"x")]

    @tool
    async def fail() -> None:
        raise ToolError("no", retryable=True)

    results = await Toolbox(add, see, fail).call_all([("add", {"a": 1, "b": 2}), ("see", {}), ("fail", {})])
    message = Message("tool", results=results)

    added, seen, failed = there_and_back(message).results

    assert [added.call_id, seen.call_id, failed.call_id] == [result.call_id for result in results]
    assert (added.text, added.structured, added.ok) == ("3", {"result": 3}, True)
    assert seen.content == (Text("Here:"), Image(b"x"))
    assert seen.return_direct is True
    assert not failed.ok
    assert (failed.error.code, failed.error.retryable, failed.error.tool) == ("tool_error", True, "fail")
    assert failed.text == results[2].text
    assert failed.error.to_model() == results[2].error.to_model()


async def test_a_redacted_failure_stays_redacted_in_the_history():
    @tool
    async def fail() -> None:
        raise RuntimeError("the password is hunter2")

    result = await Toolbox(fail, on_error="redact").call("fail")

    assert "hunter2" not in json.dumps(Message("tool", results=[result]).to_dict())


def test_a_message_with_a_result_equals_one_with_the_same_result():
    first = Message("tool", results=[ToolResult("c-1", "f", text="3")])
    second = Message("tool", results=[ToolResult("c-1", "f", text="3")])

    assert first == second


def test_a_message_travels():
    message = Message("user", PARTS, provider_state={"a": 1})

    assert pickle.loads(pickle.dumps(message)) == message


def test_a_message_read_back_stays_plain_data():
    """reliability.md T21: hostile keys of a history are data, never types to build."""
    hostile = {
        "role": "user",
        "content": [{"type": "text", "text": '{"__class__": "os.system"}'}],
        "lc": 1,
        "$type": "x",
    }

    assert Message.from_dict(hostile) == Message("user", '{"__class__": "os.system"}')
