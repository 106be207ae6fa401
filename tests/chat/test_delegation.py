"""A chat as a tool: one budget, one cancel, one journal, and approvals that reach the outer reply."""

import asyncio
import json
from typing import Literal, TypedDict

import pytest

from toolmason import Allow, Deny, Limits, Message, Toolbox, ToolCall, ToolContext, ToolError, WindowMemory, tool
from toolmason.chat import CallFinished, Delegated, Delegation, Price, Reply, SqliteBudget, Usage, load_event
from toolmason.chat.chat import Chat
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.run.plan import MAX_DELEGATION_DEPTH
from toolmason.extend import EngineSettings
from toolmason.models import ModelReply
from toolmason.models.scripted import ScriptedModel

RAN: list[str] = []


@tool(read_only=True)
def look(n: int) -> int:
    """Look."""
    RAN.append(f"look {n}")
    return n


@tool(destructive=True, approval=True)
def pay(n: int) -> str:
    """Pay."""
    RAN.append(f"pay {n}")
    return f"paid {n}"


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()


def calls(name, count):
    return [
        ModelReply(Message("assistant", "", [ToolCall(f"c{n}", name, {"n": n})]), finish="calls", usage=Usage(10, 5))
        for n in range(count)
    ]


def ask(name, prompt="do it"):
    return [(name, {"prompt": prompt})]


def nest(inner, name="inner", script=("done",), **options):
    """Return a chat that calls another chat once, and then answers."""
    return Chat(ScriptedModel([ask(name), *script]), [inner.as_tool(name, "An inner chat.")], **options)


# --- arguments and answers -----------------------------------------------------------------------


async def test_the_answer_of_the_chat_is_the_result():
    reply = await nest(Chat(ScriptedModel([*calls("look", 1), "found 0"]), [look])).send("go")

    assert [result.text for result in reply.results] == ["found 0"]
    assert reply.text == "done"
    assert RAN == ["look 0"]


class Found(TypedDict):
    pages: list[int]


async def test_arguments_and_answer_have_types():
    def request(topic: str, depth: Literal["short", "long"] = "short") -> str:
        return f"{depth}: {topic}"

    model = ScriptedModel(['{"pages": [1, 2]}'])
    box = Toolbox(Chat(model, output=Found).as_tool("research", "Research.", prompt=request))
    [definition] = [each.definition for each in box]

    result = await box.call("research", {"topic": "tea", "depth": "long"})
    assert result.value == {"pages": [1, 2]}
    assert result.structured == {"pages": [1, 2]}
    assert model.requests[0].messages[-1].text == "long: tea"
    assert definition.input_schema["required"] == ["topic"]
    assert definition.output_schema["properties"]["pages"]["type"] == "array"
    wrong = await box.call("research", {"topic": "tea", "depth": "deep"})
    assert wrong.error.code == "invalid_arguments"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_prompt_function_may_be_sync_or_async_and_take_a_context(is_async):
    def text(topic: str, context: ToolContext) -> str:
        return f"{topic} for {context['user']}"

    async def text_later(topic: str, context: ToolContext) -> str:
        return text(topic, context)

    model = ScriptedModel(["yes"])
    box = Toolbox(Chat(model).as_tool("ask", "Ask.", prompt=text_later if is_async else text))
    await box.call("ask", {"topic": "tea"}, context={"user": "ada"})

    assert model.requests[0].messages[-1].text == "tea for ada"


async def test_a_wrong_answer_is_an_error_that_the_outer_model_reads():
    inner = Chat(ScriptedModel(["no"] * 3), output=Found, limits=Limits(answers=2))
    reply = await nest(inner).send("go")

    assert reply.finish == "stop"
    assert "limit of 2 answers" in reply.results[0].text


async def test_the_options_of_a_tool_apply():
    inner = Chat(ScriptedModel(["ok"]))
    reply = await Chat(ScriptedModel([ask("inner"), "no"]), [inner.as_tool("inner", "Inner.", approval=True)]).send(
        "go"
    )

    assert reply.pending[0].path == "inner"


# --- one budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(steps=4), "limit of 4 steps"),
        (Limits(calls=4), "limit of 4 calls"),
        (Limits(tokens=45), "limit of 45 tokens"),
        (Limits(cost=0.0001), "cost limit of 0.0001"),
    ],
)
async def test_the_limits_of_the_outer_run_bound_the_inner_one(limits, text):
    inner_model = ScriptedModel(calls("look", 20))
    inner = Chat(inner_model, [look], price=Price(2, 2))
    reply = await nest(inner, limits=limits, price=Price(2, 2)).send("go")

    assert (reply.finish, reply.limit) == ("limit", text)
    assert len(inner_model.requests) <= 4
    assert reply.usage.total_tokens == 15 * len(inner_model.requests)


