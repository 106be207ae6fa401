"""The command, as a shell runs it: what it prints where, and how it ends."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fork_server import COMMAND
from toolmason._text import DOCUMENTATION
from toolmason.cli.main import COMMANDS, GROUPS

APP = '''
from typing import Annotated, Literal

from toolmason import Abort, Toolbox, ToolError, tool


@tool(read_only=True)
def get_weather(city: Annotated[str, "City name"], unit: Literal["C", "F"] = "C") -> str:
    """Current weather in a city.

    More that only the model needs.
    """
    return f"21 {unit} and sunny in {city}"


@tool
def show(
    text: str = "",
    whole: int = 0,
    number: float = 0.0,
    flag: bool = False,
    words: list[str] = [],
    counts: list[int] = [],
    table: dict[str, int] = {},
    maybe: int | None = 5,
    either: int | str = 0,
) -> dict:
    """Show what came."""
    return dict(locals())


@tool(strict_types=True)
def strict(counts: list[int], flag: bool = False) -> list[int]:
    return counts


@tool(destructive=True)
def fail(kind: str = "told") -> None:
    """Fail."""
    raise ToolError("No such order.") if kind == "told" else ValueError("broken")


@tool
def stop() -> None:
    raise Abort("enough")


@tool(on_error="raise")
def loud() -> None:
    raise ToolError("too loud")


@tool
async def slow() -> None:
    import asyncio

    await asyncio.Event().wait()


box = Toolbox(get_weather, show, strict, fail, stop, loud, slow)
'''

BARE = """
from toolmason import tool

number = 5


@tool
def hello(name: str) -> str:
    return f"Hello {name}"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A folder as a user has it: an application, a bare module, one that does not load."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "app.py").write_text(APP, "utf-8")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("", "utf-8")
    (folder / "package" / "tools.py").write_text(BARE, "utf-8")
    return folder


@pytest.fixture
def toolmason(project, forks):
    """Run the command in the project; nothing of it is a terminal."""

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "COLUMNS": "40", "PYTHONUTF8": "1"}
        return forks.run([COMMAND, *words], cwd=project, env=environ, stdin=stdin)

    return run


def shown(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- list --------------------------------------------------------------------------------------


def test_list_prints_one_plain_line_for_each_tool_when_piped(toolmason):
    done = toolmason("list", "app:box")

    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.partition("(")[0] for line in lines] == [
        "fail",
        "get_weather",
        "loud",
        "show",
        "slow",
        "stop",
        "strict",
    ]
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_list_shows_parameters_effects_tokens_and_the_first_line_of_the_description(toolmason):
    lines = toolmason("list", "app:box").stdout.splitlines()

    [weather] = [line for line in lines if line.startswith("get_weather")]
    assert "city: string, unit?: string" in weather
    assert "read-only" in weather
    assert "tokens" in weather
    assert weather.endswith("Current weather in a city.")
    assert "destructive" in next(line for line in lines if line.startswith("fail"))


def test_list_gives_the_definitions_as_json(toolmason):
    done = toolmason("list", "app:box", "--json")

    entries = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert entries["get_weather"]["input_schema"]["required"] == ["city"]
    assert entries["get_weather"]["description"].startswith("Current weather")
    assert entries["get_weather"]["tokens"] > 0
    assert done.returncode == 0


@pytest.mark.parametrize("target", ["app", "app.py", "./app.py:box"])
def test_list_finds_the_toolbox_of_a_module_or_a_file(toolmason, target):
    done = toolmason("list", target)

    assert done.returncode == 0, done.stderr
    assert "get_weather" in done.stdout


@pytest.mark.parametrize("target", ["package.tools", "package/tools.py:hello"])
def test_list_takes_tools_where_there_is_no_toolbox(toolmason, target):
    done = toolmason("list", target)

    assert done.stdout.startswith("hello(name: string)")


# --- arguments ---------------------------------------------------------------------------------


