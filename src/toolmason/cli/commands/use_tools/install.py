"""`toolmason install TARGET --client CLIENT` and `toolmason uninstall`: put a server into a client's configuration."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from toolmason.cli.clients import (
    CLIENTS,
    ClientProgram,
    ServerCommand,
    add_server,
    check_name,
    hide_secrets,
    read_text,
    remove_server,
)
from toolmason.cli.main import combine_options, examples
from toolmason.cli.output import echo
from toolmason.cli.targets import load_toolbox
from toolmason.errors import ConfigError

BACKUP_SUFFIX: Final = ".before-toolmason"
"""End of the name of the copy of a client's file that is kept."""


class FileChange(NamedTuple):
    """A change of a client's file that is shown, confirmed and written."""

    client: ClientProgram
    file: Path
    text: str
    changed: str

    def show(self) -> None:
        """Print the difference, without secrets."""
        lines = difflib.unified_diff(
            self.text.splitlines(), self.changed.splitlines(), str(self.file), str(self.file), lineterm="", n=2
        )
        for line in lines:
            shown = hide_secrets(self.client, line, self.text, self.changed)
            echo(shown, fg={"+": "green", "-": "red"}.get(line[:1]))

    def write(self) -> None:
        """Write the file, and keep a copy of the one before.

        Raises:
            ConfigError: a file cannot be written.
        """
        from toolmason.build.manifest.package_manifest import write_file  # noqa: PLC0415 - slow, and needed only here

        # A link to a file elsewhere stays a link.
        file = self.file.resolve()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                shutil.copy2(file, file.with_name(file.name + BACKUP_SUFFIX))
            mode = file.stat().st_mode if file.exists() else 0o600
        except OSError as error:
            raise ConfigError(f"Cannot write {str(file)!r}: {error.strerror}.") from None
        write_file(file, self.changed.encode(), mode=mode)


_change_options = combine_options(
    click.option("--client", type=click.Choice([*CLIENTS]), required=True, help="Program that starts the server."),
    click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Another file of the client."),
    click.option("--dry-run", is_flag=True, help="Show the change and write nothing."),
    click.option("--yes", is_flag=True, help="Write without asking."),
)
"""Options of both commands."""


@click.command(
    "install",
    epilog=examples("install app.py:box --client cursor", "install app.py:box --client claude-desktop --dry-run"),
)
@click.argument("target")
@click.option("--name", help="Name of the server; by default that of the toolbox's file.")
@click.option("--env", "variables", multiple=True, metavar="KEY=VALUE", help="Environment of the server. Repeatable.")
@_change_options
def command(target: str, client: str, file: Path | None, *, dry_run: bool, yes: bool, **options: Any) -> None:
    """Let CLIENT start `toolmason serve TARGET` in the current folder.

    Shows the change of the client's file, asks, and keeps a copy of the file.
    """
    chosen = CLIENTS[client]
    env = dict(map(_split_variable, options["variables"]))
    load_toolbox(target)
    name = check_name(options["name"] or _make_name(target))
    server = ServerCommand(_find_program(), ("serve", target, "--folder", str(Path.cwd())), env)
    path = file or chosen.find_file()
    text = read_text(path)
    change = FileChange(chosen, path, text, add_server(chosen, text, name, server))
    if _confirm(change, dry_run=dry_run, yes=yes):
        echo(f"Installed {name!r}. Restart {chosen.title}.")


@click.command("uninstall", epilog=examples("uninstall shop --client cursor"))
@click.argument("name")
@_change_options
def uninstall(name: str, client: str, file: Path | None, *, dry_run: bool, yes: bool) -> None:
    """Remove the server NAME from the configuration of CLIENT."""
    chosen = CLIENTS[client]
    path = file or chosen.find_file()
    text = read_text(path)
    change = FileChange(chosen, path, text, remove_server(chosen, text, check_name(name)))
    if _confirm(change, dry_run=dry_run, yes=yes):
        echo(f"Removed {name!r}. Restart {chosen.title}.")


def _confirm(change: FileChange, *, dry_run: bool, yes: bool) -> bool:
    """Show a change and write it if the user agrees; return True if it was written."""
    if change.text == change.changed:
        echo(f"{change.file} has this server already.")
        return False
    change.show()
    if dry_run:
        return False
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("The change needs an answer. Run it in a terminal, or with --yes.")
        if not click.confirm("Write this change?"):
            return False
    change.write()
    return True


def _split_variable(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key.isidentifier():
        raise click.UsageError(f"Invalid --env {key!r}. Write KEY=VALUE.")
    return key, value


def _make_name(target: str) -> str:
    """Return a name for the server of a target: `shop` for `tools/shop.py:box` and `team.shop:box`."""
    path = target.rpartition(":")[0] or target
    stem = Path(path).stem if path.endswith((".py", ".json", ".toml")) else path.rpartition(".")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "tools"


def _find_program() -> str:
    """Return the absolute path of this command: clients do not know the environment in which it is installed."""
    beside = Path(sys.executable).with_name("toolmason.exe" if sys.platform == "win32" else "toolmason")
    found = str(beside) if beside.exists() else shutil.which("toolmason")
    if found is None:
        raise ConfigError("The program 'toolmason' is not beside Python and not on PATH. Install it with pip.")
    return str(Path(found).absolute())
