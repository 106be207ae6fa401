"""TM1xx about one tool: what is found, where exactly, and what is left alone."""

import typing

import pytest

from toolmason import Tool
from toolmason.errors import UnsupportedType

HEAD = """from typing import Annotated, Any, Literal, Optional, Union
from pydantic import Field
from toolmason import *
"""

UNSUPPORTED_TYPES = {
    "builtins": "BaseException Exception bytearray memoryview range slice",
    "asyncio": "AbstractEventLoop Condition Event Future Lock Queue Semaphore StreamReader StreamWriter Task TaskGroup",
    "collections.abc": (
        "AsyncGenerator AsyncIterable AsyncIterator Awaitable Callable Collection Container Coroutine Iterator Sized"
    ),
    "concurrent.futures": "Executor Future",
    "datetime": "timezone tzinfo",
    "functools": "partial",
    "io": "BytesIO StringIO",
    "logging": "Logger",
    "queue": "Queue",
    "random": "Random",
    "re": "Match",
    "socket": "socket",
    "sqlite3": "Connection Cursor",
    "subprocess": "Popen",
    "threading": "Event Lock Thread",
    "types": "FunctionType ModuleType TracebackType",
    "typing": (
        "AsyncGenerator AsyncIterable AsyncIterator Awaitable BinaryIO Callable Collection Container Coroutine IO "
        "Iterator Never NoReturn TextIO"
    ),
}


def in_tool(parameters: str, words: str = "", body: str = '"""Do it."""') -> str:
    return f"{HEAD}@tool({words})\ndef act({parameters}):\n    {body}\n"


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param("⟦TM101⟧x: int", id="bare"),
        pytest.param("⟦TM101⟧x: int = 5", id="with a default"),
        pytest.param("*, ⟦TM101⟧x: int", id="by name only"),
        pytest.param("⟦TM101⟧x: int, /", id="by position only"),
        pytest.param("⟦TM101⟧x: 'int'", id="as a text"),
        pytest.param("⟦TM101⟧x: Annotated[int, Param(description='')]", id="empty"),
        pytest.param("⟦TM101⟧x: Annotated[int, Param(description=None)]", id="none"),
        pytest.param("⟦TM101⟧x: Annotated[int, Param(description='  ')]", id="blank"),
        pytest.param("⟦TM101⟧x: Annotated[int, ' ']", id="blank text"),
        pytest.param("⟦TM101⟧x: Annotated[int, Field(gt=5)]", id="a field that says nothing"),
        pytest.param("⟦TM101⟧x: list[int] | None = None", id="union"),
        pytest.param("x: Annotated[int, 'How many']", id="annotated"),
        pytest.param("x: 'Annotated[int, \"How many\"]'", id="annotated as a text"),
        pytest.param("x: Annotated[int, Param(description='How many')]", id="param"),
        pytest.param("x: Annotated[int, Field(description='How many')]", id="field"),
        pytest.param("x: int = Field(description='How many')", id="field as default"),
        pytest.param("x: int = Field(5, description='How many')", id="field with default"),
        pytest.param("x: Annotated[Annotated[int, 'How many'], Field(gt=5)]", id="nested"),
        pytest.param("x: Annotated[int, Param(description=TEXT)]", id="from elsewhere"),
        pytest.param("x: Annotated[int, TEXT]", id="a name that may be a text"),
        pytest.param("ctx: ToolContext", id="context"),
        pytest.param("ctx: ToolContext[int] | None = None", id="context of something"),
        pytest.param("call: ToolCall, config: Config", id="call and config"),
        pytest.param("x: Annotated[int, Inject]", id="inject"),
        pytest.param("x: Annotated[int, Inject('n')]", id="inject by key"),
        pytest.param("project_dir", id="project_dir"),
        pytest.param("x: Annotated[str, ProjectDir]", id="project dir by mark"),
        pytest.param("**rest: int", id="keywords"),
        pytest.param("**rest", id="keywords without a type"),
    ],
)
def test_a_parameter_that_the_model_fills_needs_a_description(folder, parameters):
    folder.agrees(in_tool(parameters))


