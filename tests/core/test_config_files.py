"""Where settings are looked for, and files of every kind."""

import os
from pathlib import Path

import pytest

from toolmason import Config
from toolmason.errors import ConfigError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with a folder inside a folder; the working directory is the innermost."""
    inner = tmp_path / "repository" / "package" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(inner)
    for name in [name for name in os.environ if name.startswith("TOOLMASON_")]:
        monkeypatch.delenv(name)
    return tmp_path / "repository"


def write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def test_nothing_is_read_unless_it_is_asked_for(tree):
    write(tree / "toolmason.toml", "a = 1")

    assert dict(Config()) == {}
    assert dict(Config.load()) == {}


def test_files_are_found_from_the_working_directory_upward(tree):
    write(tree / "toolmason.toml", 'a = "toml"\nb = "toml"\n')
    write(tree / "toolmason.properties", "b = properties\n")

    assert dict(Config.find(environ={})) == {"a": "toml", "b": "properties"}


def test_the_nearest_folder_counts(tree):
    write(tree / "toolmason.toml", "far = 1")
    write(tree / "package" / "pyproject.toml", "[tool.toolmason]\nnear = 1\n")

    assert dict(Config.find(environ={})) == {"near": 1}


def test_a_pyproject_without_our_table_is_passed_by(tree):
    write(tree / "toolmason.toml", "far = 1")
    write(tree / "package" / "pyproject.toml", '[project]\nname = "x"\n')

    assert dict(Config.find(environ={})) == {"far": 1}


def test_a_file_of_our_own_is_read_and_not_the_pyproject_beside_it(tree):
    write(tree / "toolmason.toml", "own = 1")
    write(tree / "pyproject.toml", "[tool.toolmason]\nother = 1\n")

    assert dict(Config.find(environ={})) == {"own": 1}


def test_the_search_ends_at_the_root_of_the_repository(tree):
    write(tree.parent / "toolmason.toml", "outside = 1")

    assert dict(Config.find(environ={})) == {}


def test_the_search_ends_at_the_home_folder(tree, monkeypatch):
    (tree / ".git").rmdir()
    monkeypatch.setenv("HOME", str(tree / "package"))
    write(tree / "toolmason.toml", "outside = 1")

    assert dict(Config.find(environ={})) == {}


def test_the_search_may_start_elsewhere(tree):
    write(tree / "package" / "toolmason.toml", "a = 1")

    assert dict(Config.find(tree / "package", environ={})) == {"a": 1}
    assert dict(Config.find(tree, environ={})) == {}


def test_the_environment_and_code_go_over_what_is_found(tree, monkeypatch):
    write(tree / "toolmason.toml", "a = 1\nb = 1\nc = 1")
    monkeypatch.setenv("TOOLMASON_B", "2")
    monkeypatch.setenv("TOOLMASON_C", "2")

    assert dict(Config.find(values={"c": 3})) == {"a": 1, "b": "2", "c": 3}


def test_an_mcp_json_is_not_read_unless_it_is_named(tree):
    write(tree / "mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    write(tree / ".mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')

    assert Config.find(environ={}).servers == ()
    assert [server.name for server in Config.load("../../mcp.json", environ={}).servers] == ["a"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("toolmason.toml", "a = ", "invalid TOML"),
        ("pyproject.toml", "[tool.toolmason]\na = ", "invalid TOML"),
        ("pyproject.toml", "[tool]\ntoolmason = 5 # tool.toolmason", "not a table"),
        ("pyproject.toml", "tool = 5 # tool.toolmason", "not a table"),
        ("toolmason.properties", "a=\\u1", "not a valid escape"),
    ],
    ids=["toml", "pyproject", "no table", "no tool", "properties"],
)
def test_a_file_that_is_found_and_cannot_be_read_is_named(tree, name, text, message):
    write(tree / name, text)

    with pytest.raises(ConfigError, match=message) as caught:
        Config.find(environ={})

    assert name in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["[tool]\ntoolmason = {near = 1}\n", '["tool"."toolmason"]\nnear = 1\n', "[ tool . toolmason ]\nnear = 1\n"],
)
def test_our_table_is_found_however_it_is_written(tree, text):
    write(tree / "pyproject.toml", text)

    assert dict(Config.find(environ={})) == {"near": 1}


def test_a_working_directory_that_is_gone_is_told(tree, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(ConfigError, match="The working directory no longer exists"):
        Config.find()


@pytest.mark.parametrize("name", ["a.toml", "a.properties", "mcp.json"])
def test_a_byte_order_mark_does_no_harm(tree, name):
    text = {"a.toml": "a = 1", "a.properties": "a = 1", "mcp.json": '{"mcpServers": {}}'}[name]
    (tree / name).write_bytes(b"\xef\xbb\xbf" + text.encode())

    assert list(Config.load(tree / name, environ={})) in (["a"], [])


@pytest.mark.parametrize("path", ["folder.toml", "missing.properties", "missing.json", "a\0b.toml"])
def test_a_file_that_is_none_is_named(tree, path):
    (tree / "folder.toml").mkdir()

    with pytest.raises(ConfigError, match="Cannot read the configuration file"):
        Config.load(tree / path)


def test_a_file_of_another_name_may_have_the_table_of_a_project(tmp_path):
    (tmp_path / "other.toml").write_text("[tool.toolmason.check]\nbudget = 7\n", "utf-8")
    (tmp_path / "plain.toml").write_text("[check]\nbudget = 7\n", "utf-8")

    nested, plain = (Config.load(tmp_path / name) for name in ("other.toml", "plain.toml"))

    assert nested.get("check.budget") == plain.get("check.budget") == 7
