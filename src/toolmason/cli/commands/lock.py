"""`toolmason lock`: write the approved definitions to the lock, or check that none has changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from toolmason._core.catalog.catalog import Catalog
from toolmason._core.config.config import Config
from toolmason._text import pluralize
from toolmason.build.compare.comparison import ToolDiff
from toolmason.build.compare.listing import listings_of
from toolmason.build.compare.lock_file import FILE, Lock, approve, compare, load, retarget, write
from toolmason.cli.commands.diff import print_changes
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
    TARGET is a configuration file with MCP servers, or a toolbox in code: mcp.json, app.py:box.
    """
    if servers:
        from toolmason.cli.commands.mcp import approve_servers  # noqa: PLC0415 - needed only with --approve

        approve_servers(_load_servers(targets), servers, file)
        return
    if check and not Path(file).is_file():
        fail(f"No lock file at {file!r}. Write it with `toolmason lock TARGET`.", NOT_FOUND)
    previous = load(file) if Path(file).exists() else Lock()
    wanted = targets or previous.targets
    catalog = Catalog()
    for target in wanted or (None,):
        for tool in load_toolbox(target):
            catalog.add(tool)
    if not catalog.tools and not wanted:
        raise click.UsageError("Name a target: the lock has none, and no tools are installed.")
    listings = listings_of(catalog)
    changes = compare(previous, listings)
    written = False if check else write(retarget(approve(previous, listings), wanted), file)
    if as_json:
        report = {
            "file": file,
            "tools": len(listings),
            "written": written,
            "changes": [item.to_dict() for item in changes],
        }
        print_json(report)
    else:
        _print(file, len(listings), changes, check=check)
    if check and changes:
        raise click.exceptions.Exit(DRIFT)


def _load_servers(targets: Sequence[str]) -> list[McpServer]:
    if targets:
        servers = [server for target in targets for server in load_servers(target)]
    else:
        servers = McpServer.from_config(Config.find())
    if not servers:
        fail("No servers. Name a file that defines them: mcp.json, or app.py:box for a toolbox in code.", NOT_FOUND)
    return servers


def _print(file: str, count: int, changes: Sequence[ToolDiff], *, check: bool) -> None:
    if changes:
        print_changes(changes)
    if not check:
        echo(f"Locked {pluralize(count, 'tool')} in {file}.")
    elif changes:
        echo("The lock is out of date. Review the changes, then run `toolmason lock`.", err=True)
    else:
        echo(f"{file} is up to date: {pluralize(count, 'tool')}.")
