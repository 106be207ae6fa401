"""Values that stand in a text."""

import pytest

from toolmason.models.lexical.extraction import find_choices, find_codes, find_numbers, find_quoted
from toolmason_local.readings import expand_name, find_lists, get_nearby_words


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("3 pieces of TEA-01", [3]),
        ("from -4.5 to 1,250,000", [-4.5, 1250000]),
        ("a yield of 5%", [0.05, 5]),
        ("50 million shares, two funds", [50000000, 2]),
        ("$300,000 to $400,000", [300000, 400000]),
        ("on 2024-05-01, a 2x2 table, 10 m^3, v1.2.3", [10]),
        ("no numbers here", []),
    ],
    ids=["code", "sign and thousands", "per cent", "words", "money", "not numbers", "none"],
)
def test_numbers_are_read_as_they_are_meant(text, values):
    assert [found.value for found in find_numbers(text)] == values


def test_a_number_knows_the_words_around_it():
    text = "a 3 bedroom villa for 400 euros"
    three, _ = find_numbers(text)

    assert get_nearby_words(text, three) == ("bedroom", "villa", "a")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("sort [3, 1, 2]", [[3, 1, 2]]),
        ("from (40.7, -74.0) to (34.0, -118.2)", [[40.7, -74.0], [34.0, -118.2]]),
        ("names ['Sam', 'Alice']", [["Sam", "Alice"]]),
        ("an empty one [] and (a remark)", []),
    ],
    ids=["numbers", "points", "words", "none"],
)
def test_lists_are_read_as_they_are_written(text, values):
    assert find_lists(text) == values


def test_quotes_and_codes_are_read():
    assert find_quoted("the film \"Up\" by 'Pete Docter', not Bob's") == ["Up", "Pete Docter"]
    assert find_codes("order A-17, TEA-01 and TEA-01 on 5 May") == ["A-17", "TEA-01"]


def test_a_choice_is_named_by_its_words_in_a_row():
    choices = ["read", "read only", "write", 3]

    assert find_choices("make it Read-only, please", choices) == ["read only", "read"]
    assert find_choices("reading", choices) == []


def test_a_part_of_a_name_is_made_whole():
    text = "Tickets for the concert in New York City. Paris Hilton sings."

    assert expand_name("New York", text) == "New York City"
    assert expand_name("concert", text) == "concert"


@pytest.mark.parametrize("text", ["(" + "1" * 5000, "[" * 3000, "-" * 4000 + "A1", "'" * 3000, "1," * 3000], ids=len)
def test_hostile_texts_are_read_in_no_time(text):
    assert isinstance([*find_numbers(text), *find_lists(text), *find_quoted(text), *find_codes(text)], list)
