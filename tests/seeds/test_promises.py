"""Promises that the five seed systems make and do not keep (spec/seeds.md §3b); those that concern the core."""

import asyncio
import json
import logging
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest
from jsonschema import Draft202012Validator

from installed import PLUGINS, on_path
from toolmason import Config, Param, Tool, Toolbox, ToolContext, ToolError, discover, prompt, scan, tool
from toolmason.build.manifest.package_manifest import build
from toolmason.errors import DuplicateTool, InvalidArguments

# --- 8: a failing return-direct tool goes back to the model (SP-34) ----------------------------


@pytest.mark.row("P8")
@pytest.mark.parametrize("kind", ["raise", "told", "timeout", "arguments", "result", "missing"])
async def test_promise_8_a_failed_call_of_a_return_direct_tool_is_not_marked_direct(kind):
    @tool(return_direct=True, timeout=0.02)
    async def direct(n: int, ctx: ToolContext) -> Any:
        if kind == "raise":
            raise ValueError
        if kind == "told":
            raise ToolError("no")
        if kind == "timeout":
            await asyncio.Event().wait()
        if kind == "missing":
            return ctx["nothing"]
        return float("nan")

    result = await Toolbox(direct).call("direct", {} if kind == "arguments" else {"n": 1})

    assert not result.ok
    assert result.return_direct is False


@pytest.mark.row("P8")
async def test_promise_8_a_good_call_of_a_return_direct_tool_is_marked_direct():
    @tool(return_direct=True)
    async def direct() -> str:
        return "for you"

    result = await Toolbox(direct).call("direct")

    assert result.ok
    assert result.return_direct is True


# --- 10: bad JSON for function tools is visible to the model (SP-53) ---------------------------


@pytest.mark.row("P10", "SP-53")
@pytest.mark.parametrize("text", ["{", "not json", "[]", '{"n": "x"}'], ids=["cut off", "malformed", "list", "type"])
@pytest.mark.parametrize("kind", ["function", "method", "schema"])
async def test_promise_10_bad_arguments_are_answered_alike_for_every_kind_of_tool(kind, text):
    def function(n: int) -> None: ...

    class Bundle:
        @tool
        def method(self, n: int) -> None: ...

    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    hand_written = Tool.from_schema("schema", "", schema, lambda arguments, context: None)

    result = await Toolbox(function, Bundle(), hand_written).call(kind, text)

    assert isinstance(result.error, InvalidArguments)
    form = json.loads(result.text)["error"]
    assert (form["code"], form["tool"]) == ("invalid_arguments", kind)
    assert form["parameters"]


# --- 12: a model cannot override project_dir (MA-15) -------------------------------------------


@pytest.mark.row("P12", "MA-15")
@pytest.mark.parametrize("extra", ["ignore", "forbid", "allow"])
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "mapping"])
async def test_promise_12_a_model_cannot_override_project_dir(tmp_path, extra, as_text):
    @tool(extra=extra)
    async def read(name: str, project_dir: Path, **more: Any) -> str:
        return str(project_dir)

    @tool(extra=extra)
    async def plain(name: str, project_dir: Path) -> str:
        return str(project_dir)

    arguments = {"name": "a", "project_dir": "/etc"}
    box = Toolbox(read if extra == "allow" else plain, project_dir=tmp_path)

    result = await box.call(box.tools[0].name, json.dumps(arguments) if as_text else arguments)

    assert result.unwrap() == str(tmp_path)


@pytest.mark.row("P12")
async def test_promise_12_the_attempt_is_logged(tmp_path, caplog):
    @tool
    async def read(project_dir: Path) -> None: ...

    with caplog.at_level(logging.WARNING, logger="toolmason"):
        await Toolbox(read, project_dir=tmp_path).call("read", '{"project_dir": "/etc"}')

    assert "project_dir" in caplog.text


