"""Rows of the five systems that no other test shows by itself."""

import functools
from dataclasses import dataclass
from typing import Annotated

import pytest
from mcp import Client

from toolmason import Param, RemoteMcp, Tool, Toolbox, ToolOptions, WebSearch, tool


@pytest.mark.row("MA-1")
def test_functions_and_tools_of_the_provider_are_exported_together():
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    box = Toolbox(add, WebSearch(), RemoteMcp("docs", "https://example.com/mcp"))

    assert [part["type"] for part in box.definitions("openai")] == ["function", "web_search", "mcp"]


@pytest.mark.row("MA-5")
async def test_a_handler_gets_the_folder_and_the_configuration(tmp_path):
    async def handle(arguments, context):
        if arguments["name"] == "missing":
            raise FileNotFoundError("no such file")
        return f"{context.project_dir.name} {context.config.get('team')} {arguments['name']}"

    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    box = Toolbox(
        Tool.from_schema("read", "Read a file.", schema, handle), project_dir=tmp_path, config={"team": "green"}
    )

    assert (await box.call("read", {"name": "a"})).text == f"{tmp_path.name} green a"
    failed = await box.call("read", {"name": "missing"})
    assert isinstance(failed.error.__cause__, FileNotFoundError)


@pytest.mark.row("SP-4")
def test_a_result_goes_to_the_model_unless_the_tool_says_otherwise():
    assert ToolOptions().return_direct is False


@pytest.mark.row("SP-5")
def test_a_preset_of_the_decorator_works_bare_and_with_options():
    query = functools.partial(tool, read_only=True)

    @query
    def first() -> str:
        """Return the first."""
        return "a"

    @query(name="last", return_direct=True)
    def second() -> str:
        """Return the last."""
        return "b"

    box = Toolbox(first, second)

    assert {name: box[name].options.read_only for name in ("first", "last")} == {"first": True, "last": True}
    assert box["last"].options.return_direct


@pytest.mark.row("SP-26")
def test_the_names_of_parameters_come_from_the_signature():
    @tool
    def move(from_place: str, *, to_place: str) -> str:
        """Move."""
        return from_place + to_place

    assert list(Toolbox(move)["move"].definition.input_schema["properties"]) == ["from_place", "to_place"]


@pytest.mark.row("AJ-5", "CO-23", "SP-23", "MA-27")
def test_schemas_are_closed_and_complete():
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    @tool
    def tag(names: list[str], size: Annotated[int, Param(examples=[3])] = 1) -> str:
        """Tag."""
        return f"{names} {size}"

    box = Toolbox(ping, tag)

    assert box["ping"].definition.input_schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert box["tag"].definition.input_schema == {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string"}},
            "size": {"type": "integer", "default": 1, "examples": [3]},
        },
        "required": ["names"],
        "additionalProperties": False,
    }


@pytest.mark.row("CO-13")
async def test_a_tool_may_skip_the_rule_of_its_toolbox_and_not_its_own():
    asked = []

    @tool(skip_permission=True)
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    def approve(request):
        asked.append(request.tool)
        return True

    box = Toolbox(look, pay, approve="all", approver=approve)
    await box.call("look")
    await box.call("pay")

    assert asked == ["pay"]


@pytest.mark.row("CO-22")
def test_a_record_is_an_argument_unless_it_is_flattened():
    @dataclass
    class Order:
        item: str

    def buy(order: Order) -> str:
        """Buy."""
        return order.item

    nested = Tool.from_function(buy)
    flat = Tool.from_function(buy, flatten=True)

    assert list(nested.definition.input_schema["properties"]) == ["order"]
    assert list(flat.definition.input_schema["properties"]) == ["item"]


@pytest.mark.row("AJ-12", "AJ-14", "P20")
async def test_wrong_arguments_and_exceptions_are_error_results_over_mcp():
    @tool
    def divide(a: int, b: int = 1) -> float:
        """Divide."""
        return a / b

    async with Client(Toolbox(divide).__mcp_server__()) as client:
        missing = await client.call_tool("divide", {})
        failing = await client.call_tool("divide", {"a": 1, "b": 0})

    assert missing.is_error
    assert "$.a" in missing.content[0].text
    assert failing.is_error
    assert "ZeroDivisionError" in failing.content[0].text
