"""What the protocol says of requests that are not calls, and of answers that are none."""

import asyncio
import logging
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult
from pydantic import BaseModel

from mcp_server.sample_server import Running, running
from toolmason import Abort, Image, McpServer, Toolbox, ToolContext, ToolError, prompt, resource, tool
from toolmason._core.values.content import ResourceLink, Text
from toolmason._core.values.results import ToolResult
from toolmason.errors import ConfigError
from toolmason.mcp import Elicit, Roots, Sample
from toolmason.mcp_server.client_requests import ClientProxy, MissingCapability, get_level_name
from toolmason.mcp_server.encode import make_resource_entry, make_tool_entry, passthrough, without_hop_fields
from toolmason.mcp_server.lists import find_completions

ASKS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Person(BaseModel):
    name: str


@tool
async def typed(ctx: ToolContext) -> str:
    """Ask with a model."""
    answer = await ctx.client.elicit("Who?", Person)
    return f"{answer.action}: {answer.content.get('name')}"


@tool
async def system(ctx: ToolContext) -> str:
    """Ask the client's model, with a system prompt."""
    return await ctx.client.sample([{"role": "user", "content": {"type": "text", "text": "x"}}], system="Be brief.")


@tool
async def folders(ctx: ToolContext) -> str:
    """Ask for folders."""
    return str(await ctx.client.roots())


@tool
async def hang_up(ctx: ToolContext) -> str:
    """Let go of the connection."""
    await ctx.client.release_connection()
    return "still here"


@tool
def ended() -> str:
    """Stop everything."""
    raise Abort("the run is over")


@tool(on_error="raise")
def loud() -> str:
    """Fail, and raise."""
    raise ToolError("too loud")


@prompt
def broken(kind: str) -> str:
    """Fail in a way."""
    raise {"abort": Abort("no more"), "value": ValueError("secret")}[kind]


@prompt
async def asking(ctx: ToolContext) -> str:
    """Ask."""
    return str(await ctx.client.elicit("Who?", NAME))


@resource("broken://it")
def broken_resource() -> str:
    """Fail."""
    raise ValueError("secret")


@resource("asking://it")
async def asking_resource(ctx: ToolContext) -> str:
    """Ask."""
    answer = await ctx.client.elicit("Who?", NAME, key="who")
    return str(answer.content.get("name"))


@resource("picture://it")
def picture() -> Image:
    """A picture."""
    return Image(b"png")


@pytest.fixture(scope="module")
def server() -> Any:
    box = Toolbox(
        *(typed, system, folders, hang_up, ended, loud),
        *(broken, asking, broken_resource, asking_resource, picture),
    )
    with running(box) as found:
        yield found


def answered(server: Running, method: str, params: dict[str, Any], given: Any) -> Any:
    """Ask, give the same answer to every question, and return the result."""
    found = server.ask(method, params, meta=ASKS).json["result"]
    answers = dict.fromkeys(found["inputRequests"], given)
    rounds = {"inputResponses": answers, "requestState": found["requestState"]}
    return server.ask(method, {**params, **rounds}, meta=ASKS).json["result"]


def call_of(name: str) -> dict[str, Any]:
    return {"name": name, "arguments": {}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"action": "accept", "content": {"name": "Ada"}}, "accept: Ada"),
        ({"action": "decline"}, "decline: None"),
        ({"action": "cancel"}, "cancel: None"),
    ],
    ids=["accept", "decline", "cancel"],
)
def test_a_model_asks_for_its_own_form(server: Running, given: Any, said: str):
    found = answered(server, "tools/call", call_of("typed"), given)

    assert found["content"][0]["text"] == said


def test_a_question_for_a_model_carries_its_system_prompt(server: Running):
    asked = server.call("system", meta=ASKS)["inputRequests"]["sample"]["params"]
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    found = answered(server, "tools/call", call_of("system"), {"role": "assistant", "model": "m", "content": content})

    assert asked["systemPrompt"] == "Be brief."
    assert found["content"][0]["text"] == "one\ntwo"


def test_folders_are_addresses(server: Running):
    found = answered(server, "tools/call", call_of("folders"), {"roots": [{"uri": "file:///a"}]})

    assert found["content"][0]["text"] == "['file:///a']"


def test_hanging_up_does_nothing_where_nobody_could_come_back(server: Running):
    assert server.call("hang_up")["content"][0]["text"] == "still here"


def test_an_abort_is_a_protocol_error(server: Running):
    answer = server.ask("tools/call", call_of("ended"))

    assert (answer.json["error"]["code"], answer.json["error"]["message"]) == (-32603, "the run is over")


