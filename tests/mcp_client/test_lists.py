"""What a server offers: how long a list is good, what a server has that has no tools, and what health says of lists."""

import asyncio
import json

import mcp_types
import pytest
from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.shared.exceptions import MCPError

from adversaries.raw_http import served
from toolmason import McpServer, Toolbox, ToolCall
from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import DefinitionError
from toolmason.mcp_client.transport import sanitize


class Low:
    """A server that counts how often it is asked for its list, and may fail to give it."""

    def __init__(self):
        self.lists = 0
        self.fails = False

    async def listed(self, *_):
        self.lists += 1
        if self.fails:
            raise MCPError(mcp_types.INTERNAL_ERROR, "no list today")
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="hi", input_schema={"type": "object"})])

    async def called(self, *_):
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="hi")])

    def server(self, **words):
        return Server("low", version="1", on_list_tools=self.listed, on_call_tool=self.called, **words)


async def test_a_server_that_says_nothing_of_its_list_leaves_it_to_cache_ttl():
    low = Low()

    async with Toolbox(McpServer.of("low", low.server())) as box:
        for _ in range(3):
            await box.list()

    assert low.lists == 1


@pytest.mark.parametrize("hint", [0, 60_000])
async def test_a_cache_ttl_of_zero_asks_at_each_need(hint):
    low = Low()

    async with Toolbox(
        McpServer.of("low", low.server(cache_hints={"tools/list": CacheHint(hint)}), cache_ttl=0)
    ) as box:
        await box.list()
        await box.list()
        result = await box.call("hi")

    assert low.lists == 3
    assert result.text == "hi"


def test_a_cache_ttl_below_zero_is_refused():
    with pytest.raises(DefinitionError, match=r"cache_ttl=-1 must be 0 or more seconds"):
        McpServer.of("low", Low().server(), cache_ttl=-1)


async def test_a_server_without_tools_is_used_for_what_it_has():
    async def resources(*_):
        return mcp_types.ListResourcesResult(resources=[mcp_types.Resource(uri="note://one", name="one")])

    async def read(*_):
        return mcp_types.ReadResourceResult(contents=[mcp_types.TextResourceContents(uri="note://one", text="1")])

    server = Server("notes", version="1", on_list_resources=resources, on_read_resource=read)

    async with Toolbox(McpServer.of("notes", server, required=True)) as box:
        found = [link.uri for link in box.resources], box.tools
        contents = await box.read("note://one")
        health = (await box.health())["notes"]

    assert found == (["note://one"], [])
    assert contents[0].text == "1"
    assert health.ok


async def test_a_server_that_answers_and_cannot_list_is_not_well():
    low = Low()
    low.fails = True
    async with Toolbox(McpServer.of("low", low.server())) as box:
        ill = (await box.health())["low"]
        low.fails = False
        well = (await box.health())["low"]

    assert (ill.ok, ill.error, ill.tools) == (False, "no list today", 0)
    assert (well.ok, well.error, well.tools) == (True, None, 1)


async def test_health_tells_of_a_list_that_is_served_stale():
    low = Low()
    async with Toolbox(McpServer.of("low", low.server(), serve_stale=True)) as box:
        low.fails = True
        await box.refresh()
        health = (await box.health())["low"]
        result = await box.call("hi")

    assert (health.ok, health.tools) == (False, 1)
    assert result.text == "hi"


async def test_health_knows_how_many_tools_there_are_before_anything_was_listed():
    async with Toolbox(McpServer.of("low", Low().server()), eager=False) as box:
        health = (await box.health())["low"]

    assert health.tools == 1


@pytest.mark.parametrize("ask", ["call", "call_all", "resolve"])
async def test_a_name_that_is_not_in_the_list_is_looked_for_again_unless_the_server_vouches_for_the_list(ask):
    asked = []
    for hint in (0, 60_000):
        low = Low()
        async with Toolbox(McpServer.of("low", low.server(cache_hints={"tools/list": CacheHint(hint)}))) as box:
            what = [ToolCall("1", "nothing", {})] if ask == "call_all" else "nothing"
            await getattr(box, ask)(what)
            await box.call("hi")
        asked.append(low.lists)

    assert asked == [2, 1]


