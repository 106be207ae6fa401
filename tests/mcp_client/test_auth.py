"""Servers that want to know who we are: a state, tokens in a file, a client's own credentials."""

import asyncio
import fcntl
import json
import stat
import sys

import pytest
from mcp.shared.auth import OAuthToken

from adversaries.raw_http import served
from toolmason import McpServer, Toolbox
from toolmason.errors import ConfigError
from toolmason.mcp_client.auth.oauth import client_credentials
from toolmason.mcp_client.auth.token_files import FileTokens


async def test_wanting_authorization_is_a_state():
    with served("401") as server:
        async with Toolbox(McpServer.http("web", server.url)) as box:
            health = (await box.health())["web"]

    assert not health
    assert health.needs_auth
    assert "requires authorization (HTTP 401)" in health.error


async def test_a_server_that_is_not_there_does_not_want_authorization():
    async with Toolbox(McpServer.http("web", "http://127.0.0.1:9/mcp")) as box:
        health = (await box.health())["web"]

    assert not health
    assert not health.needs_auth


async def test_tokens_are_kept_for_their_owner_alone_and_for_each_server(tmp_path):
    path = tmp_path / "deep" / "tokens.json"
    one, two = FileTokens(path, "one"), FileTokens(path, "two")

    await one.set_tokens(OAuthToken(access_token="first"))  # noqa: S106 - a token of the test
    await two.set_tokens(OAuthToken(access_token="second"))  # noqa: S106 - as above

    assert (await FileTokens(path, "one").get_tokens()).access_token == "first"  # noqa: S105 - as above
    assert (await two.get_tokens()).access_token == "second"  # noqa: S105 - as above
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "first" not in repr(one)
    one.forget()
    assert await one.get_tokens() is None
    assert await two.get_tokens() is not None


async def test_servers_that_share_a_file_lose_nothing_to_each_other(tmp_path):
    path = tmp_path / "tokens.json"
    stores = [FileTokens(path, f"s{number}") for number in range(40)]

    await asyncio.gather(*(store.set_tokens(OAuthToken(access_token=store.server)) for store in stores))
    kept = [(await store.get_tokens()) for store in stores]

    assert [tokens and tokens.access_token for tokens in kept] == [store.server for store in stores]
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "tokens.json.lock").stat().st_mode & 0o777 == 0o600


WRITER = """
import asyncio, sys
from mcp.shared.auth import OAuthToken
from toolmason.mcp_client.auth.token_files import FileTokens

class Halting(FileTokens):
    def _replace_file(self, data):
        print("about to write", flush=True)
        sys.stdin.readline()
        super()._replace_file(data)

asyncio.run(Halting(sys.argv[1], "far").set_tokens(OAuthToken(access_token="t")))
"""


async def test_processes_that_share_a_file_lose_nothing_to_each_other(tmp_path):
    path, pipe = tmp_path / "tokens.json", asyncio.subprocess.PIPE
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(path), stdin=pipe, stdout=pipe)
    await writer.stdout.readline()

    with (tmp_path / "tokens.json.lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what it has read is what it adds to: nobody else writes now
    near = asyncio.create_task(FileTokens(path, "near").set_tokens(OAuthToken(access_token="t")))  # noqa: S106 - as above
    await writer.communicate(b"go on\n")
    await near

    assert sorted(json.loads(path.read_text("utf-8"))) == ["far", "near"]


async def test_a_damaged_file_is_said(tmp_path):
    path = tmp_path / "tokens.json"
    path.write_text("{")

    with pytest.raises(ConfigError, match="Cannot read the tokens"):
        await FileTokens(path, "one").get_tokens()


async def test_credentials_of_our_own_open_no_browser():
    with served("401") as server:
        auth = client_credentials(server.url, "id", "secret", issuer="https://login.example.com")
        async with Toolbox(McpServer.http("web", server.url, auth=auth)) as box:
            health = (await box.health())["web"]

    assert not health
    assert "secret" not in health.error
