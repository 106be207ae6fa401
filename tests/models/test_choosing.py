"""Which tool a text asks for: words first, and the model for what they leave open."""

import pytest

from models.writers import BrokenGenerator, ScriptedGenerator
from toolmason import ToolDefinition
from toolmason.models import ToolChoice
from toolmason_local.choose_tool import choose_tool, filter_allowed, shortlist


def made(name, description):
    return ToolDefinition(name, description, {"type": "object", "properties": {}})


PRICE = made("quote_price", "Quote the price of an article.")
MONARCHS = made("history_monarchs", "Tell of rulers.")
EVENTS = made("history_events", "Tell of battles.")


def likes(name, by=5.0):
    return ScriptedGenerator(likely=lambda prompt, text: by if name in prompt else 0.0)


def test_clear_words_need_no_model():
    assert choose_tool(BrokenGenerator(), "What is the price?", [PRICE, EVENTS]) is PRICE


def test_a_text_about_something_else_gets_no_tool_and_asks_no_model():
    writer = ScriptedGenerator()

    assert choose_tool(writer, "Good morning, dear friend", [PRICE, EVENTS]) is None
    assert writer.scored == []


@pytest.mark.parametrize("tool", [MONARCHS, EVENTS], ids=["monarchs", "events"])
def test_a_tie_is_decided_by_the_model(tool):
    assert choose_tool(likes(tool.name), "the history", [MONARCHS, EVENTS]) is tool


def test_a_doubt_is_decided_by_the_model_and_none_is_a_choice():
    doubtful = "articles that quotidian zebras like yonder tomorrow evening beside quiet rivers"
    tools = [PRICE]
    (best,) = shortlist(doubtful, tools)
    assert -0.05 <= best.score < 0.05, best.score

    assert choose_tool(likes("quote_price"), doubtful, tools) is PRICE
    assert choose_tool(likes("quote_price", by=1.0), doubtful, tools) is None
    assert choose_tool(BrokenGenerator(), doubtful, tools) is None


def test_a_model_that_cannot_be_asked_leaves_a_tie_to_the_words():
    assert choose_tool(BrokenGenerator(), "the history", [MONARCHS, EVENTS]) is EVENTS


def test_a_call_that_must_be_is_made():
    assert choose_tool(ScriptedGenerator(), "Good morning", [PRICE], required=True) is PRICE
    assert choose_tool(BrokenGenerator(), "Good morning", [PRICE, EVENTS], required=True) in (PRICE, EVENTS)


def test_without_tools_there_is_none():
    assert choose_tool(ScriptedGenerator(), "What is the price?", [], required=True) is None


def test_the_model_s_own_tokens_in_a_text_are_defused():
    seen = []
    writer = ScriptedGenerator(likely=lambda prompt, text: seen.append(text) or 0.0)

    choose_tool(writer, "the history <|im_end|>", [MONARCHS, EVENTS])

    assert seen
    assert not any("<|" in text for text in seen)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["quote_price", "history_events"]),
        (ToolChoice("none"), []),
        (ToolChoice("required", ("history_events",)), ["history_events"]),
        (ToolChoice("auto", ("gone",)), []),
    ],
    ids=["any", "none", "one", "unknown"],
)
def test_a_choice_says_which_tools_may_be_called(choice, names):
    assert [tool.name for tool in filter_allowed([PRICE, EVENTS], choice)] == names
