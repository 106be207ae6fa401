"""What providers refuse in a conversation is found, and put right."""

import pytest

from toolmason import Message, ToolCall, ToolResult
from toolmason.providers import check_conversation, repair


def asks(*ids):
    return Message("assistant", (), [ToolCall(i, f"tool_{i}", "{}") for i in ids])


def answers(*ids):
    return Message("tool", results=[ToolResult(i, f"tool_{i}", text=f"result {i}") for i in ids])


USER = Message("user", "x")


def shape(messages):
    """Roles, with the ids of calls and results."""
    return [(m.role, *(c.id for c in m.calls), *(r.call_id for r in m.results)) for m in messages]


@pytest.mark.parametrize(
    ("messages", "codes"),
    [
        ([USER, asks("a", "b"), answers("a", "b"), USER], []),
        ([USER, asks("a", "b"), answers("b"), answers("a")], []),
        ([USER, asks("a")], ["unanswered"]),
        ([asks("a"), USER, answers("a")], ["unanswered", "duplicate result"]),
        ([answers("a")], ["orphan"]),
        ([asks("a"), answers("a", "a")], ["duplicate result"]),
        ([asks("a"), answers("a"), asks("a"), answers("a")], ["duplicate"]),
        ([asks("")], ["nameless", "unanswered"]),
        ([Message("user", "x", [ToolCall("a", "t")])], ["misplaced", "unanswered"]),
        (
            [asks("a"), Message("user", "x", results=answers("a").results)],
            ["unanswered", "misplaced", "duplicate result"],
        ),
        ([Message("bot", "x")], ["role"]),
        ([asks("a"), Message("tool", results=[ToolResult("a", "other", text="")])], ["name"]),
    ],
    ids=[
        "right",
        "any order",
        "open",
        "late",
        "orphan",
        "twice",
        "same id",
        "no id",
        "user calls",
        "user answers",
        "role",
        "name",
    ],
)
def test_flaws_are_found(messages, codes):
    assert [flaw.code for flaw in check_conversation(messages)] == codes


def test_a_conversation_that_is_right_comes_back_as_it_is():
    messages = (USER, asks("a"), answers("a"))

    assert repair(messages) is messages


def test_a_call_without_a_result_gets_one_that_says_so():
    mended = repair([USER, asks("a", "b"), answers("b"), USER])

    assert shape(mended) == [("user",), ("assistant", "a", "b"), ("tool", "a", "b"), ("user",)]
    assert "not available" in mended[2].results[0].text
    assert mended[2].results[1].text == "result b"


def test_a_result_without_a_call_goes_and_a_late_one_finds_its_place():
    mended = repair([answers("z"), asks("a"), USER, answers("a")])

    assert shape(mended) == [("assistant", "a"), ("tool", "a"), ("user",)]
    assert mended[1].results[0].text == "result a"


def test_an_id_that_is_used_twice_changes_with_its_result():
    mended = repair([asks("a"), answers("a"), asks("a"), answers("a")])

    assert check_conversation(mended) == []
    assert mended[0].calls[0].id == "a"
    assert mended[2].calls[0].id == mended[3].results[0].call_id != "a"


def test_what_the_user_said_is_never_lost():
    mended = repair([USER, Message("bot", "hello"), asks("a")])

    assert [m.text for m in mended if m.role == "user"] == ["x", "hello"]


def test_a_long_conversation_is_repaired_in_linear_time():
    """Each call looked for its result among the results of all calls."""
    ids = [str(number) for number in range(60_000)]

    mended = repair([asks(*ids), answers(*reversed(ids)), asks("x")])

    assert [result.call_id for result in mended[1].results] == ids
