"""A served toolbox that holds a server: what goes through the hop, in every pair of protocol eras."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp import Client, MCPError
from mcp.server import Server
from mcp_types import (
    Annotations,
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsResult,
    ListToolsResult,
    Prompt,
    PromptMessage,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Root,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

from fork_server import ForkServer
from mcp_server.sample_server import Running, running
from toolmason import Abort, McpServer, Param, Toolbox, ToolContext, ToolError, prompt, resource, tool
from toolmason.mcp import Elicit
from toolmason.mcp_client.calls import forwarding
from toolmason.mcp_client.transport import stdio

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask for a name, then for another."""
    first = await ctx.client.elicit("Your name?", NAME, key="first")
    second = await ctx.client.elicit("And another?", NAME, key="second")
    return f"{first.content.get('name')} {second.content.get('name')}"


@tool
async def think(ctx: ToolContext) -> str:
    """Ask the client's model."""
    return await ctx.client.sample("What now?")


@tool
async def where(ctx: ToolContext) -> str:
    """Ask for the client's folders."""
    return ",".join(await ctx.client.roots())


@tool
async def steps(ctx: ToolContext) -> str:
    """Report progress, and log."""
    await ctx.progress(1, 2, "half")
    ctx.log.warning("be careful")
    return "done"


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("this went wrong")


@tool
def stop() -> str:
    """Stop."""
    raise Abort("no more")


@tool
async def able(ctx: ToolContext) -> str:
    """Say what the client can do."""
    return f"can: {','.join(sorted(ctx.client.capabilities))}"


@prompt(role="user")
async def greeting(language: Annotated[str, Param(schema={"enum": ["french", "finnish"]})], ctx: ToolContext) -> str:
    """Greet somebody."""
    answer = await ctx.client.elicit("Whom?", NAME, key="whom")
    return f"{language}: {answer.content.get('name')}"


@resource("notes://{name}", mime_type="text/plain")
def note(name: str) -> str:
    """A note."""
    return f"note {name}"


@resource("config://app")
def config() -> dict[str, int]:
    """The configuration."""
    return {"port": 1}


def back() -> Toolbox:
    return Toolbox(ask, think, where, steps, fail, stop, able, greeting, note, config)


@pytest.fixture(scope="module", params=["modern", "legacy"], ids=["modern behind", "sessions behind"])
def behind(request: pytest.FixtureRequest) -> Iterator[Running]:
    with running(back(), legacy=request.param == "legacy") as found:
        yield found


@pytest.fixture(scope="module")
def gate(behind: Running) -> Iterator[Running]:
    with running(Toolbox(McpServer.http("behind", behind.url))) as found:
        yield found


