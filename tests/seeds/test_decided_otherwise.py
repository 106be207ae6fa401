"""Rows of the five systems where Toolmason does something else: each does what `docs/why/decided-otherwise.md` says."""

import asyncio
import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from house.source import ROOT
from toolmason import (
    Chat,
    Config,
    Image,
    Inject,
    McpServer,
    Param,
    Sequential,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    WebSearch,
    converters,
    scan,
    tool,
)
from toolmason.chat import ToolLoop, before_loop, inside_loop
from toolmason.errors import (
    ConfigError,
    DefinitionError,
    DuplicateTool,
    InvalidArguments,
    UnsupportedProvider,
    UnsupportedType,
)
from toolmason.models import ScriptedModel

PAGE = ROOT / "docs" / "why" / "decided-otherwise.md"
ROWS = [
    *("MA-11", "MA-18", "MA-27", "MA-29", "MA-32"),
    *("AJ-4", "AJ-9", "AJ-12", "AJ-14", "AJ-15"),
    *("CO-3", "CO-4", "CO-22", "CO-26"),
    *("SP-23", "SP-32", "SP-34", "SP-37", "SP-39", "SP-40", "SP-44", "SP-52"),
    *("L4-9", "L4-18", "L4-25", "L4-28"),
]


def schema_of(fn):
    return Toolbox(fn)[fn.__name__].definition.input_schema


