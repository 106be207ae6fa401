"""`toolmason check`, as a shell runs it: what it prints where, and how it ends."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from build.marks import expected, unmarked
from build.sample import CLEAN, FILES
from fork_server import COMMAND
from house.source import ROOT
from toolmason.build.check.rules import RULES
from toolmason.cli.main import cli

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in {**FILES, **CLEAN}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(unmarked(text), "utf-8")
    return folder


@pytest.fixture
def check(project, forks):
    def run(*words: str, cwd: Path = project) -> subprocess.CompletedProcess[str]:
        return forks.run([COMMAND, "check", *words], cwd=cwd, env={**os.environ, "PYTHONUTF8": "1"})

    return run


def everything() -> list[str]:
    """Return every marked place of the sample, as a line begins."""
    places = []
    for name, text in FILES.items():
        for place in expected(text):
            at, _, code = place.partition(" ")
            places.append(f"{name}:{at}: {code}")
    return places


# --- the issue ---------------------------------------------------------------------------------


def test_a_package_with_one_of_each_mistake_has_one_finding_each_at_its_place_and_exits_1(check):
    done = check("sample", "--strict")

    lines = [line for line in done.stdout.splitlines() if line.startswith("sample/")]
    assert [" ".join(line.split(" ")[:2]) for line in lines] == everything()
    assert done.returncode == 1
    assert done.stderr == ""


def test_the_sample_has_every_rule_that_reads_the_source(check):
    codes = [place.rpartition(" ")[2] for place in everything()]

    assert sorted(codes) == sorted(code for code in RULES if not RULES[code].dynamic)


def test_the_sample_cannot_be_imported(project):
    done = subprocess.run(
        [sys.executable, "-c", "import sample.definitions"], cwd=project, capture_output=True, check=False
    )

    assert b"no_such_package" in done.stderr


@pytest.mark.parametrize("mode", ["--static", "--dynamic", "--strict"])
def test_a_clean_package_exits_0(check, mode):
    done = check("clean", mode)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("All good: 2 tools in 2 files.\n")


def test_our_own_source_and_examples_are_clean(check):
    done = check("src", "examples", "--strict", cwd=ROOT)

    assert done.stdout.startswith("All good: "), done.stdout
    assert done.returncode == 0


# --- output ------------------------------------------------------------------------------------


def test_text_has_a_place_a_code_and_a_hint(check):
    lines = check("sample/definitions.py", "--select", "TM103").stdout.splitlines()

    assert lines[0] == "sample/definitions.py:16:9: TM103 parameter 'sku' has no type"
    assert lines[1] == f"    error: {RULES['TM103'].fix}"
    assert lines[-1] == "Found 1 error: 26 tools in 1 file."


@pytest.mark.parametrize("words", [["--strict"], ["--strict", "--json"], ["--strict", "--format", "sarif"]], ids=str)
def test_the_exit_code_holds_if_the_reader_closes_the_pipe(project, words):
    process = subprocess.Popen(
        [COMMAND, "check", "sample", *words], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()

    errors = process.stderr.read()

    assert (process.wait(30), errors) == (1, b"")
    process.stderr.close()


def test_a_check_runs_in_a_process_whose_output_is_no_file(project):
    done = CliRunner().invoke(cli, ["check", str(project / "sample")])

    assert done.exit_code == 1
    assert "Found " in done.output


def test_text_is_plain_when_piped_and_coloured_on_a_terminal(project):
    # New interpreters: a pipe and a terminal are under test.
    command = [str(BIN / "toolmason"), "check", "sample/definitions.py", "--select", "TM103"]
    environ = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm-256color"}
    piped = subprocess.run(command, cwd=project, capture_output=True, check=False, env=environ)
    ours, theirs = pty.openpty()

    shown = subprocess.run(command, cwd=project, stdout=theirs, stdin=theirs, stderr=theirs, check=False, env=environ)

    os.close(theirs)
    coloured = os.read(ours, 100_000)
    os.close(ours)
    assert b"\x1b[" in coloured
    assert b"TM103" in coloured
    assert b"\x1b" not in piped.stdout
    assert piped.returncode == shown.returncode == 1


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"]], ids=" ".join)
def test_json_is_printed_whole_and_the_exit_code_stays(check, words):
    done = check("sample", "--strict", *words)

    found = json.loads(done.stdout)["findings"]
    assert [f"{entry['path']}:{entry['line']}:{entry['column']}: {entry['code']}" for entry in found] == everything()
    assert done.returncode == 1


def test_sarif_is_printed_whole(check):
    done = check("sample", "--format", "sarif", "--strict")

    log = json.loads(done.stdout)
    assert log["version"] == "2.1.0"
    assert len(log["runs"][0]["results"]) == len(everything())


def test_two_runs_print_the_same_bytes(project):
    # Two interpreters, because each has its own order of sets.
    command = [COMMAND, "check", "sample", "--json"]

    one, two = (subprocess.run(command, cwd=project, capture_output=True, check=False).stdout for _ in range(2))

    assert one == two != b""


def test_a_loaded_target_shows_what_providers_make_of_it(check):
    done = check("clean.tools:box")

    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split() == ["cancel", "~43", "tokens", "openai", "accepted", "strict"]


def test_a_target_that_cannot_be_loaded_is_checked_all_the_same(check):
    done = check("sample.definitions:box", "--select", "TM103,TM198")

    assert "TM198 'sample.definitions': loading failed: No module named 'no_such_package'" in done.stdout
    assert "TM103" in done.stdout
    assert done.returncode == 1


# --- options and exit codes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sample", "--select", "TM101"], 0),
        (["sample", "--select", "TM101", "--strict"], 1),
        (["sample", "--select", "TM103"], 1),
        (["sample", "--select", "TM1,TM2", "--ignore", "TM1", "--ignore", "TM2"], 0),
        (["sample", "--exclude", "definitions.py,others.py,broken.py"], 0),
        (["clean.tools:box", "--budget", "10000"], 0),
        (["clean.tools:box", "--budget", "10"], 1),
        (["clean.tools:box", "--budget", "10", "--static"], 0),
        (["--explain", "tm101"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_fail_a_check_and_warnings_a_strict_one(check, words, code):
    done = check(*words)

    assert done.returncode == code, done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Give a target"),
        (["sample", "--select", "TM999"], 2, "--select: no rule matches 'TM999'"),
        (["sample:box", "--budget", "0"], 2, "--budget must be a positive integer, not 0"),
        (["sample", "--budget", "many"], 2, "--budget"),
        (["sample", "--budget", "100"], 2, "--budget needs loaded tools. Name a toolbox, such as sample:box"),
        (["sample", "--format", "xml"], 2, "--format"),
        (["sample", "--config", "nothing.toml"], 2, "nothing.toml"),
        (["sample", "--explain", "TM000"], 2, "Unknown rule 'TM000'"),
        (["nothing"], 3, "no Python source found for 'nothing'"),
        (["clean.tools:bax"], 3, "'clean.tools' has no 'bax'"),
        (["nothing.py"], 3, "file 'nothing.py' does not exist"),
        (["clean", "nothing/"], 3, "file 'nothing/' does not exist"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_a_wrong_command_is_told_on_standard_error(check, words, code, message):
    done = check(*words)

    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_configuration_of_the_project_holds(check, tmp_path):
    (tmp_path / "app.py").write_text("from toolmason import *\n@tool\ndef f(x: int): 'Do.'\n", "utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.toolmason.check]\nrequire_descriptions = "error"\n', "utf-8")

    done = check("app.py", cwd=tmp_path)

    assert done.returncode == 1
    assert "    error: " in done.stdout


def test_a_wrong_configuration_is_told(check, tmp_path):
    (tmp_path / "app.py").write_text("", "utf-8")
    (tmp_path / "toolmason.toml").write_text("[check]\nbuget = 5\n", "utf-8")

    done = check("app.py", cwd=tmp_path)

    assert done.returncode == 2
    assert "toolmason.toml: unknown key 'buget' in `check`. Did you mean 'budget'?" in done.stderr


# --- pre-commit --------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path) -> Path:
    """A git repository that uses our hook, from this environment: nothing is installed."""
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    local = {key: value for key, value in hook.items() if key != "additional_dependencies"} | {"language": "system"}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    git(tmp_path, "init", "-q")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    command = [shutil.which("git") or "git", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def commit_checked(folder: Path) -> subprocess.CompletedProcess[str]:
    git(folder, "add", "-A")
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    environ = {**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(folder / ".git" / "pre-commit")}
    command = [str(BIN / "pre-commit"), "run", "--all-files"]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_the_pre_commit_hook_stops_a_mistake(repository):
    (repository / "app.py").write_text(
        "import no_such_package\nfrom toolmason import *\n@tool\ndef f(x): 'Do.'\n", "utf-8"
    )

    done = commit_checked(repository)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "app.py:4:7: TM103 parameter 'x' has no type" in done.stdout


def test_the_pre_commit_hook_lets_clean_files_pass(repository):
    (repository / "app.py").write_text("from toolmason import *\n@tool\ndef f(): 'Do.'\n", "utf-8")

    done = commit_checked(repository)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout
