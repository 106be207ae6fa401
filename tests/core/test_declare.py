"""What a developer writes: decorators, options, names, defaults, templates, and the low level under them."""

import functools
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import Field

from toolmason import Param, Retry, Tool, Toolbox, ToolContext, tool
from toolmason.errors import DefinitionError, InvalidArguments, UnsupportedType
from toolmason.extend import FunctionTool, ParamSpec


@tool(read_only=True, title="Adder", tags=["math"], meta={"cost": 1})
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def schema_of(fn: Any) -> dict:
    return Toolbox(fn).tools[0].definition.input_schema


def value_of(fn: Any, arguments: Any = None, **words: Any) -> Any:
    box = Toolbox(fn, **words)
    return box.call_sync(box.tools[0].name, arguments).unwrap()


# --- the decorator -----------------------------------------------------------------------------


@pytest.mark.row("CO-7")
def test_a_decorated_function_is_the_same_object():
    def plain(n: int) -> int:
        return n

    assert tool(plain) is plain
    assert tool(read_only=True)(plain) is plain
    assert plain(3) == 3


def test_a_decorated_function_can_be_pickled_and_keeps_its_tool():
    arrived = pickle.loads(pickle.dumps(add))

    assert arrived is add
    assert value_of(arrived, {"a": 2}) == 3


