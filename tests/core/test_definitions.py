"""What cannot work is refused when a tool is defined; what can be described in several ways works in each."""

import asyncio
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolmason import Tool, Toolbox, ToolContext, ToolDefinition, errors, prompt, tool, tools_from
from toolmason.errors import DefinitionError, DuplicateTool, UnsupportedType
from toolmason.extend import ParamSpec


def show(arguments, context):
    return str(arguments)


def count(text: str) -> int:
    """Count the letters."""
    return len(text)


@pytest.mark.row("SP-7", "MA-9")
@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_refused_however_a_tool_is_made(name):
    with pytest.raises(DefinitionError, match="must not be empty"):
        Tool.from_function(count, name=name)
    with pytest.raises(DefinitionError, match="must not be empty"):
        Tool.from_schema(name, "Show", {}, show)


@pytest.mark.row("SP-7")
async def test_a_lambda_needs_a_name():
    with pytest.raises(DefinitionError, match="a lambda has no name"):
        Toolbox(lambda: 1)

    made = Tool.from_function(lambda: 1, name="one")
    assert (await Toolbox(made).call("one")).value == 1


@pytest.mark.row("L4-30", "CO-20")
@pytest.mark.parametrize(
    ("handler", "text"),
    [
        pytest.param(None, "its handler is None", id="none"),
        pytest.param(lambda arguments: arguments, r"cannot take \(arguments, context\)", id="too few parameters"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(handler, text):
    with pytest.raises(DefinitionError, match=text):
        Tool.from_schema("show", "Show", {}, handler)


@pytest.mark.row("SP-3")
def test_a_schema_as_json_text_is_refused_with_the_fix():
    with pytest.raises(DefinitionError, match=r"must be a mapping, not str.*json.loads"):
        Tool.from_schema("show", "Show", '{"type": "object"}', show)
    with pytest.raises(DefinitionError, match="must be a mapping, not str"):
        ToolDefinition("show", "Show", '{"type": "object"}')


@pytest.mark.row("SP-2")
def test_a_tool_without_a_definition_is_refused_with_its_class():
    class Empty(Tool):
        async def invoke(self, arguments, context):
            return None

    with pytest.raises(DefinitionError, match=r"Empty has no definition"):
        Toolbox(Empty())


@pytest.mark.row("SP-13")
def test_an_unbound_method_is_refused_with_the_bound_one():
    class Clock:
        def now(self) -> str:
            return "12:00"

    with pytest.raises(DefinitionError, match=r"`Clock\(...\).now`"):
        Tool.from_function(Clock.now)


@pytest.mark.row("SP-31")
def test_a_converter_that_cannot_work_is_refused():
    async def convert(value, kind):
        return str(value)

    class Converter:
        def __call__(self, value, kind):
            return str(value)

    with pytest.raises(DefinitionError, match="must not be async"):
        Tool.from_function(count, converter=convert)
    with pytest.raises(DefinitionError, match="must be a function"):
        Tool.from_function(count, converter=Converter)

    assert Tool.from_function(count, converter=Converter()).options.converter is not None


@pytest.mark.row("SP-10", "SP-20")
@pytest.mark.parametrize(
    "returns", [Callable, Callable[[], int], Callable[..., int] | None, types.FunctionType], ids=str
)
def test_a_tool_that_returns_a_function_is_refused(returns):
    def make():
        return count

    make.__annotations__["return"] = returns

    with pytest.raises(UnsupportedType, match="a function has no JSON form"):
        Tool.from_function(make)

    assert Tool.from_function(make, converter=lambda value, kind: value.__name__)


@pytest.mark.row("MA-22")
@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("string", {"type": "string"}),
        ("integer", {"type": "integer"}),
        ("number", {"type": "number"}),
        ("boolean", {"type": "boolean"}),
        ("array", {"type": "array", "items": {}}),
        ("object", {"type": "object", "additionalProperties": True}),
    ],
)
def test_a_parameter_is_described_by_the_name_of_a_json_type(kind, schema):
    def take(value):
        return value

    made = Tool.from_function(take, params=[ParamSpec("value", kind)])

    assert made.definition.input_schema["properties"]["value"] == schema


@pytest.mark.row("MA-22")
def test_an_unknown_name_of_a_type_is_refused_with_the_known_ones():
    def take(value):
        return value

    with pytest.raises(DefinitionError, match=r"has the type 'text'.*string, integer"):
        Tool.from_function(take, params=[ParamSpec("value", "text")])


class Incomparable:
    def __eq__(self, other):
        raise ValueError("ambiguous")

    __hash__ = object.__hash__


async def test_a_default_need_not_be_comparable():
    def give(item: Any = Incomparable()) -> str:  # noqa: B008 - the default is the test
        return type(item).__name__

    assert (await Toolbox(give).call("give")).text == "Incomparable"


@pytest.mark.row("MA-26", "MA-15")
async def test_a_generic_handler_is_described_by_a_list():
    got = []

    def handle(ctx: ToolContext, **arguments):
        got.append(arguments)
        return ctx.tool_name

    specs = [
        ParamSpec("path", "string", "The file"),
        ParamSpec("lines", "integer", default=10),
        ParamSpec("project_dir", "string"),
    ]
    made = Tool.from_function(handle, name="head", params=specs)
    result = await Toolbox(made, project_dir="/srv").call("head", {"path": "a", "project_dir": "/etc", "other": 1})

    assert result.text == "head"
    assert got == [{"path": "a", "lines": 10, "project_dir": str(Path("/srv"))}]
    assert made.definition.input_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file"},
            "lines": {"type": "integer", "default": 10},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


class Reader(Tool):
    """A tool that names `project_dir` in its own schema."""

    definition = ToolDefinition(
        "reader",
        "Read",
        {"type": "object", "properties": {"project_dir": {"type": "string"}}, "required": ["project_dir"]},
    )

    async def invoke(self, arguments, context):
        return arguments["project_dir"]


def make_reader():
    return Tool.from_schema(
        "reader", "Read", dict(Reader.definition.input_schema), lambda arguments, context: arguments["project_dir"]
    )


@pytest.mark.row("P12", "MA-15", "MA-26")
@pytest.mark.parametrize("make", [Reader, make_reader], ids=["subclass", "from_schema"])
async def test_the_project_directory_of_a_hand_written_schema_comes_from_the_application(make, caplog):
    box = Toolbox(make(), project_dir="/srv")

    plain = await box.call("reader", {})
    sent = await box.call("reader", '{"project_dir": "/etc"}')

    assert [plain.text, sent.text] == [str(Path("/srv"))] * 2
    assert box["reader"].definition.input_schema == {"type": "object", "properties": {}, "required": []}
    assert box.definitions("openai-chat", strict=False)[0]["function"]["parameters"]["properties"] == {}
    assert "a model must not send" in caplog.text


@pytest.mark.row("P12")
@pytest.mark.parametrize("make", [Reader, make_reader], ids=["subclass", "from_schema"])
async def test_without_a_project_directory_such_a_tool_does_not_run(make):
    result = await Toolbox(make()).call("reader", {"project_dir": "/etc"})

    assert not result.ok
    assert "No project directory is set" in result.text


@pytest.mark.row("P12")
async def test_a_model_cannot_send_a_project_directory_that_no_schema_names():
    result = await Toolbox(Tool.from_schema("show", "Show", {}, show)).call("show", {"project_dir": "/etc", "a": 1})

    assert result.text == "{'a': 1}"


class Mailer:
    @tool
    def send(self) -> str:
        return "sent"


@pytest.mark.parametrize("second", [count, tool(count), Toolbox(count), [count]], ids=["again", "tool", "box", "list"])
def test_a_function_that_is_passed_twice_is_named_once(second):
    with pytest.raises(DuplicateTool) as caught:
        Toolbox(count, second)

    place = f"({count.__code__.co_filename}:{count.__code__.co_firstlineno})"
    expected = f"Two tools are named 'count': function 'count' {place}, twice. Rename one with `name=`, "
    assert str(caught.value).startswith(expected)


def test_so_is_an_object_with_a_method():
    mailer = Mailer()

    with pytest.raises(DuplicateTool, match=r"function 'send' .*, twice"):
        Toolbox(mailer, mailer)


@pytest.mark.row("SP-10")
def test_the_same_method_of_two_objects_is_named_with_both():
    first, second = Mailer(), Mailer()

    with pytest.raises(DuplicateTool) as caught:
        Toolbox(first, second)

    assert object.__repr__(first) in str(caught.value)
    assert object.__repr__(second) in str(caught.value)


@pytest.mark.row("SP-6")
def test_two_tools_of_one_name_in_one_object_are_refused():
    class Twice:
        @tool(name="a")
        def one(self) -> str:
            return ""

        @tool(name="a")
        def two(self) -> str:
            return ""

    with pytest.raises(DuplicateTool, match=r"function 'one'.*function 'two'"):
        tools_from(Twice())


@pytest.mark.row("MA-31")
def test_two_prompts_of_one_name_are_called_prompts():
    @prompt(name="hello")
    def one() -> str:
        return ""

    @prompt(name="hello")
    def two() -> str:
        return ""

    with pytest.raises(DuplicateTool, match="Two prompts are named 'hello'"):
        Toolbox(one, two)


class Wrong:
    def __init__(self, answer):
        self.answer = answer

    def resolve(self, name):
        return self.answer


class Async:
    async def resolve(self, name):
        await asyncio.sleep(0)
        return Tool.from_function(count)


@pytest.mark.row("SP-54")
async def test_a_resolver_that_is_none_or_returns_no_tool_is_told_apart():
    with pytest.raises(DefinitionError, match="is not a resolver"):
        Toolbox(resolvers=[lambda name: None])
    with pytest.raises(DefinitionError, match=r"returned <function count.*Return a Tool"):
        Toolbox("count", resolvers=[Wrong(count)])

    result = await Toolbox(resolvers=[Wrong(count)]).call("count", {"text": "a"})

    assert isinstance(result.error, errors.ExecutionError)
    assert "Return a Tool" in result.text


@pytest.mark.row("SP-54")
async def test_an_async_resolver_is_asked_in_calls_only():
    with pytest.raises(DefinitionError, match="is async"):
        Toolbox("count", resolvers=[Async()])

    assert (await Toolbox(resolvers=[Async()]).call("count", {"text": "ab"})).value == 2
