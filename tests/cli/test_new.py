"""`toolmason new`: the project that it writes works, and nothing is overwritten."""

import json
import subprocess
import sys
import tomllib

import pytest


def test_the_tests_of_a_new_project_pass(run, tmp_path):
    done = run("new", "my-tools", cwd=tmp_path)

    project = tmp_path / "my-tools"
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout


def test_a_new_project_passes_the_strict_check(run, tmp_path):
    run("new", "shop", cwd=tmp_path)

    done = run("check", "src", "--strict", cwd=tmp_path / "shop")

    assert (done.returncode, done.stderr) == (0, "")


def test_the_files_are_told(run, tmp_path):
    lines = run("new", "my-tools", cwd=tmp_path).stdout.splitlines()

    assert lines == [
        "my-tools/pyproject.toml",
        "my-tools/README.md",
        "my-tools/src/my_tools/__init__.py",
        "my-tools/src/my_tools/tools.py",
        "my-tools/tests/test_tools.py",
    ]
    assert all((tmp_path / line).is_file() for line in lines)


def test_the_files_are_told_as_json(run, tmp_path):
    told = json.loads(run("new", "shelf", "--json", cwd=tmp_path).stdout)

    assert (told["name"], told["module"], len(told["files"])) == ("shelf", "shelf", 5)


def test_the_tools_of_a_new_project_can_be_listed_and_called(run, tmp_path):
    run("new", "my.Tools", cwd=tmp_path)
    target = "my.Tools/src/my_tools/tools.py"

    assert "count_stock(article: string)" in run("list", target, cwd=tmp_path).stdout
    assert run("call", target, "count_stock", "article=tea", cwd=tmp_path).stdout == "12\n"
    assert run("call", target, "count_stock", "article=milk", cwd=tmp_path).returncode == 1


def test_an_installed_new_project_is_found(run, tmp_path):
    from installed import OFFLINE, run_pip

    run("new", "my-tools", cwd=tmp_path)
    run_pip("install", *OFFLINE, "--target", str(tmp_path / "site"), str(tmp_path / "my-tools"))

    done = run("list", cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))

    assert "greet(name: string, language?: string)" in done.stdout


def test_the_entry_point_names_the_tools(run, tmp_path):
    run("new", "my-tools", cwd=tmp_path)

    project = tomllib.loads((tmp_path / "my-tools" / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["toolmason.tools"] == {"my_tools": "my_tools.tools"}


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_there_is_not_overwritten(run, tmp_path, kind):
    place = tmp_path / "mine"
    if kind == "file":
        place.write_text("mine", "utf-8")
    elif kind == "folder":
        place.mkdir()
        (place / "mine.txt").write_text("mine", "utf-8")
    else:
        place.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))

    done = run("new", "mine", cwd=tmp_path)

    assert done.returncode == 2
    assert "nothing was overwritten" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_filled(run, tmp_path):
    (tmp_path / "mine").mkdir()

    assert run("new", "mine", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "../a",
        "1a",
        "a b",
        "-a",
        "a-",
        "class",
        "json",
        "toolmason",
        "é",
        "a" * 65,
        "a\nb",
        "{x}",
    ],
    ids=repr,
)
def test_a_name_that_cannot_be_one_is_refused(run, tmp_path, name):
    done = run("new", "--", name, cwd=tmp_path)

    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
