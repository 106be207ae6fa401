"""`[tool.toolmason.check]`: every key, and every wrong value."""

from pathlib import Path

import pytest

from toolmason import Config
from toolmason.build.check.rules import RULES
from toolmason.build.check.settings import CheckSettings, override_settings, read_settings
from toolmason.errors import ConfigError

EVERY = """
[check]
select = ["TM1", "TM401"]
ignore = ["TM101"]
exclude = ["tests/*"]
require_descriptions = "error"
max_description = 500
budget = 2000
tool_budget = 200
require_strict = ["OpenAI"]
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(text, name="toolmason.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return put


def load_settings(path, environ):
    return read_settings(Config.load(path, environ=environ))


def test_every_key_is_read(write):
    settings = load_settings(write(f"experimental = true\n{EVERY}"), {})

    assert settings.codes == {code for code in RULES if code.startswith("TM1")} - {"TM101"} | {"TM401"}
    assert (settings.exclude, settings.require_descriptions, settings.max_description) == (("tests/*",), "error", 500)
    assert (settings.budget, settings.tool_budget, settings.require_strict) == (2000, 200, ("openai",))
    assert settings.experimental is True


def test_a_pyproject_holds_them_under_its_own_table(write):
    settings = load_settings(write(EVERY.replace("[check]", "[tool.toolmason.check]"), "pyproject.toml"), {})

    assert settings.budget == 2000


def test_the_environment_goes_over_the_file(write):
    environ = {"TOOLMASON_CHECK__BUDGET": "30", "TOOLMASON_CHECK__IGNORE": "TM101,TM102"}

    settings = load_settings(write(EVERY), environ)

    assert (settings.budget, settings.ignore) == (30, {"TM101", "TM102"})


def test_what_is_not_about_checks_is_left_alone(write):
    assert load_settings(write("[limits]\ncall_timeout = 20\n"), {}) == CheckSettings()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("selct = []", "unknown key 'selct' in `check`. Did you mean 'select'?"),
        ("colour = true", "unknown key 'colour' in `check`. Available: select,"),
        ("select = 5", "`check.select` must be a list of strings, not 5."),
        ("select = [5]", "`check.select` must be a list of strings, not [5]."),
        ('select = ["TM9"]', "`check.select`: no rule matches 'TM9'."),
        ('budget = "many"', "`check.budget` must be a positive integer, not 'many'."),
        ("budget = 0", "`check.budget` must be a positive integer, not 0."),
        ("budget = true", "`check.budget` must be a positive integer, not True."),
        ("tool_budget = 1.5", "`check.tool_budget` must be a positive integer, not 1.5."),
        ('require_descriptions = "maybe"', '`check.require_descriptions` must be "error", "warning" or "off", not'),
        ("require_descriptions = 5", '`check.require_descriptions` must be "error", "warning" or "off", not'),
        ('require_strict = ["mistral"]', "`check.require_strict`: unknown provider 'mistral'. Available: openai,"),
        ('exclude = {a = "b"}', "unknown key 'exclude.a' in `check`."),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_file_key_and_value(write, line, message):
    path = write(f"[check]\n{line}\n")

    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})

    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(("value", "policy"), [("true", "error"), ("false", "off"), ('"warning"', "warning")])
def test_the_policy_on_descriptions_may_be_a_switch(write, value, policy):
    settings = load_settings(write(f"[check]\nrequire_descriptions = {value}\n"), {})

    assert settings.require_descriptions == policy


def test_the_command_line_goes_over_the_file():
    settings = override_settings(
        CheckSettings(budget=5), budget=7, select=("TM1,TM2",), ignore=(), exclude=("a", "b,c")
    )

    assert (settings.budget, settings.exclude) == (7, ("a", "b", "c"))
    assert settings.select == {code for code in RULES if code[2] in "12"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"budget": -1}, "--budget must be a positive integer, not -1."),
        ({"select": ("TM0",)}, "--select: no rule matches 'TM0'."),
    ],
    ids=["budget", "select"],
)
def test_a_wrong_option_is_named(words, message):
    with pytest.raises(ConfigError) as caught:
        override_settings(CheckSettings(), **words)

    assert str(caught.value).startswith(message)
