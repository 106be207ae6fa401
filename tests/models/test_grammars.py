"""Grammars that let a model write nothing else; llama.cpp itself reads them in `test_local`."""

from toolmason_local.grammars import (
    MAX_LIST_ITEMS,
    MAX_STRING_CHARS,
    format_literal,
    limit_lengths,
)


def test_a_terminal_escapes_what_would_end_it():
    assert format_literal('a"b\\c\nd€') == '"a\\"b\\\\c\\U0000000Ad\\U000020AC"'


def test_a_schema_gets_an_end_everywhere():
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "code": {"type": "string", "pattern": "^a$"},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "many": {"type": "array", "minItems": 20, "maxItems": True},
        },
        "required": ["name"],
    }

    made = limit_lengths(schema)

    assert made["additionalProperties"] is False
    assert made["properties"]["name"]["maxLength"] == 5
    assert "maxLength" not in made["properties"]["code"]
    assert made["properties"]["tags"]["items"]["anyOf"][0]["maxLength"] == MAX_STRING_CHARS
    assert made["properties"]["tags"]["maxItems"] == MAX_LIST_ITEMS
    assert made["properties"]["many"]["maxItems"] == 20


def test_a_schema_without_a_bottom_is_cut():
    schema: dict = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}

    assert "maxLength" in str(limit_lengths(schema))
    assert limit_lengths(True) is True
