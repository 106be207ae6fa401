"""`toolmason mcp`: list MCP servers' tools, call them, check the servers' health and lock their definitions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

import click

from toolmason._core.config.config import Config
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._text import pluralize
from toolmason.build.compare.listing import listings_of
from toolmason.build.compare.lock_file import FILE, Lock, approve, compare, load, write
from toolmason.cli.commands.call import run_call
from toolmason.cli.commands.diff import print_changes
from toolmason.cli.commands.list import print_tools
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR
from toolmason.cli.output import echo, print_error, print_json
from toolmason.cli.targets import connect_servers, fail, get_tool, parse_arguments
from toolmason.mcp_client.source import McpServer

Command: TypeAlias = Callable[..., Any]
ServerList: TypeAlias = Sequence[McpServer]


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
    @wraps(function)
    def wrapper(config: str | None, command_line: str | None, url: str | None, **options: Any) -> Any:
        name, headers = options.pop("server_name"), options.pop("headers")
        if sum(option is not None for option in (config, command_line, url)) > 1:
            raise click.UsageError("--config, --stdio and --url cannot be combined. Use one of them.")
        if headers and url is None:
            raise click.UsageError("--header needs --url. Add --url, or set headers in the configuration.")
        if command_line is not None:
            words = _split_command(command_line)
            servers: ServerList = [McpServer.stdio(name, words[0], words[1:], connect_timeout=60.0)]
        elif url is not None:
            servers = [McpServer.http(name, url, headers=_split_headers(headers))]
        else:
            servers = load_configured(config)
        return function(servers=servers, **options)

    decorated: Command = wrapper
    return decorated


def _split_headers(headers: Sequence[str]) -> dict[str, str]:
    pairs = [header.partition("=") for header in headers]
    if invalid := [name for name, equals, _ in pairs if not equals]:
        raise click.UsageError(f"Invalid --header {invalid[0]!r}. Write NAME=VALUE.")
    return {name: value for name, _, value in pairs}


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


@click.group("mcp")
def command() -> None:
    """Inspect MCP servers and use their tools."""


@command.command("list")
@with_server_options
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def list_(servers: ServerList, *, as_json: bool) -> None:
    """List the tools of the servers; exit 1 if a server does not answer."""
    box = connect_servers(Toolbox(*servers))
    print_tools(box.tools, as_json=as_json)
    _fail_if_down(box)


def _fail_if_down(box: Toolbox) -> None:
    """Print the servers that do not answer, and exit if there are any."""
    down = {name: state.error for name, state in box.health_sync().items() if not state}
    for name, error in down.items():
        print_error(f"Server {name!r} does not answer: {error}")
    if down:
        raise click.exceptions.Exit(TOOL_ERROR)


@command.command("call")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@with_server_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def call(servers: ServerList, name: str, words: tuple[str, ...], *, as_json: bool) -> None:
    """Call one tool of the servers."""
    box = connect_servers(Toolbox(*servers))
    if name not in box:
        # A server that is down might have the tool.
        _fail_if_down(box)
    tool = get_tool(box, name)
    run_call(box, tool.name, parse_arguments(words, (), tool.definition.input_schema), {}, as_json=as_json)


@command.command("health")
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


@command.command("lock")
@click.argument("names", nargs=-1, metavar="[SERVER]...")
@with_server_options
@click.option("--file", type=click.Path(dir_okay=False), default=FILE, show_default=True, help="The lock file.")
def lock(servers: ServerList, names: tuple[str, ...], file: str) -> None:
    """Approve the current definitions of the servers and write them to the lock."""
    approve_servers(servers, names, file)


def approve_servers(servers: ServerList, names: Sequence[str], file: str) -> None:
    """Write the definitions of servers to the lock and print the changes."""
    known = {server.name: server for server in servers}
    if missing := [name for name in names if name not in known]:
        known_names = ", ".join(sorted(known))
        fail(f"Unknown server {missing[0]!r}. Available: {known_names}.", NOT_FOUND)
    locked = load(file) if Path(file).exists() else Lock()
    for name in names or known:
        # Approve under the server's own names, with every tool, regardless of renames, prefixes and pins.
        unpinned = replace(known[name], pin=None, prefix=None, rename={})
        with Toolbox(unpinned) as box:
            if not box.health_sync()[name]:
                fail(f"Server {name!r} does not answer; none of its tools was approved.", TOOL_ERROR)
            listings = listings_of(box.tools)
        changes = compare(locked, listings, server=name)
        locked = approve(locked, listings, server=name)
        if changes:
            print_changes(changes)
        echo(f"Locked {pluralize(len(listings), 'tool')} of server {name} in {file}.")
    write(locked, file)
