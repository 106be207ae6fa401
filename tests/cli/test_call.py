"""`toolmason call`, outside of a terminal: dry runs, approval, installed tools, signals and pipes."""

import json
import os
import re
import signal
import subprocess

import pytest

from cli.sample_tools import LISTENING, environment
from fork_server import COMMAND

# --- dry runs ----------------------------------------------------------------------------------


def test_a_dry_run_tells_arguments_preview_and_approval_and_runs_nothing(run):
    done = run("call", "office:box", "drop", "table=orders", "--dry-run")

    assert done.stdout.splitlines() == [
        'would run: drop {"force": false, "table": "orders"}',
        "preview: Would drop orders.",
        "approval: needed",
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_dry_run_tells_what_was_repaired(run):
    done = run("call", "office:box", "get_weather", "city=Brno", "unit=f", "--dry-run")

    assert "repaired: $.unit: enum name or case: 'f' → 'F'" in done.stdout
    assert '"unit": "F"' in done.stdout
    assert "approval: not needed" in done.stdout


@pytest.mark.parametrize(("amount", "needed"), [("5", False), ("500", True)])
def test_a_dry_run_asks_the_rule_of_the_tool(run, amount, needed):
    done = run("call", "office:box", "pay", f"amount={amount}", "--dry-run", "--json")

    plan = json.loads(done.stdout)
    assert (plan["dry_run"], plan["needs_approval"]) == (True, needed)
    assert plan["arguments"] == {"amount": int(amount)}


def test_a_dry_run_of_arguments_that_do_not_fit_is_a_usage_error(run):
    done = run("call", "office:box", "drop", "--dry-run")

    assert (done.returncode, done.stdout) == (2, "")
    assert "$.table" in done.stderr


LOGIN = """
from pydantic import SecretStr
from toolmason import Toolbox, tool

@tool(approval=True, preview=lambda arguments: f"Would use {arguments}.")
def log_in(pins: list[SecretStr], key: str = "spare") -> str:
    'Log in.'
    return "welcome"

box = Toolbox(log_in)
"""


@pytest.mark.parametrize("flags", [["--dry-run"], ["--dry-run", "--json"], []], ids=["text", "json", "approval"])
def test_a_value_of_a_secret_type_is_not_shown(run, tmp_path, flags):
    (tmp_path / "app.py").write_text(LOGIN)

    done = run("call", "app.py", "log_in", 'pins=["90817263"]', *flags, cwd=tmp_path)

    assert "9081" not in done.stdout + done.stderr
    assert "spare" in done.stdout + done.stderr
    assert "Would use" in done.stdout + done.stderr


# --- approval ----------------------------------------------------------------------------------


def test_without_a_terminal_a_call_that_needs_approval_is_refused_with_the_way_out(run):
    done = run("call", "office:box", "wipe", "folder=a")

    assert (done.returncode, done.stdout) == (1, "")
    assert "--yes" in done.stderr
    assert "needs human approval" in done.stderr
    assert re.search(r'^wipe .*"folder": ?"a"', done.stderr, re.MULTILINE)


def test_yes_allows_it(run):
    assert run("call", "office:box", "wipe", "folder=a", "--yes").stdout == "wiped a 1\n"


def test_a_call_that_waits_is_json_too(run):
    done = run("call", "office:box", "wipe", "folder=a", "--json")

    assert json.loads(done.stdout)["error"]["code"] == "approval_required"
    assert done.returncode == 1


def test_the_time_limit_holds_after_approval(run):
    done = run("call", "office:box", "work", "steps=100", "--yes", "--timeout", "0.1")

    assert done.returncode == 1
    assert "0.1" in done.stderr


def test_progress_is_not_drawn_into_a_pipe(run):
    done = run("call", "office:box", "work", "steps=1")

    assert (done.stdout, done.stderr) == ("worked\n", "")


def test_a_pipe_gets_the_text_as_it_is(run):
    assert run("call", "office:box", "painted").stdout == "\x1b[31mred\x1b[0m [bold]plain[/bold] \x07:smile:\n"
    assert run("call", "office:box", "record").stdout == '{"name":"Ada","ids":[1,2]}\n'


# --- installed tools and configuration ---------------------------------------------------------


@pytest.fixture
def with_plugins(run, distributions):
    """Run the command with distributions installed."""

    def run_with(names: list[str], *words: str, **more):
        path = os.pathsep.join(str(distributions[name]) for name in names)
        return run(*words, PYTHONPATH=path, **more)

    return run_with


def test_without_a_target_the_installed_tools_are_listed(with_plugins):
    done = with_plugins(["alpha-tools", "beta-tools"], "list")

    assert [line.partition("(")[0] for line in done.stdout.splitlines()] == [
        "echo",
        "forecast",
        "hidden_until_boxed",
        "plain",
        "shelf_size",
        "static_answer",
        "warn",
        "ask",
    ]
    assert done.stderr == ""


def test_without_a_target_an_installed_tool_is_called(with_plugins):
    done = with_plugins(["alpha-tools"], "call", "forecast", "city=Brno")

    assert (done.returncode, done.stdout) == (0, "alpha: rain in Brno\n")


def test_an_installed_tool_without_arguments_is_called(with_plugins):
    assert with_plugins(["alpha-tools"], "call", "static_answer").stdout == "42\n"


def test_one_installed_tool_is_shown_in_full(with_plugins):
    done = with_plugins(["alpha-tools"], "list", "--tool", "forecast")

    assert json.loads(done.stdout)["input_schema"]["required"] == ["city"]


def test_a_broken_plugin_is_told_on_standard_error_and_the_rest_is_listed(with_plugins):
    done = with_plugins(["alpha-tools", "broken-tools"], "list")

    assert "forecast" in done.stdout
    assert done.stderr.count("broken-tools") >= 2
    assert "the disk is on fire" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_clash_of_plugins_is_told(with_plugins):
    done = with_plugins(["alpha-tools", "clash-tools"], "list")

    assert (done.returncode, done.stdout) == (2, "")
    assert "'alpha-tools'" in done.stderr
    assert "'clash-tools'" in done.stderr


def test_a_misspelt_installed_tool_is_answered_with_the_nearest_name(with_plugins):
    done = with_plugins(["alpha-tools"], "call", "forcast", "city=Brno")

    assert done.returncode == 3
    assert "'forecast'" in done.stderr


def test_nothing_installed_is_told(run):
    assert "no plugin is installed. Write: toolmason list FILE.py" in run("list").stderr
    assert run("list", "--json").stdout == "[]\n"
    done = run("call", "forecast", "city=x")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Write: toolmason call FILE.py forecast" in done.stderr


def test_an_argument_with_dashes_is_answered_with_how_to_write_it(run):
    done = run("call", "office.py", "get_weather", "--home-city", "Oslo")

    assert done.returncode == 2
    assert "No such option '--home-city'. An argument of the tool has no dashes: home_city=VALUE." in done.stderr


def test_a_dot_before_the_name_of_a_toolbox_is_answered_with_a_colon(run):
    done = run("list", "office.box")

    assert done.returncode == 3
    assert "Did you mean 'office:box'?" in done.stderr


def test_the_configuration_of_the_project_holds(run, tmp_path):
    (tmp_path / "toolmason.toml").write_text('[engine]\nresult_bytes = 300\n[shop]\nname = "Tea House"\n', "utf-8")
    (tmp_path / "tools.py").write_text(
        "from toolmason import Config, tool\n@tool\ndef shop(config: Config) -> str:\n    return config['shop.name']\n",
        "utf-8",
    )

    assert run("call", "tools.py", "shop", cwd=tmp_path).stdout == "Tea House\n"


def test_a_configuration_that_does_not_fit_is_told(run, tmp_path):
    (tmp_path / "toolmason.toml").write_text('[engine]\nthreads = "many"\n', "utf-8")

    done = run("list", cwd=tmp_path)

    assert done.returncode == 2
    assert "engine.threads='many'" in done.stderr
    assert "toolmason.toml" in done.stderr


def test_experimental_tools_are_allowed_by_the_configuration(run, tmp_path):
    (tmp_path / "tools.py").write_text(
        "from toolmason import tool, Toolbox\nfrom toolmason.extend import experimental\n"
        "@tool\n@experimental\ndef new_thing() -> str:\n    return 'new'\nbox = Toolbox(new_thing)\n",
        "utf-8",
    )

    refused = run("call", "tools.py", "new_thing", cwd=tmp_path)
    by_environment = run("call", "tools.py", "new_thing", cwd=tmp_path, TOOLMASON_EXPERIMENTAL="true")
    (tmp_path / "toolmason.toml").write_text("experimental = true\n", "utf-8")
    by_file = run("call", "tools.py", "new_thing", cwd=tmp_path)

    assert (refused.returncode, "experimental" in refused.stderr) == (1, True)
    assert by_environment.stdout == by_file.stdout == "new\n"


# --- one tool ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["get_weather"], ["--tool", "get_weather"], ["get_weather", "--json"]])
def test_one_tool_is_shown_in_full(run, words):
    entry = json.loads(run("list", "office:box", *words).stdout)

    assert entry["name"] == "get_weather"
    assert entry["input_schema"]["properties"]["city"]["description"] == "City name"


def test_a_tool_that_is_not_there_is_not_found(run):
    done = run("list", "office:box", "get_wether")

    assert (done.returncode, done.stdout) == (3, "")
    assert "get_weather" in done.stderr


def test_a_bundle_class_that_needs_no_arguments_is_a_target(run, tmp_path):
    (tmp_path / "bundle.py").write_text(
        "from toolmason import tool\nclass Shelf:\n    @tool\n    def size(self) -> int:\n        return 3\n", "utf-8"
    )

    assert run("call", "bundle:Shelf", "size", cwd=tmp_path).stdout == "3\n"


@pytest.mark.parametrize("text", ["raise SystemExit(5)", "raise RuntimeError('no')", "import no_such_thing"])
def test_a_target_that_cannot_be_loaded_is_told_without_a_traceback(run, tmp_path, text):
    (tmp_path / "bad.py").write_text(text, "utf-8")

    done = run("list", "bad.py", cwd=tmp_path)

    assert done.returncode == 3
    assert "loading failed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("end", ["", "box = Toolbox(f)\n"], ids=["bare", "with a toolbox"])
@pytest.mark.parametrize("command", [["list"], ["call"], ["lock", "--file", "x.lock"]], ids=lambda words: words[0])
def test_a_tool_that_cannot_be_defined_has_one_exit_code(run, tmp_path, command, end):
    text = "from toolmason import Toolbox, tool\n@tool\ndef f(x, y: int):\n    'F.'\n"
    (tmp_path / "bad.py").write_text(text + end, "utf-8")

    done = run(*command, "bad.py", *(["f"] if command == ["call"] else []), cwd=tmp_path)

    assert done.returncode == 2
    assert "parameter 'x' has no type" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


# --- signals and pipes -------------------------------------------------------------------------
# New interpreters: how the process ends, and a pipe that its reader closes, are under test.


@pytest.mark.parametrize("name", ["slow", "stuck"])
def test_an_interrupt_ends_a_call_with_130_and_no_traceback(office, name):
    process = subprocess.Popen(
        [*LISTENING, "call", "office:box", name],
        cwd=office,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)

    _, errors = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize("words", [["list", "many.py"], ["list", "many.py", "--json"], ["call", "many.py", "long"]])
def test_a_reader_that_goes_away_is_no_failure(tmp_path, words):
    (tmp_path / "many.py").write_text(
        "from toolmason import Tool, Toolbox\n"
        "box = Toolbox([Tool.from_schema(f'tool_{n}', 'x' * 300, {}, lambda a, c: '') for n in range(500)],\n"
        "              Tool.from_schema('long', '', {}, lambda a, c: 'x' * 200_000))\n",
        "utf-8",
    )
    process = subprocess.Popen(
        [COMMAND, *words], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.read(1)
    process.stdout.close()

    errors = process.stderr.read()

    assert errors == b""
    assert process.wait(30) == 0
    process.stderr.close()


TWO = """
from toolmason import Toolbox, tool


@tool(destructive=True)
def wipe(path: str) -> str:
    return f"WIPED {path}"


guarded = Toolbox(wipe, approve="all")
readers = Toolbox()
again = guarded
"""


@pytest.mark.parametrize("words", [("call", "two.py", "wipe", "path=x"), ("serve", "two.py"), ("list", "two.py")])
def test_a_file_with_two_toolboxes_needs_one_named(run, tmp_path, words):
    (tmp_path / "two.py").write_text(TWO, "utf-8")

    done = run(*words, cwd=tmp_path)

    assert done.returncode == 3
    assert done.stderr == "Error: two.py has 2 toolboxes. Name one of them: two.py:guarded, two.py:readers.\n"
    assert "WIPED" not in done.stdout


def test_a_toolbox_that_is_named_keeps_its_rule(run, tmp_path):
    (tmp_path / "two.py").write_text(TWO, "utf-8")

    done = run("call", "two.py:guarded", "wipe", "path=x", cwd=tmp_path)

    assert "needs approval" in done.stderr
    assert "WIPED" not in done.stdout


def test_a_failure_is_printed_once_and_not_logged_as_well(run, tmp_path):
    (tmp_path / "bad.py").write_text(
        "from toolmason import tool\n@tool\ndef bad() -> None:\n    raise ValueError('x')\n"
    )

    done = run("call", "bad.py", "bad", cwd=tmp_path)

    assert done.stderr.count("ValueError: x") == 1
    assert "WARNING" not in done.stderr
