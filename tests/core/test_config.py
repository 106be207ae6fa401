"""Settings in layers: where they come from, which wins, and what a toolbox does with them."""

import time
from pathlib import Path

import pytest

from toolmason import Chat, Config, Limits, Toolbox, ToolContext, ToolError, tool
from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


# --- layers ------------------------------------------------------------------------------------


def test_later_layers_win(write):
    toml = write("toolmason.toml", '[app]\na = "toml"\nb = "toml"\nc = "toml"\nd = "toml"\n')
    properties = write("app.properties", "app.b=properties\napp.c=properties\napp.d=properties\n")
    environ = {"TOOLMASON_APP__C": "environment", "TOOLMASON_APP__D": "environment"}

    config = Config.load(properties, toml, values={"app": {"d": "code"}}, environ=environ)

    assert {key: config[f"app.{key}"] for key in "abcd"} == {
        "a": "toml",
        "b": "properties",
        "c": "environment",
        "d": "code",
    }


def test_a_file_given_later_wins_over_one_of_its_kind_given_earlier(write):
    first, second = write("a.toml", "x = 1\ny = 1\n"), write("b.toml", "x = 2\n")

    config = Config.load(first, second, environ={})

    assert (config["x"], config["y"]) == (2, 1)


def test_a_table_of_pyproject_is_read(write):
    path = write(
        "pyproject.toml", '[project]\nname = "x"\n[tool.other]\na = 1\n[tool.toolmason]\nproject_dir = "src"\n'
    )

    assert dict(Config.load(path, environ={})) == {"project_dir": "src"}


def test_a_pyproject_without_our_table_gives_nothing(write):
    assert dict(Config.load(write("pyproject.toml", '[project]\nname = "x"\n'), environ={})) == {}


def test_properties_files_have_comments_blank_lines_and_equal_signs_in_values(write):
    path = write("app.properties", "# a comment\n! another\n\n  key = a=b \nMCP.url=https://x/?a=1\nempty=\n")

    assert dict(Config.load(path, environ={})) == {"key": "a=b", "MCP.url": "https://x/?a=1", "empty": ""}


def test_the_environment_is_read_when_a_config_is_made_and_not_before(monkeypatch):
    monkeypatch.setenv("TOOLMASON_EXAMPLE__PREFIX", ">>")
    monkeypatch.setenv("EXAMPLE__PREFIX", "not ours")

    config = Config()
    monkeypatch.setenv("TOOLMASON_EXAMPLE__PREFIX", "later")

    assert config["example.prefix"] == ">>"


def test_code_wins_over_the_environment():
    config = Config({"example.prefix": "code"}, environ={"TOOLMASON_EXAMPLE__PREFIX": "environment"})

    assert config["example.prefix"] == "code"


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("MCP.url", "TOOLMASON_MCP__URL"),
        ("MCP_1.name", "TOOLMASON_MCP_1__NAME"),
        ("WebSearchTool.city", "TOOLMASON_WEBSEARCHTOOL__CITY"),
    ],
    ids=["MCP", "MCP_1", "WebSearchTool"],
)
def test_the_environment_reaches_the_known_keys_however_they_are_written(write, key, variable):
    """§7: environment wins over files; the known keys have capitals, and variables have only those."""
    path = write("app.properties", f"{key}=file\n")

    config = Config.load(path, environ={variable: "environment"})

    assert config.get(key) == "environment"


def test_tables_become_dotted_keys():
    config = Config({"a": {"b": {"c": 1}}, "d.e": 2}, environ={})

    assert dict(config) == {"a.b.c": 1, "d.e": 2}
    assert len(config) == 2


def test_a_key_that_is_not_there_gives_the_fallback():
    config = Config(environ={})

    assert config.get("example.prefix", "") == ""
    with pytest.raises(KeyError):
        config["example.prefix"]


def test_a_config_cannot_be_changed():
    config = Config({"a": 1}, environ={})

    with pytest.raises(TypeError):
        config["a"] = 2