@pytest.mark.row("SP-5")
def test_the_options_are_on_the_tool():
    found = Toolbox(add)["add"]

    assert found.options.read_only is True
    assert found.options.destructive is None
    assert found.options.tags == {"math"}
    assert found.options.meta == {"cost": 1}
    assert found.definition.title == "Adder"
    assert found.description == "Add two numbers."


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"readonly": True}, "readonly"),
        ({"extra": "drop"}, "extra"),
        ({"runs_on": "moon"}, "runs_on"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"read_only": True, "destructive": True}, "read_only"),
        ({"name": " "}, "name"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_options_that_make_no_sense_are_refused_when_written(words, match):
    with pytest.raises(DefinitionError, match=match):
        tool(**words)(lambda: None)


@pytest.mark.parametrize("item", [int, 5, "text", None.__class__], ids=["class", "number", "text", "none"])
def test_what_cannot_be_a_tool_is_refused(item):
    with pytest.raises(DefinitionError, match="@tool"):
        tool(item)


def test_a_builtin_that_takes_no_attributes_is_refused_with_the_way_out():
    with pytest.raises(DefinitionError, match="from_function"):
        tool(len)


@pytest.mark.row("SP-15", "SP-21")
def test_callables_partials_and_lambdas_are_tools_too():
    class Greeter:
        def __init__(self, word: str) -> None:
            self.word = word

        def __call__(self, name: str) -> str:
            """Greet someone."""
            return f"{self.word} {name}"

    def power(base: int, exponent: int) -> int:
        return base**exponent

    square = functools.partial(power, exponent=2)

    assert value_of(Greeter("Hi"), {"name": "Ada"}) == "Hi Ada"
    assert value_of(tool(name="hi")(Greeter("Hi")), {"name": "Ada"}) == "Hi Ada"
    assert value_of(square, {"base": 3}) == 9
    assert list(schema_of(square)["properties"]) == ["base"]


def test_a_model_cannot_change_what_a_partial_fixed():
    def power(base: int, exponent: int) -> int:
        return base**exponent

    assert value_of(functools.partial(power, exponent=2), {"base": 3, "exponent": 9}) == 9


def test_wrapped_functions_keep_their_signature():
    def logged(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return fn(*args, **kwargs)

        return inner

    @tool
    @logged
    def double(n: int) -> int:
        """Double it."""
        return n * 2

    assert value_of(double, {"n": 2}) == 4
    assert Toolbox(double)["double"].description == "Double it."


def test_positional_only_and_keyword_only_parameters_work():
    def odd(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert value_of(odd, {"a": 1}) == [1, 2, 3, 4]
    assert value_of(odd, {"a": 9, "b": 8, "c": 7, "d": 6}) == [9, 8, 7, 6]


def test_generators_are_collected():
    def count(n: int):
        yield from range(n)

    async def count_later(n: int):
        for item in range(n):
            yield item

    assert value_of(count, {"n": 3}) == [0, 1, 2]
    assert value_of(count_later, {"n": 3}) == [0, 1, 2]


# --- definition errors -------------------------------------------------------------------------


def test_a_parameter_without_a_type_is_refused_with_function_file_line_parameter_and_fix():
    def broken(good: int, bad) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        Toolbox(broken)

    message = str(caught.value)
    line = broken.__code__.co_firstlineno
    assert all(word in message for word in ("'broken'", f"{__file__}:{line}", "'bad'", "bad: str"))


def test_a_type_without_a_schema_is_refused_with_function_parameter_and_fix():
    class Socket:
        pass

    def broken(n: int, socket: Socket) -> None: ...

    with pytest.raises(UnsupportedType) as caught:
        Toolbox(broken)

    message = str(caught.value)
    assert all(word in message for word in ("'broken'", __file__, "'socket'", "Inject"))


def test_star_arguments_are_refused_with_the_fix():
    def broken(*names: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"names: list\[\.\.\.\]"):
        Toolbox(broken)


def test_an_annotation_that_names_nothing_is_refused():
    def broken(n: "NoSuchType") -> None: ...  # noqa: F821 - the missing name is the test

    with pytest.raises(DefinitionError, match="NoSuchType"):
        Toolbox(broken)


def test_two_parameters_under_one_name_are_refused():
    def broken(a: Annotated[int, Param(name="n")], n: int) -> None: ...

    with pytest.raises(DefinitionError, match="'n'"):
        Toolbox(broken)


@pytest.mark.parametrize("default", ["many", 2.5, None], ids=repr)
def test_a_default_that_does_not_fit_its_type_is_refused(default):
    def broken(n: int = default) -> None: ...

    with pytest.raises(DefinitionError, match="'n'"):
        Toolbox(broken)


# --- descriptions ------------------------------------------------------------------------------


def test_the_first_given_description_of_a_parameter_wins():
    def f(
        a: Annotated[int, Param(description="param"), "bare", Field(description="field")],
        b: Annotated[int, "bare", Field(description="field")],
        c: Annotated[int, Field(description="field")],
        d: int,
        e: int,
    ) -> None:
        """Do it.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
        """

    properties = schema_of(f)["properties"]

    assert [properties[name].get("description") for name in "abcde"] == ["param", "bare", "field", "docstring", None]


@pytest.mark.row("AJ-2", "SP-8")
def test_the_description_is_given_or_the_docstring_or_the_name_in_words():
    @tool(description="Given.")
    def given() -> None:
        """Docstring."""

    def documented() -> None:
        """Docstring.

        Second paragraph.

        Args:
            nothing: here
        """

    def getURLFor() -> None: ...  # noqa: N802 - a name as other languages write it

    texts = {found.name: found.description for found in Toolbox(given, documented, getURLFor)}

    assert texts["given"] == "Given."
    assert texts["documented"].startswith("Docstring.\n\nSecond paragraph.")
    assert texts["getURLFor"] == "Get url for"


# --- defaults ----------------------------------------------------------------------------------


def test_mutable_defaults_are_copied_for_each_call():
    def collect(item: int, into: list[int] = []) -> list[int]:  # noqa: B006 - that it is safe is the test
        into.append(item)
        return into

    box = Toolbox(collect)

    assert [box.call_sync("collect", {"item": n}).value for n in (1, 2)] == [[1], [2]]
    assert collect.__defaults__ == ([],)


def test_a_mutable_default_of_another_type_is_copied_for_each_call():
    @dataclass
    class Cart:
        items: list[int]

    def collect(item: int, cart: Cart = Cart([])) -> int:  # noqa: B008 - that it is safe is the test
        cart.items.append(item)
        return len(cart.items)

    box = Toolbox(collect)

    assert [box.call_sync("collect", {"item": n}).value for n in (1, 2)] == [1, 1]


def test_factories_are_called_for_each_call():
    count = iter(range(100))

    def f(n: Annotated[int, Field(default_factory=lambda: next(count))]) -> int:
        return n

    box = Toolbox(f)

    assert [box.call_sync("f").value for _ in range(3)] == [0, 1, 2]
    assert "n" not in box["f"].definition.input_schema["required"]


@pytest.mark.parametrize(
    "hint",
    [Annotated[int, Field(default=3)], Annotated[int, Param(default=3)]],
    ids=["Field", "Param"],
)
def test_a_default_may_stand_in_the_annotation(hint):
    def f(n: hint) -> int:
        return n

    assert value_of(f) == 3
    assert value_of(f, {"n": 5}) == 5


def test_a_field_may_be_the_default():
    def f(n: int = Field(default=3, ge=0, description="how many")) -> int:
        return n

    assert value_of(f) == 3
    assert schema_of(f)["properties"]["n"]["description"] == "how many"
    assert Toolbox(f).call_sync("f", {"n": -1}).error.code == "invalid_arguments"


@pytest.mark.row("MA-10", "AJ-3", "CO-5")
def test_param_says_more_about_a_parameter():
    def f(n: Annotated[int, Param(name="number", examples=[1, 2], description="how many")]) -> int:
        return n

    [(name, schema)] = schema_of(f)["properties"].items()

    assert name == "number"
    assert schema["examples"] == [1, 2]
    assert schema["type"] == "integer"
    assert value_of(f, {"number": 5}) == 5


def test_param_may_give_the_schema():
    def f(point: Annotated[Any, Param(schema={"type": "string", "pattern": "^[A-Z]$"})]) -> Any:
        return point

    assert schema_of(f)["properties"]["point"] == {"type": "string", "pattern": "^[A-Z]$"}


# --- templates ---------------------------------------------------------------------------------


def greet(
    name: str,
    greeting: Annotated[str, Param(template=True, default="Hello ${name}")],
    line: Annotated[str, Param(template=True, default="${greeting}!")],
) -> str:
    return line


@pytest.mark.row("MA-23")
def test_placeholders_are_filled_from_earlier_parameters_left_to_right():
    assert value_of(greet, {"name": "Ada"}) == "Hello Ada!"
    assert value_of(greet, {"name": "Ada", "greeting": "Hi"}) == "Hi!"
    assert value_of(greet, {"name": "Ada", "line": "So"}) == "So"


@pytest.mark.parametrize("text", ["${name}", "${greeting}", "${project_dir}", "$${x}", "${x:-y}"])
def test_text_that_a_model_supplied_is_never_expanded(text):
    assert value_of(greet, {"name": text}) == f"Hello {text}!"
    assert value_of(greet, {"name": "Ada", "line": text}) == text


@pytest.mark.row("MA-23")
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${a}/x", "A/x"),
        ("${unknown}", "${unknown}"),
        ("${unknown:-else}", "else"),
        ("${a:-else}", "A"),
        ("$${a}", "${a}"),
        ("${unknown:-}", ""),
        ("${a}${a}", "AA"),
        ("${", "${"),
        ("${}", "${}"),
        ("$a {a}", "$a {a}"),
    ],
)
def test_the_forms_of_a_placeholder(template, expected):
    def f(a: str, b: Annotated[str, Param(template=True, default=template)]) -> str:
        return b

    assert value_of(f, {"a": "A"}) == expected


def test_a_placeholder_for_a_later_parameter_stays():
    """§3: placeholders come from earlier parameters; what a model sends for a later one is not put in."""

    def f(a: Annotated[str, Param(template=True, default="${b}")], b: str = "B") -> str:
        return a

    assert value_of(f) == "${b}"
    assert value_of(f, {"b": "sent"}) == "${b}"


def test_the_project_directory_can_be_in_a_template(tmp_path):
    def f(path: Annotated[Path, Param(template=True, default="${project_dir}/x")]) -> bool:
        return path == tmp_path / "x"

    assert value_of(f, project_dir=tmp_path) is True


def test_a_default_of_an_earlier_parameter_can_be_in_a_template():
    def f(a: str = "A", n: int = 3, b: Annotated[str, Param(template=True, default="${a}${n}")] = "") -> str:
        return b

    def g(a: str = "A", *, b: Annotated[str, Param(template=True, default="${a}!")]) -> str:
        return b

    assert value_of(f) == "A3"
    assert value_of(g) == "A!"


def test_a_default_is_only_a_template_where_it_is_marked():
    def f(a: str, b: str = "${a}") -> str:
        return b

    assert value_of(f, {"a": "A"}) == "${a}"


def test_a_template_that_is_no_text_is_refused():
    def f(a: Annotated[int, Param(template=True, default=5)]) -> int:
        return a

    with pytest.raises(DefinitionError, match="template"):
        Toolbox(f)


# --- one model as the input --------------------------------------------------------------------


class Order(pydantic.BaseModel):
    """An order."""

    sku: str = Field(description="Article number")
    count: int = 1


@pytest.mark.row("CO-2")
def test_flatten_makes_the_fields_of_a_model_the_arguments():
    @tool(flatten=True)
    def order(what: Order, ctx: ToolContext) -> str:
        return f"{what.count} x {what.sku}"

    schema = schema_of(order)

    assert list(schema["properties"]) == ["sku", "count"]
    assert schema["required"] == ["sku"]
    assert schema["additionalProperties"] is False
    assert value_of(order, {"sku": "TEA", "count": "2"}) == "2 x TEA"
    assert Toolbox(order).call_sync("order", {"count": 1}).error.problems[0].path == "$.sku"


@pytest.mark.parametrize("kind", ["two", "none", "number"])
def test_flatten_needs_exactly_one_model(kind):
    def two(a: Order, b: Order) -> None: ...
    def none() -> None: ...
    def number(a: int) -> None: ...

    with pytest.raises(DefinitionError, match="flatten"):
        Toolbox(tool(flatten=True)({"two": two, "none": none, "number": number}[kind]))


# --- the low level -----------------------------------------------------------------------------


@pytest.mark.row("SP-13", "SP-14")
def test_from_function_needs_no_decorator_and_takes_every_option():
    def f(n: int) -> int:
        """Do it."""
        return n

    found = Tool.from_function(f, name="g", description="Mine.", read_only=True, timeout=5)

    assert isinstance(found, FunctionTool)
    assert (found.name, found.description) == ("g", "Mine.")
    assert (found.options.read_only, found.options.timeout) == (True, 5)
    assert not hasattr(f, "__tool__")


def test_from_function_adds_to_what_the_decorator_said():
    found = Tool.from_function(add, timeout=5)

    assert found.options.timeout == 5
    assert found.options.read_only is True
    assert found.definition.title == "Adder"


@pytest.mark.row("MA-22")
def test_from_function_describes_parameters_by_name():
    def legacy(n, unit="C"):
        return f"{n} {unit}"

    found = Tool.from_function(
        legacy,
        params=[
            ParamSpec("n", int, description="how many"),
            ParamSpec("unit", Literal["C", "F"], examples=["C"]),
        ],
    )

    schema = found.definition.input_schema
    assert schema["properties"]["n"] == {"type": "integer", "description": "how many"}
    assert schema["properties"]["unit"]["enum"] == ["C", "F"]
    assert schema["required"] == ["n"]
    assert Toolbox(found).call_sync("legacy", {"n": "5", "unit": "f"}).value == "5 F"


def test_from_function_refuses_a_description_of_a_parameter_that_is_not_there():
    with pytest.raises(DefinitionError, match="'m'"):
        Tool.from_function(add, params=[ParamSpec("m", int)])


def test_the_schema_given_to_from_function_is_shown_and_enforced():
    def anything(**arguments: Any) -> dict:
        return arguments

    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    found = Tool.from_function(anything, input_schema=schema)
    box = Toolbox(found)

    assert found.definition.input_schema["properties"] == schema["properties"]
    assert box.call_sync("anything", {"n": 3}).value == {"n": 3}
    assert isinstance(box.call_sync("anything", {}).error, InvalidArguments)
    assert isinstance(box.call_sync("anything", {"n": 0}).error, InvalidArguments)


@pytest.mark.row("MA-5", "CO-1")
def test_from_schema_takes_sync_and_async_handlers():
    async def waits(arguments: dict, context: ToolContext) -> str:
        return f"{context.tool_name} {arguments}"

    def blocks(arguments: dict, context: ToolContext) -> str:
        return f"{context.tool_name} {arguments}"

    box = Toolbox(Tool.from_schema("a", "A.", {}, waits), Tool.from_schema("b", "B.", {}, blocks, read_only=True))

    assert box.call_sync("a").text == "a {}"
    assert box.call_sync("b").text == "b {}"
    assert box["b"].options.read_only is True
    assert box["a"].definition.input_schema["type"] == "object"


def test_from_schema_keeps_the_title_and_the_output_schema():
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}

    found = Tool.from_schema("a", "A.", {}, lambda arguments, context: {"n": 1}, title="A tool", output_schema=output)

    assert found.definition.title == "A tool"
    assert found.definition.output_schema == output
    assert Toolbox(found).call_sync("a").structured == {"n": 1}