@pytest.mark.row("P12")
def test_promise_12_project_dir_is_hidden_whether_or_not_a_directory_is_set(tmp_path):
    """C12: what is hidden depends on the definition alone, not on the order of set-up."""

    def read(name: str, project_dir: Path) -> None: ...

    without, with_one = Toolbox(read), Toolbox(read, project_dir=tmp_path)

    assert list(without["read"].definition.input_schema["properties"]) == ["name"]
    assert without["read"].definition == with_one["read"].definition


@pytest.mark.row("P12")
@pytest.mark.parametrize("extra", ["ignore", "allow"])
async def test_promise_12_a_model_cannot_put_its_own_project_dir_into_a_template(tmp_path, extra):
    @tool(extra=extra)
    async def read(path: Annotated[str, Param(template=True, default="${project_dir}/x")], **more: Any) -> str:
        return path

    result = await Toolbox(read, project_dir=tmp_path).call("read", '{"project_dir": "/etc"}')

    assert result.unwrap() == f"{tmp_path}/x"


# --- 13: empty string stays empty, null stays null (MA-14) -------------------------------------


@pytest.mark.row("P13", "MA-14")
@pytest.mark.parametrize("text", ["", " ", "null", '""', "\n"], ids=repr)
@pytest.mark.parametrize("default", [{}, {"default": "other"}], ids=["required", "with a default"])
async def test_promise_13_a_text_arrives_as_it_was_sent(text, default):
    def echo(text: Annotated[str, Param(**default)]) -> str:
        return f"<{text}>"

    result = await Toolbox(echo).call("echo", json.dumps({"text": text}))

    assert result.value == f"<{text}>"


@pytest.mark.row("P13", "MA-14")
async def test_promise_13_null_stays_null():
    seen = []

    @tool
    async def keep(a: str | None, b: int | None = 5, c: list[int] | None = None) -> None:
        seen.append((a, b, c))

    await Toolbox(keep).call("keep", '{"a": null, "b": null, "c": null}')

    assert seen == [(None, None, None)]


@pytest.mark.row("P13", "MA-14")
async def test_promise_13_lists_and_objects_are_not_turned_into_text():
    seen = []

    @tool
    async def keep(items: list[str], table: dict[str, Any]) -> None:
        seen.append((items, table))

    await Toolbox(keep).call("keep", '{"items": ["", "null"], "table": {"a": null, "b": ""}}')

    assert seen == [(["", "null"], {"a": None, "b": ""})]


# --- 14: ${…} in file content is untouched (MA-24) ---------------------------------------------


@pytest.mark.row("P14")
async def test_promise_14_placeholders_in_a_result_are_left_alone(tmp_path):
    content = "${name} ${project_dir} ${name:-x} $${name}"
    (tmp_path / "a.sh").write_text(content, "utf-8")

    @tool
    def read(name: str, project_dir: Path) -> str:
        return (project_dir / name).read_text("utf-8")

    result = await Toolbox(read, project_dir=tmp_path).call("read", {"name": "a.sh"})

    assert result.text == content


@pytest.mark.row("P14")
async def test_promise_14_placeholders_in_arguments_are_left_alone():
    @tool
    def write(path: str, content: str) -> str:
        return content

    result = await Toolbox(write).call("write", {"path": "a.sh", "content": "${path} ${HOME}"})

    assert result.text == "${path} ${HOME}"


# --- 15: a gap in the MCP groups hides nothing (MA-35) -----------------------------------------


@pytest.mark.row("P15")
@pytest.mark.parametrize("numbers", [["", "_2", "_9"], ["_3"], ["_1", "_12", "_100"], ["", "_1", "_2"]], ids=" ".join)
def test_promise_15_a_gap_in_the_numbers_of_mcp_groups_hides_no_server(numbers, tmp_path):
    path = tmp_path / "app.properties"
    groups = [f"MCP{number}.name=server{number}\nMCP{number}.url=https://host/mcp\n" for number in reversed(numbers)]
    path.write_text("".join(groups), "utf-8")

    found = Config.load(path, environ={}).servers

    assert [server.name for server in found] == [f"server{number}" for number in numbers]


