"""In a chat, the key of a call survives crashes, and rules see where the conversation comes from."""

import asyncio
from contextlib import suppress

import pytest

from toolmason import (
    Abort,
    Allow,
    Edit,
    Limits,
    Message,
    Toolbox,
    ToolCall,
    ToolContext,
    WebSearch,
    WindowMemory,
    tool,
)
from toolmason.chat.chat import Chat
from toolmason.chat.durable.effects import NotExecuted
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.loop import before_loop, inside_loop
from toolmason.chat.run.model_calls import assign_call_ids
from toolmason.errors import ModelError
from toolmason.models import ModelReply, Usage
from toolmason.models.scripted import ScriptedModel

SEEN: list[tuple[str, str | None]] = []


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


@tool(idempotent=True, repeats="allow")
async def pay(ctx: ToolContext, amount: int = 1, crash_at: int = 0) -> str:
    """Pay."""
    SEEN.append((ctx.idempotency_key, ctx.run_id))
    if len(SEEN) == crash_at:
        raise Abort("the power failed")
    return f"paid {amount}"


@tool(read_only=True, open_world=True)
def fetch() -> str:
    """Fetch a page."""
    return "a page"


@tool(approval=lambda arguments, ctx: "web" in ctx.origins)
def mail() -> str:
    """Send a mail."""
    return "sent"


def get_keys():
    return [key for key, _ in SEEN]


# --- keys ----------------------------------------------------------------------------------------


async def test_each_call_of_a_run_has_its_own_key():
    model = ScriptedModel([[("pay", {}), ("pay", {})], [("pay", {})], "done"])

    reply = await Chat(model, [pay]).send("go")

    assert len(set(get_keys())) == 3
    assert {run for _, run in SEEN} == {reply.run}


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("place", [before_loop, inside_loop])
async def test_an_advisor_may_ask_again(tmp_path, place, journal):
    @place
    async def insist(turn, following):
        replies = [await following(turn) for _ in range(3)]
        return replies[-1]

    def answer(text):
        return ModelReply(Message("assistant", text), usage=Usage(10, 10))

    runtime = SqliteRuntime(tmp_path / "runs.db") if journal else None
    model = ScriptedModel([*map(answer, ["bad", "worse", "good"])])

    for _ in range(2 if journal else 1):
        reply = await Chat(model, [pay], advisors=[insist], runtime=runtime).send("go", run="r")
        assert (reply.text, reply.usage.total_tokens, len(model.requests)) == ("good", 60, 3)


async def test_a_request_after_one_that_failed_is_read_from_the_journal(tmp_path):
    async def retry(turn, following):
        try:
            return await following(turn)
        except ModelError:
            return await following(turn)

    def fail(request):
        raise ModelError("m", "busy", retryable=True)

    runtime = SqliteRuntime(tmp_path / "runs.db")
    model = ScriptedModel([fail, [("pay", {"crash_at": 1})], [("pay", {"amount": 2})]])
    with pytest.raises(Abort):
        await Chat(model, [pay], advisors=[retry], runtime=runtime).send("go", run="r")

    again = ScriptedModel(["done"])
    reply = await Chat(again, [pay], advisors=[retry], runtime=runtime).send("go", run="r")

    assert (reply.text, len(again.requests)) == ("done", 1)
    assert [effect.key for effect in runtime.effects("r")] == ["1/model", "1/0/pay", "2/model"]


@before_loop
async def twice(turn, following):
    """Run the loop again."""
    await following(turn)
    return await following(turn)


@pytest.mark.parametrize("journal", [True, False])
async def test_a_loop_that_runs_again_makes_calls_of_its_own(tmp_path, journal):
    runtime = SqliteRuntime(tmp_path / "runs.db") if journal else None
    model = ScriptedModel([[("pay", {"amount": 1})], "done", [("pay", {"amount": 2})], "done"])

    reply = await Chat(model, [pay], advisors=[twice], runtime=runtime).send("go")

    assert [result.text for result in reply.results] == ["paid 1", "paid 2"]
    assert (len(set(get_keys())), reply.turns) == (2, 4)


