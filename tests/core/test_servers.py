"""`mcp.json`, as editors write it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolmason import Config
from toolmason._core.config.mcp_json import read_mcp_json
from toolmason.errors import ConfigError
from toolmason.mcp import ServerSettings

ENVIRON = {"TOKEN": "hunter2", "HOST": "api.example", "EMPTY": ""}


@pytest.fixture
def read(tmp_path):
    def read(data, environ=ENVIRON) -> tuple[ServerSettings, ...]:
        path = tmp_path / "mcp.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
        return read_mcp_json(path, environ)

    return read


@pytest.fixture
def one(read):
    return lambda **entry: read({"mcpServers": {"it": entry}})[0]


def test_servers_come_in_the_order_of_the_file(read, tmp_path):
    found = read(
        {
            "mcpServers": {
                "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"A": "1"}, "cwd": "/srv"},
                "crm": {"type": "http", "url": "https://crm/mcp", "headers": {"X-Key": "k"}, "description": "CRM"},
            }
        }
    )

    assert found == (
        ServerSettings(
            "git",
            command="uvx",
            args=("mcp-server-git",),
            env={"A": "1"},
            cwd="/srv",
            origin=str(tmp_path / "mcp.json"),
        ),
        ServerSettings(
            "crm", url="https://crm/mcp", headers={"X-Key": "k"}, description="CRM", origin=str(tmp_path / "mcp.json")
        ),
    )


def test_the_table_of_another_editor_is_read_too(read):
    assert [item.name for item in read({"servers": {"a": {"command": "x"}}, "inputs": []})] == ["a"]


def test_what_is_an_editors_own_is_left_alone(one):
    assert one(command="x", alwaysAllow=["a"], timeout=5, type="stdio", gallery=True).command == "x"


@pytest.mark.parametrize(("key", "meant"), [("arg", "args"), ("environment", "env"), ("header", "headers")])
def test_what_looks_like_one_of_ours_is_told(one, caplog, key, meant):
    one(command="x", **{key: []})

    assert f"{key!r} looks like {meant!r}" in caplog.text


def test_a_server_that_is_disabled_is_left_out(read):
    assert read({"mcpServers": {"a": {"command": "${NOT_SET}", "disabled": True}}}) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${HOST}", "api.example"),
        ("${env:HOST}", "api.example"),
        ("a-${HOST}-${TOKEN}", "a-api.example-hunter2"),
        ("${NOT_SET:-default}", "default"),
        ("${NOT_SET:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${HOST:-default}", "api.example"),
        ("${NOT_SET:-a:-b}", "a:-b"),
        ("$HOST", "$HOST"),
        ("${", "${"),
        ("${1X}", "${1X}"),
    ],
)
def test_references_are_filled_in_from_the_environment(one, text, expected):
    found = one(command="x", args=["", text], env={"K": text, "E": ""})

    assert found.args == ("", expected)
    assert found.env == {"K": expected, "E": ""}


def test_what_a_variable_holds_is_not_expanded_again(read):
    [found] = read({"mcpServers": {"a": {"command": "${A}"}}}, {"A": "${B}", "B": "no"})

    assert found.command == "${B}"


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"command": "${NOT_SET}"}, "command"),
        ({"command": "x", "args": ["${NOT_SET}"]}, r"args\[0\]"),
        ({"command": "x", "env": {"K": "${NOT_SET}"}}, r"env\.K"),
        ({"url": "https://${NOT_SET}/"}, "url"),
        ({"url": "https://x", "headers": {"H": "${NOT_SET}"}}, r"headers\.H"),
    ],
)
def test_a_variable_that_is_not_set_is_named_with_its_field(one, entry, field):
    with pytest.raises(ConfigError, match=rf"mcp\.json: server 'it': `{field}` refers to.*'NOT_SET'.*Set it"):
        one(**entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "needs a command or a url, and has neither."),
        ({"command": "x", "url": "https://x"}, "needs a command or a url, and has both."),
        ({"cmd": "x"}, "and has neither. 'cmd' looks like 'command'."),
        ({"comand": "x"}, "'comand' looks like 'command'"),
        ({"command": 5}, "`command` must be a non-empty string, got number"),
        ({"command": ""}, "`command` must be a non-empty string, got empty string"),
        ({"command": None}, "`command` must be a non-empty string, got null"),
        ({"command": "x", "args": "a b"}, "must be a list of strings, got string"),
        ({"command": "x", "args": [1]}, r"`args\[0\]` must be .*, got number"),
        ({"command": "x", "args": [None]}, r"`args\[0\]` must be .*, got null"),
        ({"command": "x", "env": ["A=1"]}, "must be an object with string values, got list"),
        ({"command": "x", "env": {"A": 0}}, r"`env\.A` must be .*, got number"),
        ({"url": "https://x", "headers": {"A": ["b"]}}, r"`headers\.A` must be .*, got list"),
        ({"url": "x/y"}, "Use http"),
        ({"command": "x", "env": {"K": "${input:token}"}}, "asks the editor for input"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_an_entry_that_does_not_fit_is_refused_with_its_field(one, entry, message):
    with pytest.raises(ConfigError, match=message) as caught:
        one(**entry)

    assert "mcp.json: server 'it'" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        '{"mcpServers": []}',
        '{"mcp": {}}',
        '{"mcpServers": {"a": 5}}',
        "[" * 100_000,
        '{"a": 1, "a": 2}',
    ],
    ids=["empty", "cut off", "list", "number", "list inside", "other name", "no object", "deep", "twice"],
)
def test_a_file_that_is_no_mcp_json_is_refused_with_its_name(read, text):
    with pytest.raises(ConfigError, match=r"mcp\.json"):
        read(text)


def test_secrets_are_neither_shown_nor_told(one):
    found = one(url="https://user:hunter2@host/mcp?key=hunter2#hunter2", headers={"Authorization": "Bearer ${TOKEN}"})
    local = ServerSettings("a", command="x", args=("--token=hunter2",), env={"K": "hunter2"}, authorization="hunter2")

    assert "hunter2" not in repr(found) + repr(local) + str(found)
    assert "https://host/mcp" in repr(found)
    assert "Authorization" in repr(found)
    with pytest.raises(ConfigError) as caught:
        one(url="ftp://user:${TOKEN}@host/?${TOKEN}")
    assert "hunter2" not in str(caught.value)


def test_a_config_holds_the_servers_of_a_file_behind_its_groups(tmp_path):
    first, second = tmp_path / "mcp.json", tmp_path / "more.json"
    first.write_text('{"mcpServers": {"a": {"command": "1"}, "b": {"command": "1"}}}', "utf-8")
    second.write_text('{"mcpServers": {"b": {"command": "2"}}}', "utf-8")

    found = Config.load(first, second, values={"MCP": {"name": "own", "url": "https://x"}}, environ={}).servers

    assert [(item.name, item.command) for item in found] == [("own", None), ("a", "1"), ("b", "2")]


def test_a_group_and_a_file_with_one_name_are_refused(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "1"}}}', "utf-8")

    with pytest.raises(ConfigError, match=r"Two MCP servers are named 'a': in code and in .*mcp\.json"):
        Config.load(path, values={"MCP": {"name": "a", "url": "https://x"}}, environ={}).servers  # noqa: B018 - the act


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.just("${X}"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "args", "env", "url", "headers", "cwd", "a", ""]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_json_is_read_or_refused_by_an_error_of_ours(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "mcp.json"
    path.write_text(json.dumps({"mcpServers": data}), "utf-8")

    found: tuple[ServerSettings, ...] = ()

    try:
        found, told = read_mcp_json(path, {}), "mcp.json"
    except ConfigError as error:
        told = str(error)

    assert "mcp.json" in told
    assert all((item.command is None) != (item.url is None) for item in found)
