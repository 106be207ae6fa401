"""Arguments of a remote tool: validated and repaired here, before anything is sent, at a price that no server sets."""

import json
import time
from typing import Annotated, Any, Literal

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from toolmason import McpServer, Toolbox
from toolmason import Tool as LocalTool
from toolmason._core.arguments.nulls import NullSearch
from toolmason.chat import Chat
from toolmason.mcp_client.calls.remote_tools import RemoteTool
from toolmason.providers import codec
from toolmason.testing import ScriptedModel

ITEM = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "string"}}, "required": ["m"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "maximum": 10},
        "kind": {"enum": ["Fast", "Slow"]},
        "item": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]},
        "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "maybe": {"type": ["string", "null"]},
    },
    "required": ["text"],
    "$defs": {"Item": ITEM},
}


def box_of(schema):
    """Return a toolbox with a remote tool of this schema, and the list of what is sent to its server."""
    sent: list[dict[str, Any]] = []

    async def call(tool, arguments, context):
        sent.append(arguments)
        return CallToolResult.model_validate({"content": [{"type": "text", "text": "ok"}]}, by_name=False)

    entry = {"name": "t", "inputSchema": schema}
    return Toolbox(RemoteTool("far", entry, call)), sent


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({}, {"$.text": "required but missing"}),
        ({"text": 5}, {"$.text": "input should be a valid string, not an integer"}),
        (
            {"text": "", "limit": 11},
            {
                "$.limit": "input should be less than or equal to 10",
                "$.text": "string should have at least 1 character",
            },
        ),
        ({"text": "x", "items": [{"m": "a"}, {"n": "b"}]}, {"$.items[1].m": "required but missing"}),
        ({"text": "x", "kind": "medium"}, {"$.kind": "input should be 'Fast' or 'Slow'"}),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
async def test_wrong_arguments_are_told_and_never_sent(arguments, problems, as_text):
    box, sent = box_of(SCHEMA)
    result = await box.call("t", json.dumps(arguments) if as_text else arguments)

    assert result.error.code == "invalid_arguments"
    found = {problem.path: problem.message for problem in result.error.problems}
    assert {path: found.get(path) for path in problems} == problems
    assert sent == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"text": "x", "limit": "5"}, {"text": "x", "limit": 5}),
        ({"text": "x", "kind": "fast"}, {"text": "x", "kind": "Fast"}),
        ({"text": "x", "items": '[{"m": "a", "n": "2"}]'}, {"text": "x", "items": [{"m": "a", "n": 2}]}),
    ],
)
async def test_near_misses_are_repaired_before_they_are_sent(arguments, expected):
    box, sent = box_of(SCHEMA)
    result = await box.call("t", json.dumps(arguments))

    assert (result.ok, sent) == (True, [expected])
    assert result.repairs


@pytest.mark.row("L4-24", "P24")
@pytest.mark.parametrize("extra", [{}, {"patternProperties": {"^x-": {}}}], ids=["checked", "not checkable"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"text": "x", "limit": None, "kind": None, "items": None}, {"text": "x"}),
        ({"text": "x", "item": None, "maybe": None}, {"text": "x", "item": None, "maybe": None}),
        ({"text": "x", "items": [{"m": "a", "n": None}]}, {"text": "x", "items": [{"m": "a"}]}),
        ({"text": "x", "item": {"m": "a", "n": None}}, {"text": "x", "item": {"m": "a"}}),
    ],
)
async def test_a_null_that_a_strict_definition_forces_means_left_out(arguments, expected, extra):
    box, sent = box_of({**SCHEMA, **extra})
    result = await box.call("t", json.dumps(arguments))

    assert (result.ok, sent) == (True, [expected])


class Filter(BaseModel):
    """A filter."""

    tag: str
    size: int = 3


@pytest.mark.row("L4-24", "P24")
async def test_nulls_of_a_strict_definition_reach_no_server_whichever_way():
    server = MCPServer("shop")

    @server.tool()
    def search(text: str, limit: int = 5, only: Filter | None = None) -> str:
        """Search."""
        return f"{text} {limit} {only and only.size}"

    arguments = {"text": "x", "limit": None, "only": {"tag": "a", "size": None}}
    answer = {
        "output": [
            {"type": "function_call", "id": "1", "call_id": "1", "name": "search", "arguments": json.dumps(arguments)}
        ]
    }
    async with Toolbox(McpServer.of("shop", server)) as box:
        [definition] = box.definitions("openai")
        called = await box.call("search", json.dumps(arguments))
        reply = codec("openai").decode(answer, box)
        decoded = await box.call_all(reply.calls)
        chatted = await Chat(ScriptedModel([[("search", arguments)], "done"]), box).send("go")

    assert set(definition["parameters"]["required"]) == {"text", "limit", "only"}
    assert [called.text, decoded[0].text, chatted.results[0].text] == ["x 5 3"] * 3


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    age: int = 2
    mood: Literal["calm", "wild"] = "calm"
    owner: Filter | None = None


class Bird(BaseModel):
    """A bird, which no fixed value tells apart from a fish."""

    wings: int
    song: str = "tweet"


class Fish(BaseModel):
    """A fish."""

    fins: int
    song: str | None


Tagged = Annotated[Cat | Dog, Field(discriminator="kind")]


def keep(
    pet: Cat | Dog, tagged: Tagged | None, pets: list[Cat | Dog], wild: Bird | Fish, pair: tuple[Dog, int] | None = None
) -> list[Any]:
    """Keep pets."""
    return [pet, tagged, pets, wild, pair]