def test_a_description_may_stand_in_the_docstring(folder):
    folder.agrees(
        in_tool(
            "a: int, b: str, ⟦TM101⟧c: int", body='"""Do it.\n\n    Args:\n        a: One.\n        b: Two.\n    """'
        )
    )


def test_an_alias_brings_its_description_along(folder):
    alias = "City = Annotated[str, 'City name']\n"

    folder.agrees(f"{HEAD}{alias}@tool\ndef act(a: City, ⟦TM101⟧b: list[City] | None = None): 'Do.'\n")


def test_an_alias_of_another_file_brings_its_description_along(folder):
    folder.write(
        {
            "pkg/__init__.py": "",
            "pkg/kinds.py": "from typing import Annotated\nCity = Annotated[str, 'City name']\nPlain = str\n",
            "pkg/app.py": (
                "from toolmason import tool\nfrom .kinds import City, Plain\n@tool\ndef act(a: City, b: Plain): 'Do.'\n"
            ),
        }
    )

    assert [(found.code, found.message) for found in folder.check("pkg").findings] == [
        ("TM101", "parameter 'b' of 'act' has no description")
    ]


def test_a_type_of_another_package_may_bring_a_description_and_is_left_alone(folder):
    folder.agrees("from toolmason import tool\nfrom elsewhere import City\n@tool\ndef act(a: City):\n    'Do.'\n")


@pytest.mark.parametrize(("policy", "severity"), [("error", ["error"]), ("warning", ["warning"]), ("off", [])])
def test_a_policy_says_how_much_a_missing_description_matters(folder, policy, severity):
    folder.write({"app.py": in_tool("x: int")})

    report = folder.check("app.py", require_descriptions=policy)

    assert [found.severity for found in report.findings] == severity


@pytest.mark.parametrize(
    ("words", "body"),
    [
        pytest.param("", '"""Do it."""', id="docstring"),
        pytest.param("description='Do it.'", "pass", id="description"),
        pytest.param("description=TEXT", "pass", id="description from elsewhere"),
        pytest.param("**WORDS", "pass", id="unknown words"),
    ],
)
def test_a_tool_with_a_text_is_left_alone(folder, words, body):
    folder.agrees(in_tool("", words, body))


@pytest.mark.parametrize("body", ["pass", '""', '"""   """', '"""\n    Args:\n        x: One.\n    """'], ids=repr)
def test_a_tool_without_a_text_is_told_at_its_name(folder, body):
    folder.agrees(f"{HEAD}@tool\nasync  def ⟦TM102⟧act(x: Annotated[int, 'One']):\n    {body}\n")


def test_a_prompt_needs_a_text_too(folder):
    folder.agrees(f"{HEAD}@prompt(role='user')\ndef ⟦TM102⟧ask() -> str:\n    return 'Well?'\n")


def test_a_method_takes_the_text_of_what_it_overrides(folder):
    folder.agrees(f"{HEAD}class A:\n    @tool\n    def act(self): 'Do it.'\nclass B(A):\n    def act(self): ...\n")


@pytest.mark.parametrize("body", ["f'''Do {1}.'''", "'Do %s.' % 1", "'Do {}.'.format(1)", "'Do ' + str(1)"], ids=repr)
def test_a_computed_docstring_is_none(folder, body):
    folder.agrees(in_tool("", "", f"⟦TM115⟧{body}"))


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param("⟦TM103⟧x", id="bare"),
        pytest.param("⟦TM103⟧x=5", id="with a default"),
        pytest.param("a: Annotated[int, 'One'], *, ⟦TM103⟧x=5", id="by name only"),
        pytest.param("⟦TM103⟧self", id="a function has no self"),
        pytest.param("*⟦TM105⟧x: int", id="star"),
        pytest.param("*⟦TM105⟧x", id="star without a type"),
    ],
)
def test_parameters_that_cannot_be_filled_are_told(folder, parameters):
    folder.agrees(in_tool(parameters))