@pytest.fixture(params=["auto", "legacy"], ids=["modern in front", "sessions in front"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def client_of(gate: Running, mode: str, **words: Any) -> AsyncIterator[Any]:
    async with Client(gate.url, mode=mode, **words) as client:
        yield client


def answering(*names: str) -> tuple[Callable[..., Any], list[str]]:
    """Return a callback that gives these names, and what it was asked."""
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": names[(len(asked) - 1) % len(names)]})

    return elicit, asked


async def test_questions_for_the_user_go_through_in_order(gate: Running, mode: str):
    elicit, asked = answering("Ada", "Grace")

    async with client_of(gate, mode, elicitation_callback=elicit) as client:
        found = await client.call_tool("ask", {})

    assert found.content[0].text == "Ada Grace"
    assert asked == ["Your name?", "And another?"]


async def test_questions_for_a_model_and_for_folders_go_through(gate: Running, mode: str):
    async def sample(context: Any, params: Any) -> CreateMessageResult:
        said = params.messages[0].content.text
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=said[::-1]), model="m")

    async def roots(context: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///a"), Root(uri="file:///b")])

    async with client_of(gate, mode, sampling_callback=sample, list_roots_callback=roots) as client:
        thought = await client.call_tool("think", {})
        folders = await client.call_tool("where", {})

    assert thought.content[0].text == "?won tahW"
    assert folders.content[0].text == "file:///a,file:///b"


async def test_a_client_that_cannot_answer_is_not_asked(gate: Running, mode: str):
    async with client_of(gate, mode) as client:
        try:
            found = await client.call_tool("ask", {})
            said = found.content[0].text if found.is_error else ""
        except MCPError as error:
            said = error.message

    assert "elicitation" in said


async def test_progress_and_log_records_go_through(gate: Running, mode: str):
    told: list[tuple[float, float | None, str | None]] = []
    logged: list[str] = []
    heard = asyncio.Event()

    async def progress(*report: Any) -> None:
        told.append(report)

    async def log(params: Any) -> None:
        logged.append(f"{params.level}: {params.data}")
        heard.set()

    async with client_of(gate, mode, logging_callback=log, log_level="info") as client:
        if mode == "legacy":
            with pytest.warns(UserWarning, match="deprecated"):
                await client.session.set_logging_level("info")
        found = await client.call_tool("steps", {}, progress_callback=progress)
        async with asyncio.timeout(5):
            await heard.wait()

    assert found.content[0].text == "done"
    assert told == [(1, 2, "half")]
    assert logged == ["warning: be careful"]


async def test_a_failure_of_a_tool_and_a_refusal_of_a_request_stay_what_they_are(gate: Running, mode: str):
    async with client_of(gate, mode) as client:
        failed = await client.call_tool("fail", {})
        with pytest.raises(MCPError) as refused:
            await client.call_tool("stop", {})

    assert failed.is_error
    assert "this went wrong" in failed.content[0].text
    assert "no more" in refused.value.message


async def test_prompts_resources_templates_and_completions_go_through(gate: Running, mode: str):
    elicit, _ = answering("Ada")

    async with client_of(gate, mode, elicitation_callback=elicit) as client:
        prompts = (await client.list_prompts()).prompts
        said = await client.get_prompt("greeting", {"language": "french"})
        resources = [str(entry.uri) for entry in (await client.list_resources()).resources]
        templates = [entry.uri_template for entry in (await client.list_resource_templates()).resource_templates]
        read = await client.read_resource("notes://today")
        words = await client.complete(
            PromptReference(type="ref/prompt", name="greeting"), {"name": "language", "value": "f"}
        )
        none = await client.complete(
            ResourceTemplateReference(type="ref/resource", uri="notes://{name}"), {"name": "name", "value": ""}
        )

    assert prompts[0].arguments[0].name == "language"
    assert said.messages[0].content.text == "french: Ada"
    assert resources == ["config://app"]
    assert templates == ["notes://{name}"]
    assert read.contents[0].text == "note today"
    assert words.completion.values == ["french", "finnish"]
    assert none.completion.values == []


async def test_a_resource_that_is_missing_behind_is_missing_here(gate: Running, mode: str):
    async with client_of(gate, mode) as client:
        with pytest.raises(MCPError) as missing:
            await client.read_resource("nothing://here")

    assert missing.value.code == (-32602 if mode == "auto" else -32002)


@pytest.mark.parametrize("legacy", [False, True], ids=["modern behind", "sessions behind"])
async def test_changes_behind_are_told_in_front(legacy: bool, mode: str):
    box = back()
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def note_down(message: Any) -> None:
        if getattr(message, "method", "").endswith(("list_changed", "updated")):
            heard.put_nowait(message)

    with (
        running(box, legacy=legacy) as inner,
        running(Toolbox(McpServer.http("behind", inner.url))) as outer,
    ):
        async with client_of(outer, mode, message_handler=note_down) as client:
            names = {entry.name for entry in (await client.list_tools()).tools}
            async with listening(client, mode):
                box.servers.notify_resource_changed("config://app")
                async with asyncio.timeout(10):
                    touched = await heard.get()
                box.add(tool(name="newcomer")(lambda: "hello"))
                async with asyncio.timeout(10):
                    changed = await heard.get()
                now = {entry.name for entry in (await client.list_tools()).tools}

    assert str(touched.params.uri) == "config://app"
    assert changed.method == "notifications/tools/list_changed"
    assert now - names == {"newcomer"}


@asynccontextmanager
async def listening(client: Any, mode: str) -> AsyncIterator[None]:
    """Hear of changed tools, and of one resource."""
    if mode == "legacy":
        with pytest.warns(UserWarning, match="removed"):
            await client.subscribe_resource("config://app")
        yield
        with pytest.warns(UserWarning, match="removed"):
            await client.unsubscribe_resource("config://app")
        return
    async with client.listen(tools_list_changed=True, resource_subscriptions=["config://app"]):
        yield


def test_the_server_behind_hears_what_each_client_can_do(behind: Running, gate: Running):
    if behind.app is not gate.app and behind.ask("server/discover").status == 400:
        # Sessions say it once, for the whole connection: the gateway's own word.
        assert gate.call("able")["content"][0]["text"] == "can: elicitation,roots,sampling"
        return

    assert gate.call("able")["content"][0]["text"] == "can: "
    assert gate.call("able", meta=CAN_ASK)["content"][0]["text"] == "can: elicitation"


def test_a_state_of_a_gateway_is_good_for_its_own_request_alone(gate: Running):
    asked = gate.call("ask", meta=CAN_ASK)
    answers = {key: {"action": "accept", "content": {"name": "Eve"}} for key in asked["inputRequests"]}
    rounds = {"inputResponses": answers, "requestState": asked["requestState"]}

    other = gate.ask("tools/call", {"name": "think", "arguments": {}, **rounds}, meta=CAN_ASK)

    assert other.json["error"]["code"] == -32602


def test_approval_and_a_question_of_the_server_are_asked_once_each(behind: Running):
    box = Toolbox(McpServer.http("behind", behind.url), approve="all")
    asked: list[str] = []
    params: dict[str, Any] = {"name": "ask", "arguments": {}}
    with running(box) as server:
        for _ in range(5):
            found = server.ask("tools/call", params, meta=CAN_ASK).json["result"]
            if found["resultType"] != "input_required":
                break
            asked += [question["params"]["message"] for question in found["inputRequests"].values()]
            given = {"name": "Ada", "approve": True}
            answers = {key: {"action": "accept", "content": given} for key in found["inputRequests"]}
            params |= {"inputResponses": answers, "requestState": found["requestState"]}

    assert found["content"][0]["text"] == "Ada Ada"
    assert asked == ["Allow ask to run? {}", "Your name?", "And another?"]


def test_an_application_that_answers_itself_is_asked_instead_of_the_client(behind: Running):
    box = Toolbox(McpServer.http("behind", behind.url), on_elicit=lambda question: {"name": "the application"})
    with running(box) as server:
        found = server.call("ask", meta=CAN_ASK)

    assert found["content"][0]["text"] == "the application the application"


def test_a_view_decides_what_is_offered_and_under_which_name(behind: Running):
    box = Toolbox(McpServer.http("behind", behind.url, include=["fail", "able"], prefix="far_"))
    with running(box) as server:
        names = [entry["name"] for entry in server.ask("tools/list").json["result"]["tools"]]
        found = server.call("far_able")

    assert names == ["far_able", "far_fail"]
    assert found["isError"] is False


@tool(meta={"mcp": {"task": "optional"}})
async def long_job(ctx: ToolContext) -> str:
    """Ask, and take some time."""
    answer = await ctx.client.elicit("Go on?", NAME, key="go")
    return f"done by {answer.content.get('name')}"


def test_a_task_behind_becomes_a_task_in_front_with_its_questions():
    able = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {"io.modelcontextprotocol/clientCapabilities": able}
    with running(Toolbox(long_job)) as inner, running(Toolbox(McpServer.http("behind", inner.url))) as outer:
        begun = outer.call("long_job", meta=meta)
        state = until(outer, begun["taskId"], "input_required", meta)
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in state["inputRequests"]}
        outer.ask("tasks/update", {"taskId": begun["taskId"], "inputResponses": answers}, meta=meta)
        done = until(outer, begun["taskId"], "completed", meta)

    assert begun["resultType"] == "task"
    assert done["result"]["content"][0]["text"] == "done by Ada"


