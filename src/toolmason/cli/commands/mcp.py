"""`toolmason mcp`: look at MCP servers, call their tools, see how they are, and approve what they offer."""

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
from toolmason.build.compare.listing import listings_of
from toolmason.build.compare.lock_file import FILE, Lock, approve, compare, load, write
from toolmason.cli.commands.call import perform
from toolmason.cli.commands.diff import print_changes
from toolmason.cli.commands.list import show
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR
from toolmason.cli.output import counted, print_error, print_json
from toolmason.cli.targets import arguments_from, fail, tool_in, with_servers
from toolmason.mcp_client.source import McpServer

Command: TypeAlias = Callable[..., Any]
Servers: TypeAlias = Sequence[McpServer]


def about_servers(function: Command) -> Command:
    """Let a subcommand say which servers it is about; it gets them as `servers`."""

    @wraps(function)
    def told(
        config: str | None, command_line: str | None, url: str | None, headers: tuple[str, ...], **words: Any
    ) -> Any:
        called = words.pop("called")
        return function(servers=_named(config, command_line, url, headers, called), **words)

    options = (
        click.option("--config", type=click.Path(dir_okay=False), help="An mcp.json, TOML or .properties file."),
        click.option("--stdio", "command_line", metavar="COMMAND", help="A server to start, with its arguments."),
        click.option("--url", help="The address of a server."),
        click.option("--name", "called", default="server", show_default=True, help="What --stdio or --url is called."),
        click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent along to --url."),
    )
    decorated: Command = told
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _named(
    config: str | None, command_line: str | None, url: str | None, headers: Sequence[str], called: str
) -> Servers:
    if sum(given is not None for given in (config, command_line, url)) > 1:
        raise click.UsageError("--config, --stdio and --url each name servers. Give one of them.")
    if headers and url is None:
        raise click.UsageError("--header goes along to --url. Give --url, or write headers into the configuration.")
    if command_line is not None:
        words = _words_of(command_line)
        return [McpServer.stdio(called, words[0], words[1:], connect_timeout=60.0)]
    if url is not None:
        pairs = [header.partition("=") for header in headers]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise click.UsageError(f"--header {wrong[0]!r} is not a header. Write NAME=VALUE.")
        return [McpServer.http(called, url, headers={name: value for name, _, value in pairs})]
    return configured(config)


def _words_of(command_line: str) -> Sequence[str]:
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise click.UsageError(f"--stdio {command_line!r} cannot be read: {error}. Close every quote.") from error
    if not words:
        raise click.UsageError("--stdio needs a command.")
    return words


def configured(config: str | None) -> Servers:
    """Return the servers of a file, or of the configuration that is found; exits where there are none."""
    servers = McpServer.from_config(Config.find() if config is None else config)
    if not servers:
        fail("No servers. Give --config, --stdio or --url, or name servers in the configuration.", NOT_FOUND)
    return servers


@click.group("mcp")
def command() -> None:
    """Look at MCP servers and use their tools."""


@command.command("list")
@about_servers
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def list_(servers: Servers, *, as_json: bool) -> None:
    """List the tools of the servers; exit 1 if one does not answer."""
    box = with_servers(Toolbox(*servers))
    show(box.tools, as_json=as_json)
    _fail_if_down(box)


def _fail_if_down(box: Toolbox) -> None:
    """Say which servers do not answer, and exit, where there are any."""
    down = {name: state.error for name, state in box.health_sync().items() if not state}
    for name, error in down.items():
        print_error(f"The server {name!r} does not answer: {error}")
    if down:
        raise click.exceptions.Exit(TOOL_ERROR)


@command.command("call")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@about_servers
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def call(servers: Servers, name: str, words: tuple[str, ...], *, as_json: bool) -> None:
    """Call one tool of the servers."""
    box = with_servers(Toolbox(*servers))
    if name not in box:
        # Nobody knows whether a server that is down has it.
        _fail_if_down(box)
    tool = tool_in(box, name)
    perform(box, tool.name, arguments_from(words, (), tool.definition.input_schema), {}, as_json=as_json)


@command.command("health")
@about_servers
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON.")
def health(servers: Servers, *, as_json: bool) -> None:
    """Make a round trip to each server; exit 1 if one does not answer."""
    with Toolbox(*servers, eager=False) as box:
        states = box.health_sync()
    if as_json:
        print_json({name: asdict(state) for name, state in states.items()})
    else:
        for name, state in states.items():
            told = f"{state.latency * 1000:.0f} ms" if state.latency is not None else state.error
            click.echo(f"{'ok' if state else 'FAILED':7} {name}  {told}")
    if not all(states.values()):
        raise click.exceptions.Exit(TOOL_ERROR)


@command.command("lock")
@click.argument("names", nargs=-1, metavar="[SERVER]...")
@about_servers
@click.option("--file", type=click.Path(dir_okay=False), default=FILE, show_default=True, help="The lock.")
def lock(servers: Servers, names: tuple[str, ...], file: str) -> None:
    """Approve what the servers offer now, and write it into the lock."""
    approve_servers(servers, names, file)


def approve_servers(servers: Servers, names: Sequence[str], file: str) -> None:
    """Write the definitions of servers into the lock, and say what changed."""
    known = {server.name: server for server in servers}
    if missing := [name for name in names if name not in known]:
        there = ", ".join(sorted(known))
        fail(f"There is no server named {missing[0]!r}. There are: {there}.", NOT_FOUND)
    held = load(file) if Path(file).exists() else Lock()
    for name in names or known:
        # As the server has it: what is approved goes by its own names, and nothing of it is held back here.
        plain = replace(known[name], pin=None, prefix=None, rename={})
        with Toolbox(plain) as box:
            if not box.health_sync()[name]:
                fail(f"The server {name!r} does not answer; nothing of it was approved.", TOOL_ERROR)
            found = listings_of(box.tools)
        changes = compare(held, found, server=name)
        held = approve(held, found, server=name)
        if changes:
            print_changes(changes)
        click.echo(f"Locked {counted(len(found), 'tool')} of server {name} in {file}.")
    write(held, file)
