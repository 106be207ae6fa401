"""What a shell is told when its user presses the tab key: click's protocol, spoken by a real process."""

import json
import os
import shutil
import subprocess

import pytest

from cli.sample_tools import BIN, environment


@pytest.fixture
def complete(run):
    """Complete a line as bash asks for it, with its words as a list; the last is what is being written."""

    def complete(*words: str, **more: str) -> list[str]:
        line = "\n".join(["toolmason", *words])
        done = run(_TOOLMASON_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words)), **more)
        assert (done.returncode, done.stderr) == (0, "")
        return [entry.partition(",")[2] for entry in done.stdout.splitlines() if entry.startswith("plain,")]

    return complete


def test_commands_are_completed(complete):
    assert complete("") == [
        "build",
        "call",
        "chat",
        "check",
        "dev",
        "diff",
        "doctor",
        "install",
        "list",
        "lock",
        "mcp",
        "new",
        "run",
        "runs",
        "serve",
        "ui",
        "uninstall",
        "worker",
    ]
    assert complete("c") == ["call", "chat", "check"]


def test_options_are_completed(complete):
    assert "--dry-run" in complete("call", "office:box", "drop", "--")


@pytest.mark.parametrize("command", ["call", "list"])
def test_the_tools_of_a_target_are_completed(complete, command):
    assert complete(command, "office:box", "w") == ["wipe", "work"]
    assert complete(command, "office.py", "get") == ["get_weather"]


def test_a_module_without_a_colon_is_a_target_too(complete):
    assert complete("call", "office", "wi") == ["wipe"]


def test_parameters_that_are_not_given_yet_are_completed(complete):
    assert complete("call", "office:box", "get_weather", "") == ["city=", "unit=", "loud="]
    assert complete("call", "office:box", "get_weather", "city=Brno", "") == ["unit=", "loud="]
    assert complete("call", "office:box", "get_weather", "city:=1", "u") == ["unit="]


def test_the_values_of_a_parameter_are_completed(complete):
    assert complete("call", "office:box", "get_weather", "unit=") == ["unit=C", "unit=F"]
    assert complete("call", "office:box", "get_weather", "loud=t") == ["loud=true"]
    assert complete("call", "office:box", "get_weather", "city=") == []


def test_words_that_bash_has_split_are_put_together_again(complete):
    """Bash parts words at `:` and `=`, and replaces only what stands after the last of them."""
    assert complete("call", "office", ":", "box", "get") == ["get_weather"]
    assert complete("call", "office", ":", "box", "get_weather", "unit", "=") == ["C", "F"]
    assert complete("call", "office", ":", "box", "get_weather", "unit", "=", "F") == ["F"]
    assert complete("call", "office", ":", "box", "get_weather", "city", "=", "Brno", "l") == ["loud="]


def test_installed_tools_are_completed(complete, distributions):
    path = str(distributions["alpha-tools"])

    assert "forecast" in complete("call", "f", PYTHONPATH=path)
    assert complete("call", "forecast", "c", PYTHONPATH=path) == ["city="]


@pytest.mark.parametrize("target", ["nothing:box", "bad.py", "office:nothing", ":::", "office:box:"])
def test_a_target_that_is_broken_completes_nothing_and_says_nothing(complete, office, target):
    (office / "bad.py").write_text("print('noise')\nraise SystemExit('stop')\n", "utf-8")

    assert complete("call", target, "x", "y") == []


def test_zsh_is_told_with_descriptions(run):
    done = run(_TOOLMASON_COMPLETE="zsh_complete", COMP_WORDS="toolmason call office:box get", COMP_CWORD="3")

    assert done.stdout.splitlines() == ["plain", "get_weather", "Current weather in a city."]


def test_fish_is_told(run):
    line = "toolmason call office:box get_weather un"
    done = run(_TOOLMASON_COMPLETE="fish_complete", COMP_WORDS=line, COMP_CWORD="un")

    assert done.stdout.splitlines() == ["plain,unit="]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(run, shell):
    done = run(_TOOLMASON_COMPLETE=f"{shell}_source")

    assert done.returncode == 0
    assert "_TOOLMASON_COMPLETE" in done.stdout


def test_bash_itself_completes_with_the_script(run, office, tmp_path):
    bash = shutil.which("bash")
    assert bash, "the tests need bash"
    script = run(_TOOLMASON_COMPLETE="bash_source").stdout
    program = f"""
        compopt() {{ printf 'compopt %s %s\\n' "$1" "$2"; }}
        {script}
        COMP_WORDS=(toolmason call office : box get_weather "$1"); COMP_CWORD=6
        _toolmason_completion toolmason
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    # A new interpreter: bash starts it.
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])

    done = subprocess.run(
        [bash, "-c", program, "bash", "un"],
        cwd=office,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["compopt -o nospace", "unit="]


def test_completion_does_not_run_a_tool(complete, tmp_path):
    mark = tmp_path / "ran"
    (tmp_path / "tools.py").write_text(
        f"from toolmason import tool\n@tool\ndef touch(a: int = 1) -> None:\n    open({json.dumps(str(mark))}, 'w')\n",
        "utf-8",
    )

    assert complete("call", str(tmp_path / "tools.py"), "touch", "") == ["a="]
    assert not mark.exists()