@pytest.mark.parametrize("journal", [True, False])
async def test_a_loop_does_not_run_again_if_the_run_waits_for_a_decision(tmp_path, journal):
    runtime = SqliteRuntime(tmp_path / "runs.db") if journal else None
    model = ScriptedModel([[("pay", {"amount": 1})], "done", [("pay", {"amount": 2})], "done"])
    box = Toolbox(pay, approve="all")
    chat = Chat(model, box, advisors=[twice], runtime=runtime)

    waiting = await chat.send("go")
    [request] = waiting.pending
    reply = await chat.resume(waiting, [box.approvals.decide(request, Allow())])

    assert (waiting.turns, waiting.results[0].error.code) == (1, "approval_required")
    assert reply.results[0].text == "paid 1"


async def test_a_loop_does_not_run_again_beyond_a_limit():
    @before_loop
    async def often(turn, following):
        for _ in range(4):
            reply = await following(turn)
        return reply

    model = ScriptedModel([[("pay", {"amount": number})] for number in range(9)])

    reply = await Chat(model, [pay], advisors=[often], limits=Limits(steps=2)).send("go")

    assert (reply.finish, reply.limit, len(model.requests)) == ("limit", "limit of 2 steps", 2)


async def test_a_call_that_is_executed_again_after_a_crash_has_the_same_key(tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")
    with pytest.raises(Abort):
        await Chat(ScriptedModel([[("pay", {"crash_at": 1})]]), [pay], runtime=runtime).send("go", run="a")

    await Chat(ScriptedModel(["done"]), [pay], runtime=runtime).send("go", run="a")
    await Chat(ScriptedModel([[("pay", {})], "done"]), [pay], runtime=runtime).send("go", run="b")

    first, second, other = get_keys()
    assert first == second != other


async def test_a_chat_that_is_called_as_a_tool_keeps_its_keys_over_a_crash(tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")

    def make_chat(outer, inner):
        return Chat(ScriptedModel(outer), [Chat(ScriptedModel(inner), [pay]).as_tool("clerk", "Pay.")], runtime=runtime)

    with pytest.raises(Abort):
        await make_chat([[("clerk", {"prompt": "pay"})]], [[("pay", {"crash_at": 1})]]).send("go", run="a")
    await make_chat(["done"], ["paid"]).send("go", run="a")

    assert len(SEEN) == 2
    assert len(set(SEEN)) == 1
    assert (SEEN[0][1] or "").startswith("a/")


@pytest.mark.parametrize("verdict", [Allow(), Edit({"amount": 7})], ids=["allow", "edit"])
async def test_a_decision_does_not_change_the_key(verdict):
    keys = []
    for decided in (Allow(), verdict):
        box = Toolbox(pay, approve="all")
        reply = await Chat(ScriptedModel([[("pay", {"amount": 1})]]), box).send("go", run="a")
        decision = box.approvals.decide(reply.pending[0], decided)
        await Chat(ScriptedModel(["done"]), box).resume(reply.save(), [decision])
        keys.append(get_keys()[-1])

    assert keys[0] == keys[1]


async def test_reconcile_has_the_key_of_the_call(tmp_path):
    runtime, asked = SqliteRuntime(tmp_path / "runs.db"), []

    def reconcile(arguments, ctx):
        asked.append(ctx.idempotency_key)
        return NotExecuted()

    @tool(reconcile=reconcile)
    async def order(ctx: ToolContext) -> str:
        """Order."""
        SEEN.append((ctx.idempotency_key, ctx.run_id))
        if len(SEEN) == 1:
            raise Abort("the power failed")
        return "ordered"

    with pytest.raises(Abort):
        await Chat(ScriptedModel([[("order", {})]]), [order], runtime=runtime).send("go", run="a")
    await Chat(ScriptedModel(["done"]), [order], runtime=runtime).send("go", run="a")

    assert {*asked, *get_keys()} == {get_keys()[0]}
    assert len(asked) == 1


# --- origins -------------------------------------------------------------------------------------


async def test_a_rule_sees_the_origins_of_earlier_runs_in_the_memory():
    memory = WindowMemory()
    await Chat(ScriptedModel([[("fetch", {})], "read"]), [fetch, mail], memory=memory).send("read", conversation="a")

    asked = await Chat(ScriptedModel([[("mail", {})]]), [mail], memory=memory).send("mail", conversation="a")
    other = await Chat(ScriptedModel([[("mail", {})], "done"]), [mail], memory=memory).send("mail", conversation="b")

    assert [request.origins for request in asked.pending] == [("web",)]
    assert other.results[0].text == "sent"


async def test_the_origin_comes_back_from_the_journal(tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")
    model = ScriptedModel([[("fetch", {})], [("pay", {"crash_at": 1})]])
    with pytest.raises(Abort):
        await Chat(model, [fetch, pay, mail], runtime=runtime).send("go", run="a")

    reply = await Chat(ScriptedModel([[("mail", {})]]), [fetch, pay, mail], runtime=runtime).send("go", run="a")

    assert reply.results[0].origin == "web"
    assert reply.pending[0].origins == ("own", "web")


async def test_the_answer_of_a_chat_has_the_origin_of_what_it_read():
    reader = Chat(ScriptedModel([[("fetch", {})], "read"]), [fetch]).as_tool("reader", "Read.")
    model = ScriptedModel([[("reader", {"prompt": "read"})], [("mail", {})]])

    reply = await Chat(model, [reader, mail]).send("go")

    assert reply.results[0].origin == "web"
    assert reply.pending[0].tool == "mail"


async def test_a_chat_that_is_called_as_a_tool_knows_what_its_caller_read():
    clerk = Chat(ScriptedModel([[("mail", {})]]), [mail]).as_tool("clerk", "Write.")
    model = ScriptedModel([[("fetch", {})], [("clerk", {"prompt": "mail"})]])

    reply = await Chat(model, [fetch, clerk]).send("go")

    assert [(request.path, request.origins) for request in reply.pending] == [("clerk / mail", ("web",))]


async def test_a_search_that_the_provider_does_not_report_counts_as_web():
    message = Message("assistant", "found", [ToolCall("1", "mail", {})])

    reply = await Chat(ScriptedModel([ModelReply(message)]), Toolbox(mail, WebSearch())).send("go")

    assert reply.pending[0].origins == ("web",)


async def test_an_advisor_sees_the_origins():
    seen = []

    async def advisor(turn, call_next):
        seen.append([message.origins for message in turn.request.messages])
        return await call_next(turn)

    await Chat(ScriptedModel([[("fetch", {})], "done"]), [fetch], advisors=[advisor]).send("go")

    assert seen[-1] == [frozenset(), frozenset(), {"web"}]


def ask_until_good(place):
    @place
    async def until_good(turn, following):
        while True:
            reply = await following(turn)
            if reply.message.text == "good":
                return reply

    return until_good


@pytest.mark.timeout(20)
@pytest.mark.parametrize("place", [before_loop, inside_loop])
@pytest.mark.parametrize(
    ("limits", "limit", "requests"),
    [(Limits(steps=5), "limit of 5 steps", 5), (Limits(tokens=5000), "limit of 5000 tokens", 3)],
    ids=["steps", "tokens"],
)
async def test_an_advisor_that_never_stops_asking_ends_with_the_run(place, limits, limit, requests):
    bad = ModelReply(Message("assistant", "bad"), usage=Usage(1000, 1000))
    model = ScriptedModel([bad] * 100)

    reply = await Chat(model, advisors=[ask_until_good(place)], limits=limits).send("go")

    assert (reply.finish, reply.limit, reply.text, len(model.requests)) == ("limit", limit, "bad", requests)


@pytest.mark.timeout(20)
async def test_a_run_can_be_cancelled_while_an_advisor_asks_in_spite_of_the_limit():
    @before_loop
    async def stubborn(turn, following):
        while True:
            with suppress(Exception):
                await following(turn)

    chat = Chat(ScriptedModel(["bad"] * 9), advisors=[stubborn], limits=Limits(steps=2))
    sending = asyncio.ensure_future(chat.send("go"))
    await asyncio.sleep(0.05)
    chat.cancel()

    assert (await sending).finish == "cancelled"


def test_the_ids_of_many_calls_with_one_id_are_made_in_linear_time():
    calls = [ToolCall("x", "pay", {}) for _ in range(50_000)]

    reply = assign_call_ids(ModelReply(Message("assistant", (), calls)), {"x_3"})

    ids = [call.id for call in reply.message.calls]
    assert ids[:4] == ["x", "x_2", "x_4", "x_5"]
    assert len(set(ids)) == len(ids)