async def test_three_levels_share_the_steps():
    bottom_model = ScriptedModel(calls("look", 20))
    middle = nest(Chat(bottom_model, [look]), "bottom")
    reply = await nest(middle, "middle", limits=Limits(steps=6)).send("go")

    assert (reply.finish, reply.limit) == ("limit", "limit of 6 steps")
    assert len(bottom_model.requests) == 4


async def test_a_limit_of_the_inner_chat_does_not_end_the_outer_run():
    inner = Chat(ScriptedModel(calls("look", 20)), [look], limits=Limits(steps=2), on_limit="raise")
    reply = await nest(inner).send("go")

    assert (reply.finish, reply.text) == ("stop", "done")
    assert "inner reached its limit of 2 steps" in reply.results[0].text
    [delegation] = reply.delegations
    assert (delegation.finish, delegation.steps, delegation.calls) == ("limit", 2, 2)


async def test_the_time_of_the_outer_run_bounds_the_inner_one():
    class Slow(ScriptedModel):
        async def respond(self, request):
            await asyncio.sleep(30)
            return await super().respond(request)

    reply = await nest(Chat(Slow(["late"])), limits=Limits(seconds=0.2)).send("go")

    assert (reply.finish, reply.limit) == ("limit", "limit of 0.2 seconds")


async def test_usage_and_cost_are_sums_with_a_tree():
    price = Price(1_000_000, 1_000_000)
    bottom = Chat(ScriptedModel([*calls("look", 2), "bottom says"]), [look], price=price)
    middle = nest(bottom, "bottom", price=price)
    reply = await nest(middle, "middle", price=price).send("go")

    assert reply.usage.total_tokens == 30
    assert reply.cost == 30
    [first] = reply.delegations
    [second] = first.delegations
    assert (first.name, first.steps, first.calls, first.cost) == ("middle", 5, 3, 30)
    assert (second.name, second.steps, second.calls, second.run) == ("bottom", 3, 2, f"{first.run}/{second.call_id}")
    assert Delegation.from_dict(json.loads(json.dumps(first.to_dict()))) == first


async def test_a_cost_limit_refuses_a_chat_without_a_price():
    model = ScriptedModel(["free?"])
    reply = await nest(Chat(model), limits=Limits(cost=1), price=Price(1, 1)).send("go")

    assert model.requests == []
    assert "no price" in reply.results[0].text


async def test_the_budget_of_a_user_counts_the_inner_requests_once(tmp_path):
    budget = SqliteBudget(tmp_path / "b.db", per_user=Limits(tokens=40))
    inner = Chat(ScriptedModel(calls("look", 20)), [look], budget=budget)
    reply = await nest(inner, budget=budget).send("go", context={"user": "ada"})

    assert (reply.finish, reply.limit) == ("limit", "limit of 40 tokens for this user")
    assert budget.used(user="ada")[0].total_tokens == 45
    budget.close()


# --- approvals -----------------------------------------------------------------------------------


def payer(answer="paid it", **options):
    return Chat(ScriptedModel([*calls("pay", 1), answer]), [pay], **options)


@pytest.mark.parametrize("levels", [1, 2])
async def test_an_approval_bubbles_up_and_is_decided_in_the_same_process(levels):
    chat = nest(payer(), "clerk")
    if levels == 2:
        chat = nest(chat, "office")
    reply = await chat.send("go")
    path = "clerk / pay" if levels == 1 else "office / clerk / pay"

    assert reply.finish == "pending"
    assert [request.path for request in reply.pending] == [path]
    assert RAN == []

    reply = await chat.resume(reply, [chat.box.approvals.decide(reply.pending[0], Allow())])
    assert (reply.finish, reply.text) == ("stop", "done")
    assert RAN == ["pay 0"]


async def test_it_is_decided_and_resumed_in_another_process():
    def make(clerk_script, middle_script, outer_script):
        clerk = Chat(ScriptedModel(clerk_script), [pay])
        middle = Chat(ScriptedModel(middle_script), [clerk.as_tool("clerk", "Clerk.")])
        box = Toolbox(middle.as_tool("office", "Office."), look, approval_key="k" * 32)
        return Chat(ScriptedModel(outer_script), box)

    first = make(calls("pay", 1), [ask("clerk")], [[*ask("office"), ("look", {"n": 7})]])
    reply = await first.send("go", context={"user": "ada"})
    saved = json.loads(json.dumps(reply.save()))
    request = Reply.load(saved).pending[0]
    assert (request.path, RAN) == ("office / clerk / pay", ["look 7"])

    second = make(["paid it"], ["clerk is done"], ["all done"])
    decision = json.loads(json.dumps(second.box.approvals.decide(request, Allow()).to_dict()))
    ended = await second.resume(saved, [decision], context={"user": "ada"})

    assert (ended.finish, ended.text) == ("stop", "all done")
    assert [result.text for result in ended.results] == ["clerk is done", "7"]
    assert RAN == ["look 7", "pay 0"]
    [office] = ended.delegations
    assert (office.steps, office.calls) == (4, 2)


