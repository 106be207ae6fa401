"""Tokens by kind, their exact number where an API counts them, and their cost."""

import pytest
from pydantic_core import to_json

from chat.simulated_replies import BASES
from models.server import answer, provider
from providers.samples import box
from toolmason import Chat, Limits, Message, Tool, model
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.chat import PRICES, PRICES_DATE, Price, Usage
from toolmason.errors import ConfigError, ModelError
from toolmason.models import FallbackModel, ModelReply, ModelRequest, ScriptedModel
from toolmason.providers import codec

COUNTS = {"openai": {"input_tokens": 42}, "anthropic": {"input_tokens": 42}, "gemini": {"totalTokens": 42}}
PATHS = {
    "openai": "/v1/responses/input_tokens",
    "anthropic": "/v1/messages/count_tokens",
    "gemini": "/v1beta/models/m:countTokens",
}


@pytest.mark.parametrize("kind", COUNTS)
async def test_an_api_that_counts_tokens_is_asked(kind):
    with provider(answer(COUNTS[kind])) as server:
        async with model(f"{kind}:m", base_url=server.url + BASES[kind], api_key="k") as made:
            count = await made.count_tokens(ModelRequest("Hi", box(), options={"max_tokens": 100}))

    path, _, body = server.requests[0]
    assert (count, path) == (42, PATHS[kind])
    whole = codec(kind).encode(ModelRequest("Hi", box(), options={"max_tokens": 100}), "m")
    if kind == "gemini":
        assert body == {"generateContentRequest": {"model": "models/m", **whole}}
    else:
        assert body["tools"] == whole["tools"]
        assert not body.keys() & {"max_tokens", "max_output_tokens", "store", "include", "stream"}


async def test_a_provider_without_such_an_api_says_so():
    made = model("groq:m", api_key="k", base_url="http://127.0.0.1:1")

    with pytest.raises(ConfigError, match="groq has no API that counts tokens"):
        await made.count_tokens(ModelRequest("Hi"))


async def test_an_answer_without_a_number_is_an_error():
    with provider(answer({"tokens": "many"})) as server:
        async with model("openai:m", base_url=server.url + "/v1", api_key="k") as made:
            with pytest.raises(ModelError, match="has no number of tokens"):
                await made.count_tokens(ModelRequest("Hi"))


def test_an_estimate_is_made_of_what_is_sent():
    """The strict form of a schema has no title."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "default": "a" * 400}}, "title": "T" * 400}
    tool = Tool.from_schema("store", "Store it.", schema, lambda arguments, context: "")

    [sent] = codec("openai").encode(ModelRequest("x", tool), "m")["tools"]

    parts = [sent["name"], sent["description"], sent["parameters"]]
    assert estimate_tokens(tool.definition) == -(-len(to_json(parts)) // 4)
    assert estimate_tokens(tool.definition, "anthropic") > estimate_tokens(tool.definition) + 90


def test_usage_has_every_kind():
    anthropic = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 2}}
    gemini = {"promptTokenCount": 10, "candidatesTokenCount": 5, "toolUsePromptTokenCount": 7}

    first = codec("anthropic").decode({"content": [], "stop_reason": "end_turn", "usage": anthropic}).usage
    second = codec("gemini").decode({"candidates": [{"finishReason": "STOP"}], "usageMetadata": gemini}).usage

    assert first == Usage(10, 5, tool_uses=2)
    assert second == Usage(17, 5, tool_tokens=7)
    assert first + second == Usage(27, 10, tool_tokens=7, tool_uses=2)


# --- costs -----------------------------------------------------------------------------------------


def said(text="Yes.", **fields):
    return ModelReply(Message("assistant", text), usage=Usage(1_000_000, 100_000, cached_tokens=500_000), **fields)


async def test_a_table_has_the_price_of_each_model():
    prices = {"openai:gpt-5": Price(1, 10), "openai:gpt-5-mini": Price(0.1, 1, cached=0)}

    costs = [
        (await Chat(ScriptedModel([said()], name=name), price=prices).send("Hi")).cost
        for name in ("openai:gpt-5-2025-08-07", "openai:gpt-5-mini")
    ]

    assert costs == pytest.approx([2.0, 0.15])


async def test_a_model_without_a_price_is_named():
    reply = await Chat(ScriptedModel([said()], name="x:y"), price={"a:b": Price(1, 1)}).send("Hi")

    assert reply.cost is None
    assert reply.notes == ("x:y has no price; its tokens are not in the cost",)


async def test_a_limit_of_cost_needs_the_price_of_every_model():
    first, second = ScriptedModel([said()], name="a:1"), ScriptedModel([said()], name="b:2")
    chat = Chat(FallbackModel([first, second]), price={"a:1": Price(1, 1)}, limits=Limits(cost=1))

    with pytest.raises(ConfigError, match="A limit of cost requires a price of b:2"):
        await chat.send("Hi")


async def test_the_model_that_answered_has_its_price():
    reply = said(model="b:2")
    prices = {"a:1": Price(1, 1), "b:2": Price(2, 0)}

    got = await Chat(ScriptedModel([reply], name="a:1"), price=prices).send("Hi")

    assert got.cost == pytest.approx(2.0)


async def test_the_table_of_the_package_has_a_date():
    reply = await Chat(ScriptedModel([said()], name="anthropic:claude-sonnet-4-5"), price=PRICES).send("Hi")

    assert reply.cost == pytest.approx((500_000 * 3 + 500_000 * 0.3 + 100_000 * 15) / 1_000_000)
    assert PRICES_DATE == "2026-11"
    assert all(name.partition(":")[2] for name in PRICES)
