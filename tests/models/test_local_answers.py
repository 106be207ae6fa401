"""Sentences about results: nothing may be in them that is not in the result, the arguments or the request."""

import pytest

from toolmason import ToolCall, ToolDefinition, ToolResult
from toolmason.errors import ToolError
from toolmason_local.answers import choose_answer, describe_intent, is_supported, summarize_results
from toolmason_local.grounding import choose_named, copy_strings, drop_unmentioned, find_copy


def make_result(text):
    return ToolResult("1", "quote_price", text=text, value=text)


CALL = ToolCall("1", "quote_price", {"sku": "TEA-01", "quantity": 3})


@pytest.mark.parametrize(
    ("sentence", "is_used"),
    [
        ("3 x TEA-01 cost 13.5 euros.", True),
        ("3 x TEA-01 cost 13.50 euros.", True),
        ("3 x TEA-01 cost 14.5 euros.", False),
        ("3 x TAE-01 cost 13.5 euros.", False),
        ("The price for Bob is 13.5.", False),
        ("TEA-01 costs 13.5 euros.", False),
        ("", False),
    ],
)
def test_a_sentence_is_used_only_if_everything_in_it_is_known(sentence, is_used):
    answer = choose_answer(sentence, make_result("13.5"), [CALL], "What do 3 TEA-01 cost?")

    assert answer == (sentence if is_used else "quote price (TEA-01, 3): 13.5")


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("3 x TEA-01 cost 13.5 euros.", "3 x TEA-01 cost 13.5 euros."),
        ("3 x CUP-01 cost 13.5 euros.", "3 x TEA-01 cost 13.5 euros."),
        ("4 x TEA-01 cost 13.5 euros.", "3 x TEA-01 cost 13.5 euros."),
        ("5 x TEA-01 cost 13.5 euros.", "quote price (TEA-01, 3): 13.5"),
        ("4-4 x TEA-01 cost 13.5 euros.", "quote price (TEA-01, 3): 13.5"),
        ("3 x TEA-01 and CUP-01 cost 13.5 euros.", "quote price (TEA-01, 3): 13.5"),
    ],
)
def test_a_sentence_about_one_of_several_calls_names_the_values_of_that_call(sentence, wanted):
    other = ToolCall("2", "quote_price", {"sku": "CUP-01", "quantity": 4})

    assert choose_answer(sentence, make_result("13.5"), [CALL, other], "What do 3 TEA-01 and 4 CUP-01 cost?") == wanted


def test_a_number_of_the_result_is_not_replaced():
    other = ToolCall("2", "quote_price", {"sku": "CUP-01", "quantity": 4})

    assert choose_answer("TEA-01 cost 4 euros.", make_result("4"), [CALL, other], "") == "quote price (TEA-01, 3): 4"


def test_the_number_of_items_in_a_list_may_be_said():
    assert is_supported("There are 3 notes: a, b and c.", ['["a", "b", "c"]'])
    assert not is_supported("There are 7 notes: a, b and c.", ['["a", "b", "c"]'])
    assert is_supported("There is 1 note.", ['["a"]'])


@pytest.mark.parametrize("result", ["open from six to ten", '{"from": "six", "to": "ten"}'])
def test_a_result_that_is_not_a_list_has_no_number_of_items(result):
    assert not is_supported("There are 1 hours.", [result, "When are you open, please?"])


@pytest.mark.parametrize("value", [["sea", "sun"], {"sea": 2}], ids=["list", "object"])
def test_a_sentence_may_be_about_a_call_with_a_list_or_an_object(value):
    call = ToolCall("1", "tag_photo", {"photo": "P7", "tags": value})

    assert choose_answer("P7 is done: sea 2.", make_result("P7: 2"), [call], "Tag P7 with sea") == "P7 is done: sea 2."


def test_a_long_result_is_shown_as_it_is():
    text = "word " * 200

    assert choose_answer("All done.", make_result(text), [CALL], "x") == f"quote price (TEA-01, 3): {text.strip()}"


def test_results_without_a_sentence_are_shown():
    failed = ToolResult("2", "cancel_order", error=ToolError("No order 7."))

    assert summarize_results([make_result("13.5"), failed], []) == "quote price: 13.5\ncancel order failed: No order 7."
    assert summarize_results([make_result("a\nb")], []) == "quote price:\na\nb"
    assert summarize_results([make_result("Success")], []) == "quote price: done."


def test_help_lists_the_tools():
    tools = [ToolDefinition(f"t{number}", f"Do thing {number}.\nMore.", {"type": "object"}) for number in range(10)]

    assert describe_intent("help", tools[:2]) == "I can: do thing 0; do thing 1."
    assert describe_intent("none", tools).startswith("None of my tools fits. I can: do thing 0; ")
    assert describe_intent("none", tools).endswith("; and 2 more.")
    assert describe_intent("help", []) == "I have no tools."
    assert describe_intent("thanks", tools) == "You're welcome."


@pytest.mark.parametrize(
    ("text", "copy"),
    [
        ("TAE-02", "TEA-02"),
        ("brno", "Brno"),
        ("2026-12-02", "2026-12-01"),
        ("call mum", "call mom"),
        ("15/100*240", "15/100*240"),
        ("yes", "yes"),
        ("", ""),
    ],
)
def test_a_near_copy_becomes_a_copy(text, copy):
    request = "On 2026-12-01, call mom about TEA-02 in Brno."

    assert find_copy(text, request) == copy


@pytest.mark.parametrize(
    ("values", "request_text", "day"),
    [
        ({}, "When are you open on weekends?", "weekend"),
        ({"day": "weekday"}, "What are the opening hours on the weekend?", "weekend"),
        ({"day": "weekday"}, "weekday or weekend?", "weekday"),
        ({}, "When are you open?", None),
    ],
)
def test_a_choice_that_the_request_names_is_sent(values, request_text, day):
    schema = {"properties": {"day": {"enum": ["weekday", "weekend"]}, "year": {"type": "integer"}}}

    assert choose_named(values, schema, request_text).get("day") == day


def test_an_optional_argument_needs_a_mention_unless_it_is_a_boolean():
    schema = {"properties": {"chapter": {"type": "integer"}, "night": {"type": "boolean"}, "lang": {"type": "string"}}}
    values = {"chapter": 31, "night": False, "lang": "de"}

    assert drop_unmentioned(values, schema, "open the book at chapter thirty-one") == {"chapter": 31, "night": False}


def test_choices_numbers_and_times_stay_as_they_are():
    schema = {
        "type": "object",
        "properties": {
            "unit": {"enum": ["celsius"]},
            "at": {"type": "string", "format": "time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"$ref": "#/$defs/place"},
        },
        "$defs": {"place": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }
    values = {"unit": "celsius", "at": "09:15", "tags": ["TAE-02", 5], "where": {"name": " brno"}}

    assert copy_strings(values, schema, "Celcius for TEA-02 in Brno at 9:15") == {
        "unit": "celsius",
        "at": "09:15",
        "tags": ["TEA-02", 5],
        "where": {"name": "Brno"},
    }