# --- 16: prompts are really usable (MA-21) -----------------------------------------------------


@pytest.mark.row("P16", "MA-21")
async def test_promise_16_the_prompts_of_a_bundle_can_be_listed_described_and_rendered():
    class Reviews:
        @tool
        def count(self) -> int:
            return 1

        @prompt(description="Review code.")
        def review(self, language: Annotated[str, "Which language"], tone: str = "kind") -> str:
            return f"Review this {language} code. Be {tone}."

    box = Toolbox(Reviews())

    [found] = box.prompts
    [message] = await box.prompt("review", {"language": "Python"})

    assert (found.name, found.description) == ("review", "Review code.")
    assert found.input_schema["required"] == ["language"]
    assert (message.role, message.text) == ("user", "Review this Python code. Be kind.")


# --- 17: duplicates are detected (MA-31, AJ-15) ------------------------------------------------


@pytest.mark.row("P17")
def test_promise_17_two_tools_of_one_name_are_an_error_that_names_both():
    class First:
        @tool
        def search(self) -> None: ...

    class Second:
        @tool(name="search")
        def find(self) -> None: ...

    with pytest.raises(DuplicateTool) as caught:
        Toolbox(First(), Second())

    assert caught.value.name == "search"
    assert caught.value.first != caught.value.second
    assert "'search'" in caught.value.first
    assert "'find'" in caught.value.second


@pytest.mark.row("P17")
def test_promise_17_two_tools_of_one_name_in_a_package_stop_its_build(make_package):
    source = "from toolmason import tool\n@tool(name='search')\ndef {name}() -> None: ...\n"
    make_package(first=source.format(name="one"), second=source.format(name="two"))

    with pytest.raises(DuplicateTool) as caught:
        build("shop")

    assert caught.value.name == "search"
    assert "first.py" in caught.value.first
    assert "second.py" in caught.value.second


@pytest.mark.row("P17")
def test_promise_17_two_tools_of_one_name_in_one_class_are_an_error():
    class Bundle:
        @tool(name="search")
        def one(self) -> None: ...

        @tool(name="search")
        def two(self) -> None: ...

    with pytest.raises(DuplicateTool):
        Toolbox(Bundle())


@pytest.mark.row("P17")
def test_promise_17_two_installed_tools_of_one_name_are_an_error_that_names_both_distributions(with_installed):
    with_installed("alpha-tools", "clash-tools")

    with pytest.raises(DuplicateTool) as caught:
        discover()

    assert caught.value.name == "forecast"
    assert "'alpha-tools'" in str(caught.value)
    assert "'clash-tools'" in str(caught.value)


@pytest.mark.row("P17", "AJ-15")
def test_promise_17_two_scanned_tools_of_one_name_are_an_error_that_names_both_modules():
    with on_path(PLUGINS / "scanned"), pytest.raises(DuplicateTool) as caught:
        scan("twice")

    assert "twice.one" in str(caught.value)
    assert "twice.two" in str(caught.value)


# --- 18: valid JSON Schema types (AJ-4) --------------------------------------------------------


class Colour(Enum):
    RED = "red"


class Point(pydantic.BaseModel):
    x: int
    y: float = 0.0


@dataclass
class Line:
    points: list[Point]
    label: Optional[str] = None  # noqa: UP045 - the older spelling has to work too


JSON_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


