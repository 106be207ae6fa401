"""Questions of a call, approval by the client's user, tasks, changes: through a client in memory and over HTTP."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from mcp_server.sample_server import ENVELOPE, Running, running, shelf
from toolmason import McpServer, Toolbox, ToolContext, prompt, tool
from toolmason.errors import ConfigError
from toolmason.mcp import Elicit, Roots, Sample
from toolmason.mcp_client.specification import RpcError
from toolmason.mcp_server.client_requests import ClientProxy, MissingCapability
from toolmason.mcp_server.signed_state import StateSigner

NAME = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
ABLE = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}}}
TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@tool
async def greet(ctx: ToolContext) -> str:
    first = await ctx.client.elicit("First name?", NAME, key="first")
    last = await ctx.client.elicit("Last name?", NAME, key="last")
    return f"{first.content.get('n')} {last.content.get('n')}"


@tool
async def several(ctx: ToolContext) -> str:
    found = await ctx.client.ask(name=Elicit("Name?", NAME), poem=Sample("A poem?"), where=Roots())
    return f"{found['name'].action} {found['poem']} {found['where']}"


@tool(meta={"mcp": {"task": "optional"}})
async def slow(ctx: ToolContext, times: int = 1) -> str:
    await asyncio.sleep(0)
    return f"slow {times}"


@tool(meta={"mcp": {"task": "optional"}})
async def endless() -> str:
    await asyncio.sleep(60)
    return "never"


async def test_a_tool_asks_the_user_in_rounds():
    async with Toolbox(McpServer.of("s", Toolbox(greet)), on_elicit=lambda q: {"n": q.message[:4]}) as outer:
        found = await outer.call("greet")

    assert found.text == "Firs Last"


async def test_a_user_who_declines_is_heard():
    async with Toolbox(McpServer.of("s", Toolbox(greet)), on_elicit=lambda q: None) as outer:
        found = await outer.call("greet")

    assert found.text == "None None"


async def test_approval_is_asked_of_the_clients_user():
    asked: list[str] = []

    def decide(question: Any) -> dict[str, bool]:
        asked.append(question.message)
        return {"approve": "a" in question.message.split("disk")[-1]}

    async with Toolbox(McpServer.of("s", shelf()), on_elicit=decide) as outer:
        yes = await outer.call("wipe", {"disk": "a"})
        no = await outer.call("wipe", {"disk": "x"})

    assert yes.text == "wiped a"
    assert not no.ok
    assert "the user declined" in no.text
    assert "wipe" in asked[0]


async def test_the_question_for_approval_shows_every_argument_and_hides_nothing():
    asked: list[str] = []

    @tool(approval=True, preview=lambda given: f"Wipes {given['path']}.")
    def clear(note: str, path: str) -> str:
        """Clear a path."""
        return f"cleared {path} {note}"

    async with Toolbox(McpServer.of("s", Toolbox(clear)), on_elicit=lambda q: asked.append(q.message)) as outer:
        await outer.call("clear", {"note": "n" * 3000, "path": "/srv/\u202egpj.exe"})

    assert "of 3000 characters left out" in asked[0]
    assert '"path": "/srv/\\u202egpj.exe"' in asked[0]
    assert "Wipes /srv/\\u202egpj.exe." in asked[0]


async def test_outside_of_mcp_there_is_no_client_to_ask():
    found = await Toolbox(greet).call("greet")

    assert not found.ok
    with pytest.raises(ConfigError, match="MCP client"):
        _ = ToolContext().client


@pytest.fixture(scope="module")
def asking():
    @prompt(role="user")
    async def briefed(ctx: ToolContext) -> str:
        return (await ctx.client.elicit("What?", NAME, key="what")).content["n"]

    with running(Toolbox(greet, several, slow, endless, briefed)) as server:
        yield server


def ask(server: Running, name: str, meta: Any = ABLE, **params: Any) -> Any:
    return server.ask("tools/call", {"name": name, "arguments": {}, **params}, meta=meta)


def test_a_client_that_cannot_answer_gets_the_capability_that_is_missing(asking: Running):
    answer = ask(asking, "greet", {})

    assert (answer.status, answer.json["error"]["code"]) == (400, -32021)
    assert answer.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


def test_several_questions_go_out_at_once(asking: Running):
    first = ask(asking, "several").json["result"]
    answers = {
        "name": {"action": "accept", "content": {"n": "Ann"}},
        "poem": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "roses"}},
        "where": {"roots": [{"uri": "file:///a"}]},
    }
    state = {"requestState": first["requestState"]}
    second = ask(asking, "several", inputResponses=answers, **state).json["result"]

    assert sorted(first["inputRequests"]) == ["name", "poem", "where"]
    assert second["content"][0]["text"] == "accept roses ['file:///a']"


def test_an_answer_that_does_not_fit_is_asked_for_again(asking: Running):
    first = ask(asking, "greet").json["result"]
    wrong = {"first": {"action": "accept", "content": {"n": 7}}}

    again = ask(asking, "greet", inputResponses=wrong, requestState=first["requestState"]).json["result"]

    assert again["resultType"] == "input_required"
    assert list(again["inputRequests"]) == ["first"]


def test_a_state_is_good_for_its_own_request_alone(asking: Running):
    state = ask(asking, "greet").json["result"]["requestState"]

    tampered = ask(asking, "greet", inputResponses={}, requestState=state + "x")
    elsewhere = ask(asking, "several", inputResponses={}, requestState=state)

    assert tampered.json["error"]["code"] == -32602
    assert elsewhere.json["error"]["code"] == -32602


def test_an_approval_that_was_not_asked_for_is_ignored():
    yes = {"approval": {"action": "accept", "content": {"approve": True}}}
    with running(shelf()) as server:
        answer = ask(server, "wipe", arguments={"disk": "a"}, inputResponses=yes).json["result"]

    assert answer["resultType"] == "input_required"
    assert list(answer["inputRequests"]) == ["approval"]


def test_a_prompt_may_ask_as_well(asking: Running):
    first = asking.ask("prompts/get", {"name": "briefed"}, meta=ABLE).json["result"]
    given = {"what": {"action": "accept", "content": {"n": "cats"}}}
    params = {"name": "briefed", "inputResponses": given, "requestState": first["requestState"]}
    second = asking.ask("prompts/get", params, meta=ABLE).json["result"]

    assert second["messages"][0]["content"]["text"] == "cats"


def test_a_state_expires(monkeypatch: pytest.MonkeyPatch):
    seal = StateSigner()
    text = seal.sign({}, "x")
    monkeypatch.setattr("toolmason.mcp_server.signed_state.time.time", lambda: 1e12)

    with pytest.raises(RpcError, match="expired"):
        seal.verify(text, "x")


def test_a_call_becomes_a_task_for_a_client_that_can_wait(asking: Running):
    begun = ask(asking, "slow", TASKS).json["result"]
    for _ in range(100):
        state = asking.ask("tasks/get", {"taskId": begun["taskId"]}, meta=TASKS).json["result"]
        if state["status"] == "completed":
            break

    assert begun["resultType"] == "task"
    assert state["result"]["content"][0]["text"] == "slow 1"


def test_a_client_that_cannot_wait_gets_the_result(asking: Running):
    assert ask(asking, "slow", {}).json["result"]["content"][0]["text"] == "slow 1"


def test_a_task_can_be_called_off(asking: Running):
    task = ask(asking, "endless", TASKS).json["result"]["taskId"]

    asking.ask("tasks/cancel", {"taskId": task}, meta=TASKS)
    state = asking.ask("tasks/get", {"taskId": task}, meta=TASKS).json["result"]

    assert state["status"] == "cancelled"


def test_a_task_is_nobody_elses():
    def verify(token: str) -> str:
        return token

    with running(Toolbox(endless), auth=verify) as server:
        params = {"name": "endless", "arguments": {}}
        alice, bob = {"authorization": "Bearer alice"}, {"authorization": "Bearer bob"}
        task = server.ask("tools/call", params, meta=TASKS, headers=alice).json["result"]["taskId"]

        own = server.ask("tasks/get", {"taskId": task}, meta=TASKS, headers=alice)
        stolen = server.ask("tasks/get", {"taskId": task}, meta=TASKS, headers=bob)

    assert own.status == 200
    assert stolen.json["error"]["code"] == -32602


async def test_clients_hear_of_a_tool_that_was_added():
    from mcp import Client

    box = shelf()
    async with Client(box.__mcp_server__()) as client, client.listen(tools_list_changed=True) as changes:
        box.add(slow)
        async with asyncio.timeout(5):
            heard = await anext(aiter(changes))
        names = [entry.name for entry in (await client.list_tools()).tools]

    assert type(heard).__name__ == "ToolsListChanged"
    assert "slow" in names


async def test_clients_hear_of_a_resource_that_was_touched():
    from mcp import Client

    box = shelf()
    async with (
        Client(box.__mcp_server__()) as client,
        client.listen(resource_subscriptions=["config://app"]) as changes,
    ):
        box.servers.notify_resource_changed("config://app")
        async with asyncio.timeout(5):
            heard = await anext(aiter(changes))

    assert heard.uri == "config://app"


async def test_progress_reaches_a_client_in_memory():
    told: list[Any] = []
    async with Toolbox(McpServer.of("s", shelf())) as outer:
        await outer.call("steps", on_progress=told.append)

    assert [(report.done, report.total) for report in told] == [(1, 2)]


def test_the_envelope_of_the_tests_is_complete():
    assert len(ENVELOPE) == 3


@pytest.mark.parametrize(
    ("offer", "mode", "can"),
    [
        ({}, "form", True),
        ({}, "url", False),
        ({"form": {}}, "form", True),
        ({"url": {}}, "form", False),
        ({"url": {}}, "url", True),
        ({"form": {}, "url": {}}, "url", True),
        (None, "form", False),
    ],
)
async def test_a_user_is_asked_only_in_a_mode_that_the_client_has_named(offer: Any, mode: str, can: bool):
    assert ClientProxy({"elicitation": offer}).supports("elicitation", mode) is can


@pytest.mark.parametrize(("offer", "kind"), [({}, "input_required"), ({"url": {}}, "complete")])
def test_approval_is_not_asked_of_a_client_that_shows_no_forms(server: Running, offer: Any, kind: str):
    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": offer}}

    result = server.call("wipe", {"disk": "a"}, meta=able)

    assert result["resultType"] == kind
    assert result.get("isError", False) is (kind == "complete")


@pytest.mark.parametrize(("mode", "asked"), [("url", False), ("form", True), (None, True)])
async def test_a_server_behind_us_asks_only_in_a_mode_that_the_client_has_named(mode: Any, asked: bool):
    sent: list[Any] = []

    async def send(questions: Any) -> Any:
        sent.append(questions)
        return {}

    caller = ClientProxy({"elicitation": {"form": {}}}, send_questions=send)
    params = {"message": "m"} if mode is None else {"message": "m", "mode": mode}
    with nullcontext() if asked else pytest.raises(MissingCapability):
        await caller.forward("tools/call x", {"q": {"method": "elicitation/create", "params": params}}, None)

    assert bool(sent) is asked
