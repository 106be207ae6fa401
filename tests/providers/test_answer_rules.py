"""The way in which a typed answer is requested: what the provider, the model and the schema allow."""

import pytest

from providers.judges import objections
from providers.samples import CHATS, get_weather
from toolmason import Toolbox, ToolDefinition
from toolmason.errors import ConfigError
from toolmason.models import AnswerFormat, ModelRequest
from toolmason.providers import codec
from toolmason.providers.answer_rules import choose_answer

CITY = {"type": "string"}
PLAIN = {"type": "object", "properties": {"city": CITY}, "required": ["city"], "additionalProperties": False}
FREE = {**PLAIN, "properties": {"city": {"type": "object", "additionalProperties": CITY}}}
ODD = {**PLAIN, "properties": {"city name": CITY}, "required": ["city name"]}
NATIVE = {"openai": "gpt-5", "openai-chat": "gpt-5", "anthropic": "claude-opus-4-1", "gemini": "gemini-3-pro"}


def chosen(kind, model, schema=PLAIN, *, tools=(), tool_choice=None, **options):
    request = ModelRequest("x", tools, tool_choice, options)
    definition = ToolDefinition("final_answer", "The answer.", schema)
    rules = None if kind is None else codec(kind).rules
    return choose_answer(rules, definition, f"{kind}:{model}", request)


@pytest.mark.parametrize(
    ("kind", "model", "mode"),
    [
        ("openai", "gpt-5-mini", "native"),
        ("openai", "gpt-4o", "native"),
        ("openai", "gpt-4.1", "native"),
        ("openai", "o3", "native"),
        ("openai", "gpt-4", "tool"),
        ("openai", "gpt-3.5-turbo", "tool"),
        ("openai", "my-deployment", "tool"),
        ("openai-chat", "openai/gpt-5", "native"),
        ("openai-chat", "deepseek-chat", "tool"),
        ("anthropic", "claude-sonnet-4-5-20250929", "native"),
        ("anthropic", "claude-haiku-4-5", "native"),
        ("anthropic", "claude-opus-4-1-20250805", "native"),
        ("anthropic", "claude-opus-5", "native"),
        ("anthropic", "claude-opus-4-20250514", "tool"),
        ("anthropic", "claude-sonnet-4-20250514", "tool"),
        ("anthropic", "claude-3-7-sonnet-latest", "tool"),
        ("gemini", "gemini-2.5-flash", "native"),
        ("gemini", "models/gemini-3-pro", "native"),
        ("gemini", "gemini-2.0-flash", "tool"),
        (None, "anything", "tool"),
    ],
)
def test_the_model_decides(kind, model, mode):
    assert chosen(kind, model).mode == mode


def test_a_schema_that_would_change_its_meaning_is_left_to_a_tool():
    modes = {kind: chosen(kind, NATIVE[kind], FREE).mode for kind in CHATS}

    assert modes == {"openai": "tool", "openai-chat": "tool", "anthropic": "tool", "gemini": "native"}


def test_keys_with_aliases_are_left_to_a_tool():
    assert chosen("anthropic", NATIVE["anthropic"], ODD).mode == "tool"
    assert chosen("openai", NATIVE["openai"], ODD).mode == "native"


@pytest.mark.parametrize("kind", [*CHATS, None])
def test_without_tools_json_remains(kind):
    assert chosen(kind, "m", tool_choice="none").mode == "json"


def test_gemini_takes_tools_and_a_schema_from_version_3():
    assert chosen("gemini", "gemini-2.5-pro", tools=[get_weather]).mode == "tool"
    assert chosen("gemini", "gemini-3-pro", tools=[get_weather]).mode == "native"


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", ["native", "tool", "json"])
def test_the_option_decides_if_it_can(kind, mode):
    assert chosen(kind, NATIVE[kind], answer=mode).mode == mode


@pytest.mark.parametrize(("kind", "wanted"), [("openai", "native"), (None, "native"), ("openai", "other")])
def test_a_way_that_is_not_supported_is_refused(kind, wanted):
    with pytest.raises(ConfigError, match="does not support it here"):
        chosen(kind, "gpt-4", answer=wanted)


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", ["native", "json"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_the_body_is_one_that_the_provider_takes(kind, mode, stream):
    request = ModelRequest("Weather?", Toolbox(get_weather))
    answer = chosen(kind, NATIVE[kind], tools=[get_weather], answer=mode)

    body = codec(kind).encode(request.with_messages(request.messages, answer=answer), NATIVE[kind], stream=stream)

    assert objections(kind, body) == []


def test_a_request_with_another_answer_is_encoded_again():
    plain = ModelRequest("x")
    typed = plain.with_messages(plain.messages, answer=AnswerFormat(ToolDefinition("a", "b", PLAIN), "native", PLAIN))

    bodies = [codec("openai").encode(request, "gpt-5") for request in (plain, typed)]

    assert ["text" in body for body in bodies] == [False, True]


@pytest.mark.parametrize("kind", CHATS)
def test_a_field_that_cannot_hold_the_schema_gives_way_to_it(kind):
    answer = AnswerFormat(ToolDefinition("final_answer", "The answer.", PLAIN), "native", PLAIN)
    field = {"openai": "text", "openai-chat": "response_format", "anthropic": "output_config"}.get(
        kind, "generationConfig"
    )
    request = ModelRequest("x", options={"body": {field: "short"}})

    body = codec(kind).encode(request.with_messages(request.messages, answer=answer), NATIVE[kind])

    assert objections(kind, body) == []
