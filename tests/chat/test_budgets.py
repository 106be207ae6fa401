"""Budgets of a run: tokens, cost and steps end it within one request, and count over resumes and crashes."""

import json

import pytest

from toolmason import Allow, Limits, Toolbox, ToolCall, tool
from toolmason.chat import PRICES, Message, Price, SqliteBudget, Usage
from toolmason.chat.chat import Chat
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.run.spending import find_price
from toolmason.errors import ConfigError, DefinitionError, LimitExceeded
from toolmason.models import ModelReply
from toolmason.models.scripted import ScriptedModel


@tool(read_only=True)
def look(n: int) -> int:
    """Look."""
    return n


@tool(destructive=True, approval=True)
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def turn(number, usage, name="look"):
    call = ToolCall(f"call_{number}", name, {"n": number})
    return ModelReply(Message("assistant", "", [call]), finish="calls", usage=usage)


def script(usage, turns=20):
    return ScriptedModel([turn(number, usage) for number in range(turns)])


@pytest.mark.parametrize(
    ("limits", "text", "requests"),
    [
        (Limits(tokens=100), "limit of 100 tokens", 2),
        (Limits(input_tokens=60), "limit of 60 input tokens", 2),
        (Limits(output_tokens=25), "limit of 25 output tokens", 3),
        (Limits(cost=0.1), "cost limit of 0.1", 2),
        (Limits(steps=3), "limit of 3 steps", 3),
        (Limits(tokens=0), "limit of 0 tokens", 0),
    ],
)
async def test_a_budget_ends_the_run_before_the_request_that_it_has_no_room_for(limits, text, requests):
    model = script(Usage(input_tokens=30, output_tokens=10))
    reply = await Chat(model, [look], limits=limits, price=Price(1000, 2000)).send("go")

    assert (reply.finish, reply.limit) == ("limit", text)
    assert len(model.requests) == requests
    assert reply.usage.total_tokens == 40 * requests


async def test_a_request_that_is_known_to_be_too_long_is_not_sent():
    model = ScriptedModel([turn(n, Usage(input_tokens=100 * (n + 1), output_tokens=1)) for n in range(9)])
    reply = await Chat(model, [look], limits=Limits(input_tokens=499)).send("go")

    assert reply.limit == "limit of 499 input tokens"
    assert reply.usage.input_tokens == 300, "the third request has 200 or more: 499 is too little"
    assert len(model.requests) == 2


async def test_the_error_names_the_limit():
    chat = Chat(script(Usage(50, 50)), [look], limits=Limits(tokens=150), on_limit="raise")
    with pytest.raises(LimitExceeded, match="limit of 150 tokens"):
        await chat.send("go")


async def test_a_reply_within_its_budget_names_no_limit():
    model = ScriptedModel([ModelReply(Message("assistant", "hi"), usage=Usage(10, 5))])
    reply = await Chat(model, limits=Limits(tokens=15), price=Price(1_000_000, 2_000_000)).send("go")

    assert (reply.finish, reply.limit, reply.text) == ("stop", "", "hi")
    assert reply.cost == 20


def test_the_price_of_cached_tokens():
    usage = Usage(input_tokens=100, output_tokens=10, cached_tokens=40, cache_write_tokens=20)

    assert Price(1, 10).compute(usage) == pytest.approx(200 / 1e6)
    assert Price(1, 10, cached=0.1, cache_write=2).compute(usage) == pytest.approx((40 + 4 + 40 + 100) / 1e6)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("openai:gpt-5", "openai:gpt-5"),
        ("openai:gpt-5-2025-08-07", "openai:gpt-5"),
        ("anthropic:claude-sonnet-4-5-20250929", "anthropic:claude-sonnet-4-5"),
        ("gemini:gemini-2.5-flash-001", "gemini:gemini-2.5-flash"),
        ("openai:gpt-4.1-mini", "openai:gpt-4.1-mini"),
        ("openai:gpt-4.1-nano", None),
        ("openai:gpt-5.2", None),
        ("gemini:gemini-2.5-flash-lite", None),
    ],
)
def test_another_model_whose_name_begins_alike_has_no_price(name, known):
    assert find_price(PRICES, name) == (None if known is None else PRICES[known])


async def test_a_cost_limit_needs_a_price():
    with pytest.raises(ConfigError, match="price"):
        await Chat(script(Usage()), [look], limits=Limits(cost=1)).send("go")


@pytest.mark.parametrize("wrong", [{"cost": "1"}, {"tokens": 1.5}, {"input_tokens": -1}, {"output_tokens": True}])
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(DefinitionError):
        Limits(**wrong)


@pytest.mark.parametrize("wrong", [{"input": -1, "output": 1}, {"input": 1, "output": 1, "cached": -0.1}])
def test_wrong_prices_are_refused(wrong):
    with pytest.raises(ConfigError):
        Price(**wrong)