HINTS = {"ttlMs": 0, "cacheScope": "public"}
GOOD = {
    "prompts/list": {"name": "good", "arguments": [{"name": "who", "description": "Whom."}]},
    "resources/list": {"name": "a/long/path " * 20, "uri": "note://good"},
    "resources/templates/list": {"name": "good", "uriTemplate": "note://{name}"},
}
BAD = [
    {"name": "bad", "description": "ordinary\u202etext"},
    {"name": "bad", "title": "ordinary\u200btext"},
    {"name": "bad\x1b[2J"},
    {"name": "bad", "description": "x" * 5000},
    {"name": "bad", "_meta": {"hint": "\U000e0041"}},
    {"name": "bad", "icons": "none"},
    {"name": ""},
    {"description": "no name"},
    "not an object",
]


@pytest.mark.parametrize("bad", BAD, ids=str)
async def test_t4_one_bad_prompt_or_resource_is_left_out_and_the_others_are_used(bad, caplog):
    with served("plain") as server:
        for method, good in GOOD.items():
            entry = {**good, **bad} if isinstance(bad, dict) and "name" in bad else bad
            key = "resourceTemplates" if "templates" in method else method.partition("/")[0]
            server.lists[method] = {key: [entry, good], **HINTS}

        async with Toolbox(McpServer.http("raw", server.url)) as box:
            prompts = [prompt.name for prompt in box.prompts]
            resources = [link.uri for link in box.resources]
            templates = [entry["uriTemplate"] for entry in Gateway(get_state(box).remotes).templates]

    assert (prompts, resources, templates) == (["good"], ["note://good"], ["note://{name}"])
    assert [caplog.text.count(f"ignoring {what} ") for what in ("prompt", "resource", "resource template")] == [1, 2, 1]


def list_tools(*tools):
    """Return the names of the tools that are left of a list."""
    sanitizer = sanitize.Sanitizer("raw", {1: ("tools/list", False)})
    message = sanitizer.sanitize(mcp_types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"tools": [*tools]}))
    return [entry["name"] for entry in message.result["tools"]]


@pytest.mark.parametrize("key", ["1" * 5000, "1" * 12, "\u0661", "-1", "01"])
def test_t4_a_reference_to_no_part_of_a_list_takes_no_other_tool_with_it(key):
    schema = {"type": "object", "allOf": [{"type": "object"}], "$ref": f"#/allOf/{key}"}

    names = list_tools({"name": "odd", "inputSchema": schema}, {"name": "good", "inputSchema": {"type": "object"}})

    assert names[-1] == "good"


def test_t4_an_entry_whose_check_fails_takes_no_other_with_it(monkeypatch, caplog):
    find = sanitize.find_tool_problem
    monkeypatch.setattr(sanitize, "find_tool_problem", lambda entry: 1 / 0 if entry["name"] == "bad" else find(entry))

    names = list_tools(*({"name": name, "inputSchema": {"type": "object"}} for name in ("bad", "good")))

    assert names == ["good"]
    assert "ignoring tool 'bad': it cannot be checked: ZeroDivisionError" in caplog.text


async def test_t4_a_hidden_character_in_an_argument_or_an_address_is_seen_too(caplog):
    with served("plain") as server:
        argument = {"name": "who", "description": "Whom\u2066."}
        server.lists["prompts/list"] = {"prompts": [{"name": "bad", "arguments": [argument]}], **HINTS}
        server.lists["resources/list"] = {"resources": [{"name": "bad", "uri": "note://a\u202eb"}], **HINTS}

        async with Toolbox(McpServer.http("raw", server.url)) as box:
            found = [*box.prompts, *box.resources]

    assert found == []
    assert "its arguments contains the hidden character U+2066" in caplog.text
    assert "its uri contains the hidden character U+202E" in caplog.text