def test_the_object_and_the_class_of_a_method_need_no_type(folder):
    folder.agrees(
        HEAD
        + """
class A:
    @tool
    def one(self): 'Do.'
    @classmethod
    @tool
    def two(cls): 'Do.'
    @tool
    @classmethod
    def three(cls): 'Do.'
    @staticmethod
    @tool
    def four(): 'Do.'
    @tool
    @staticmethod
    def five(⟦TM103⟧self): 'Do.'
"""
    )


@pytest.mark.parametrize(
    "hint",
    [
        "⟦TM104⟧Callable[[int], int]",
        "⟦TM104⟧list[Callable]",
        "⟦TM104⟧dict[str, Callable[..., int] | None]",
        "⟦TM104⟧Optional[threading.Lock]",
        "⟦TM104⟧'Callable'",
        "⟦TM104⟧Annotated[Callable, 'Which']",
        "⟦TM104⟧Plain",
        "⟦TM104⟧range",
        "Annotated[Callable, Inject]",
        "Annotated[Any, Param(schema={'type': 'string'})]",
        "Annotated[Callable, Param(schema={'type': 'string'})]",
        "Model",
        "Data",
        "Own",
        "Colour",
        "Any",
        "object | None",
        "Literal['Callable']",
        "Union[int, str, None]",
        "Unknown",
        "type[int]",
    ],
)
def test_a_type_without_a_schema_is_told_where_it_is_written(folder, hint):
    folder.agrees(
        f"""{HEAD}import threading, enum
from collections.abc import Callable
from dataclasses import dataclass
from pydantic import BaseModel
from elsewhere import Unknown
class Plain: ...
class Model(BaseModel): ...
@dataclass
class Data: ...
class Colour(enum.Enum): ...
class Own:
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler): ...
@tool
def act(x: {hint}):
    '''Do it.

    Args:
        x: What to do it with.
    '''
"""
    )


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in UNSUPPORTED_TYPES.items() for name in names.split()]
)
def test_a_type_that_is_refused_at_run_time_is_refused_by_a_check(folder, module, name):
    found = getattr(__import__(module, fromlist=[name]), name)

    def act(x): ...

    act.__annotations__ = {"x": found}

    with pytest.raises(UnsupportedType):
        Tool.from_function(act)
    assert folder.codes(f"import {module}\n{in_tool(f'x: {module}.{name}')}") == ["TM101", "TM104"]


def test_a_message_names_the_part_of_a_type_that_has_no_schema(folder):
    folder.write(
        {"app.py": "from collections.abc import Callable\n" + in_tool("x: dict[str, Callable[..., int] | None]")}
    )

    assert [found.message for found in folder.check("app.py", select=frozenset({"TM104"})).findings] == [
        "parameter 'x' has type `Callable[..., int]`, which has no JSON Schema"
    ]


def test_a_context_is_injected_whatever_its_name_in_the_file_of_its_base(folder):
    """The base was looked up in the file of the first class only, so that the context lacked a description."""
    folder.write(
        {
            "pkg/__init__.py": "",
            "pkg/base.py": "from toolmason import ToolContext as Context\nclass Base(Context[int]): ...\n",
            "pkg/app.py": (
                "from toolmason import tool\nfrom .base import Base\nclass Own(Base): ...\n"
                "@tool\ndef act(ctx: Own, other: Own | None = None): 'Do.'\n"
            ),
        }
    )

    assert folder.check("pkg").findings == ()


@pytest.mark.parametrize(
    "hint",
    ["os.environ['A']", "Param(name='x')", "5", "Literal[[]]", "Annotated[int]", "Annotated[int, Param(name=5)]"],
)
def test_a_hint_that_is_no_type_breaks_nothing(folder, hint):
    codes = folder.codes(f"import os\n{in_tool(f'x: {hint} = 1')}")

    assert set(codes) <= {"TM101", "TM104", "TM110"}