def types_in(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = schema.get("type", [])
        found = {own} if isinstance(own, str) else set(own)
        return found.union(
            *(types_in(value) for key, value in schema.items() if key not in ("enum", "const", "default"))
        )
    return set().union(*map(types_in, schema)) if isinstance(schema, list) else set()


@pytest.mark.row("P18")
def test_promise_18_every_type_in_a_schema_is_one_of_json_schema():
    def all_kinds(
        *,
        a: str,
        b: int,
        c: float,
        d: bool,
        e: Decimal,
        f: date,
        g: Path,
        h: bytes,
        i: Colour,
        j: Literal["x", 1],
        k: list[int],
        m: dict[str, Point],
        n: tuple[int, str],
        o: set[str],
        p: Line,
        q: int | str | None = None,
        r: Any = None,
    ) -> None: ...

    schema = Toolbox(all_kinds)["all_kinds"].definition.input_schema

    Draft202012Validator.check_schema(schema)
    assert types_in(schema) <= JSON_TYPES
    properties = schema["properties"]
    assert [properties[name]["type"] for name in "abcde"] == ["string", "integer", "number", "boolean", "number"]


# --- 19: optional and object arguments work (AJ-13) --------------------------------------------


@pytest.mark.row("P19", "AJ-13")
async def test_promise_19_optional_arguments_may_be_absent_and_objects_arrive_as_what_they_are():
    seen = []

    @tool
    async def draw(line: Line, point: Point | None = None, scale: float = 1.0, note: str | None = None) -> None:
        seen.append((line, point, scale, note))

    box = Toolbox(draw)

    first = await box.call("draw", '{"line": {"points": [{"x": 1}]}}')
    second = await box.call("draw", '{"line": {"points": [], "label": "a"}, "point": {"x": 2, "y": 3}, "scale": 2}')

    assert (first.ok, second.ok) == (True, True)
    assert seen == [
        (Line([Point(x=1)]), None, 1.0, None),
        (Line([], "a"), Point(x=2, y=3.0), 2.0, None),
    ]


# --- 22: inherited tools are found (CO-19) -----------------------------------------------------


@pytest.mark.row("P22")
async def test_promise_22_inherited_tools_are_found_and_bundles_can_be_composed():
    class Base:
        @tool
        def name(self) -> str:
            return type(self).__name__

    class Middle(Base):
        pass

    class Child(Middle):
        @tool
        def own(self) -> str:
            return "own"

    class Other:
        @tool
        def other(self) -> str:
            return "other"

    box = Toolbox(Child(), Other())

    assert [found.name for found in box.tools] == ["name", "other", "own"]
    assert (await box.call("name")).text == "Child"


# --- 23: explicit null is consistent (CO-24) ---------------------------------------------------


@pytest.mark.row("P23", "CO-24")
@pytest.mark.parametrize("kind", ["function", "low"])
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "mapping"])
async def test_promise_23_null_means_the_same_however_the_tool_was_defined(kind, as_text):
    """C6: None where the type admits it, else as if absent, else a problem."""
    seen = []

    def keep(required: int, admits: int | None = 1, default: int = 2) -> None:
        seen.append((required, admits, default))

    box = Toolbox(tool(keep) if kind == "function" else Tool.from_function(keep, name="keep"))

    def sent(**arguments: Any) -> Any:
        return json.dumps(arguments) if as_text else arguments

    good = await box.call("keep", sent(required=1, admits=None, default=None))
    bad = await box.call("keep", sent(required=None))

    assert good.ok
    assert seen == [(1, None, 2)]
    assert [problem.path for problem in bad.error.problems] == ["$.required"]


# --- 25: nothing returned is the same text everywhere (SP-32) ----------------------------------


@pytest.mark.row("P25", "CO-10")
def test_promise_25_whatever_returns_nothing_gives_the_same_text():
    def void() -> None: ...

    def unannotated(): ...

    async def void_async() -> None: ...

    def consumer(n: int) -> None: ...

    class Bundle:
        @tool
        def method(self) -> None: ...

        @staticmethod
        @tool
        def static() -> None: ...

    class Callable_:  # noqa: N801 - only its name in the toolbox counts
        def __call__(self) -> None: ...

    low = Tool.from_schema("low", "", {}, lambda arguments, context: None)
    box = Toolbox(void, unannotated, void_async, consumer, Bundle(), Callable_(), low)

    texts = {box.call_sync(found.name, {"n": 1}).text for found in box.tools}

    assert len(box) == 8
    assert texts == {"Success"}
