"""A tool that a server adds during a run is offered in the next turn, however and whenever the server announces it."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import mcp_types
import pytest
import uvicorn
from mcp.server import Server
from mcp.server.lowlevel.server import NotificationOptions

from adversaries.growing_server import make_own, make_sdk
from adversaries.raw_http import served
from mcp_server.sample_server import running
from toolmason import McpServer, Toolbox, ToolContext
from toolmason.chat import Chat
from toolmason.mcp_client.lists import list_cache
from toolmason.mcp_client.transport.http import BoundedTransport
from toolmason.testing import ScriptedModel

SCRIPT = str(Path(__file__).parents[1] / "adversaries" / "growing_server.py")
ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])
pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def over_memory(kind, era, forks):
    yield McpServer.of("far", make_own() if kind == "own" else make_sdk(), era=era)


@asynccontextmanager
async def over_stdio(kind, era, forks):
    yield McpServer.stdio("far", forks.python, [SCRIPT, kind], era=era)


@asynccontextmanager
async def over_http(kind, era, forks):
    if kind == "own":
        with running(make_own()) as server:
            yield McpServer.http("far", server.url, era=era)
        return
    started = asyncio.Event()

    class Announcing(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            started.set()

    server = Announcing(uvicorn.Config(make_sdk().streamable_http_app(), port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    await started.wait()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield McpServer.http("far", f"http://127.0.0.1:{port}/mcp", era=era)
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def over_gateway(kind, era, forks):
    async with over_memory(kind, era, forks) as upstream:
        with running(Toolbox(upstream)) as server:
            yield McpServer.http("far", server.url, era=era)


def offered(model):
    return [[tool.name for tool in request.tools] for request in model.requests]


@ERAS
@pytest.mark.parametrize("kind", ["own", "sdk"])
@pytest.mark.parametrize("way", [over_memory, over_stdio, over_http, over_gateway])
async def test_a_tool_that_a_server_adds_is_offered_in_the_next_turn(way, kind, era, forks):
    model = ScriptedModel([[("grow", {})], [("late", {})], "done"])

    async with way(kind, era, forks) as server, Toolbox(server) as box:
        reply = await Chat(model, box).send("x")

    assert offered(model) == [["grow"], ["grow", "late"], ["grow", "late"]]
    assert [result.text for result in reply.results] == ["grown", "here"]


@ERAS
async def test_a_stream_and_a_run_of_ones_own_offer_it_too(era):
    model = ScriptedModel([[("grow", {})], [("late", {})], "done"])
    async with Toolbox(McpServer.of("far", make_own(), era=era)) as box:
        async for _ in Chat(model, box).stream("x"):
            pass
    async with Toolbox(McpServer.of("far", make_own(), era=era)) as box, box.run() as run:
        await run.call("grow")
        listed = [tool.name for tool in await run.list()]
        defined = [item["name"] for item in run.definitions("openai")]
        result = await run.call("late")

    assert offered(model)[1:] == [["grow", "late"]] * 2
    assert listed == defined == ["grow", "late"]
    assert result.text == "here"


async def test_it_is_offered_to_the_identity_of_the_chat():
    model = ScriptedModel([[("grow", {})], [("late", {})], "done"])
    server = McpServer.of("far", make_own(), era="legacy", auth=lambda ctx: ctx.get("user"))

    async with Toolbox(server, context=ToolContext(user="owner")) as box:
        reply = await Chat(model, box).send("x", context={"user": "ann"})

    assert offered(model)[1] == ["grow", "late"]
    assert reply.results[1].text == "here"


class Counting:
    """A server that counts the requests for its tools, and may not answer them."""

    def __init__(self):
        self.lists = 0
        self.is_silent = False

    async def list(self, *_):
        self.lists += 1
        if self.is_silent:
            await asyncio.Event().wait()
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="hi", input_schema={"type": "object"})])

    async def call(self, *_):
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="hi")])

    def make(self, *, declares):
        server = Server("counting", version="1", on_list_tools=self.list, on_call_tool=self.call)
        make_options = server.create_initialization_options
        server.create_initialization_options = lambda: make_options(NotificationOptions(tools_changed=declares))
        return server


@pytest.mark.parametrize(("declares", "lists"), [(True, 3), (False, 1)])
async def test_a_turn_costs_one_request_for_each_server_that_was_called_and_may_announce(declares, lists):
    counting, other = Counting(), Counting()
    turns = [[("hi", {}), ("hi", {"n": 1})], [("hi", {"n": 2})], [("unknown", {})], "done"]
    servers = [
        McpServer.of("far", counting.make(declares=declares), era="legacy"),
        McpServer.of("other", other.make(declares=True), era="legacy", prefix="other_"),
    ]

    async with Toolbox(*servers) as box:
        await Chat(ScriptedModel(turns), box).send("x")

    assert (counting.lists, other.lists) == (lists, 1)


async def test_a_server_that_does_not_answer_keeps_its_list(monkeypatch):
    monkeypatch.setattr(list_cache, "CONFIRM_SECONDS", 0.05)
    counting, model = Counting(), ScriptedModel([[("hi", {})], "done"])

    async with Toolbox(McpServer.of("far", counting.make(declares=True), era="legacy")) as box:
        counting.is_silent = True
        await Chat(model, box).send("x")

    assert offered(model) == [["hi"], ["hi"]]
    assert counting.lists == 2


async def test_a_server_that_refuses_the_stream_of_announcements_is_not_asked(monkeypatch):
    refused, send = asyncio.Event(), BoundedTransport.handle_async_request

    async def handle(self, request):
        response = await send(self, request)
        if request.method == "GET":
            refused.set()
        return response

    monkeypatch.setattr(BoundedTransport, "handle_async_request", handle)
    with served("legacy 404") as raw:
        async with Toolbox(McpServer.http("raw", raw.url)) as box:
            await refused.wait()
            await box.call("echo", {"text": "x"})
            await box.list()

    assert raw.seen.count("tools/list") == 1