def until(server: Running, task: str, status: str, meta: dict[str, Any]) -> dict[str, Any]:
    """Poll a task until it has a status."""
    for _ in range(5000):  # each is a round trip, so this is some seconds
        state = server.ask("tasks/get", {"taskId": task}, meta=meta).json["result"]
        if state["status"] == status:
            return state
    raise AssertionError(state)


async def test_what_the_wire_says_beside_the_content_goes_through():
    """Annotations, titles, sizes and `_meta` have no place in a `ToolResult`, and are not lost for that."""
    block = TextContent(type="text", text="hi", annotations=Annotations(priority=0.5), _meta={"a": 1})
    gateway = Toolbox(McpServer.of("behind", decorated(block)))

    async with gateway, Client(gateway.__mcp_server__()) as client:
        entry = (await client.list_tools()).tools[0]
        found = await client.call_tool("rich", {})
        shown = (await client.list_prompts()).prompts[0]
        said = await client.get_prompt("p", {})
        listed = (await client.list_resources()).resources[0]
        template = (await client.list_resource_templates()).resource_templates[0]
        read = await client.read_resource("a://b")

    assert (entry.annotations.title, entry.meta) == ("Very rich", {"team": "x"})
    assert entry.output_schema == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert (found.content[0].annotations.priority, found.content[0].meta) == (0.5, {"a": 1})
    assert (found.structured_content, found.meta["b"]) == ({"n": 1}, 2)
    assert (shown.title, said.description) == ("A prompt", "said")
    assert (listed.size, template.title) == (7, "T")
    assert read.contents[0].meta == {"c": 3}