async def test_without_a_decision_it_keeps_waiting_and_a_denial_reaches_the_inner_model():
    clerk_model = ScriptedModel([*calls("pay", 1), lambda request: request.messages[-1].results[0].text])
    chat = nest(Chat(clerk_model, [pay]), "clerk")
    reply = await chat.send("go")

    waiting = await chat.resume(reply.save(), [])
    assert [request.id for request in waiting.pending] == [request.id for request in reply.pending]
    ended = await chat.resume(waiting.save(), [chat.box.approvals.decide(waiting.pending[0], Deny("too much"))])
    assert "too much" in ended.results[0].text
    assert RAN == []


async def test_two_chats_wait_at_once_and_one_is_decided():
    chat = Chat(
        ScriptedModel([[("one", {"prompt": "a"}), ("two", {"prompt": "b"})], "done"]),
        [payer("first").as_tool("one", "One."), payer("second").as_tool("two", "Two.")],
    )
    reply = await chat.send("go")
    assert [request.path for request in reply.pending] == ["one / pay", "two / pay"]

    reply = await chat.resume(reply.save(), [chat.box.approvals.decide(reply.pending[1], Allow())])
    assert [request.path for request in reply.pending] == ["one / pay"]
    reply = await chat.resume(reply.save(), [chat.box.approvals.decide(reply.pending[0], Allow())])
    assert [result.text for result in reply.results] == ["first", "second"]
    assert RAN == ["pay 0", "pay 0"]


async def test_the_approver_of_the_outer_chat_decides_if_the_inner_one_has_none():
    asked = []

    def approver(request):
        asked.append(request.path)
        return True

    reply = await nest(payer(), "clerk", approver=approver).send("go")
    assert (reply.finish, asked, RAN) == ("stop", ["clerk / pay"], ["pay 0"])
    assert reply.delegations[0].calls == 1

    own = await nest(payer(approver=lambda request: False), "clerk", approver=approver).send("go")
    assert (own.finish, asked, RAN) == ("stop", ["clerk / pay"], ["pay 0"])


async def test_a_chat_that_needs_approval_itself_is_approved_once():
    chat = Chat(ScriptedModel([ask("clerk"), "done"]), [payer().as_tool("clerk", "Clerk.", approval=True)])
    reply = await chat.send("go")
    paths = []
    while reply.pending:
        paths.append(reply.pending[0].path)
        reply = await chat.resume(reply.save(), [chat.box.approvals.decide(reply.pending[0], Allow())])

    assert paths == ["clerk", "clerk / pay"]
    assert (reply.results[0].text, RAN) == ("paid it", ["pay 0"])


async def test_an_approver_of_the_outer_chat_that_does_not_answer_denies_in_time():
    async def hang(request):
        await asyncio.Event().wait()

    settings = EngineSettings(approval_seconds=0.1)
    clerk_model = ScriptedModel([*calls("pay", 1), lambda request: request.messages[-1].results[0].text])
    box = Toolbox(Chat(clerk_model, [pay]).as_tool("clerk", "Clerk."), approver=hang, settings=settings)
    reply = await asyncio.wait_for(Chat(ScriptedModel([ask("clerk"), "done"]), box).send("go"), 10)

    assert (reply.finish, RAN) == ("stop", [])
    assert "the approver did not answer within 0.1 s" in reply.results[0].text


async def test_a_changed_path_is_not_accepted():
    chat = nest(payer(), "clerk")
    reply = await chat.send("go")
    data = reply.pending[0].to_dict() | {"delegates": ["trusted"]}
    with pytest.raises(Exception, match="changed"):
        chat.box.approvals.decide(type(reply.pending[0]).from_dict(data), Allow())


async def test_outside_of_a_chat_a_call_that_waits_is_an_error():
    result = await Toolbox(payer().as_tool("clerk", "Clerk.")).call("clerk", {"prompt": "pay"})

    assert "waits for approval of pay" in result.text


# --- events, context, cancel, depth --------------------------------------------------------------


async def test_inner_events_carry_their_path():
    middle = nest(Chat(ScriptedModel([*calls("look", 1), "found"]), [look]), "bottom")
    events = [event async for event in nest(middle, "middle").stream("go")]
    inner = [event for event in events if isinstance(event, Delegated)]

    finished = [(e.path, e.event.call.name) for e in inner if isinstance(e.event, CallFinished)]
    assert finished == [(("middle", "bottom"), "look"), (("middle",), "bottom")]
    assert all(load_event(json.loads(json.dumps(e.to_dict()))).path == e.path for e in inner)
    assert inner[-1].run.count("/") == 1


