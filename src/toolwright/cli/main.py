"""The entry point: which subcommands there are, and what an exit code means.

Lives here: lazy loading, so that `--help` costs a Python start and little more. Not here: any subcommand.
"""

from __future__ import annotations

import sys
from importlib import import_module

try:
    import click
except ImportError as missing:
    raise SystemExit("The command line needs its packages: pip install 'toolwright[cli]'") from missing

from toolwright.errors import Abort, ToolCallError, ToolwrightError

COMMANDS = {
    "call": "Call one tool.",
    "list": "List the tools of a target.",
}
"""Subcommand → its line in the help; the module of the same name holds `command`."""

OK, TOOL_ERROR, USAGE, NOT_FOUND = 0, 1, 2, 3


class _Lazy(click.Group):
    """A group that imports a subcommand when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"toolwright.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The usual way would import every subcommand for its help line.
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolwright")
def cli() -> None:
    """Write a tool once, as a typed Python function; use it anywhere.

    TARGET is `module:name`, `path/file.py:name`, or either without a name.
    """


def main() -> None:
    """Run the command; exit 0 ok, 1 tool error, 2 usage, 3 not found."""
    try:
        code = cli.main(standalone_mode=False)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as mistake:
        mistake.show()
        sys.exit(USAGE)
    except ToolwrightError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(TOOL_ERROR if isinstance(error, ToolCallError | Abort) else USAGE)
    sys.exit(code or OK)