def decorated(block: TextContent) -> Server[Any]:
    """Return a server whose every entry says more than it must."""

    async def tools(ctx: Any, params: Any) -> ListToolsResult:
        output = {"type": "object", "properties": {"n": {"type": "integer"}}}
        hints = ToolAnnotations(title="Very rich", read_only_hint=True)
        schema = {"type": "object", "properties": {"q": {"type": "string", "x-own": 1}}}
        return ListToolsResult(
            tools=[Tool(name="rich", input_schema=schema, output_schema=output, annotations=hints, _meta={"team": "x"})]
        )

    async def call(ctx: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[block], structured_content={"n": 1}, _meta={"b": 2})

    async def prompts(ctx: Any, params: Any) -> ListPromptsResult:
        return ListPromptsResult(prompts=[Prompt(name="p", title="A prompt")])

    async def get(ctx: Any, params: Any) -> GetPromptResult:
        return GetPromptResult(description="said", messages=[PromptMessage(role="user", content=block)])

    async def resources(ctx: Any, params: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[Resource(uri="a://b", name="b", size=7)])

    async def templates(ctx: Any, params: Any) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(
            resource_templates=[ResourceTemplate(uri_template="a://{x}", name="x", title="T")]
        )

    async def read(ctx: Any, params: Any) -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri="a://b", text="b", _meta={"c": 3})])

    return Server(
        "decorated",
        on_list_tools=tools,
        on_call_tool=call,
        on_list_prompts=prompts,
        on_get_prompt=get,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
    )


async def test_a_tool_that_calls_a_server_itself_keeps_its_own_result():
    far = Toolbox(McpServer.of("behind", back()))

    @tool
    async def both(ctx: ToolContext) -> str:
        """Ask a server, and then by itself, in one call."""
        one = await far.call("ask", {}, context=ctx)
        two = await ctx.client.ask(own=Elicit("Mine?", NAME))
        return f"{one.text} + {two['own'].content.get('name')}"

    elicit, asked = answering("Ada")
    async with far, Client(Toolbox(both).__mcp_server__(), elicitation_callback=elicit) as client:
        found = await client.call_tool("both", {})

    assert found.content[0].text == "Ada Ada + Ada"
    assert asked == ["Your name?", "And another?", "Mine?"]


