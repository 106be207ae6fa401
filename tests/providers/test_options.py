"""One vocabulary of options for every provider: each is translated, or refused with the provider's name."""

import pytest

from chat.simulated_replies import BASES, reply
from models.server import answer, provider
from providers.judges import objections
from providers.samples import CHATS, box
from toolmason import Chat, model
from toolmason._core.toolbox.exchange import OPTIONS
from toolmason._services import SERVICES
from toolmason.errors import ConfigError
from toolmason.models import ModelRequest
from toolmason.providers import codec
from toolmason.providers.option_rules import TRANSLATED, merge_body

MODELS = {"openai": "gpt-5", "openai-chat": "gpt-5", "anthropic": "claude-opus-5", "gemini": "gemini-2.5-pro"}
UNJUDGED = {("gemini", "service_tier")}
"""Fields that google-genai 3.3 sends (`models.py`: `serviceTier`), but that its judges do not know yet."""
VALUES = {
    "max_tokens": 2000,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "stop": ["END"],
    "seed": 7,
    "reasoning": "medium",
    "service_tier": "auto",
    "logprobs": 3,
    "cache": True,
}


def encoded(kind, /, tools=(), name=None, **options):
    return codec(kind).encode(ModelRequest("Hi", tools, options=options), name or MODELS[kind])


def at(body, path):
    for key in path.split("."):
        body = body[key]
    return body


def test_every_translated_option_is_a_known_one():
    assert set(TRANSLATED) <= OPTIONS.keys()
    assert set(VALUES) == set(TRANSLATED)
    assert {option for service in SERVICES.values() for option in service.options} <= OPTIONS.keys()


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("option", VALUES)
def test_an_option_is_translated_or_refused_with_the_name_of_the_provider(kind, option):
    path = SERVICES[kind].options.get(option)

    if path is None:
        with pytest.raises(ConfigError, match=f"^{kind} does not support the option '{option}'"):
            encoded(kind, **{option: VALUES[option]})
        with pytest.raises(ConfigError, match=f"^{kind} does not support"):
            model(f"{kind}:{MODELS[kind]}", api_key="k", options={option: VALUES[option]})
    else:
        body = encoded(kind, **{option: VALUES[option]})
        assert (kind, option) in UNJUDGED or objections(kind, body) == []
        if path and kind == "openai-chat" and option == "max_tokens":
            assert body["max_completion_tokens"] == 2000
        elif path:
            assert at(body, path) is not None


@pytest.mark.parametrize("kind", CHATS)
def test_all_options_together_pass_the_judges(kind):
    usable = SERVICES[kind].options
    known = {name: value for name, value in VALUES.items() if name in usable and (kind, name) not in UNJUDGED}

    assert objections(kind, encoded(kind, box(), **known)) == []


@pytest.mark.parametrize(
    ("kind", "name", "value", "sent"),
    [
        ("openai", "gpt-5", "low", {"reasoning": {"effort": "low"}}),
        ("openai", "gpt-5", 0, {"reasoning": {"effort": "none"}}),
        ("openai-chat", "gpt-5", "high", {"reasoning_effort": "high"}),
        (
            "anthropic",
            "claude-opus-5",
            "low",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        (
            "anthropic",
            "claude-sonnet-4-5",
            "medium",
            {"thinking": {"type": "enabled", "budget_tokens": 8192}, "max_tokens": 8192 + 8192},
        ),
        ("anthropic", "claude-opus-5", 4000, {"thinking": {"type": "enabled", "budget_tokens": 4000}}),
        ("anthropic", "claude-opus-5", 0, {"thinking": {"type": "disabled"}}),
        ("gemini", "gemini-3-pro", "high", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}}),
        ("gemini", "gemini-2.5-flash", "low", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 2048}}}),
        ("gemini", "gemini-2.5-flash", 0, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}),
        ("openrouter", "a/b", 500, {"reasoning": {"max_tokens": 500}}),
    ],
)
def test_reasoning_is_one_word_for_all(kind, name, value, sent):
    body = encoded(kind, name=name, reasoning=value)

    assert sent.items() <= body.items()


