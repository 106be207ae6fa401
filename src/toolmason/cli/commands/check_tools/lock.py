"""`toolmason lock`: write the approved definitions to the lock, or check that none has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from toolmason._core.catalog.catalog import Catalog
from toolmason._core.config.config import Config
from toolmason._core.define.tool import get_root
from toolmason._core.toolbox.toolbox import get_state
from toolmason._text import pluralize
from toolmason.build.compare.comparison import ToolDiff
from toolmason.build.compare.listing import Listings, listings_of
from toolmason.build.compare.lock_file import FILE, Lock, approve, compare, load_if_exists, retarget, write
from toolmason.cli.commands.check_tools.diff import print_changes, print_server_changes
from toolmason.cli.main import DRIFT, NOT_FOUND, examples
from toolmason.cli.output import echo, print_json
from toolmason.cli.targets import fail, load_servers, load_toolbox
from toolmason.mcp_client.source import McpServer


@click.command("lock", epilog=examples("lock app.py:box", "lock --check", "lock app.py:box --approve github"))
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a definition differs from the lock.")
@click.option("--file", type=click.Path(dir_okay=False), default=FILE, show_default=True, help="The lock file.")
@click.option(
    "--approve", "servers", multiple=True, metavar="SERVER", help="Approve the current definitions of a server."
)
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
def command(targets: tuple[str, ...], file: str, servers: tuple[str, ...], *, check: bool, as_json: bool) -> None:
    """Write the definitions of the tools of each TARGET to the lock.

    If you omit TARGET, Toolmason uses the targets in the lock, or the tools of installed plugins. With --approve, a
    TARGET is a configuration file with MCP servers, or a toolbox in code: mcp.json, app.py:box. With --check, the
    approved definitions of its servers are checked as well.
    """
    if servers:
        from toolmason.cli.commands.use_tools.mcp import approve_servers  # noqa: PLC0415 - it loads the MCP SDK

        defined = _load_servers(targets)
        approve_servers([server for server, _ in defined], servers, file, {s.name: target for s, target in defined})
        return
    if check and not Path(file).is_file():
        fail(f"No lock file at {file!r}. Write it with `toolmason lock TARGET`.", NOT_FOUND)
    previous = load_if_exists(file)
    found = _collect(previous, targets or previous.targets or tuple(dict.fromkeys(previous.server_targets.values())))
    # A lock that only approves servers says nothing about local tools.
    only_servers = check and not previous.targets and not previous.tools and bool(previous.servers)
    if only_servers:
        found = replace(found, listings={})
    changes = compare(previous, found.listings)
    drift = found.find_drift(previous) if check else {}
    written = False if check else write(retarget(approve(previous, found.listings), found.targets), file)
    if as_json:
        report = {
            "file": file,
            "tools": len(found.listings),
            "written": written,
            "changes": [item.to_dict() for item in changes],
            "servers": {name: [item.to_dict() for item in items] for name, items in drift.items()},
        }
        print_json(report)
    else:
        _print(file, found, changes, drift, check=check)
    if check and (changes or any(drift.values())):
        raise click.exceptions.Exit(DRIFT)


@dataclass(frozen=True, slots=True)
class _Found:
    """Tools and servers of the targets."""

    targets: tuple[str, ...]
    listings: Listings
    """Tools that are not of approved servers."""
    servers: Mapping[str, tuple[McpServer, str]]
    """Servers whose definitions must be approved, with their targets."""

    def find_drift(self, locked: Lock) -> dict[str, list[ToolDiff]]:
        """Return the differences between the approved definitions of each server and the current ones."""
        if not self.servers:
            return {}
        from toolmason.cli.commands.use_tools.mcp import find_drift  # noqa: PLC0415 - it loads the MCP SDK

        return {name: find_drift(locked, server) for name, (server, _) in self.servers.items()}


def _collect(locked: Lock, targets: tuple[str, ...]) -> _Found:
    catalog = Catalog()
    servers: dict[str, tuple[McpServer, str]] = {}
    for target in targets or (None,):
        box = load_toolbox(target)
        for source in get_state(box).remotes.sources:
            server = getattr(source, "server", None)
            if isinstance(server, McpServer) and (server.pin is not None or server.name in locked.servers):
                servers[server.name] = (server, target or "TARGET")
        for tool in box:
            if getattr(get_root(tool), "server", None) not in servers:
                catalog.add(tool)
    if not catalog.tools and not targets:
        raise click.UsageError("Name a target: the lock has none, and no tools are installed.")
    return _Found(targets, listings_of(catalog), servers)


def _load_servers(targets: Sequence[str]) -> list[tuple[McpServer, str | None]]:
    """Return the servers of the targets, or of the configuration, with the target of each."""
    found: list[tuple[McpServer, str | None]] = [(server, item) for item in targets for server in load_servers(item)]
    if not targets:
        found = [(server, None) for server in McpServer.from_config(Config.find())]
    if not found:
        fail("No servers. Name a file that defines them: mcp.json, or app.py:box for a toolbox in code.", NOT_FOUND)
    return found


def _print(
    file: str, found: _Found, changes: Sequence[ToolDiff], drift: Mapping[str, Sequence[ToolDiff]], *, check: bool
) -> None:
    if changes:
        print_changes(changes)
    for name, items in drift.items():
        print_server_changes(name, items)
    if not check:
        echo(f"Locked {pluralize(len(found.listings), 'tool')} in {file}.")
        return
    if changes:
        echo("The lock is out of date. Review the changes, then run `toolmason lock`.", err=True)
    for name in (name for name, items in drift.items() if items):
        approval = f"toolmason lock {found.servers[name][1]} --approve {name}"
        echo(f"Server {name!r} differs from its approved definitions. Review it, then run `{approval}`.", err=True)
    if not changes and not any(drift.values()):
        tools, servers = pluralize(len(found.listings), "tool"), pluralize(len(drift), "server")
        echo(f"{file} is up to date: {f'{tools}, {servers}' if drift else tools}.")