def test_the_values_may_be_secret_and_are_not_shown():
    config = Config({"MCP.authorization": "hunter2"}, environ={})

    assert "hunter2" not in repr(config)
    assert "MCP.authorization" in repr(config)


# --- files that cannot be read -----------------------------------------------------------------


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        Config.load(tmp_path / "missing.toml")


def test_a_file_that_is_not_toml_is_named_with_the_place(write):
    with pytest.raises(ConfigError, match=r"bad\.toml.*line 2"):
        Config.load(write("bad.toml", "a = 1\nb = = 2\n"))


def test_an_escape_that_cannot_be_read_is_named_with_its_line(write):
    with pytest.raises(ConfigError, match=r"bad\.properties:2"):
        Config.load(write("bad.properties", "a=1\nb=\\u00g1\n"))


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"binary\.toml"):
        Config.load(path)


# --- what a toolbox does with them -------------------------------------------------------------


@tool
async def fail() -> None:
    raise ToolError("no")


@pytest.mark.parametrize("value", [True, "true", "True"], ids=repr)
async def test_throw_on_error_raises_what_a_tool_raised(value):
    with pytest.raises(ToolError):
        await Toolbox(fail, config={"tools": {"throw_on_error": value}}).call("fail")


@pytest.mark.parametrize("value", [False, "false"], ids=repr)
async def test_throw_on_error_can_be_switched_off_by_word(value):
    result = await Toolbox(fail, config={"tools": {"throw_on_error": value}}).call("fail")

    assert isinstance(result.error, ToolError)


def test_a_switch_that_is_neither_on_nor_off_is_refused():
    with pytest.raises(ConfigError, match="throw_on_error"):
        Toolbox(fail, config={"tools": {"throw_on_error": "perhaps"}})


async def test_what_the_toolbox_says_wins_over_the_configuration():
    result = await Toolbox(fail, config={"tools": {"throw_on_error": True}}, on_error="message").call("fail")

    assert isinstance(result.error, ToolError)


@pytest.mark.parametrize("value", [0.25, "0.25"], ids=repr)
async def test_limits_come_from_the_configuration(value):
    seen = []

    @tool
    async def note(ctx: ToolContext) -> None:
        seen.append(ctx.deadline - time.monotonic())

    box = Toolbox(fail, note, config={"engine": {"call_timeout": value, "argument_bytes": "64"}})

    refused = await box.call("note", '{"text": "' + "x" * 100 + '"}')
    await box.call("note")

    assert "64" in refused.text
    assert 0 < seen[0] <= 0.25


def test_a_limit_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ConfigError, match=r"engine\.speed.*call_timeout"):
        Toolbox(fail, config={"engine": {"speed": 5}})


@pytest.mark.parametrize("value", ["fast", None, "", [1]], ids=repr)
def test_a_limit_that_is_no_number_is_refused(value):
    with pytest.raises(ConfigError, match=r"engine\.json_depth"):
        Toolbox(fail, config={"engine": {"json_depth": value}})


async def test_a_toolbox_that_was_given_no_config_still_injects_one():
    @tool
    async def see(config: Config) -> bool:
        return isinstance(config, Config)

    assert (await Toolbox(see).call("see")).value is True


def test_limits_of_the_configuration_hold_for_runs_that_name_none():
    box = Toolbox(fail, config={"limits": {"steps": 3, "seconds": "none"}})

    assert get_state(box).policy.limits == Limits(steps=3)
    assert Chat("offline", box).limits == Limits(steps=3)
    assert Chat("offline", [fail], config={"limits.calls": "7"}).limits == Limits(calls=7)
    assert Chat("offline", box, limits=Limits(steps=9)).limits == Limits(steps=9)
    assert Chat("offline", box, config={"limits.calls": 2}).limits == Limits(calls=2)


def test_an_unknown_limit_of_a_run_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"limits\.step' in code\. Did you mean 'steps'"):
        Toolbox(fail, config={"limits.step": 3})