DOG = {"kind": "dog", "age": None, "mood": None, "owner": {"tag": "a", "size": None}}
PLAIN_DOG = {"kind": "dog", "age": 2, "mood": "calm", "owner": {"tag": "a", "size": 3}}


@pytest.mark.row("L4-24", "P24")
@pytest.mark.parametrize("where", ["local", "our server", "server of the SDK"])
async def test_a_null_in_one_of_several_types_means_left_out(where):
    """A strict definition keeps the alternatives of a union, and requires every key of each."""
    server = MCPServer("zoo")
    server.tool()(keep)
    sources = {
        "local": LocalTool.from_function(keep),
        "our server": McpServer.of("zoo", Toolbox(LocalTool.from_function(keep))),
        "server of the SDK": McpServer.of("zoo", server),
    }
    arguments = {"pet": DOG, "tagged": DOG, "pets": [DOG], "wild": {"wings": 2, "song": None}, "pair": [DOG, 1]}
    async with Toolbox(sources[where]) as box:
        result = await box.call("keep", arguments)

    bird = {"wings": 2, "song": "tweet"}
    assert to_jsonable_python(result.unwrap()) == [PLAIN_DOG, PLAIN_DOG, [PLAIN_DOG], bird, [PLAIN_DOG, 1]]


async def test_a_null_that_one_of_several_types_needs_is_sent():
    one, other = ({"type": "object", "properties": {"n": {"type": kind}}} for kind in ("integer", "null"))
    box, sent = box_of({"type": "object", "properties": {"a": {"oneOf": [one, other]}, "b": {"allOf": [one]}}})
    result = await box.call("t", {"a": {"n": None}, "b": {"n": None}})

    assert (result.ok, sent) == (True, [{"a": {"n": None}, "b": {}}])


async def test_a_null_in_a_place_that_takes_any_object_is_sent():
    declared = {"type": "object", "properties": {"n": {"type": "integer"}}}
    box, sent = box_of({"type": "object", "properties": {"a": {"anyOf": [{"type": "object"}, declared]}}})
    result = await box.call("t", {"a": {"n": None}})

    assert (result.ok, sent) == (True, [{"a": {"n": None}}])


def make_objects(number: int, fixed: int) -> list[dict[str, Any]]:
    values = {f"c{index}": {"const": 1} for index in range(fixed)}
    properties = {"a": {"type": "integer"}, **values}
    return [{"type": "object", "title": str(index), "properties": properties} for index in range(number)]


@pytest.mark.parametrize(
    ("union", "data"),
    [
        (make_objects(5000, 0), {f"k{index}": index for index in range(20_000)}),
        (make_objects(5000, 0), [{"a": None}] * 20_000),
        (make_objects(10, 1000), [{"a": None}] * 20_000),
    ],
    ids=["keys", "items", "fixed values"],
)
def test_the_search_for_nulls_in_a_large_union_is_bounded(union, data):
    schema = {"anyOf": [*union, {"type": "array", "items": {"anyOf": union}}]}
    started = time.process_time()
    found = NullSearch(schema).drop(data, schema)

    assert time.process_time() - started < 3  # 20 s without the bounds
    assert len(found) == len(data)


@pytest.mark.parametrize("declared", [None, True, {"type": "string"}])
async def test_an_undeclared_argument_is_sent_if_the_schema_allows_it(declared):
    schema = {"type": "object", "properties": {}, **({} if declared is None else {"additionalProperties": declared})}
    box, sent = box_of(schema)
    await box.call("t", {"more": "x"})

    assert sent == [{"more": "x"}]


async def test_an_undeclared_argument_is_dropped_as_for_a_local_tool():
    box, sent = box_of({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False})
    result = await box.call("t", {"a": 1, "more": "x"})

    assert (result.ok, sent) == (True, [{"a": 1}])


LOOP = {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]}
HOSTILE = {
    "a circle": {"properties": {"a": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": {"$ref": "#/$defs/loop"}}},
    "two circles": {"properties": {"a": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": LOOP}},
    "a pattern": {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}},
    "patterns of keys": {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
    "branches": {"properties": {"a": {"anyOf": [{"enum": list(range(400))}] * 400}}},
    "a list": {"properties": {"a": {"type": "array", "items": {"allOf": [{"minimum": 0}] * 500}}}},
    "another place": {"$id": "http://127.0.0.1:9/x", "properties": {"a": {"$ref": "#/$defs/none"}}},
    "a nested place": {"properties": {"a": {"$id": "http://127.0.0.1:9/x", "$ref": "#anchor"}}},
    "no schema": {"properties": {"a": {"type": 5}}},
    "old bounds": {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}},
    "old items": {"properties": {"a": {"items": [{"type": "string"}]}}},
    "old required": {"properties": {"a": {"required": True}}},
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize(
    "value", [1, "a" * 40 + "!", [1] * 2000, None, {"x": {"y": True}}], ids=lambda v: type(v).__name__
)
async def test_a_hostile_schema_costs_little_and_stops_no_call(case, value):
    box, _ = box_of({"type": "object", **HOSTILE[case]})
    await box.call("t", {})
    started = time.process_time()
    result = await box.call("t", json.dumps({"a": value}))

    assert time.process_time() - started < 1
    assert result.ok or result.error.code == "invalid_arguments"