def test_an_alias_of_itself_is_read(folder):
    folder.agrees(f"{HEAD}Json = dict[str, 'Json'] | list['Json']\n{in_tool('⟦TM101⟧x: Json = {}')}")


@pytest.mark.parametrize(
    "parameter",
    [
        "⟦TM109⟧x: Annotated[int, Param(description='N', required=True)] = 5",
        "⟦TM109⟧x: Annotated[int, Param(description='N', required=True, default=5)]",
        "⟦TM109⟧x: Annotated[int, Param(description='N', required=True), Field(default=5)]",
        "⟦TM109⟧x: Annotated[int, Param(description='N', required=True)] = Field(5)",
        "⟦TM109⟧x: Annotated[list[int], Param(description='N', required=True), Field(default_factory=list)]",
        "x: Annotated[int, Param(description='N', required=True)]",
        "x: Annotated[int, Param(description='N', required=True)] = Field(...)",
        "x: Annotated[int, Param(description='N', required=False)] = 5",
        "x: Annotated[int, Param(description='N', required=NEEDED)] = 5",
    ],
)
def test_required_and_a_default_contradict_each_other(folder, parameter):
    folder.agrees(in_tool(parameter))


@pytest.mark.parametrize(
    ("hint", "default"),
    [
        ("int", "⟦TM110⟧'5'"),
        ("int", "⟦TM110⟧None"),
        ("int", "⟦TM110⟧True"),
        ("int", "⟦TM110⟧5.5"),
        ("str", "⟦TM110⟧5"),
        ("bool", "⟦TM110⟧0"),
        ("float", "⟦TM110⟧'1'"),
        ("list[int]", "⟦TM110⟧['a']"),
        ("list[int]", "⟦TM110⟧{}"),
        ("dict[str, int]", "⟦TM110⟧[]"),
        ("Literal['a', 'b']", "⟦TM110⟧'c'"),
        ("Literal[1]", "⟦TM110⟧2"),
        ("int | str", "⟦TM110⟧None"),
        ("Optional[int]", "⟦TM110⟧'a'"),
        ("Union[int, None]", "⟦TM110⟧'a'"),
        ("'int'", "⟦TM110⟧'5'"),
        ("int", "5"),
        ("int", "-5"),
        ("float", "5"),
        ("int | None", "None"),
        ("Optional[int]", "None"),
        ("Any", "None"),
        ("object | int", "5"),
        ("list[int]", "[1, 2]"),
        ("list[int]", "()"),
        ("list[Any]", "['a', 5]"),
        ("tuple[int, str]", "(1, 'a')"),
        ("dict[str, int]", "{}"),
        ("Literal['a', 'b']", "'b'"),
        ("Literal['a', NAME]", "'c'"),
        ("Unknown", "5"),
        ("int", "compute()"),
        ("int", "LIMIT"),
        ("bytes", "b'a'"),
    ],
)
def test_a_literal_default_must_fit_a_literal_type(folder, hint, default):
    folder.agrees(in_tool(f"x: Annotated[{hint}, 'What'] = {default}"))


@pytest.mark.parametrize(
    "parameter",
    [
        "x: Annotated[str, 'What'] = ⟦TM110⟧Inject('x')",
        "x: Annotated[str, 'What'] = ⟦TM110⟧Inject",
        "x: Annotated[int, 'What'] = ⟦TM110⟧Param(default=3)",
        "x: Annotated[str, Inject('x')] = ⟦TM110⟧Inject",
        "x: ⟦TM110⟧Annotated[str, Inject('x')] | None = None",
        "x: ⟦TM110⟧Annotated[list[Annotated[str, Inject]], 'What']",
        "x: Annotated[str, Inject('x')] = 'a'",
    ],
)
def test_a_marker_stands_in_annotated(folder, parameter):
    folder.agrees(in_tool(parameter))