def test_a_tool_that_raises_is_a_result_all_the_same(server: Running):
    found = server.call("loud")

    assert found["isError"]
    assert "too loud" in found["content"][0]["text"]


@pytest.mark.parametrize(
    ("params", "code", "said"),
    [
        ({"name": "none"}, -32602, "Unknown prompt 'none'."),
        ({"name": "broken", "arguments": {}}, -32602, "kind"),
        ({"name": "broken", "arguments": {"kind": "abort"}}, -32603, "no more"),
        ({"name": "broken", "arguments": {"kind": "value"}}, -32603, "internal error"),
        ({"name": "asking"}, -32021, "elicitation"),
    ],
    ids=["unknown", "missing argument", "abort", "failure", "cannot ask"],
)
def test_t22_a_prompt_that_fails_says_what_a_client_may_know(server: Running, params: Any, code: int, said: str):
    error = server.ask("prompts/get", params).json["error"]

    assert error["code"] == code
    assert said in error["message"]
    assert "secret" not in error["message"]


def test_t22_a_resource_that_fails_says_what_a_client_may_know(server: Running, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)

    error = server.ask("resources/read", {"uri": "broken://it"}).json["error"]

    assert "internal error" in error["message"]
    assert "secret" not in error["message"] + caplog.text


def test_a_resource_may_ask_and_be_a_picture(server: Running):
    given = {"action": "accept", "content": {"name": "Ada"}}

    found = answered(server, "resources/read", {"uri": "asking://it"}, given)
    seen = server.ask("resources/read", {"uri": "picture://it"}).json["result"]

    assert found["contents"][0]["text"] == "Ada"
    assert seen["contents"][0] == {"uri": "picture://it", "mimeType": "image/png", "blob": "cG5n"}


def test_completions_for_what_nobody_has_are_none(server: Running):
    ref = {"type": "ref/resource", "uri": "none://{x}"}
    found = server.ask("completion/complete", {"ref": ref, "argument": {"name": "x", "value": ""}})

    assert found.json["result"]["completion"] == {"values": [], "total": 0, "hasMore": False}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#/$defs/Kind"}, ["blue"]),
        ({"const": "black"}, ["black"]),
        ({"examples": ["bronze", None, 3]}, ["bronze"]),
        ({"type": "string"}, []),
    ],
    ids=["ref", "const", "examples", "nothing"],
)
def test_completions_come_from_wherever_a_schema_has_values(schema: Any, words: list[str]):
    whole = {"properties": {"x": schema}, "$defs": {"Kind": {"enum": ["blue", "red"]}}}

    assert find_completions(whole, "x", "B") == words


# --- a caller by itself ----------------------------------------------------------------------------


async def test_a_caller_that_cannot_be_asked_says_what_is_missing():
    caller = ClientProxy({})

    with pytest.raises(MissingCapability, match="sampling"):
        await caller.ask(model=Sample("x"))
    with pytest.raises(MissingCapability, match="elicitation"):
        await caller.forward("r", {"a": {"method": "elicitation/create"}}, None)
    with pytest.raises(MissingCapability, match="strange/thing"):
        await caller.forward("r", {"a": {"method": "strange/thing"}}, None)


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        (Elicit("?", NAME), {"action": "accept", "content": {"name": 1}}, "schema"),
        (Sample("?"), None, "did not answer"),
        (Roots(), "noise", "did not answer"),
    ],
    ids=["wrong form", "nothing", "noise"],
)
async def test_an_answer_that_is_none_fails_the_tool(question: Any, answer: Any, said: str):
    async def send(questions: Any) -> Any:
        return {"x": answer}

    caller = ClientProxy({"elicitation": {}, "sampling": {}, "roots": {}}, send_questions=send)

    with pytest.raises(ToolError, match=said):
        await caller.ask(x=question)


async def test_an_answer_without_an_action_is_a_cancel():
    async def send(questions: Any) -> Any:
        return {"x": {"action": "shrug"}}

    found = await ClientProxy({"elicitation": {}}, send_questions=send).ask(x=Elicit("?"))

    assert found["x"].action == "cancel"


