"""How like a tool a text is, by words alone."""

import pytest

from toolmason import ToolDefinition
from toolmason.models.lexical.similarity import (
    extract_stems,
    get_properties,
    get_synonyms,
    score_similarity,
    stem,
    weigh_stems,
)

PRICE = ToolDefinition(
    "quote_price",
    "Quote the price of an article.",
    {"type": "object", "properties": {"unit": {"enum": ["piece", "box"], "description": "How it is packed"}}},
)
WEATHER = ToolDefinition("getWeather", "Current weather in a city.", {"type": "object", "properties": {"city": {}}})


@pytest.mark.parametrize(
    ("word", "root"),
    [("prices", "pric"), ("price", "pric"), ("calculating", "calcul"), ("calculate", "calcul"), ("go", "go")],
)
def test_words_that_differ_in_their_endings_have_one_stem(word, root):
    assert stem(word) == root


def test_common_words_and_single_letters_say_nothing():
    assert extract_stems("What is the price of a TEA?") == ["pric", "tea"]


def test_names_are_read_in_snake_and_in_camel_case():
    assert {"quot", "pric"} <= weigh_stems(PRICE).keys()
    assert "weath" in weigh_stems(WEATHER)


def test_choices_and_the_texts_of_parameters_count_too():
    assert {"box", "pack", "unit"} <= weigh_stems(PRICE).keys()


def test_the_tool_that_shares_the_words_wins():
    price, weather = score_similarity("What are the prices?", [PRICE, WEATHER])

    assert price > 0.3
    assert weather < 0


def test_a_word_that_means_the_same_counts_less_than_the_word_itself():
    (same,), (other,) = score_similarity("the price", [PRICE]), score_similarity("the cost", [PRICE])

    assert 0.05 < other < same
    assert "cost" in get_synonyms("pric")
    assert get_synonyms("xylophon") == frozenset()


def test_the_usual_question_for_a_price_is_one():
    assert score_similarity("How much is TEA-02?", [PRICE])[0] > 0.05


def test_numbers_and_codes_do_not_hide_what_is_asked():
    assert score_similarity("the cost of TEA-99, CUP-01 and 17 more", [PRICE])[0] > 0.05


@pytest.mark.parametrize(
    "schema", [{}, {"properties": None}, {"properties": {"x": True}}], ids=["none", "null", "true"]
)
def test_a_schema_without_parts_has_none(schema):
    assert all(part == {} for part in get_properties(schema).values())


@pytest.mark.parametrize(
    "text", ["", "   ", "the of", "12345", "🦊" * 50], ids=["empty", "blank", "common", "digits", "foxes"]
)
def test_a_text_that_says_nothing_is_like_no_tool(text):
    assert max(score_similarity(text, [PRICE, WEATHER])) < 0
    assert score_similarity(text, []) == []