@pytest.mark.parametrize(
    ("kind", "option", "value", "told"),
    [
        ("openai", "reasoning", 5000, "openai takes no number of tokens for reasoning"),
        ("mistral", "reasoning", "low", "mistral has no reasoning level 'low'. Use one of: 'high'"),
        ("anthropic", "reasoning", 500, "reasoning of 500 tokens must be at least 1024"),
        ("openai", "max_tokens", 5, "openai: max_tokens must be at least 16"),
        ("gemini", "parallel", False, "gemini does not support the option 'parallel'"),
        ("openai-chat", "temperature", "hot", "must be a number from 0 to 2"),
        ("openai-chat", "max_tokens", 0, "must be a positive integer"),
        ("openai-chat", "stop", [1], "must be a string or a list of strings"),
        ("openai-chat", "reasoning", "much", 'must be "low", "medium", "high"'),
        ("openai-chat", "reasoning", {"effort": "low"}, 'must be "low", "medium", "high"'),
        ("openai-chat", "reasoning", ["low"], 'must be "low", "medium", "high"'),
        ("anthropic", "cache", "2h", 'must be a bool, "5m" or "1h"'),
        ("openai-chat", "seed", True, "must be an integer"),
        ("openai", "service_tier", 5, "must be a string"),
        ("openai", "logprobs", 50, "must be a bool or a number up to 20"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_when_the_model_is_made(kind, option, value, told):
    options = {option: value, **({"max_tokens": 2000} if (kind, option) == ("anthropic", "reasoning") else {})}

    with pytest.raises(ConfigError, match=told):
        model(f"{kind}:claude-sonnet-4-5", api_key="k", base_url="http://127.0.0.1:1/v1", options=options)


def test_a_cached_prompt_of_anthropic_is_marked_twice():
    messages = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]

    body = codec("anthropic").encode(ModelRequest(system("Be brief."), box(), options={"cache": "1h"}), "claude-opus-5")

    assert body["system"] == messages
    assert body["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert objections("anthropic", body) == []


def system(text):
    from toolmason import Message

    return [Message("system", text), Message("user", "Hi")]


# --- fields of one provider ------------------------------------------------------------------------


def test_fields_of_gemini_are_merged_with_the_settings():
    """Review D2: `thinkingConfig` threw `max_tokens`, `temperature` and `stop` away."""
    body = encoded("gemini", max_tokens=50, body={"generationConfig": {"thinkingConfig": {"includeThoughts": True}}})

    assert body["generationConfig"] == {"maxOutputTokens": 50, "thinkingConfig": {"includeThoughts": True}}


def test_included_fields_of_openai_are_added_to_those_that_are_needed():
    """Review D2: `include` threw `reasoning.encrypted_content` away."""
    body = encoded("openai", body={"include": ["file_search_call.results", "reasoning.encrypted_content"]})

    assert body["include"] == ["reasoning.encrypted_content", "file_search_call.results"]


def test_tools_of_the_body_are_added_to_those_of_the_toolbox():
    """Review D2: `tools` threw all tools away."""
    body = encoded("openai", box(), body={"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]})

    assert [tool.get("name", tool["type"]) for tool in body["tools"]] == [
        *(tool["name"] for tool in encoded("openai", box())["tools"]),
        "code_interpreter",
    ]


def test_none_removes_a_field():
    body = codec("openai-chat").encode(ModelRequest("Hi", options={"body": {"stream_options": None}}), "m", stream=True)

    assert "stream_options" not in body


@pytest.mark.parametrize("given", [{"messages": "x"}, {"a": {"b": 5}}], ids=["list", "mapping"])
def test_a_value_does_not_replace_a_mapping_or_a_list_in_silence(given):
    with pytest.raises(ConfigError, match=r"options: body\.\S+=.* would replace the (list|mapping)"):
        merge_body({"messages": [1], "a": {"b": {"c": 1}}}, given)


def test_merging_leaves_its_arguments_as_they_are():
    own, given = {"a": {"b": [1]}, "c": 1}, {"a": {"b": [2], "d": {}}, "c": 2}

    assert merge_body(own, given) == {"a": {"b": [1, 2], "d": {}}, "c": 2}
    assert (own, given) == ({"a": {"b": [1]}, "c": 1}, {"a": {"b": [2], "d": {}}, "c": 2})


# --- per model, per chat, per request --------------------------------------------------------------


async def test_options_of_a_request_win_over_those_of_the_chat_and_of_the_model():
    with provider(answer(reply("gemini", "Yes."))) as server:
        options = {"temperature": 0, "max_tokens": 10, "body": {"generationConfig": {"candidateCount": 1}}}
        made = model("gemini:gemini-3-pro", base_url=server.url, api_key="k", options=options)
        async with made:
            chat = Chat(made, options={"max_tokens": 20, "body": {"labels": {"a": "b"}}})
            await chat.send("Hi", options={"max_tokens": 30, "body": {"labels": {"c": "d"}}})
            await chat.send("Hi")

    first, second = (body for _, _, body in server.requests)
    assert first["generationConfig"] == {"temperature": 0, "maxOutputTokens": 30, "candidateCount": 1}
    assert first["labels"] == {"a": "b", "c": "d"}
    assert (second["generationConfig"]["maxOutputTokens"], second["labels"]) == (20, {"a": "b"})


async def test_an_option_that_a_provider_does_not_have_is_refused_before_anything_is_sent():
    made = model("anthropic:claude-opus-5", api_key="k", base_url="http://127.0.0.1:1")

    with pytest.raises(ConfigError, match="anthropic does not support the option 'seed'"):
        Chat(made, options={"seed": 1})
    with pytest.raises(ConfigError, match="anthropic does not support the option 'seed'"):
        await Chat(made).send("Hi", options={"seed": 1})


@pytest.mark.parametrize("kind", CHATS)
async def test_headers_go_with_every_request(kind):
    with provider(answer(reply(kind, "Yes."))) as server:
        headers = {"HTTP-Referer": "https://me.example", "X-Gateway-Token": "s3cr3t-token"}
        async with model(f"{kind}:m", base_url=server.url + BASES[kind], api_key="k", headers=headers) as made:
            await made.respond(ModelRequest("Hi"))

    sent = {name.lower(): value for name, value in server.requests[0][1].items()}
    assert (sent["http-referer"], sent["x-gateway-token"]) == ("https://me.example", "s3cr3t-token")
    assert "s3cr3t" not in repr(made)


async def test_a_beta_flag_of_the_caller_is_kept_beside_that_of_a_field():
    from toolmason import RemoteMcp

    with provider(answer(reply("anthropic", "Yes."))) as server:
        made = model("anthropic:m", base_url=server.url, api_key="k", headers={"Anthropic-Beta": "mine-2026"})
        async with made:
            await made.respond(ModelRequest("Hi", [RemoteMcp("crm", "https://crm.example")]))

    sent = {name.lower(): value for name, value in server.requests[0][1].items()}
    assert sent["anthropic-beta"] == "mine-2026,mcp-client-2025-11-20"


@pytest.mark.parametrize("headers", [{"a": "b\r\nc: d"}, {"": "x"}, {"a": 5}, "x", {"a": "é"}], ids=repr)
def test_headers_that_make_no_sense_are_refused(headers):
    with pytest.raises(ConfigError, match="headers="):
        model("openai:m", api_key="k", headers=headers)
