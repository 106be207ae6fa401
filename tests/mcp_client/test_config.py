"""Servers from configuration files, as editors and operators write them."""

import json
import sys
from pathlib import Path

import pytest

from toolmason import Config, McpServer, Toolbox
from toolmason.errors import ConfigError

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")


def entry(case: str = "plain") -> dict:
    return {"command": sys.executable, "args": [RAW, case]}


@pytest.mark.row("L4-31")
async def test_an_mcp_json_gives_working_servers(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"one": entry(), "two": entry("two pages")}}))

    async with Toolbox(McpServer.from_config(path)) as box:
        names = [tool.name for tool in box.tools]

    assert names == ["echo", "second", "two__echo"]


def test_a_mapping_is_read_like_a_file():
    [server] = McpServer.from_config({"mcpServers": {"one": entry()}}, timeout=5)

    assert (server.name, server.kind, server.timeout) == ("one", "stdio", 5)


def test_the_groups_of_a_configuration_are_servers_and_a_gap_hides_nothing():
    config = Config(
        {
            "MCP": {"name": "a", "url": "http://localhost:1/mcp", "authorization": "Bearer t"},
            "MCP_3": {"name": "c", "url": "http://localhost:3/mcp"},
        },
        environ={},
    )

    servers = McpServer.from_config(config)

    assert [(server.name, server.url) for server in servers] == [
        ("a", "http://localhost:1/mcp"),
        ("c", "http://localhost:3/mcp"),
    ]
    assert servers[0].headers == {"Authorization": "Bearer t"}
    assert "Bearer t" not in repr(servers[0])


def test_a_variable_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    config = {"mcpServers": {"web": {"url": "http://localhost:1/mcp", "headers": {"X-Token": "${MY_TOKEN}"}}}}

    [server] = McpServer.from_config(config)

    assert server.headers == {"X-Token": "secret"}


def test_an_entry_that_cannot_be_a_server_is_named_with_its_file(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a/b": entry()}}))

    with pytest.raises(ConfigError, match=r"mcp\.json: Invalid server name 'a/b'"):
        McpServer.from_config(path)


@pytest.mark.parametrize("table", ["mcpServers", "servers", "mcp_servers"])
def test_a_table_of_servers_is_read_wherever_it_stands(tmp_path, table):
    toml, project = tmp_path / "servers.toml", tmp_path / "pyproject.toml"
    toml.write_text(f'[{table}.one]\ncommand = "x"\n[MCP]\nname = "two"\nurl = "http://localhost:1/mcp"\n')
    project.write_text(f'[tool.toolmason.{table}.one]\ncommand = "x"\n')
    mapping = {table: {"one": entry()}, "MCP.name": "two", "MCP.url": "http://localhost:1/mcp"}

    found = [[server.name for server in McpServer.from_config(source)] for source in (toml, project, mapping)]

    assert found == [["two", "one"], ["one"], ["two", "one"]]


@pytest.mark.parametrize("mapping", [{"one": {"command": "x"}}, {"mcpServers": []}])
def test_servers_without_their_table_are_not_missed_in_silence(mapping):
    with pytest.raises(ConfigError, match="has no MCP servers"):
        McpServer.from_config(mapping)


def test_who_asks_is_said_for_all_servers_of_a_configuration():
    servers = McpServer.from_config({"mcpServers": {"one": entry(), "web": {"url": "http://h/mcp"}}}, auth=str)

    assert [server.auth for server in servers] == [str, str]
