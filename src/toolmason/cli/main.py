"""The entry point: which subcommands there are, and what an exit code means.

Lives here: lazy loading, so that `--help` costs a Python start and little more. Not here: any subcommand.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from importlib import import_module
from typing import Any

try:
    import click
except ImportError as missing:
    raise SystemExit("The command line needs its packages: pip install 'toolmason[cli]'") from missing

from toolmason.errors import Abort, StaleManifest, ToolCallError, ToolmasonError

COMMANDS = {
    "build": "Write the manifest of a package.",
    "call": "Call one tool.",
    "check": "Find mistakes in tools before they run.",
    "diff": "Compare two lists of tools.",
    "chat": "Talk to a model that calls the tools of a target.",
    "list": "List the tools of a target, or show one of them.",
    "mcp": "Look at MCP servers and use their tools.",
    "lock": "Write down the definitions that are approved.",
    "new": "Write a starter project.",
    "run": "Have a model do one thing with the tools of a target.",
    "runs": "Look at runs that were kept, and go on with them.",
    "serve": "Serve the tools of a target over MCP.",
}
"""Subcommand → its line in the help; the module of the same name holds `command`."""

OK, TOOL_ERROR, USAGE, NOT_FOUND, INTERRUPTED = 0, 1, 2, 3, 130
DRIFT = 1
"""What is checked is not as it should be: a manifest or lock that is out of date, a change that breaks."""

COMPLETE_VARIABLE = "_TOOLMASON_COMPLETE"
"""The variable through which a shell asks for completions."""


class _OutputClosed(Exception):
    """Nobody reads our output any more. Not an `OSError`: click would end the process with a failure."""


class _LazyGroup(click.Group):
    """A group that imports a subcommand when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"toolmason.cli.commands.{cmd_name}").command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as gone:
            raise _OutputClosed from gone

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The usual way would import every subcommand for its help line.
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolmason")
def cli() -> None:
    """Write a tool once, as a typed Python function; use it anywhere.

    TARGET is `module:name`, `path/file.py:name`, either without a name, or a manifest. Without a TARGET, the tools of
    installed plugins are meant.
    """


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning of ours as a line for people; another with its place."""
    del line
    if issubclass(category, StaleManifest):
        return f"Warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def main() -> None:
    """Run the command; exit 0 ok, 1 tool error or drift, 2 usage, 3 not found, 130 on Ctrl-C."""
    warnings.formatwarning = _format_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A letter that the terminal's encoding does not have must not end the command.
            stream.reconfigure(errors="backslashreplace")
    if COMPLETE_VARIABLE in os.environ:
        import_module("toolmason.cli.complete").register()
    try:
        code = _run()
        sys.stdout.flush()
    except (BrokenPipeError, _OutputClosed):
        # Whoever read our output has enough of it, as `| head -1` has. What Python still holds goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = OK
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _run() -> int:
    try:
        code = cli.main(prog_name="toolmason", complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as mistake:
        mistake.show()
        return USAGE
    except ToolmasonError as error:
        click.echo(f"Error: {error}", err=True)
        return TOOL_ERROR if isinstance(error, ToolCallError | Abort) else USAGE
    except ImportError as missing:
        # An extra that is not installed says how to install it; anything else is a mistake of ours.
        if "pip install" not in str(missing):
            raise
        click.echo(f"Error: {missing}", err=True)
        return USAGE
    return code if isinstance(code, int) else OK