def test_the_page_has_one_line_for_each_row():
    lines = re.findall(r"^\| ([A-Z0-9]{2}-\d+) \|(.*)\|(.*)\|(.*)\|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert sorted(row for row, *_ in lines) == sorted(ROWS)
    assert all(text.strip() for _, *texts in lines for text in texts)


# --- Machai ------------------------------------------------------------------------------------


@pytest.mark.row("MA-11")
async def test_none_is_the_null_default_and_the_sentinels_are_plain_text():
    def show(a: Annotated[str | None, Param(default=None)], b: str = "___NULL___") -> str:
        return f"{a} {b}"

    assert schema_of(show)["required"] == []
    assert (await Toolbox(show).call("show")).text == "None ___NULL___"


@pytest.mark.row("MA-18")
async def test_a_config_is_injected_by_type_and_a_path_is_a_parameter():
    def show(config: Config, project_dir: Path, target: Path) -> str:
        return f"{config.get('a', '')} {project_dir.name} {target}"

    def wrong(thing: threading_lock) -> None: ...

    box = Toolbox(show, config=Config({"a": "b"}), project_dir=Path("/srv/app"))

    assert list(schema_of(show)["properties"]) == ["target"]
    assert (await box.call("show", {"target": "x"})).text == "b app x"
    with pytest.raises(UnsupportedType):
        Tool.from_function(wrong)


class threading_lock:  # noqa: N801 - stands for a type without a JSON form
    pass


@pytest.mark.row("MA-27")
def test_a_schema_has_items_enum_default_and_additional_properties():
    class Size(enum.Enum):
        S = "s"

    def order(sizes: list[Size], count: int = 3) -> None: ...

    schema = schema_of(order)

    assert schema["additionalProperties"] is False
    assert schema["properties"]["count"]["default"] == 3
    assert schema["$defs"]["Size"]["enum"] == ["s"]
    assert "items" in schema["properties"]["sizes"]


@pytest.mark.row("MA-29")
async def test_bad_json_is_a_result_for_the_model_unless_errors_are_raised():
    def show(a: int = 1) -> int:
        return a

    result = await Toolbox(show).call("show", '{"a": ')

    assert (result.ok, result.error.code) == (False, "invalid_arguments")
    assert (await Toolbox(show).call("show", "  ")).value == 1
    with pytest.raises(InvalidArguments):
        await Toolbox(show, on_error="raise").call("show", "{")


@pytest.mark.row("MA-32")
def test_web_search_is_the_present_tool_and_the_preview_is_kept_if_it_is_named():
    def sent(search):
        [entry] = Toolbox(search).definitions("openai")
        return entry

    assert sent(WebSearch())["type"] == "web_search"
    assert sent(WebSearch(type="web_search_preview"))["type"] == "web_search_preview"
    assert sent(WebSearch(city="Brno"))["user_location"] == {"type": "approximate", "city": "Brno"}


# --- AJ-MCP ------------------------------------------------------------------------------------


@pytest.mark.row("AJ-4")
def test_types_are_those_of_json_schema():
    def show(a: int, b: float, c: bool, d: str) -> None: ...

    types = {name: part["type"] for name, part in schema_of(show)["properties"].items()}

    assert types == {"a": "integer", "b": "number", "c": "boolean", "d": "string"}


@pytest.mark.row("AJ-9")
async def test_an_object_is_json_null_is_null_and_what_has_no_json_form_is_an_error():
    @dataclass
    class Point:
        x: int

    def point() -> Point:
        return Point(1)

    def nothing() -> int | None:
        return None

    def odd():
        return object()

    box = Toolbox(point, nothing, odd)

    assert [(await box.call(name)).text for name in ("point", "nothing")] == ['{"x":1}', "null"]
    assert (await box.call("odd")).error.code == "result_error"


@pytest.mark.row("AJ-12", "AJ-14")
async def test_wrong_arguments_and_exceptions_are_error_results_over_mcp():
    def div(a: int, b: int = 1) -> float:
        return a / b

    async with Toolbox(McpServer.of("far", Toolbox(div))) as box:
        missing = await box.call("div", {})
        failed = await box.call("div", {"a": 1, "b": 0})
        left_out = await box.call("div", {"a": 4})

    assert missing.error.code == "invalid_arguments"
    assert failed.error.code == "execution_error"
    assert left_out.value == 4.0


@pytest.mark.row("AJ-15", "CO-26")
async def test_duplicates_are_an_error_that_names_both_modules(make_package):
    source = "from toolmason import tool\n@tool\ndef find() -> None: ...\n"
    make_package(first=source, second=source)

    with pytest.raises(DuplicateTool) as caught:
        scan("shop")

    assert "shop.first" in str(caught.value)
    assert "shop.second" in str(caught.value)


# --- Copilot SDK --------------------------------------------------------------------------------


@pytest.mark.row("CO-3", "CO-4")
def test_names_are_as_written_and_snake_case_keeps_acronyms_together():
    def getURL() -> None: ...  # noqa: N802 - as a seed would name it

    def parseHTTPResponse2() -> None: ...  # noqa: N802 - as above

    plain, snake = (Toolbox(getURL, parseHTTPResponse2, **naming) for naming in ({}, {"naming": "snake"}))

    assert [item.name for item in plain] == ["getURL", "parseHTTPResponse2"]
    assert [item.name for item in snake] == ["get_url", "parse_http_response2"]


@pytest.mark.row("CO-3")
def test_a_tool_without_a_description_is_described_by_its_name():
    @tool
    def set_phase() -> None: ...

    assert Toolbox(set_phase)["set_phase"].description == "Set phase"


@pytest.mark.row("CO-22")
def test_the_fields_of_one_record_are_the_arguments_if_that_is_said():
    @dataclass
    class Order:
        item: str

    def plain(order: Order) -> None: ...

    @tool(flatten=True)
    def flat(order: Order) -> None: ...

    assert list(schema_of(plain)["properties"]) == ["order"]
    assert list(schema_of(flat)["properties"]) == ["item"]


@pytest.mark.row("CO-26")
async def test_a_tool_is_replaced_on_request_and_its_errors_can_be_hidden():
    def boom() -> None:
        raise ValueError("the password is hunter2")

    box = Toolbox(boom, on_error="redact")

    with pytest.raises(DuplicateTool):
        box.add(Tool.from_schema("boom", "Boom", {}, lambda arguments, context: "x"))
    assert "hunter2" not in (await box.call("boom")).text
    assert (await box.call("nope")).error.code == "unknown_tool"
    box.add(Tool.from_schema("boom", "Boom", {}, lambda arguments, context: "x"), replace=True)
    assert (await box.call("boom")).text == "x"


# --- Spring AI ----------------------------------------------------------------------------------


@pytest.mark.row("SP-23")
def test_a_schema_keeps_formats_names_no_draft_and_always_says_what_is_required():
    import datetime as dt

    def when(day: dt.date | None = None) -> None: ...

    @tool(extra="allow")
    def more() -> None: ...

    schema = schema_of(when)

    assert "$schema" not in schema
    assert schema["required"] == []
    assert {"type": "string", "format": "date"} in schema["properties"]["day"]["anyOf"]
    assert schema_of(more).get("additionalProperties") is not False


@pytest.mark.row("SP-32")
async def test_text_is_sent_as_it_is_and_void_is_success():
    def text() -> str:
        return "plain"

    def void() -> None: ...

    def image() -> Image:
        return Image(b"x", mime_type="image/png")

    @tool(converter=converters.quoted_json)
    def quoted() -> str:
        return "plain"

    box = Toolbox(text, void, image, quoted)
    results = [await box.call(name) for name in ("text", "void", "quoted", "image")]

    assert [result.text for result in results[:3]] == ["plain", "Success", '"plain"']
    assert isinstance(results[3].content[0], Image)


@pytest.mark.row("SP-34")
async def test_an_error_of_a_direct_tool_goes_to_the_model():
    @tool(return_direct=True)
    def boom() -> str:
        raise ValueError("no")

    reply = await Chat(ScriptedModel([[ToolCall("1", "boom", {})], "It failed."]), [boom]).send("x")

    assert reply.text == "It failed."


@pytest.mark.row("SP-37")
async def test_an_empty_context_is_legal_and_a_missing_value_is_an_error_before_the_tool_runs():
    ran = []

    def show(ctx: ToolContext[Any]) -> str:
        return str(dict(ctx))

    def needs(db: Annotated[str, Inject("db")]) -> None:
        ran.append(db)

    box = Toolbox(show, needs)
    result = await box.call("needs")

    assert (await box.call("show")).text == "{}"
    assert not result.ok
    assert ran == []


@pytest.mark.row("SP-39")
async def test_a_name_that_is_there_twice_or_not_at_all_is_refused():
    def find() -> None: ...

    chat = Chat(ScriptedModel(["x"]), [find])

    with pytest.raises(DuplicateTool):
        await chat.send("x", add_tools=[Tool.from_schema("find", "Find", {}, lambda arguments, context: "x")])
    with pytest.raises(DefinitionError):
        Toolbox("no_such_tool")


@pytest.mark.row("SP-40")
async def test_calls_run_side_by_side_unless_they_are_told_not_to():
    running, most = 0, 0

    @tool
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1

    box, calls = Toolbox(work), [ToolCall(str(number), "work", {}) for number in range(3)]
    await box.call_all(calls)
    parallel, most = most, 0
    await box.call_all(calls, strategy=Sequential())

    assert (parallel, most) == (3, 1)
    assert (await box.call("nope")).error.code == "unknown_tool"


@pytest.mark.row("SP-44")
async def test_an_advisor_says_where_it_stands_and_not_by_a_number():
    seen = []

    @before_loop
    async def outer(turn, proceed):
        seen.append("before")
        return await proceed(turn)

    @inside_loop
    async def inner(turn, proceed):
        seen.append("inside")
        return await proceed(turn)

    def ping() -> str:
        return "pong"

    model = ScriptedModel([[ToolCall("1", "ping", {})], "done"])
    await Chat(model, [ping], advisors=[inner, outer]).send("x")

    assert seen == ["before", "inside", "inside"]
    with pytest.raises(ConfigError):
        Chat(model, [ping], advisors=[ToolLoop(), ToolLoop()])


@pytest.mark.row("SP-52")
@pytest.mark.parametrize("kind", [RuntimeError, OSError, MemoryError, SystemExit])
async def test_every_exception_of_a_tool_is_a_result_unless_its_type_is_let_through(kind):
    def boom() -> None:
        raise kind("no")

    assert (await Toolbox(boom).call("boom")).error.code == "execution_error"
    with pytest.raises(kind):
        await Toolbox(boom, rethrow=(kind,)).call("boom")


# --- LLM4S --------------------------------------------------------------------------------------


@pytest.mark.row("L4-9")
async def test_servers_connect_when_a_toolbox_is_entered_and_not_when_it_is_made():
    def ping() -> str:
        return "pong"

    box = Toolbox(McpServer.of("far", Toolbox(ping)))
    before = [item.name for item in box]
    async with box:
        entered = [item.name for item in box]

    assert (before, entered) == ([], ["ping"])


@pytest.mark.row("L4-18")
async def test_the_model_reads_one_object_with_the_error():
    def show(a: int) -> int:
        return a

    import json

    shown = json.loads((await Toolbox(show).call("show", {"a": "x"})).text)

    assert list(shown) == ["error"]
    assert set(shown["error"]) == {"code", "message", "tool", "retryable", "parameters"}


@pytest.mark.row("L4-25")
def test_each_provider_gets_its_own_shape_and_an_unknown_one_is_raised():
    def show(a: int) -> int:
        return a

    box = Toolbox(show)

    assert "parameters" in box.definitions("OpenAI")[0]
    assert "input_schema" in box.definitions("anthropic")[0]
    assert box.definitions("openai-chat")[0]["type"] == "function"
    with pytest.raises(UnsupportedProvider):
        box.definitions("nobody")


@pytest.mark.row("L4-28")
def test_azure_takes_the_definitions_of_the_chat_api():
    def show(a: int) -> int:
        return a

    options: dict[str, Any] = {"model": "my-deployment"}
    options["tools"] = Toolbox(show).definitions("openai-chat")

    assert options["tools"][0]["function"]["name"] == "show"
    assert Toolbox(show).definitions("azure") == options["tools"]
