"""A toolbox gives its tools as each provider's API takes them."""

import json

import pytest

from providers.judges import objections
from providers.samples import CHATS, box, find_it, get_weather, now
from toolmason import Tool, Toolbox, ToolDefinition, WebSearch, tool
from toolmason.errors import ConfigError, LossyDefinition, UnsupportedProvider
from toolmason.models import ModelRequest
from toolmason.providers import codec

STRICT_WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "City name"},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None], "description": "Default: C."},
        "days": {"type": ["integer", "null"], "description": "Default: 1."},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}


def test_responses_has_flat_tools_that_are_strict_where_nothing_gets_lost():
    assert Toolbox(get_weather).definitions("openai") == [
        {
            "type": "function",
            "name": "get_weather",
            "description": "Current weather in a city.",
            "parameters": STRICT_WEATHER,
            "strict": True,
        }
    ]


def test_chat_completions_has_nested_tools():
    assert Toolbox(get_weather).definitions("openai-chat") == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Current weather in a city.",
                "parameters": STRICT_WEATHER,
                "strict": True,
            },
        }
    ]


def test_anthropic_gets_the_schema_as_it_is():
    made = Toolbox(get_weather).definitions("anthropic")

    assert made[0]["input_schema"] == Toolbox(get_weather)["get_weather"].definition.input_schema
    assert "strict" not in made[0]


def test_gemini_gets_one_tool_with_all_functions_and_no_schema_where_there_are_no_parameters():
    made = Toolbox(get_weather, now).definitions("gemini")

    assert [d["name"] for d in made[0]["functionDeclarations"]] == ["get_weather", "now"]
    assert "parametersJsonSchema" not in made[0]["functionDeclarations"][1]


def test_mcp_keeps_the_name_and_the_output_schema():
    made = Toolbox(find_it).definitions("mcp")

    assert made[0]["name"] == "shop_find_it"
    assert made[0]["outputSchema"]["properties"] == {"result": {"type": "string"}}


@pytest.mark.parametrize("name", ["OpenAI", " GEMINI ", "openai_chat", "Anthropic", "MCP"])
def test_the_name_of_a_provider_is_read_without_regard_to_case(name):
    assert box().definitions(name)


@pytest.mark.row("L4-25", "L4-26")
@pytest.mark.parametrize("name", ["mystery", "", None, 3])
def test_an_unknown_provider_is_an_error_that_names_the_known_ones(name):
    with pytest.raises(UnsupportedProvider) as caught:
        box().definitions(name)

    assert caught.value.known[:5] == ("openai", "openai-chat", "anthropic", "gemini", "mcp")
    assert isinstance(caught.value, ValueError)


def test_a_wish_for_strictness_that_is_none_is_an_error():
    with pytest.raises(ConfigError, match="strict='yes'"):
        box().definitions("openai", strict="yes")


@pytest.mark.parametrize("provider", [*CHATS, "mcp"])
@pytest.mark.parametrize("strict", ["auto", False])
def test_the_bytes_are_the_same_from_one_call_to_the_next_and_from_one_toolbox_to_another(provider, strict):
    first = box()

    made = [json.dumps(each.definitions(provider, strict)) for each in (first, first, box())]

    assert made[0] == made[1] == made[2]


def test_adding_a_tool_is_seen_at_once():
    toolbox = Toolbox(get_weather)
    toolbox.definitions("openai")

    toolbox.add(now)

    assert [d["name"] for d in toolbox.definitions("openai")] == ["get_weather", "now"]


def test_a_caller_may_add_a_key_to_a_definition():
    toolbox = Toolbox(get_weather)

    toolbox.definitions("anthropic")[0]["cache_control"] = {"type": "ephemeral"}

    assert "cache_control" not in toolbox.definitions("anthropic")[0]


def test_a_parameter_that_two_tools_have_in_common_is_adapted_once():
    schema = {"type": "object", "properties": {"days": {"type": ["array"], "items": {"type": "string"}}}}
    again = json.loads(json.dumps(schema))

    first, second = Toolbox(
        Tool.from_schema("a", "A.", schema, print), Tool.from_schema("b", "B.", again, print)
    ).definitions("openai")

    assert first["parameters"]["properties"]["days"] is not schema["properties"]["days"]
    assert first["parameters"]["properties"]["days"]["items"] is second["parameters"]["properties"]["days"]["items"]