@pytest.mark.parametrize(
    ("hint", "default"),
    [
        *(("int", "'5'"), ("int", "None"), ("int", "True"), ("int", "5.5"), ("str", "5"), ("bool", "0")),
        *(("float", "'1'"), ("list[int]", "['a']"), ("list[int]", "{}"), ("dict[str, int]", "[]")),
        *(("typing.Literal['a']", "'c'"), ("typing.Literal[1]", "2"), ("int | str", "None")),
        *(("typing.Optional[int]", "'a'"), ("list[int]", "None"), ("dict[str, int]", "None")),
    ],
)
def test_a_default_that_a_check_refuses_is_refused_at_run_time(hint, default):
    def act(x): ...

    act.__annotations__ = {"x": eval(hint, {"typing": typing})}  # noqa: S307 - the texts stand above
    act.__defaults__ = (eval(default),)  # noqa: S307 - as above

    with pytest.raises(Exception, match="does not match"):
        Tool.from_function(act)


@pytest.mark.parametrize(
    "default",
    [
        "⟦TM111⟧'${nothing}'",
        "⟦TM111,TM111⟧'${b}/${c}'",
        "⟦TM111⟧'${c}'",
        "'${a}/${project_dir}'",
        "'${nothing:-fallback}'",
        "'$${nothing}'",
        "'plain'",
        "compute()",
    ],
)
def test_a_placeholder_names_an_earlier_parameter(folder, default):
    template = f"b: Annotated[str, Param(description='Two', template=True)] = {default}"
    text = in_tool(f"a: Annotated[str, 'One'], {template}, c: Annotated[str, 'Three'] = ''")

    folder.agrees(text)


@pytest.mark.parametrize("default", ["", " = 5", " = None"])
def test_a_template_needs_a_text(folder, default):
    folder.agrees(in_tool(f"⟦TM112⟧x: Annotated[str, Param(description='What', template=True)]{default}"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("path: Annotated[str, 'P']", "⟦TM113⟧lock='pth'"),
        ("", "⟦TM113⟧lock='path'"),
        ("path: Annotated[str, 'P']", "lock='path'"),
        ("path: Annotated[str, Inject]", "lock='path'"),
        ("**rest: str", "lock='path'"),
        ("path: Annotated[str, 'P']", "lock=LOCK"),
        ("path: Annotated[str, 'P']", "lock=None"),
    ],
)
def test_a_lock_names_a_parameter(folder, parameters, words):
    folder.agrees(in_tool(parameters, words))


@pytest.mark.parametrize(
    "source",
    [
        "@⟦TM114⟧tool\nclass A: ...\n",
        "@⟦TM114⟧tool(read_only=True)\nclass A: ...\n",
        "@⟦TM114⟧prompt\nclass A: ...\n",
        "class A:\n    @⟦TM114⟧tool\n    @property\n    def x(self): 'Do.'\n",
        "class A:\n    @property\n    @⟦TM114⟧tool\n    def x(self): 'Do.'\n",
        "import functools\nclass A:\n    @⟦TM114⟧tool\n    @functools.cached_property\n    def x(self): 'Do.'\n",
        "@tool\ndef rows() -> 'Any':\n    'Yield rows.'\n    yield 1\n",
        "@tool\nasync def rows() -> 'Any':\n    'Yield rows.'\n    yield 1\n",
        "import functools\n@functools.lru_cache\n@tool\ndef x(): 'Do.'\n",
    ],
)
def test_a_decorator_stands_on_something_that_can_be_called(folder, source):
    folder.agrees(HEAD + source)


