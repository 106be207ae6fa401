"""Answers of a server that are made to cost far more than they weigh."""

import pytest

from toolmason.mcp_client.transport.framing import UnreadableMessage, parse_message, prune

DEEP = b"[" * 130 + b"]" * 130


@pytest.mark.parametrize("end", [b"", b"\\", b"\n"], ids=["cut", "half an escape", "line"])
@pytest.mark.parametrize("piece", [b'\\"', b'"\\', b"\\\n", b'"[', b'"{\\"'])
def test_a_list_with_a_string_that_never_ends_is_read_once(piece, end):
    text = b'{"id": 7, "result": {"tools": [' + DEEP + b'], "y": "' + piece * 250_000 + end

    found = parse_message(text, {7})

    assert isinstance(found, UnreadableMessage)
    assert found.id == 7


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b'[["]]\\"[[", 1]]', b'[["]]\\"[[", 1]]'),
        (b'[["\\\\", [2]]]', b'[["\\\\", null]]'),
        (b'[[[["]"]], "x', b'[[null, "x'),
        (b'[[["', b"[["),
        (b"]]]", b"]]]"),
    ],
)
def test_brackets_in_strings_are_no_levels(text, kept):
    assert prune(text, 2) == kept