def test_call_prints_the_text_of_the_result(toolmason):
    done = toolmason("call", "app:box", "get_weather", "city=Prague")

    assert (done.returncode, done.stdout, done.stderr) == (0, "21 C and sunny in Prague\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["text=5", "either=abc"], {"text": "5", "either": "abc"}),
        (["text=a=b", "whole=-5"], {"text": "a=b", "whole": -5}),
        (["text=", "whole=5", "number=2.5", "flag=true"], {"text": "", "whole": 5, "number": 2.5, "flag": True}),
        (["words=a", "words=b c", "counts=1", "counts=2"], {"words": ["a", "b c"], "counts": [1, 2]}),
        (['words=["a", "b"]', 'table={"a": 1}'], {"words": ["a", "b"], "table": {"a": 1}}),
        (["text=true", "maybe=null"], {"text": "true", "maybe": None}),
    ],
    ids=["text", "equal sign", "scalars", "repeated", "json", "words of json"],
)
def test_key_value_is_typed_by_the_schema(toolmason, words, expected):
    done = toolmason("call", "app:box", "show", *words)

    assert shown(done).items() >= expected.items()


def test_key_value_is_typed_without_the_help_of_repairs(toolmason):
    done = toolmason("call", "app:box", "strict", "counts=1", "counts=2", "flag=true")

    assert (done.stdout, done.stderr) == ("[1,2]\n", "")


def test_key_json_is_taken_as_json(toolmason):
    done = toolmason("call", "app:box", "show", "whole:=5", 'text:="5"', "table:={}", "maybe:=null", "either:=7")

    assert shown(done).items() >= {"whole": 5, "text": "5", "table": {}, "maybe": None, "either": 7}.items()


def test_an_object_after_json_is_read_as_arguments(toolmason):
    plain = toolmason("call", "app:box", "show", "--json", '{"whole": 5}')
    as_json = toolmason("call", "app:box", "show", "--json", '{"whole": 5}', "--json")

    assert plain.stdout == toolmason("call", "app:box", "show", "--arguments", '{"whole": 5}').stdout
    assert json.loads(as_json.stdout)["ok"] is True


def test_an_object_after_json_is_the_arguments_and_single_ones_win_over_it(toolmason):
    done = toolmason("call", "app:box", "show", "--arguments", '{"whole": 5, "words": ["a"]}', "whole=6")

    assert shown(done).items() >= {"whole": 6, "words": ["a"]}.items()


def test_a_list_begun_in_an_object_goes_on_with_single_arguments(toolmason):
    done = toolmason("call", "app:box", "show", "--arguments", '{"words": ["a"], "counts": [1]}', "words=b", "counts=2")

    assert shown(done).items() >= {"words": ["a", "b"], "counts": [1, 2]}.items()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["whoel=5"], "The tool has no parameter 'whoel'. Did you mean 'whole'?"),
        (["zzz:=5"], "The tool has no parameter 'zzz'. Parameters: text, whole, number"),
        (["whole=5", "whole=6"], "'whole' is given twice: as 5 and as 6. Give it once."),
        (["whole:=5", "whole=6"], "'whole' is given twice: as 5 and as 6. Give it once."),
    ],
)
def test_a_misspelt_parameter_and_one_given_twice_are_refused(toolmason, words, reason):
    done = toolmason("call", "app:box", "show", *words)

    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--arguments", '{"whole": 1'],
            "The arguments are not valid JSON: the JSON was truncated at line 1 column 11",
        ),
        (["--arguments", "{whole: 1}"], "JSON: a key must be a string in double quotes at line 1 column 2"),
        (["whole:=x"], "'whole:=x': not valid JSON after `:=`: expected a value at line 1 column 1"),
    ],
    ids=["truncated", "key", "value"],
)
def test_invalid_json_is_explained_in_plain_words(toolmason, words, reason):
    done = toolmason("call", "app:box", "show", *words)

    assert reason in done.stderr
    assert "EOF" not in done.stderr


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["call", "dry run"])
def test_an_argument_of_a_wrong_type_is_shown_with_its_value(toolmason, flags):
    done = toolmason("call", "app:box", "show", "whole=many", *flags)

    assert done.stderr.splitlines()[1:] == ["  $.whole: got string 'many'"]


def test_a_missing_argument_has_no_value_to_show(toolmason):
    done = toolmason("call", "app:box", "get_weather")

    assert done.stderr == "Error: Invalid arguments: $.city: required but missing\n"