WRONG_PARTS = [
    *({keyword: value} for keyword in ("$ref", "format", "type", "enum", "required", "anyOf") for value in (5, {})),
    *({keyword: [[]]} for keyword in ("$ref", "format", "type", "required")),
    {"properties": 5},
    {"$defs": []},
]


@pytest.mark.parametrize("wrong", WRONG_PARTS, ids=str)
async def test_t4_a_schema_with_a_keyword_of_the_wrong_type_costs_only_its_own_tool(wrong, caplog):
    with served("plain") as server:
        server.tools.append({"name": "odd", "inputSchema": {"type": "object", "properties": {"a": wrong}}})

        async with Toolbox(McpServer.http("raw", server.url)) as box:
            await box.list()
            for provider in ("openai", "openai-chat", "anthropic", "gemini"):
                box.definitions(provider)
            names = sorted(tool.name for tool in box)

    assert names == ["echo", "look"]
    assert "ignoring tool 'odd': its input schema is not a JSON Schema" in caplog.text


@pytest.mark.parametrize("keyword", ["required", "properties", "enum", "anyOf", "$defs", "type"])
async def test_a_keyword_that_is_null_counts_as_absent(keyword):
    schema = {"type": "object", "properties": {"a": {"type": "object", keyword: None}}, "required": None}
    with served("plain") as server:
        server.tools = [{"name": "odd", "inputSchema": schema}]

        async with Toolbox(McpServer.http("raw", server.url)) as box:
            await box.list()
            for provider in ("openai", "openai-chat", "anthropic", "gemini"):
                box.definitions(provider)
            text = json.dumps(box["odd"].definition.input_schema)

    assert "null" not in text


async def test_a_property_that_says_itself_that_it_is_required_is_read():
    with served("plain") as server:
        part = {"type": "object", "required": True}
        server.tools = [{"name": "old", "inputSchema": {"type": "object", "properties": {"a": part}}}]

        async with Toolbox(McpServer.http("raw", server.url)) as box:
            await box.list()
            box.definitions("openai")
            properties = box["old"].definition.input_schema["properties"]

    assert properties == {"a": {"type": "object"}}


async def test_a_tool_has_all_that_its_server_sent():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "x-own": 1}
    entry = {
        "name": "far",
        "title": "Far",
        "description": "Go far.",
        "inputSchema": schema,
        "outputSchema": schema,
        "annotations": {"readOnlyHint": "true", "openWorldHint": False},
        "_meta": {"unit": "km"},
        "icons": [],
    }
    with served("plain") as server:
        server.tools = [entry, {"name": "near", "inputSchema": {"type": "object"}}]

        async with Toolbox(McpServer.http("raw", server.url)) as box:
            await box.list()
            far, near = box["far"], box["near"]

    assert (far.definition.title, far.definition.description) == ("Far", "Go far.")
    assert (far.definition.input_schema, far.definition.output_schema) == (schema, schema)
    assert (far.options.read_only, far.options.open_world, far.options.meta) == (True, False, {"unit": "km"})
    assert near.definition.input_schema == {"type": "object", "properties": {}}
    assert near.options.read_only is None


async def test_all_lists_are_asked_for_at_once():
    barrier = asyncio.Barrier(4)

    def handler(result):
        async def answer(*_):
            await asyncio.wait_for(barrier.wait(), 20)
            return result

        return answer

    server = Server(
        "low",
        version="1",
        on_list_tools=handler(
            mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="t", input_schema={"type": "object"})])
        ),
        on_list_prompts=handler(mcp_types.ListPromptsResult(prompts=[mcp_types.Prompt(name="p")])),
        on_list_resources=handler(mcp_types.ListResourcesResult(resources=[])),
        on_list_resource_templates=handler(mcp_types.ListResourceTemplatesResult(resource_templates=[])),
    )
    async with Toolbox(McpServer.of("s", server)) as box:
        assert [tool.name for tool in await box.list()] == ["t"]
        assert [prompt.name for prompt in box.prompts] == ["p"]