async def test_the_inner_chat_gets_the_values_and_keeps_its_own_deps():
    seen = []

    @tool
    def who(context: ToolContext) -> str:
        """Say who asks."""
        seen.append((context.get("user"), context.deps))
        return "ok"

    inner = Chat(ScriptedModel([[("who", {})], "x"]), [who], context=ToolContext("inner deps"))
    await nest(inner).send("go", context=ToolContext("outer deps", user="ada"))
    other = Chat(ScriptedModel([[("who", {})], "x"]), [who])
    await nest(other).send("go", context=ToolContext("outer deps", user="bob"))

    assert seen == [("ada", "inner deps"), ("bob", "outer deps")]


async def test_a_memory_of_the_inner_chat_is_kept_by_the_outer_conversation():
    memory = WindowMemory()
    inner = Chat(ScriptedModel(["one", "two"]), memory=memory)
    tool_ = inner.as_tool("inner", "Inner.")
    await Chat(ScriptedModel([ask("inner", "a"), "x"]), [tool_]).send("go", conversation="ada")
    await Chat(ScriptedModel([ask("inner", "b"), "x"]), [tool_]).send("go", conversation="bob")

    assert [m.text for m in await memory.load("ada/inner")] == ["a", "one"]
    assert [m.text for m in await memory.load("bob/inner")] == ["b", "two"]


async def test_to_cancel_the_outer_run_cancels_the_inner_one():
    started, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait_long() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "late"

    chat = nest(Chat(ScriptedModel([[("wait_long", {})], "x"]), [wait_long]))
    task = asyncio.create_task(chat.send("go"))
    await started.wait()
    chat.cancel()
    reply = await task

    assert reply.finish == "cancelled"
    assert ended.is_set()
    assert [result.error.code for result in reply.results] == ["cancelled"]


async def test_a_chat_that_calls_itself_is_noticed():
    model = ScriptedModel([ask("self"), "fine"])
    box = Toolbox()
    chat = Chat(model, box)
    box.add(chat.as_tool("self", "The same chat."))
    reply = await chat.send("go")

    assert (reply.finish, reply.text) == ("stop", "fine")
    assert "already running" in reply.results[0].text


async def test_the_depth_is_bounded():
    chat = Chat(ScriptedModel(["bottom"]))
    for _ in range(MAX_DELEGATION_DEPTH + 1):
        chat = nest(chat)
    reply = await chat.send("go")

    deepest = reply.delegations
    depth = 0
    while deepest:
        depth, deepest = depth + 1, deepest[0].delegations
    assert depth == MAX_DELEGATION_DEPTH


async def test_a_failing_model_of_the_inner_chat_is_an_error_of_the_call():
    reply = await nest(Chat(ScriptedModel([]))).send("go")

    assert reply.text == "done"
    assert "the script has 0 turns" in reply.results[0].error.message


# --- the journal ---------------------------------------------------------------------------------


async def test_a_crash_repeats_no_finished_call_of_the_inner_chat(tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")
    reached = asyncio.Event()

    class Stuck(ScriptedModel):
        async def respond(self, request):
            if len(self.requests) == 2:
                reached.set()
                await asyncio.sleep(60)
            return await super().respond(request)

    def outer(inner, script):
        return Chat(ScriptedModel(script), [inner.as_tool("inner", "Inner.")], runtime=runtime)

    task = asyncio.create_task(outer(Chat(Stuck(calls("look", 2)), [look]), [ask("inner")]).send("go", run="s"))
    await reached.wait()
    task.cancel()
    await asyncio.wait((task,))
    assert RAN == ["look 0", "look 1"]

    inner = Chat(ScriptedModel(["found"]), [look])
    reply = await outer(inner, ["done"]).send("go", run="s")
    assert (reply.text, RAN) == ("done", ["look 0", "look 1"])
    assert reply.results[0].text == "found"
    assert reply.usage.total_tokens == 30
    assert reply.delegations[0].calls == 2

    replayed = await outer(inner, []).send("go", run="s")
    assert (replayed.usage, replayed.delegations) == (reply.usage, reply.delegations)
    runtime.close()


async def test_errors_of_the_prompt_function_and_of_wrong_values():
    def refuse(topic: str) -> str:
        raise ToolError("no topics today")

    result = await Toolbox(Chat(ScriptedModel([])).as_tool("ask", "Ask.", prompt=refuse)).call("ask", {"topic": "x"})
    assert "no topics today" in result.text