def test_a_tool_that_raises_is_shown_with_the_line_that_failed(toolmason):
    message, place = toolmason("call", "app:box", "fail", "kind=other").stderr.splitlines()

    assert message == "Error: fail failed: ValueError: broken"
    assert re.fullmatch(r"  .*app\.py:\d+ in fail: raise ToolError\(.*ValueError\(\"broken\"\)", place)


def test_an_exception_of_a_library_is_shown_with_the_line_that_called_it(toolmason, project):
    code = [
        "import json",
        "from toolmason import tool",
        "@tool",
        "def read(text: str) -> int:",
        "    return json.loads(text)",
    ]
    (project / "reader.py").write_text("\n".join(code), "utf-8")

    place = toolmason("call", "reader.py", "read", "text=x").stderr.splitlines()[1]

    assert place.endswith("reader.py:5 in read: return json.loads(text)")


def test_a_target_without_tools_is_reported(toolmason, project):
    (project / "bare.py").write_text("from toolmason import Toolbox\n\nbox = Toolbox()\n", "utf-8")

    done = toolmason("list", "bare:box")

    assert (done.stdout, done.stderr) == ("", "There are no tools, prompts or resources.\n")


def test_a_dash_reads_the_arguments_from_standard_input(toolmason):
    done = toolmason("call", "app:box", "show", "-", stdin='{"whole": 5}')

    assert shown(done)["whole"] == 5


@pytest.mark.parametrize("target", ["package.tools", "package/tools.py:hello"])
def test_a_tool_may_be_called_from_a_file_and_without_a_toolbox(toolmason, target):
    assert toolmason("call", target, "hello", "name=Ada").stdout == "Hello Ada\n"


# --- the whole result --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["call", "app:box", "get_weather", "city=Prague", "unit=f", "--json"],
        ["call", "app:box", "get_weather", "--json", "city=Prague", "unit=f"],
        ["call", "app:box", "--json", "get_weather", "city=Prague", "unit=f"],
        ["call", "--json", "app:box", "get_weather", "city=Prague", "unit=f"],
        ["call", "app:box", "get_weather", "--arguments", '{"city": "Prague", "unit": "f"}', "--json"],
    ],
    ids=["last", "before the arguments", "before the name", "first", "both"],
)
def test_json_alone_prints_the_whole_result(toolmason, words):
    done = toolmason(*words)

    entry = shown(done)
    assert (entry["ok"], entry["name"], entry["text"]) == (True, "get_weather", "21 F and sunny in Prague")
    assert entry["structured"] == {"result": "21 F and sunny in Prague"}
    assert entry["error"] is None
    assert entry["attempts"] == 1
    assert entry["duration"] >= 0
    assert [repair["path"] for repair in entry["repairs"]] == ["$.unit"]


def test_json_prints_a_failure_as_json_too_and_keeps_the_exit_code(toolmason):
    done = toolmason("call", "app:box", "fail", "--json")

    entry = json.loads(done.stdout)
    assert (entry["ok"], entry["error"]["code"], entry["error"]["message"]) == (False, "tool_error", "No such order.")
    assert done.returncode == 1


# --- exit codes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["call", "app:box", "fail"], 1, "No such order."),
        (["call", "app:box", "fail", "kind=other"], 1, "broken"),
        (["call", "app:box", "slow", "--timeout", "0.05"], 1, "0.05"),
        (["call", "app:box", "stop"], 1, "enough"),
        (["call", "app:box", "loud"], 1, "too loud"),
        (["call", "app:box", "get_weather"], 2, "city"),
        (["call", "app:box", "show", "whole=many"], 2, "whole"),
        (["call", "app:box", "show", "word"], 2, "'word'"),
        (["call", "app:box", "show", "whole:=[1"], 2, "whole"),
        (["call", "app:box", "show", "--arguments", '{"whole": 5'], 2, "JSON"),
        (["call", "app:box", "show", "--arguments", '{"words": "a"}', "words=b"], 2, "words"),
        (["call", "app:box", "slow", "--timeout", "soon"], 2, "timeout"),
        (["call", "app:box"], 2, "NAME"),
        (["call"], 2, "NAME"),
        (["fly"], 2, "fly"),
        (["list", "package.tools:number"], 2, "source"),
        (["call", "app:box", "get_wether"], 3, "get_weather"),
        (["call", "nothing:box", "f"], 3, "nothing"),
        (["list", "app:bax"], 3, "bax"),
        (["list", "nothing.py"], 3, "nothing.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_goes_wrong_is_told_on_standard_error_with_its_exit_code(toolmason, words, code, message):
    done = toolmason(*words)

    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("stdin", ["nonsense", "[1]"], ids=["nonsense", "list"])
def test_standard_input_that_is_no_object_is_a_usage_error(toolmason, stdin):
    done = toolmason("call", "app:box", "show", "-", stdin=stdin)

    assert done.returncode == 2
    assert done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["-h"], ["call", "--help"]], ids=" ".join)
