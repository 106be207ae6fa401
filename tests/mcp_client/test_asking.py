"""A server asks as often as a request allows, few questions at a time, and hears a refusal after that."""

import asyncio

import pytest
from mcp_types import ErrorData

from adversaries.raw_http import served
from toolmason import McpServer, Toolbox, ToolContext, tool
from toolmason._core.remote.protocol import ServerRequestHandlers
from toolmason.errors import DefinitionError
from toolmason.mcp import Elicit, Roots, Sample
from toolmason.mcp_client.calls import tasks
from toolmason.mcp_client.calls.callbacks import make_callbacks
from toolmason.mcp_client.calls.forwarding import MAX_CONCURRENT_QUESTIONS, MAX_ROUNDS, ForwardedRequests

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


class Params:
    """A question for a model."""

    def model_dump(self, **_):
        return {"messages": []}


class Model:
    """An application that answers when it is let, and counts."""

    def __init__(self):
        self.asked = self.now = self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, question):
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        self.now -= 1
        return "answer"


async def flooded(model, passages, count=3000):
    ask = make_callbacks(ServerRequestHandlers(on_sample=model), passages)["sampling_callback"]
    tasks = [asyncio.create_task(ask(None, Params())) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    model.go.set()
    return await asyncio.gather(*tasks)


async def test_a_flood_of_questions_reaches_the_application_only_so_often():
    model, passages = Model(), ForwardedRequests()

    with passages.track(None):
        answers = await flooded(model, passages)

    refused = [answer for answer in answers if isinstance(answer, ErrorData)]
    assert (model.asked, model.most, len(refused)) == (MAX_ROUNDS, MAX_CONCURRENT_QUESTIONS, 3000 - MAX_ROUNDS)
    assert "at most 32 questions" in refused[0].message


async def test_each_request_may_ask_and_no_request_has_what_another_left():
    model, passages = Model(), ForwardedRequests()
    model.go.set()

    with passages.track(None):
        for _ in range(10):
            with passages.track(None):
                pass
        await flooded(model, passages)
    with passages.track(None), passages.track(None):
        await flooded(model, passages)

    assert model.asked == 3 * MAX_ROUNDS


async def test_a_server_that_asks_while_nothing_is_under_way_is_bounded_too():
    model = Model()

    await flooded(model, ForwardedRequests())

    assert model.asked == MAX_ROUNDS


@pytest.mark.parametrize("extra", [0, 1])
async def test_a_call_that_asks_more_than_it_may_fails_and_the_next_one_begins_anew(extra):
    asked = []

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask a lot at once."""
        found = await context.client.ask(**{f"q{number}": Sample("?") for number in range(MAX_ROUNDS + extra)})
        return f"{len(found)} answers"

    async with Toolbox(McpServer.of("s", Toolbox(ask)), on_sample=lambda _: asked.append(1) or "x") as box:
        results = [await box.call("ask", {}), await box.call("ask", {})]

    assert [result.ok for result in results] == [not extra] * 2
    assert len(asked) == 2 * MAX_ROUNDS if not extra else len(asked) <= 2 * MAX_ROUNDS


ASKS = """
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

class Age(BaseModel):
    age: int

server = MCPServer("asks")

@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("How old?", Age)
    return f"{answer.action} {answer.data.age}"
"""


async def test_a_server_that_asks_in_the_midst_of_a_call_is_met_as_before_2026_where_it_is_said(tmp_path, forks):
    script = tmp_path / "asks.py"
    script.write_text(f"{ASKS}\nserver.run('stdio')", "utf-8")
    results = []
    for era in ("auto", "legacy"):
        async with Toolbox(
            McpServer.stdio("asks", forks.python, [str(script)], era=era), on_elicit=lambda _: {"age": 5}
        ) as box:
            results.append(await box.call("ask"))

    assert "Use McpServer with era='legacy' to allow them" in results[0].text
    assert results[1].text == "accept 5"


@tool
async def grow(context: ToolContext) -> str:
    """Ask for the age."""
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    return str((await context.client.elicit("How old?", schema)).content["age"] + 1)


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("answer", [{"age": "x"}, {}, True])
async def test_an_answer_that_does_not_fit_is_not_sent_and_the_application_is_asked_once(era, answer):
    asked = []

    def on_elicit(question):
        asked.append(question)
        return answer

    async with Toolbox(McpServer.of("s", Toolbox(grow), era=era), on_elicit=on_elicit) as box:
        result = await box.call("grow", {})

    assert "the answer of on_elicit does not match the requested schema at $" in result.error.message
    assert len(asked) == 1


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("a", "b"), "a b"),
        (["\ud800"], "the answer of on_elicit cannot be sent as JSON"),
        ([{}], "the answer of on_elicit cannot be sent as JSON"),
    ],
    ids=["tuple", "surrogate", "object"],
)
async def test_an_answer_is_checked_in_the_form_that_is_sent(era, given, text):
    @tool
    async def label(context: ToolContext) -> str:
        """Ask for labels."""
        schema = {"type": "object", "properties": {"labels": {"type": "array", "items": {"type": "string"}}}}
        return " ".join((await context.client.elicit("Which?", schema)).content["labels"])

    box = Toolbox(McpServer.of("s", Toolbox(label), era=era), on_elicit=lambda _: {"labels": given})
    async with box:
        result = await box.call("label", {})

    assert text in result.text


async def test_a_server_that_never_has_enough_answers_fails_the_call_with_a_reason_of_its_own():
    @tool
    async def never(context: ToolContext) -> str:
        """Ask for ever."""
        for number in range(100):
            await context.client.elicit("More?", FORM, key=str(number))
        return "done"

    async with Toolbox(McpServer.of("s", Toolbox(never)), on_elicit=lambda _: {"name": "x"}) as box:
        result = await box.call("never", {})

    assert "the server asked for input more than 10 times" in result.error.message


def test_an_era_that_is_not_known_is_refused():
    with pytest.raises(DefinitionError, match="era='old'"):
        McpServer.stdio("git", "git-server", era="old")


@pytest.mark.parametrize("behind", ["auto", "legacy"])
@pytest.mark.parametrize("before", ["auto", "legacy"])
async def test_a_gateway_answers_what_it_can_and_passes_on_the_rest(before, behind):
    @tool
    async def ask(context: ToolContext) -> str:
        """Ask everything that can be asked, at once and one by one."""
        found = await context.client.ask(who=Elicit("Who?", FORM), what=Sample("What?"), where=Roots())
        more = await context.client.elicit("And?", FORM, key="more")
        return f"{found['who'].content['name']}, {found['what']}, {found['where']}, {more.content['name']}"

    gateway = Toolbox(McpServer.of("behind", Toolbox(ask), era=behind), on_sample=lambda _: "a model of ours")
    asked = []
    async with Toolbox(
        McpServer.of("before", gateway, era=before),
        on_elicit=lambda question: asked.append(question.message) or {"name": "the user"},
        on_sample=lambda _: "a model of theirs",
        roots=["/srv"],
    ) as box:
        result = await box.call("ask")

    assert result.text == "the user, a model of ours, ['file:///srv'], the user"
    assert asked == ["Who?", "And?"]


async def test_a_task_behind_a_gateway_is_answered_by_both(monkeypatch):
    monkeypatch.setattr(tasks, "MIN_POLL_SECONDS", 0.001)
    form = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}
    model = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    done = {"status": "completed", "result": {"content": [{"type": "text", "text": "built"}]}}
    with served("task") as server:
        server.states = [{"status": "input_required", "inputRequests": {"who": form, "what": model}}, done]
        gateway = Toolbox(McpServer.http("behind", server.url), on_sample=lambda _: "ours")
        async with Toolbox(McpServer.of("before", gateway), on_elicit=lambda _: {"name": "theirs"}) as box:
            result = await box.call("echo", {"text": "x"})

    told = [body["params"]["inputResponses"] for body in server.bodies if body["method"] == "tasks/update"]
    assert result.text == "built"
    assert [sorted(answers) for answers in told] == [["what", "who"]]
    assert told[0]["who"]["content"] == {"name": "theirs"}
    assert told[0]["what"]["content"]["text"] == "ours"