@pytest.mark.parametrize(
    "schema",
    [{"type": "array"}, {"properties": {"n": {"type": "whole"}}}, {"required": "n"}],
    ids=["no object", "unknown type", "bad required"],
)
def test_from_schema_refuses_what_is_no_schema_of_an_object(schema):
    with pytest.raises(DefinitionError, match="schema"):
        Tool.from_schema("a", "", schema, lambda arguments, context: None)


def test_from_function_refuses_what_is_no_schema_of_an_object():
    with pytest.raises(DefinitionError, match="schema"):
        Tool.from_function(add, input_schema={"type": "array"})


def test_a_retry_on_a_tool_is_kept():
    assert Tool.from_function(add, retry=Retry(attempts=2)).options.retry == Retry(attempts=2)


def test_the_digest_of_a_definition_does_not_depend_on_the_order_of_keys():
    first = Tool.from_schema("a", "A.", {"properties": {"x": {"type": "string"}, "y": {}}}, lambda a, c: None)
    second = Tool.from_schema("a", "A.", {"properties": {"y": {}, "x": {"type": "string"}}}, lambda a, c: None)
    third = Tool.from_schema("a", "A!", {"properties": {"y": {}, "x": {"type": "string"}}}, lambda a, c: None)

    assert first.definition.digest == second.definition.digest
    assert first.definition.digest != third.definition.digest