def test_help_goes_to_standard_output(toolmason, words):
    done = toolmason(*words)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


def test_help_names_the_commands(toolmason):
    done = toolmason("--help")

    assert all(word in done.stdout for word in ("call", "list"))


def test_the_version_is_told(toolmason):
    done = toolmason("--version")

    assert done.returncode == 0
    assert "toolmason" in done.stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["mcp", "helth"], "No such command 'helth'. Did you mean 'health'?"),
        (["runs", "rezume"], "No such command 'rezume'. Did you mean 'resume'?"),
        (["list", "ofice.py"], "Did you mean 'office.py'?"),
        (["list", "./ofice.py"], "Did you mean 'office.py'?"),
        (["list", "ofice:box"], "Did you mean 'office'?"),
        (["list", "office.py:bx"], "Did you mean 'box'?"),
    ],
    ids=" ".join,
)
def test_the_nearest_command_file_module_or_object_is_suggested(run, words, hint):
    done = run(*words)

    assert done.returncode in (2, 3)
    assert hint in done.stderr


def test_the_suggestion_for_a_file_has_its_folder(run, tmp_path):
    (tmp_path / "plans.py").touch()

    assert f"Did you mean {str(tmp_path / 'plans.py')!r}?" in run("list", str(tmp_path / "plan.py")).stderr


@pytest.mark.parametrize("name", ["", *COMMANDS, "mcp list", "mcp call", "mcp health", "mcp lock", "runs resume"])
def test_each_help_page_has_examples_that_fit_80_columns(run, name):
    done = run(*name.split(), "--help", COLUMNS="80")

    shown = done.stdout.partition("Examples:\n")[2]
    assert f"  toolmason {name}" in shown
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_the_commands_are_grouped_and_the_exit_codes_are_in_the_help(run):
    shown = run("--help").stdout

    assert all(f"{heading}:\n" in shown for heading in GROUPS)
    assert "130 Ctrl-C" in shown
    assert f"\n  Documentation: {DOCUMENTATION}\n" in shown


DESK = '''
from toolmason import Toolbox, prompt, resource, tool


@tool(read_only=True)
def find(text: str) -> str:
    """Find a note."""


@prompt
def review(topic: str, tone: str = "dry") -> str:
    """Review a topic."""


@resource("notes://today")
def today() -> str:
    """Notes of today."""


@resource("notes://{day}")
def notes(day: str) -> str:
    """Notes of a day."""


box = Toolbox(find, review, today, notes)
'''


@pytest.fixture
def desk(run, tmp_path):
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    return lambda *words: run(*words, cwd=tmp_path)


def test_prompts_and_resources_are_listed(desk):
    """Review, newcomer 18: only tools were."""
    done = desk("list", "desk.py")
    entries = json.loads(desk("list", "desk.py", "--json").stdout)

    assert done.stdout.splitlines()[1:] == [
        "review(topic: string, tone?: string)  prompt  Review a topic.",
        "notes://today  resource  Notes of today.",
        "notes://{day}  resource  Notes of a day.",
    ]
    assert [entry["kind"] for entry in entries] == ["tool", "prompt", "resource", "resource"]


@pytest.mark.parametrize(
    ("name", "kind"), [("find", "tool"), ("review", "prompt"), ("notes://{day}", "resource"), ("today", "resource")]
)
def test_one_of_them_is_shown_in_full(desk, name, kind):
    assert json.loads(desk("list", "desk.py", name).stdout)["kind"] == kind


def test_a_check_counts_prompts_and_resources_apart(desk):
    done = desk("check", "desk.py")

    assert done.stdout.splitlines()[-1] == "Found 3 warnings: 1 tool, 1 prompt, 2 resources in 1 file."
    assert "'notes'" not in done.stdout
