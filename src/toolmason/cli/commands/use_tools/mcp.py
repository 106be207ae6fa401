"""`toolmason mcp`: list and inspect MCP servers, use what they offer, check their health, lock their definitions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import click

from toolmason._core.config.config import Config
from toolmason._core.run.blocking import run_blocking
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._text import pluralize
from toolmason.build.compare.comparison import ToolDiff
from toolmason.build.compare.listing import Listings
from toolmason.build.compare.lock_file import FILE, Lock, approve, compare, load, load_if_exists, write
from toolmason.cli.commands.check_tools.diff import print_server_changes
from toolmason.cli.commands.use_tools.call import CallCommand, call_options, use_entry
from toolmason.cli.commands.use_tools.list import print_box
from toolmason.cli.commands.use_tools.login import login, logout, status, use_sign_ins
from toolmason.cli.main import DRIFT, NOT_FOUND, TOOL_ERROR, SuggestingGroup, examples
from toolmason.cli.output import echo, print_json
from toolmason.cli.targets import connect_servers, fail, fail_if_down
from toolmason.errors import RemoteError
from toolmason.mcp_client.lists.pins import fetch_listings
from toolmason.mcp_client.source import McpServer

Command: TypeAlias = Callable[..., Any]
ServerList: TypeAlias = Sequence[McpServer]
_SIGN_IN_HINT: Final = (
    "Sign in with `toolmason mcp login`, or add --token-env VARIABLE or --header 'Authorization: Bearer …'."
)


def with_server_options(function: Command) -> Command:
    """Add the options that select servers; the subcommand receives the servers as `servers`."""

    @click.option("--config", type=click.Path(dir_okay=False), help="An mcp.json, TOML or .properties file.")
    @click.option(
        "--stdio", "command_line", metavar="COMMAND", help="Command that starts a server, with its arguments."
    )
    @click.option("--url", help="URL of a server.")
    @click.option(
        "--name", "server_name", default="server", show_default=True, help="Name for the server of --stdio or --url."
    )
    @click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="HTTP header to send to --url.")
    @click.option("--token-env", metavar="VARIABLE", help="Environment variable with the bearer token for --url.")
    @wraps(function)
    def wrapper(config: str | None, command_line: str | None, url: str | None, **options: Any) -> Any:
        name, headers, variable = (options.pop(key) for key in ("server_name", "headers", "token_env"))
        word = options.pop("server", None)
        if word is not None and word.startswith(("http://", "https://")):
            word, url = None, word
        if sum(option is not None for option in (config, command_line, url)) > 1:
            raise click.UsageError("--config, --stdio and --url cannot be combined. Use one of them.")
        if (headers or variable) and url is None:
            option = "--header" if headers else "--token-env"
            raise click.UsageError(f"{option} needs --url. Add --url, or set headers in the configuration.")
        if command_line is not None:
            words = _split_command(command_line)
            servers: ServerList = [McpServer.stdio(name, words[0], words[1:], connect_timeout=60.0)]
        elif url is not None:
            servers = [McpServer.http(name, url, headers=_read_headers(headers, variable))]
        elif word is not None:
            servers = [_find_server(word, config)]
        else:
            servers = load_configured(config)
        return function(servers=use_sign_ins(servers), **options)

    decorated: Command = wrapper
    return decorated


def _read_headers(headers: Sequence[str], token_variable: str | None) -> dict[str, str]:
    """Return headers from `NAME=VALUE`, or `NAME: VALUE` as curl takes them, and the token of a variable."""
    found: dict[str, str] = {}
    for header in headers:
        match = re.fullmatch(r"([\w.-]+)(?:=|:\s*)(.*)", header)
        if match is None:
            # Only the beginning is shown: the rest may be a secret.
            raise click.UsageError(f"Invalid --header {header[:12]!r}…. Write NAME=VALUE or 'NAME: VALUE'.")
        found[match[1]] = match[2]
    if token_variable is not None:
        token = os.environ.get(token_variable)
        if not token:
            raise click.UsageError(f"--token-env: the variable {token_variable!r} is not set.")
        found["Authorization"] = f"Bearer {token}"
    return found


def _find_server(word: str, config: str | None) -> McpServer:
    """Return the configured server of a name, or the one that a command starts."""
    known = {server.name: server for server in McpServer.from_config(Config.find() if config is None else config)}
    words = _split_command(word)
    if word in known:
        return known[word]
    if config is not None or shutil.which(words[0]) is None:
        available = ", ".join(sorted(known)) or "none"
        fail(f"{word!r} is not a configured server, a URL or a command. Configured: {available}.", NOT_FOUND)
    return McpServer.stdio("server", words[0], words[1:], connect_timeout=60.0)


def _split_command(command_line: str) -> Sequence[str]:
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise click.UsageError(f"Invalid --stdio {command_line!r}: {error}. Close every quote.") from error
    if not words:
        raise click.UsageError("--stdio needs a command.")
    return words


def load_configured(config: str | None) -> ServerList:
    """Return the servers of a file, or of the configuration that is found; exit if there are none."""
    servers = McpServer.from_config(Config.find() if config is None else config)
    if not servers:
        fail("No servers. Use --config, --stdio or --url, or add servers to the configuration.", NOT_FOUND)
    return servers


@click.group(
    "mcp",
    cls=SuggestingGroup,
    epilog=examples("mcp inspect http://127.0.0.1:8000/mcp", "mcp call read_file path=a.txt --config mcp.json"),
)
def command() -> None:
    """Inspect MCP servers and use their tools."""


for sign_in_command in (login, logout, status):
    command.add_command(sign_in_command)


@command.command(
    "list",
    epilog=examples(
        "mcp list --url http://127.0.0.1:8000/mcp",
        "mcp list --stdio 'uvx mcp-server-time'",
        "mcp list --url https://mcp.example.com/mcp --token-env MCP_TOKEN",
    ),
)
@with_server_options
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def list_(servers: ServerList, *, as_json: bool) -> None:
    """List the tools, prompts and resources of the servers; exit 1 if a server does not answer."""
    box = connect_servers(Toolbox(*servers), reports=True)
    print_box(box, as_json=as_json)
    fail_if_down(box, _SIGN_IN_HINT)


_CALL_EXAMPLES = examples(
    "mcp call read_file path=a.txt --config mcp.json", "mcp call search limit:=5 --url http://127.0.0.1:8000/mcp --json"
)


@command.command("call", cls=CallCommand, epilog=_CALL_EXAMPLES)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[ARGUMENTS]...")
@with_server_options
@call_options
def call(servers: ServerList, name: str, words: tuple[str, ...], **options: Any) -> None:
    """Call one tool of the servers with key=value, key:=json, or - for JSON on standard input.

    NAME may also be a prompt, or the URI of a resource.
    """
    box = connect_servers(Toolbox(*servers), reports=True)
    if name not in box:
        # A server that is down might have the tool.
        fail_if_down(box, _SIGN_IN_HINT)
    use_entry(box, name, words, options)


@command.command(
    "inspect",
    epilog=examples(
        "mcp inspect http://127.0.0.1:8000/mcp", "mcp inspect 'uvx mcp-server-time' --json", "mcp inspect files"
    ),
)
@click.argument("server", required=False)
@with_server_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(servers: ServerList, *, as_json: bool) -> None:
    """Print all about SERVER: a configured name, a URL, or a command. Without it, about each configured server."""
    box = connect_servers(Toolbox(*servers), reports=True)
    fail_if_down(box, _SIGN_IN_HINT)
    # Only after a connection, which reports a missing SDK.
    from toolmason.cli.commands.use_tools.inspect_server import describe_server, print_server  # noqa: PLC0415 - rules

    found = [describe_server(source) for source in get_state(box).remotes.sources]
    if as_json:
        print_json(found)
    else:
        for entry in found:
            print_server(entry)


@command.command("health", epilog=examples("mcp health --config mcp.json"))
@with_server_options
@click.option("--json", "as_json", is_flag=True, help="Print the health as JSON.")
def health(servers: ServerList, *, as_json: bool) -> None:
    """Make a round trip to each server; exit 1 if a server does not answer."""
    with Toolbox(*servers, eager=False) as box:
        states = box.health_sync()
    if as_json:
        print_json({name: asdict(state) for name, state in states.items()})
    else:
        for name, state in states.items():
            detail = f"{state.latency * 1000:.0f} ms" if state.latency is not None else state.error
            echo(f"{'ok' if state else 'FAILED':7} {name}  {detail}")
    if not all(states.values()):
        raise click.exceptions.Exit(TOOL_ERROR)


@command.command(
    "lock", epilog=examples("mcp lock --config mcp.json", "mcp lock --url http://127.0.0.1:8000/mcp --name shop")
)
@click.argument("names", nargs=-1, metavar="[SERVER]...")
@with_server_options
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a definition differs from the lock.")
@click.option("--file", type=click.Path(dir_okay=False), default=FILE, show_default=True, help="The lock file.")
def lock(servers: ServerList, names: tuple[str, ...], file: str, *, check: bool) -> None:
    """Approve the current definitions of the servers and write them to the lock."""
    if not check:
        approve_servers(servers, names, file)
        return
    locked = load(file)
    drift = {server.name: find_drift(locked, server) for server in _select(servers, names)}
    for name, changes in drift.items():
        print_server_changes(name, changes)
    if any(drift.values()):
        echo("The lock is out of date. Review the changes, then run `toolmason mcp lock`.", err=True)
        raise click.exceptions.Exit(DRIFT)
    echo(f"{file} is up to date: {pluralize(len(drift), 'server')}.")


def approve_servers(
    servers: ServerList, names: Sequence[str], file: str, targets: Mapping[str, str | None] = MappingProxyType({})
) -> None:
    """Write the definitions of servers to the lock and print the changes; `targets` are those that define them."""
    locked = load_if_exists(file)
    for server in _select(servers, names):
        listings = _fetch_listings(server)
        print_server_changes(server.name, compare(locked, listings, server=server.name))
        locked = approve(locked, listings, server=server.name, target=targets.get(server.name))
        echo(f"Locked {pluralize(len(listings), 'tool')} of server {server.name} in {file}.")
    write(locked, file)


def find_drift(locked: Lock, server: McpServer) -> list[ToolDiff]:
    """Return the differences between the approved definitions of a server and the current ones.

    Without `pin="lock"` the lock may approve a part of the tools, and calls of the others need approval.
    """
    changes = compare(locked, _fetch_listings(server), server=server.name)
    return [change for change in changes if server.pin is not None or change.status != "added"]


def _select(servers: ServerList, names: Sequence[str]) -> ServerList:
    """Return the servers with these names, or all; exit if one does not exist."""
    known = {server.name: server for server in servers}
    if missing := [name for name in names if name not in known]:
        known_names = ", ".join(sorted(known))
        fail(f"Unknown server {missing[0]!r}. Available: {known_names}.", NOT_FOUND)
    return [known[name] for name in names or known]


def _fetch_listings(server: McpServer) -> Listings:
    try:
        return run_blocking(fetch_listings(server))
    except RemoteError as error:
        fail(str(error), TOOL_ERROR)
