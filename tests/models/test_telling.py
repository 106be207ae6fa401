"""Answers that say what results say."""

import pytest

from toolmason import Message, Text, ToolCall, ToolError, ToolResult
from toolmason_local.summarize import get_last_calls, summarize_results

CALL = ToolCall("1", "quote_price", {"sku": "TEA-01", "quantity": 3})


def result(text, **more):
    return ToolResult("1", "quote_price", content=(Text(text),), text=text, **more)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("13.5", 'quote_price(sku="TEA-01", quantity=3) returned 13.5'),
        ("", 'quote_price(sku="TEA-01", quantity=3) is done.'),
        ("null", 'quote_price(sku="TEA-01", quantity=3) is done.'),
        ("a\nb", 'quote_price(sku="TEA-01", quantity=3) returned:\na\nb'),
    ],
    ids=["short", "nothing", "null", "lines"],
)
def test_a_result_is_told_as_it_is(text, answer):
    assert summarize_results([result(text)], [CALL]) == answer


def test_a_failure_is_told_as_one():
    failed = ToolResult("1", "quote_price", error=ToolError("No article 'X'."))

    assert summarize_results([failed], []) == "quote_price() failed: No article 'X'."


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"a": 1}', "a=1"), (b'{"a": 1}', "a=1"), ("{", ""), (None, ""), ({"a": "x" * 99}, f'a="{"x" * 58}…')],
    ids=["text", "bytes", "broken", "none", "long"],
)
def test_arguments_are_shown_in_short(arguments, shown):
    assert (
        summarize_results([result("7")], [ToolCall("1", "quote_price", arguments)])
        == f"quote_price({shown}) returned 7"
    )


def test_the_calls_of_the_last_turn_are_found():
    messages = [Message("user", "x"), Message("assistant", "", [CALL]), Message("tool", results=[result("7")])]

    assert get_last_calls(messages) == (CALL,)
    assert get_last_calls([]) == ()