def test_t16_each_user_of_a_gateway_is_that_user_behind_it():
    """A connection for each identity; a new one does not know yet which parameters are mirrored in headers."""
    users = {"a" * 16: "alice", "b" * 16: "bob", "s" * 16: "service"}
    tokens = {user: token for token, user in users.items()}

    def auth(ctx: ToolContext) -> str:
        return tokens[ctx.get("user", "service")]

    with (
        running(auth=users.get) as inner,
        running(Toolbox(McpServer.http("behind", inner.url, auth=auth)), auth=users.get) as outer,
    ):
        found = {
            user: outer.call("who", headers={"authorization": f"Bearer {tokens[user]}"})["content"][0]["text"]
            for user in ("alice", "bob")
        }
        mirrored = {"authorization": f"Bearer {tokens['bob']}", "mcp-param-place": "north"}
        place = outer.call("region", {"place": "north"}, headers=mirrored)

    assert found == {"alice": "alice", "bob": "bob"}
    assert place["content"][0]["text"] == "north"


async def test_a_server_that_only_wants_to_be_called_again_is():
    states: list[str | None] = []

    async def tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="later", input_schema={"type": "object"})])

    async def call(ctx: Any, params: Any) -> Any:
        states.append(params.request_state)
        if len(states) < 3:
            return InputRequiredResult(request_state=f"round {len(states)}")
        return CallToolResult(content=[TextContent(type="text", text="now")])

    gateway = Toolbox(McpServer.of("behind", Server("later", on_list_tools=tools, on_call_tool=call)))
    async with gateway, Client(gateway.__mcp_server__()) as client:
        found = await client.call_tool("later", {})

    assert found.content[0].text == "now"
    assert states == [None, "round 1", "round 2"]


async def test_a_server_that_never_stops_asking_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forwarding, "MAX_ROUNDS", 3)
    monkeypatch.setattr(forwarding, "EMPTY_ROUND_DELAY", 0.0)

    async def tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="never", input_schema={"type": "object"})])

    async def call(ctx: Any, params: Any) -> Any:
        return InputRequiredResult(request_state="again")

    gateway = Toolbox(McpServer.of("behind", Server("never", on_list_tools=tools, on_call_tool=call)))
    async with gateway, Client(gateway.__mcp_server__()) as client:
        with pytest.raises(MCPError, match="still requires input after 3 rounds"):
            await client.call_tool("never", {})


DESK = """
import asyncio
from toolmason import Toolbox, ToolContext, serve, tool

@tool
async def ask(ctx: ToolContext) -> str:
    "Ask for a name."
    answer = await ctx.client.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{answer.action} {dict(answer.content)}"

@tool
async def hold(ctx: ToolContext) -> str:
    "Take long."
    await ctx.progress(1)
    await asyncio.sleep(60)

serve(Toolbox(ask, hold))
"""


@pytest.mark.usefixtures("short_termination")
async def test_over_stdio_a_question_goes_through_only_while_it_is_clear_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: ForkServer
):
    """Sessions on standard streams do not say to which call a question belongs."""
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    command = (forks.python, str(tmp_path / "desk.py"))
    monkeypatch.setattr(stdio, "LEGACY_COMMANDS", {command})
    gateway = Toolbox(McpServer.stdio("desk", command[0], command[1:]))
    elicit, asked = answering("Ada")
    under_way = asyncio.Event()

    async def begun(*report: Any) -> None:
        under_way.set()

    server = gateway.__mcp_server__()
    async with gateway, Client(server, elicitation_callback=elicit) as client:
        alone = await client.call_tool("ask", {})
        holding = asyncio.create_task(client.call_tool("hold", {}, progress_callback=begun))
        await under_way.wait()
        with pytest.raises(MCPError, match="cannot be assigned to a client"):
            await client.call_tool("ask", {})
        holding.cancel()

    assert "Ada" in alone.content[0].text
    assert asked == ["Your name?"]
