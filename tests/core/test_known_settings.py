"""Keys that mean something to us, as typed values; and what is said about one that does not fit."""

import contextlib
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolmason import Config, Toolbox, tool
from toolmason.errors import ConfigError
from toolmason.extend import EngineSettings, WebSearchSettings


def config(**groups) -> Config:
    return Config(groups, environ={})


@tool
def nothing() -> None: ...


# --- MCP groups --------------------------------------------------------------------------------


def server(number: int) -> dict[str, str]:
    return {"name": f"s{number}", "url": f"https://host/{number}"}


@pytest.mark.row("MA-35")
def test_groups_are_read_in_number_order():
    """MA-35: MCP, MCP_1, MCP_2 …; by number, not by text."""
    found = config(MCP_10=server(10), MCP_2=server(2), MCP=server(0), MCP_1=server(1)).servers

    assert [item.name for item in found] == ["s0", "s1", "s2", "s10"]


def test_a_group_has_a_description_and_an_authorization():
    [found] = config(MCP={**server(1), "description": "Orders", "authorization": "Bearer hunter2"}).servers

    assert (found.name, found.url, found.description) == ("s1", "https://host/1", "Orders")
    assert found.authorization == "Bearer hunter2"
    assert found.origin == "code"


def test_groups_come_from_every_layer_whatever_the_case(tmp_path):
    path = tmp_path / "a.properties"
    path.write_text("MCP_3.url = https://file/3\n", "utf-8")

    [found] = Config.load(path, environ={"TOOLMASON_MCP_3__NAME": "three"}).servers

    assert (found.name, found.url) == ("three", "https://file/3")


@pytest.mark.parametrize("key", ["name", "url"])
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "absent"])
def test_a_group_without_name_or_url_is_refused_with_the_key(tmp_path, key, empty):
    path = tmp_path / "a.toml"
    group = server(4)
    del group[key]
    text = "".join(f'{name} = "{value}"\n' for name, value in group.items()) + (f'{key} = ""\n' if empty else "")
    path.write_text(f"[MCP_4]\n{text}", "utf-8")

    with pytest.raises(ConfigError, match=rf"'MCP_4\.{key}' is missing.*a\.toml.*set both"):
        Config.load(path, environ={}).servers  # noqa: B018 - reading it is the act


def test_two_groups_of_one_name_are_refused_with_both_places():
    twice = Config({"MCP": server(1), "MCP_7": server(1)}, environ={})

    with pytest.raises(ConfigError, match="Two MCP servers are named 's1'"):
        twice.servers  # noqa: B018 - reading it is the act


@pytest.mark.parametrize("url", ["host/mcp", "ftp://host", "https://", "https:// x", "javascript:alert(1)"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match=r"MCP\.url=.*Use http"):
        config(MCP={"name": "a", "url": url}).servers  # noqa: B018 - reading it is the act


def test_groups_that_only_look_like_ours_are_the_applications_own():
    assert config(MCPX={"url": "x"}, MCP_x={"url": "x"}, MCP__1={"url": "x"}).servers == ()


def test_a_number_that_is_very_long_does_no_harm():
    assert Config({f"MCP_{'9' * 5000}.url": "x"}, environ={}).servers == ()


# --- unknown keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "read", "hint"),
    [
        ("MCP.ulr", "servers", "Did you mean 'url'"),
        ("MCP_2.autorization", "servers", "Did you mean 'authorization'"),
        ("WebSearchTool.town", "web_search", "WebSearchTool.city"),
        ("tools.throw_on_eror", "throw_on_error", "Did you mean 'throw_on_error'"),
        ("engine.call_timeot", "engine", "Did you mean 'call_timeout'"),
    ],
)
def test_an_unknown_key_of_a_known_group_is_refused_with_close_ones(key, read, hint):
    settings = Config({key: "x"}, environ={})

    with pytest.raises(ConfigError, match=f"Unknown key '{key}' in code") as caught:
        getattr(settings, read)

    assert hint in str(caught.value)
    with pytest.raises(ConfigError, match="Unknown key"):
        settings.check()


def test_keys_of_the_application_are_its_own():
    settings = Config({"shop": {"name": "x"}, "mcpish": 1, "tool": {"x": 1}}, environ={})

    settings.check()

    assert settings["shop.name"] == "x"


# --- the other keys ----------------------------------------------------------------------------


@pytest.mark.row("MA-33")
def test_web_search_is_on_where_its_type_is_set():
    """MA-33."""
    assert config().web_search is None
    assert config(WebSearchTool={"type": "default"}).web_search == WebSearchSettings("default")
    full = config(websearchtool={"type": "default", "city": "Brno", "country": "CZ", "region": "JM"})
    assert full.web_search == WebSearchSettings("default", "Brno", "CZ", "JM")


@pytest.mark.row("MA-33")
def test_a_place_without_a_type_is_refused():
    with pytest.raises(ConfigError, match=r"'WebSearchTool\.city' is set in code.*WebSearchTool\.type"):
        config(WebSearchTool={"city": "Brno"}).web_search  # noqa: B018 - reading it is the act


