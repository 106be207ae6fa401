"""A server without tools is told of them in words, and its answers are read as calls."""

import json

import jsonschema
import pytest
from pydantic import BaseModel

from providers.judges import objections
from providers.samples import box, transcript
from toolmason import Toolbox, ToolDefinition, WebSearch, tool
from toolmason.errors import DefinitionError
from toolmason.models import ModelRequest, ToolChoice
from toolmason.providers.formats.json_mode import JsonModeCodec

CODEC = JsonModeCodec()


def schema_of(tools, choice=None, **options):
    body = CODEC.encode(ModelRequest("x", tools, choice, options), "m")
    return body["response_format"]["json_schema"]["schema"]


def said(text):
    return CODEC.decode({"choices": [{"finish_reason": "stop", "message": {"content": text}}]})


def test_a_whole_conversation_passes_the_judges():
    body = CODEC.encode(ModelRequest(transcript(), box()), "m")

    assert objections("openai-chat", body) == []
    assert {message["role"] for message in body["messages"]} == {"system", "user", "assistant"}
    assert "the shop is closed" in json.dumps(body["messages"])


@pytest.mark.parametrize(
    ("choice", "options", "turn", "fits"),
    [
        (None, {}, {"answer": "hello"}, True),
        ("required", {}, {"answer": "hello"}, False),
        (None, {}, {"calls": [{"name": "now", "arguments": {}}] * 2}, True),
        (None, {"parallel": False}, {"calls": [{"name": "now", "arguments": {}}] * 2}, False),
        (
            ToolChoice("required", ("now",)),
            {},
            {"calls": [{"name": "shop_find_it", "arguments": {"filters": {}}}]},
            False,
        ),
        (None, {}, {"calls": [{"name": "gone", "arguments": {}}]}, False),
        (None, {}, {"calls": []}, False),
    ],
    ids=["answer", "must call", "two calls", "one at a time", "not allowed", "unknown", "none"],
)
def test_the_schema_of_an_answer_holds_what_was_asked(choice, options, turn, fits):
    schema = schema_of(box(), choice, **options)

    assert jsonschema.Draft202012Validator(schema).is_valid(turn) is fits


def test_two_tools_with_types_of_one_name_keep_them_apart():
    def made(kind):
        class Item(BaseModel):
            value: kind
            next: "Item | None" = None

        def act(item: Item) -> None:
            """Act."""

        act.__annotations__ = {"item": Item}
        return tool(act, name=f"act_{kind.__name__}")

    schema = schema_of(Toolbox(made(int), made(str)))

    check = jsonschema.Draft202012Validator(schema)
    assert check.is_valid({"calls": [{"name": "act_int", "arguments": {"item": {"value": 1, "next": None}}}]})
    assert not check.is_valid({"calls": [{"name": "act_str", "arguments": {"item": {"value": 1, "next": None}}}]})


@pytest.mark.parametrize("ref", ["#/definitions/Text", "#/$defs/Text", "#/properties/a", "#/properties/c/properties/a"])
def test_a_reference_of_a_tool_points_into_its_own_schema(ref):
    """References to anything but `$defs` pointed into the schema of the answer, or to nothing."""
    text = {"type": "string"}
    own = {
        "type": "object",
        "properties": {"a": text, "b": {"$ref": ref}, "c": {"$ref": "#"}},
        "additionalProperties": False,
        "definitions": {"Text": text},
        "$defs": {"Text": text},
    }
    if ref.startswith("#/properties/c"):
        own["properties"]["c"] = {"type": "object", "properties": {"a": text}}
    check = jsonschema.Draft202012Validator(schema_of([ToolDefinition("t", "d", own)], strict=False))

    fits = [
        check.is_valid({"calls": [{"name": "t", "arguments": given}]}) for given in ({"b": "x"}, {"b": 1}, {"c": 1})
    ]

    assert fits == [True, False, False]


def test_no_tools_or_none_wanted_asks_for_plain_words():
    assert "response_format" not in CODEC.encode(ModelRequest("x"), "m")
    assert "response_format" not in CODEC.encode(ModelRequest("x", box(), "none"), "m")


@pytest.mark.parametrize("text", ["plain words", '{"cut": ', "[1]", '{"other": 1}'])
def test_an_answer_in_another_form_is_what_the_model_said(text):
    reply = said(text)

    assert (reply.text, reply.calls) == (text, ())


@pytest.mark.parametrize("odd", [[], [1], 0, 7, False])
def test_arguments_that_are_no_object_are_kept_as_they_came(odd):
    calls = said(json.dumps({"calls": [{"name": "now", "arguments": odd}, {"arguments": {}}]})).calls

    assert [(call.name, call.raw) for call in calls] == [("now", json.dumps(odd)), ("", {})]


def test_what_a_provider_runs_cannot_be_offered():
    with pytest.raises(DefinitionError, match="needs a server with tool support"):
        CODEC.encode(ModelRequest("x", [WebSearch()]), "m")