async def test_a_resumed_run_continues_its_budget():
    usage = Usage(30, 10)
    box = Toolbox(look, pay, approval_key="k" * 32)
    first = Chat(ScriptedModel([turn(1, usage), turn(2, usage, "pay")]), box, price=Price(1, 1))
    reply = await first.send("go")
    saved = json.loads(json.dumps(reply.save()))
    assert reply.finish == "pending"

    model = ScriptedModel([turn(n, usage) for n in range(3, 9)])
    chat = Chat(model, box, limits=Limits(tokens=120), price=Price(1, 1))
    ended = await chat.resume(saved, [box.approvals.decide(reply.pending[0], Allow())])

    assert (ended.finish, ended.limit) == ("limit", "limit of 120 tokens")
    assert len(model.requests) == 1
    assert ended.usage.total_tokens == 120
    assert ended.cost == pytest.approx(120 / 1e6)


async def test_turns_that_a_journal_replays_count_once(tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")
    limits = Limits(tokens=120)
    broken = ScriptedModel([turn(n, Usage(30, 10)) for n in range(2)])
    with pytest.raises(Exception, match="script"):
        await Chat(broken, [look], runtime=runtime, limits=limits).send("go", run="r")
    model = ScriptedModel([turn(n, Usage(30, 10)) for n in range(2, 9)])
    reply = await Chat(model, [look], runtime=runtime, limits=limits).send("go", run="r")

    assert reply.usage.total_tokens == 120
    assert len(model.requests) == 1
    runtime.close()


# --- shared budgets --------------------------------------------------------------------------------


def hello(budget, **options):
    model = ScriptedModel([ModelReply(Message("assistant", "hello"), usage=Usage(30, 20)) for _ in range(9)])
    return Chat(model, budget=budget, **options)


async def test_a_user_has_one_budget_in_all_chats_and_processes(tmp_path):
    limits = Limits(tokens=100)
    first = SqliteBudget(tmp_path / "b.db", per_user=limits)
    second = SqliteBudget(tmp_path / "b.db", per_user=limits)
    ada = {"user": "ada"}
    replies = [await hello(budget).send("hi", context=ada) for budget in (first, second, first, second)]

    assert [reply.finish for reply in replies] == ["stop", "stop", "limit", "limit"]
    assert replies[-1].limit == "limit of 100 tokens for this user"
    assert first.used(user="ada") == (Usage(60, 40), None)
    others = [{"user": "bob"}, {"user": "ada", "tenant": "x"}]
    assert [(await hello(first).send("hi", context=other)).finish for other in others] == ["stop", "stop"]
    first.close()
    second.close()


async def test_a_conversation_has_a_budget_of_cost(tmp_path):
    budget = SqliteBudget(tmp_path / "b.db", per_conversation=Limits(cost=50))
    price = Price(1_000_000, 1_000_000)
    chat = hello(budget, price=price)
    assert (await chat.send("hi", conversation="c")).finish == "stop"
    assert (await chat.send("hi", conversation="c")).limit == "cost limit of 50 for this conversation"
    assert (await chat.send("hi", conversation="d")).finish == "stop"
    assert budget.used(conversation="c") == (Usage(30, 20), 50)
    with pytest.raises(ConfigError, match="price"):
        await hello(budget).send("hi", conversation="c")
    budget.close()


async def test_a_period_starts_with_the_whole_budget(tmp_path, monkeypatch):
    budget = SqliteBudget(tmp_path / "b.db", per_user=Limits(tokens=50), seconds=60)
    now = 1_000_000.0
    monkeypatch.setattr("toolmason.chat.budget.time.time", lambda: now)
    chat = hello(budget)
    finishes = []
    for now in (1_000_000.0, 1_000_010.0, 1_000_070.0):  # noqa: B007 - the clock reads it
        finishes.append((await chat.send("hi", context={"user": "a"})).finish)  # noqa: PERF401 - as above
    assert finishes == ["stop", "limit", "stop"]
    budget.close()


async def test_a_budget_needs_the_user_or_the_conversation(tmp_path):
    with pytest.raises(ConfigError, match="per user"):
        await hello(SqliteBudget(tmp_path / "u.db", per_user=Limits(tokens=1))).send("hi")
    with pytest.raises(ConfigError, match="per conversation"):
        await hello(SqliteBudget(tmp_path / "c.db", per_conversation=Limits(tokens=1))).send("hi")
    with pytest.raises(ConfigError, match="no limits"):
        SqliteBudget(tmp_path / "n.db")
    with pytest.raises(ConfigError, match="positive"):
        SqliteBudget(tmp_path / "n.db", per_user=Limits(), seconds=0)


async def test_it_ends_a_run_between_two_turns_and_counts_streams(tmp_path):
    budget = SqliteBudget(tmp_path / "b.db", per_user=Limits(tokens=100))
    chat = Chat(script(Usage(30, 10)), [look], budget=budget)
    events = [event async for event in chat.stream("go", context={"user": "a"})]

    assert (events[-1].reply.finish, len(events[-1].reply.steps)) == ("limit", 3)
    budget.close()


async def test_turns_from_a_journal_are_not_counted_again(tmp_path):
    budget = SqliteBudget(tmp_path / "b.db", per_user=Limits(tokens=1000))
    runtime = SqliteRuntime(tmp_path / "runs.db")
    for _ in range(2):
        model = ScriptedModel([turn(1, Usage(30, 10)), "done"])
        await Chat(model, [look], budget=budget, runtime=runtime).send("go", run="r", context={"user": "a"})
    assert budget.used(user="a")[0].total_tokens == 40
    budget.close()
    runtime.close()