def test_strict_false_is_never_strict_and_changes_nothing():
    made = Toolbox(get_weather).definitions("openai", strict=False)[0]

    assert made["strict"] is False
    assert made["parameters"] == Toolbox(get_weather)["get_weather"].definition.input_schema


def test_strict_true_refuses_what_would_change_its_meaning_and_says_where():
    with pytest.raises(
        LossyDefinition, match=r"'shop.find it' .* openai .*\$.filters: any key is allowed here"
    ) as caught:
        Toolbox(find_it).definitions("openai", strict=True)

    assert caught.value.losses[0].changes_meaning


def test_lossy_allows_it():
    made = Toolbox(find_it).definitions("openai", strict=True, lossy=True)

    assert made[0]["parameters"]["properties"]["filters"]["additionalProperties"] is False


def test_anthropic_is_strict_where_it_is_asked_for():
    made = Toolbox(get_weather).definitions("anthropic", strict=True)[0]

    assert made["strict"] is True
    assert made["input_schema"]["required"] == ["city"]
    assert made["input_schema"]["additionalProperties"] is False


async def test_a_null_that_stands_for_left_out_gives_the_default():
    result = await Toolbox(get_weather).call("get_weather", '{"city": "Oslo", "unit": null, "days": null}')

    assert result.text == "21 C in Oslo"


@pytest.mark.parametrize("provider", CHATS)
@pytest.mark.parametrize("strict", ["auto", True, False])
def test_every_definition_passes_the_judges(provider, strict):
    request = ModelRequest("hello", box(), None, {"strict": strict, "lossy": True})

    assert objections(provider, codec(provider).encode(request, "m")) == []


def test_names_that_an_api_refuses_have_aliases_that_lead_back():
    names = ["shop.find", "shop find", "shop_find", "größe", "9lives", "x" * 100, "good"]
    tools = [Tool.from_schema(name, "d", {"properties": {}}, lambda a, c: None) for name in names]
    offer = codec("openai-chat").fit_tools(tuple(t.definition for t in tools), ())

    aliases = {name: offer.names.get_alias(name) for name in names}

    assert len(set(aliases.values())) == len(names)
    assert all(alias.isascii() and len(alias) <= 64 for alias in aliases.values())
    assert {name: offer.names.get_name(alias) for name, alias in aliases.items()} == {name: name for name in names}
    assert aliases["shop_find"] == "shop_find"
    assert aliases["good"] == "good"


def test_a_view_keeps_what_the_provider_runs_unless_it_is_left_out():
    toolbox = Toolbox(get_weather, now, WebSearch())

    assert len(toolbox.definitions("openai")) == 3
    assert len(toolbox.exclude("web_*").definitions("openai")) == 2
    assert [d["type"] for d in toolbox.select("web_*").definitions("openai")] == ["web_search"]
    assert len(toolbox.select(read_only=True).definitions("openai")) == 0
    assert len(Toolbox(toolbox).definitions("openai")) == 3
    assert len((Toolbox(now) | Toolbox(WebSearch())).definitions("openai")) == 2


def test_a_tool_that_reads_long_results_is_offered_as_soon_as_there_is_one():
    @tool(max_result_bytes=300)
    def long() -> str:
        """Say much."""
        return "word " * 1000

    toolbox = Toolbox(long)
    before = len(toolbox.definitions("openai"))

    toolbox.call_sync("long")

    assert len(toolbox.definitions("openai")) == before + 1


@pytest.mark.parametrize(
    "names",
    [("a.b", "a_b", "a_b_2e7336dc"), ("a.b", "a b", "a.b_2e7336dc"), ("a.b", "a_b", "a_b_2e7336dc", "a.b_2e7336dc")],
    ids=["legal", "sanitized", "both"],
)
def test_a_tool_cannot_take_the_alias_of_another_one(names):
    """The hash in an alias is known beforehand: a server could get the calls of another one."""
    forms = [
        codec("openai").fit_tools(tuple(ToolDefinition(n, "d", {"type": "object"}) for n in order), ()).names
        for order in (names, names[::-1])
    ]

    sent = [[form.get_alias(name) for name in names] for form in forms]

    assert sent[0] == sent[1]
    assert len(set(sent[0])) == len(names)
    assert [forms[0].get_name(alias) for alias in sent[0]] == list(names)
