"""Grammars that let a model write nothing else; llama.cpp itself reads them in `test_local`."""

from toolmason_local.grammars import (
    MAX_LIST_ITEMS,
    MAX_STRING_CHARS,
    format_literal,
    limit_lengths,
    make_choice_grammar,
    make_phrase_grammar,
    make_phrase_list_grammar,
)


def test_a_terminal_escapes_what_would_end_it():
    assert format_literal('a"b\\c\nd€') == '"a\\"b\\\\c\\U0000000Ad\\U000020AC"'


def test_choices_are_written_as_json():
    assert make_choice_grammar(["a", 1, True, None]) == 'root ::= "\\"a\\"" | "1" | "true" | "null"'


def test_a_piece_is_some_words_in_a_row_without_the_marks_around_them():
    grammar = make_phrase_grammar('Book "Luigi\'s", please.')

    assert 's1 ::= "Luigi" ("\'s\\\\\\", " w2)?' in grammar
    assert 's2 ::= "please"' in grammar
    assert grammar.startswith('root ::= piece\npiece ::= "\\"" (s0 | s1 | s2) "\\""')


def test_a_text_without_words_has_no_pieces():
    assert make_phrase_grammar(" ?! … ") is None
    assert make_phrase_list_grammar("") is None


def test_a_list_of_pieces_comes_to_an_end():
    assert f"{{0,{MAX_LIST_ITEMS - 1}}}" in make_phrase_list_grammar("red and blue")


def test_a_long_text_is_read_from_its_end():
    grammar = make_phrase_grammar("early " * 500 + "late")

    assert grammar.count("::=") < 200
    assert '"late"' in grammar


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
