"""Defects of a review of the formats, each with its number; the others have their tests beside their subject."""

import pytest

from toolmason import Message, Tool, ToolResult
from toolmason.models import CallClosed, ModelRequest
from toolmason.models.http.endpoints import make_endpoint
from toolmason.providers import codec
from toolmason.providers.schema.strict import fit_openai


def read(kind, *events):
    made = codec(kind)
    reader = made.reader(made.no_names)
    seen = [event for data in events for event in reader.feed(data)]
    return seen, reader.end()


def candidate(*parts, **more):
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "plain"])
def test_an_empty_part_of_gemini_is_not_sent_back(streamed):
    """D4: Vertex AI rejects it, and streams often end with one."""
    call = {"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "c2ln"}
    if streamed:
        _, reply = read("gemini", candidate(call), candidate({"text": ""}, finishReason="STOP"))
    else:
        reply = codec("gemini").decode(candidate(call, {"text": ""}, finishReason="STOP"))
    results = Message("tool", results=[ToolResult(reply.calls[0].id, "now", text="12:00")])

    body = codec("gemini").encode(ModelRequest([Message("user", "x"), reply.message, results]), "gemini-3-pro")

    assert body["contents"][1]["parts"] == [call]


def test_an_empty_part_with_a_signature_goes_back():
    signed = {"text": "", "thoughtSignature": "c2ln"}
    _, reply = read("gemini", candidate({"text": "Tea."}), candidate(signed, finishReason="STOP"))

    body = codec("gemini").encode(ModelRequest([Message("user", "x"), reply.message]), "gemini-3-pro")

    assert body["contents"][1]["parts"] == [{"text": "Tea."}, signed]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "array", "items": {"type": "string"}, "enum": ["a"]},
        {"type": "boolean", "enum": ["True", "False"]},
        {"type": "integer", "enum": ["1"]},
    ],
    ids=["array", "boolean", "integer"],
)
def test_an_enum_that_contradicts_its_type_is_not_enforced(part):
    """D5: the strict schema was impossible to satisfy."""
    schema = {"type": "object", "properties": {"x": part}, "required": ["x"], "additionalProperties": False}
    tool = Tool.from_schema("m", "M.", schema, lambda arguments, context: "")

    sent = codec("openai").encode(ModelRequest("x", tool), "gpt-5")["tools"][0]
    strict = fit_openai(schema, True)

    assert sent["strict"] is False
    assert "enum" not in strict.schema["properties"]["x"]
    assert str(part["enum"][0]) in strict.schema["properties"]["x"]["description"]


def test_values_of_an_enum_that_are_impossible_are_left_out():
    schema = {"type": "object", "properties": {"x": {"type": "number", "enum": [1, 2.5, "2"]}}, "required": ["x"]}

    assert fit_openai(schema, True).schema["properties"]["x"]["enum"] == [1, 2.5]


def test_calls_of_a_stream_have_the_order_of_their_index():
    """D7: they had the order in which they were first seen."""

    def piece(index, name):
        function = {"name": name, "arguments": "{}"}
        return {"choices": [{"delta": {"tool_calls": [{"index": index, "id": name, "function": function}]}}]}

    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    seen, reply = read("openai-chat", piece(1, "second"), piece(0, "first"), end)

    assert [call.name for call in reply.calls] == ["first", "second"]
    assert [event.call.name for event in seen if isinstance(event, CallClosed)] == ["first", "second"]


@pytest.mark.parametrize(("value", "base"), [("https://g.example", "/v1beta"), ("https://g.example/v1", "/v1")])
def test_the_address_of_gemini_has_the_variable_of_its_sdk(value, base, monkeypatch):
    """D12: `GEMINI_BASE_URL` was read, which google-genai does not know."""
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", value)

    endpoint = make_endpoint("gemini", "g", base_url=None, api_key="k")

    assert endpoint.url == f"https://g.example{base}/models/g:generateContent"


@pytest.mark.parametrize(
    ("name", "key"),
    [("gpt-oss:20b", "max_tokens"), ("gpt-5", "max_completion_tokens"), ("ft:gpt-4o:me", "max_completion_tokens")],
)
def test_the_limit_of_tokens_has_the_field_that_the_model_knows(name, key):
    """D9: `gpt-oss:20b` on a local server got the field of OpenAI's own models."""
    body = codec("openai-chat").encode(ModelRequest("x", options={"max_tokens": 9}), name)

    assert body[key] == 9


@pytest.mark.parametrize(
    ("name", "included"), [("gpt-5", True), ("o3", True), ("gpt-4.1", False), ("ft:gpt-4.1-mini:me::id", False)]
)
def test_encrypted_reasoning_is_asked_of_models_that_reason(name, included):
    """A fine-tuned model was asked for it, too."""
    assert ("include" in codec("openai").encode(ModelRequest("x"), name)) is included