async def test_a_question_from_another_loop_is_asked_on_the_callers_own():
    loops: list[Any] = []

    async def send(questions: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        return {key: {"roots": []} for key in questions}

    caller = ClientProxy({"roots": {}}, send_questions=send)
    question = {"q": {"method": "roots/list"}}

    found = await asyncio.to_thread(lambda: asyncio.run(caller.forward("r", question, None)))

    assert found == {"q": {"roots": []}}
    assert loops == [asyncio.get_running_loop()]


async def test_records_below_the_level_and_of_clients_that_want_none_are_not_sent():
    told: list[Any] = []

    async def tell(method: str, params: Any) -> None:
        told.append(params["data"])
        if params["data"] == "fails":
            raise OSError("gone")

    caller = ClientProxy({}, send_notification=tell, log_level="warning")
    caller.on_log(logging.INFO, "too low")
    await asyncio.to_thread(caller.on_log, logging.ERROR, "fails")
    caller.on_log(logging.CRITICAL, "last")
    await caller.flush()
    ClientProxy({}, log_level="debug").on_log(logging.ERROR, "nobody listens")

    assert sorted(told) == ["fails", "last"]


def test_levels_have_words():
    assert [get_level_name(level) for level in (5, 10, 20, 30, 40, 50)] == [
        *("debug", "debug", "info", "warning", "error", "critical")
    ]


async def test_a_form_is_a_schema_or_a_model():
    with pytest.raises(ConfigError, match="pydantic model"):
        await ClientProxy({"elicitation": {}}).elicit("Which?", 3)


async def test_a_tool_in_another_process_cannot_ask():
    rebuild, arguments = ClientProxy({}).__reduce__()
    absent = rebuild(*arguments)
    absent.on_log(10, "stays here")

    with pytest.raises(ConfigError, match="another process"):
        absent.elicit("?")


# --- what goes over the wire -----------------------------------------------------------------------


def test_an_entry_says_icons_and_meta_that_are_meant_for_the_wire():
    icons = [{"src": "https://example.com/i.png"}]

    @tool(title="Titled", meta={"mcp": {"icons": icons, "_meta": {"a": 1}}, "mine": 2})
    def decorated() -> str:
        """Do it."""
        return ""

    entry = make_tool_entry(Toolbox(decorated)["decorated"])

    assert (entry["title"], entry["icons"], entry["_meta"]) == ("Titled", icons, {"a": 1})


def test_a_link_without_a_name_has_its_address_for_one():
    assert make_resource_entry(ResourceLink("a://b")) == {"uri": "a://b", "name": "a://b"}


def test_a_result_that_was_cut_on_the_way_is_not_made_whole_again():
    found = {"content": [{"type": "text", "text": "cut"}], "isError": False}
    given = {"content": [{"type": "text", "text": "cut and more"}], "structuredContent": {"a": 1}}
    result = ToolResult("1", "far", text="cut")

    assert passthrough(found, given, result) == found
    assert passthrough(found, {"content": "noise"}, result) == found


def test_an_error_of_several_texts_goes_on_as_several():
    result = ToolResult("1", "fail", error=ToolError("a\nb"))
    found = {"content": [{"type": "text", "text": "a\nb"}], "isError": True}
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "annotations": {"priority": 1}}]

    whole = passthrough(found, {"content": blocks, "isError": True, "structuredContent": {"code": 7}}, result)

    assert whole == {"content": blocks, "isError": True, "structuredContent": {"code": 7}}
    assert passthrough(found, {"content": [{"type": "image"}], "isError": True}, result) == found


def test_what_is_about_the_hop_stays_behind():
    given = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public", "messages": [], "_meta": {"own": 1}}

    assert without_hop_fields(given) == {"messages": [], "_meta": {"own": 1}}
    assert without_hop_fields({"messages": []}) == {"messages": []}


async def test_an_application_may_change_what_a_server_says_of_its_tool():
    @tool(read_only=True, title="Theirs")
    def far() -> str:
        """Do it far away."""
        return ""

    class Extra(BaseModel):
        why: str

    async with Toolbox(McpServer.of("far", Toolbox(far))) as box:
        plain, changed = make_tool_entry(box["far"]), make_tool_entry(box.augmented(Extra)["far"])

    assert plain["annotations"] == {"readOnlyHint": True}
    assert "why" in changed["inputSchema"]["properties"]
    assert changed["title"] == "Theirs"


async def test_text_is_text_however_it_is_wrapped():
    @tool
    async def wrapped() -> Text:
        """Return a part."""
        return Text("hi")

    async with Client(Toolbox(wrapped).__mcp_server__()) as client:
        found = await client.call_tool("wrapped", {})

    assert found.content[0].text == "hi"


async def test_a_session_that_asks_for_tasks_is_told_that_there_are_none():
    async def elicit(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    with running(Toolbox(typed)) as server:
        async with Client(server.url, mode="legacy", elicitation_callback=elicit) as client:
            found = await client.call_tool("typed", {})
            with pytest.raises(MCPError):
                await client.session.get_prompt("none")

    assert found.content[0].text == "decline: None"