@pytest.mark.parametrize(
    "words",
    [
        "⟦TM116⟧readonly=True",
        "read_only=True, ⟦TM116⟧tag='x'",
        "⟦TM117⟧extra='drop'",
        "⟦TM117⟧runs_on='threads'",
        "⟦TM117⟧max_calls=0",
        "⟦TM117⟧max_concurrency=-1",
        "⟦TM117⟧max_result_bytes=10",
        "⟦TM117⟧timeout=0",
        "⟦TM117⟧name=''",
        "⟦TM117⟧on_error='hide'",
        "⟦TM117⟧repeats='never'",
        "extra='allow', runs_on=None, max_calls=1, timeout=None, tags=['a'], meta={}, title='T', output_schema=False",
        "timeout=SECONDS, on_error=handler",
        "**WORDS",
    ],
)
def test_options_are_known_and_make_sense(folder, words):
    folder.agrees(in_tool("", words))


def test_options_of_prompts_and_params_are_known(folder):
    folder.agrees(
        f"{HEAD}@prompt(⟦TM117⟧role='robot', ⟦TM116⟧title='T')\n"
        "def ask(x: Annotated[str, Param(⟦TM116⟧desc='X', description='What')]): 'Ask.'\n"
    )


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("a: int", "⟦TM118⟧'''Do.\n\n    Args:\n        a: One.\n        b: Two.\n    '''"),
        ("a: int", "'''Do.\n\n    Args:\n        a: One.\n    '''"),
        ("a: int, ctx: ToolContext", "'''Do.\n\n    Args:\n        a: One.\n        ctx: Ours.\n    '''"),
        ("a: int, **rest: int", "'''Do.\n\n    Args:\n        a: One.\n        b: Two.\n    '''"),
    ],
    ids=["stray", "known", "injected", "keywords"],
)
def test_a_docstring_describes_parameters_that_there_are(folder, parameters, text):
    folder.agrees(in_tool(parameters, "", text))


def test_one_label_is_for_one_parameter(folder):
    folder.agrees(in_tool("to: Annotated[str, 'A'], ⟦TM119⟧x: Annotated[str, Param(name='to', description='B')]"))


def test_what_is_injected_is_not_described(folder):
    folder.agrees(in_tool("⟦TM120⟧x: Annotated[str, Inject, Param(description='X')]"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("a: Annotated[M, 'One'], b: Annotated[M, 'Two']", "⟦TM121⟧flatten=True"),
        ("ctx: ToolContext", "⟦TM121⟧flatten=True"),
        ("a: M, ctx: ToolContext", "flatten=True"),
    ],
)
def test_flatten_needs_one_parameter(folder, parameters, words):
    folder.agrees(f"{HEAD}from m import M\n@tool({words})\ndef act({parameters}): 'Do.'\n")


@pytest.mark.row("CO-12")
@pytest.mark.parametrize(
    ("words", "name", "found"),
    [("", "read_result", True), ("name='Read_Result'", "act", True), ("overrides_builtin=True", "read_result", False)],
)
def test_the_name_of_a_built_in_tool_is_taken_on_purpose_only(folder, words, name, found):
    mark = "⟦TM122⟧" if found else ""

    folder.agrees(f"{HEAD}@tool({words})\ndef {mark}{name}(): 'Do.'\n")


@pytest.mark.parametrize("hint", ["⟦TM124⟧date", "⟦TM124⟧list[date]", "⟦TM124⟧'date | None'", "Other"])
def test_a_type_is_imported_at_run_time(folder, hint):
    folder.agrees(
        f"""from __future__ import annotations
from typing import TYPE_CHECKING, Annotated
from toolmason import tool
if TYPE_CHECKING:
    from datetime import date
    from m import Other
else:
    from m import Other
@tool
def act(x: {hint}):
    '''Do it.

    Args:
        x: A day.
    '''
"""
    )


@pytest.mark.parametrize("text", ["the city name", "City name.", "CITY_NAME"])
def test_a_description_says_more_than_the_name(folder, text):
    folder.agrees(in_tool(f"⟦TM403⟧city_name: Annotated[str, {text!r}], n: Annotated[int, 'How many']"))
