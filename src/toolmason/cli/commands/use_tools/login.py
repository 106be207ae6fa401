"""`toolmason mcp login`, `logout` and `status`: sign in to MCP servers with OAuth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from toolmason._core.config.config import Config
from toolmason._core.run.blocking import run_blocking
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR, examples
from toolmason.cli.output import echo, print_json
from toolmason.cli.targets import fail
from toolmason.mcp_client.auth.loopback import SIGN_IN_SECONDS
from toolmason.mcp_client.auth.oauth import OAuth, show_address
from toolmason.mcp_client.auth.token_files import FileTokens, MemoryTokens, get_token_path, list_signed_in
from toolmason.mcp_client.source import McpServer

_config_option = click.option(
    "--config", type=click.Path(dir_okay=False), help="An mcp.json, TOML or .properties file with the NAME."
)


def use_sign_ins(servers: Sequence[McpServer]) -> list[McpServer]:
    """Return servers, with the stored sign-in for those that have one and set no credentials."""
    signed_in, found = list_signed_in(), []
    for server in servers:
        has_header = any(name.lower() == "authorization" for name in server.headers or ())
        uses_sign_in = server.url in signed_in and server.auth is None and not has_header
        found.append(replace(server, auth="oauth") if uses_sign_in else server)
    return found


def _find_url(target: str, config: str | None) -> str:
    """Return the URL of a server: the target, or that of the configured server with this name."""
    if "://" in target:
        return target
    servers = {server.name: server for server in McpServer.from_config(Config.find() if config is None else config)}
    url = servers[target].url if target in servers else None
    if url is None:
        known = ", ".join(sorted(name for name, server in servers.items() if server.url)) or "none"
        fail(f"No server {target!r} with a URL. Configured: {known}. Pass its URL.", NOT_FOUND)
    return url


@click.command(
    "login",
    epilog=examples(
        "mcp login https://mcp.example.com/mcp",
        "mcp login notes --config mcp.json",
        "mcp login https://mcp.example.com/mcp --device",
    ),
)
@click.argument("target", metavar="URL|NAME")
@_config_option
@click.option("--device", is_flag=True, help="Sign in on another device, with a code.")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@click.option("--scope", "scopes", multiple=True, help="Scope to ask for. Can be repeated.")
@click.option("--client-id", help="ID of a client that is registered already.")
@click.option("--client-metadata-url", help="https address of a client ID metadata document.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the callback; 0 picks a free one.")
@click.option("--dpop", is_flag=True, help="Bind the tokens to a key of this user (DPoP).")
def login(target: str, config: str | None, *, no_browser: bool, **options: Any) -> None:
    """Sign in to a server in the browser, and keep the tokens in a file that only you can read."""
    url, tokens = _find_url(target, config), MemoryTokens()
    auth = OAuth(sign_in=_print_address if no_browser else show_address, tokens=tokens, **options)
    error = run_blocking(_connect(McpServer.http("server", url, auth=auth, connect_timeout=SIGN_IN_SECONDS + 60)))
    if tokens.load("tokens") is not None:
        FileTokens(None, url).forget()  # an older key does not fit the new tokens
        run_blocking(FileTokens(None, url).save(**tokens.values))
        echo(f"Signed in to {url}. The tokens are in {get_token_path()}.")
    elif error is None:
        echo(f"{url} asks for no sign-in.")
    else:
        fail(f"Not signed in: {error}", TOOL_ERROR)


def _print_address(address: str, code: str) -> None:
    echo(f"To sign in, open {address}" + (f" and enter the code {code}" if code else ""), err=True)


async def _connect(server: McpServer) -> str | None:
    """Connect to a server. Return the error if it cannot be used."""
    async with Toolbox(server) as box:
        health = (await box.health())[server.name]
        return None if health else str(health.error)


@click.command("logout", epilog=examples("mcp logout https://mcp.example.com/mcp"))
@click.argument("target", metavar="URL|NAME")
@_config_option
def logout(target: str, config: str | None) -> None:
    """Delete the stored tokens of a server."""
    url = _find_url(target, config)
    if url not in list_signed_in():
        fail(f"There are no tokens of {url}. `toolmason mcp status` lists those that are stored.", NOT_FOUND)
    FileTokens(None, url).forget()
    echo(f"Deleted the tokens of {url}.")


@click.command("status", epilog=examples("mcp status", "mcp status --json"))
@click.option("--json", "as_json", is_flag=True, help="Print the servers as JSON.")
def status(*, as_json: bool) -> None:
    """List the servers with stored tokens."""
    signed_in = list_signed_in()
    if as_json:
        print_json({url: {"expires_at": expires_at} for url, expires_at in signed_in.items()})
        return
    for url, expires_at in sorted(signed_in.items()):
        echo(f"{url}  {_describe_expiry(expires_at)}")
    if not signed_in:
        echo("No tokens are stored. Sign in with `toolmason mcp login URL`.")


def _describe_expiry(expires_at: float | None) -> str:
    if expires_at is None:
        return "signed in"
    seconds = expires_at - time.time()
    return f"signed in, the token expires in {seconds:.0f} s" if seconds > 0 else "signed in, the token has expired"