def test_a_value_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match=r"WebSearchTool\.type=5 in code.*quotes"):
        config(WebSearchTool={"type": 5}).web_search  # noqa: B018 - reading it is the act


@pytest.mark.parametrize("word", ["true", "TRUE", "yes", "on", "1", " true ", True])
def test_switches_take_the_usual_words(word):
    settings = config(tools={"throw_on_error": word, "include_content": word}, experimental=word)

    assert settings.throw_on_error is settings.include_content is settings.experimental is True


@pytest.mark.parametrize("word", ["false", "No", "off", "0", False])
def test_switches_are_off_by_the_usual_words_and_by_default(word):
    settings = config(tools={"throw_on_error": word})

    assert settings.throw_on_error is settings.include_content is settings.experimental is False


@pytest.mark.parametrize("value", ["perhaps", "", 2, [], None])
def test_a_switch_that_is_neither_is_refused_with_key_value_place_and_fix(tmp_path, value):
    with pytest.raises(ConfigError, match=r"tools\.include_content=.* in code is not a boolean. Use true or false"):
        config(tools={"include_content": value}).include_content  # noqa: B018 - reading it is the act


def test_limits_are_settings():
    assert config().engine is None
    found = config(engine={"call_timeout": "2.5", "threads": "8", "approval_seconds": "none"}).engine
    assert found == EngineSettings(call_timeout=2.5, threads=8, approval_seconds=None)


@pytest.mark.parametrize("value", ["-1", 0, "nan", "inf", True, 1.5, "1e9999", "9" * 5000], ids=lambda v: str(v)[:8])
def test_a_limit_that_is_no_limit_is_refused(value):
    with pytest.raises(ConfigError, match=r"engine.threads=.* in code"):
        config(engine={"threads": value}).engine  # noqa: B018 - reading it is the act


def test_a_relative_project_dir_is_relative_to_the_file_that_says_it(tmp_path):
    (tmp_path / "toolmason.toml").write_text('project_dir = "data"\n', "utf-8")

    assert Config.load(tmp_path / "toolmason.toml", environ={}).project_dir == tmp_path / "data"
    assert config(project_dir="data").project_dir == Path.cwd() / "data"
    assert config(project_dir=tmp_path).project_dir == tmp_path
    assert config().project_dir is None


@pytest.mark.parametrize("value", ["", "  ", 5, ["a"], "a\0b"], ids=repr)
def test_a_project_dir_that_is_no_path_is_refused(value):
    with pytest.raises(ConfigError, match=r"project_dir=.*Use a path"):
        Toolbox(nothing, config={"project_dir": value})


# --- places, secrets, copies -------------------------------------------------------------------


def test_each_key_knows_where_it_was_set(tmp_path):
    toml, properties = tmp_path / "a.toml", tmp_path / "b.properties"
    toml.write_text("x = 1\ny = 1\nz = 1\nw = 1\n", "utf-8")
    properties.write_text("# comment\ny = 2\nz = 2\n", "utf-8")

    found = Config.load(properties, toml, environ={"TOOLMASON_Z": "3"}, values={"w": 4})

    assert found.origin("x") == str(toml)
    assert found.origin("Y") == f"{properties}:2"
    assert found.origin("z") == "the environment variable TOOLMASON_Z"
    assert found.origin("w") == "code"
    assert found.origin("nothing") is None


def test_an_error_names_the_file_and_the_line(tmp_path):
    path = tmp_path / "b.properties"
    path.write_text("a=1\nengine.threads = many\n", "utf-8")

    with pytest.raises(ConfigError, match=r"engine.threads='many' in .*b\.properties:2 is not a number"):
        Toolbox(nothing, config=Config.load(path, environ={}))


def test_a_secret_is_in_no_error():
    secret = {"name": "a", "url": "https://x", "authorization": 12345678}

    with pytest.raises(ConfigError, match=r"MCP\.authorization") as caught:
        config(MCP=secret).servers  # noqa: B018 - reading it is the act

    assert "12345678" not in str(caught.value)


def test_a_copy_through_pickle_is_the_same(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"git": {"command": "uvx"}}}', "utf-8")
    found = Config.load(path, values={"MCP": server(1)}, environ={})

    copy = pickle.loads(pickle.dumps(found))

    assert dict(copy) == dict(found)
    assert copy.servers == found.servers
    assert copy.origin("MCP.name") == "code"


@given(
    st.dictionaries(
        st.sampled_from(
            ["MCP", "MCP_1", "WebSearchTool", "tools", "engine", "limits", "project_dir", "experimental", "x"]
        ),
        st.dictionaries(
            st.sampled_from(["url", "name", "type", "call_timeout", "throw_on_error", "authorization", "zzz"]),
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
        )
        | st.none()
        | st.text()
        | st.integers(),
    )
)
def test_any_settings_are_read_or_refused_by_an_error_of_ours(values):
    settings = Config(values, environ={})

    with contextlib.suppress(ConfigError):
        settings.check()
