"""Entry point of the command line: load subcommands lazily and map errors to exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

try:
    import click
except ImportError as missing:
    raise SystemExit("The command line needs extra packages: pip install 'toolmason[cli]'") from missing

from toolmason._text import DOCUMENTATION
from toolmason.errors import Abort, ConfigError, ModelError, ToolCallError, ToolmasonError

_F = TypeVar("_F", bound=Callable[..., Any])
GROUPS = {
    "Use tools": {
        "call": "Call one tool, get a prompt, or read a resource.",
        "dev": "Serve the tools of a target, load it again after changes, and inspect it.",
        "install": "Let a program such as Claude or Cursor use the tools of a target.",
        "list": "List the tools, prompts and resources of a target.",
        "mcp": "Inspect MCP servers and use their tools.",
        "new": "Write a starter project.",
        "serve": "Serve the tools of a target over MCP.",
        "ui": "Show the tools of a target on a page in the browser.",
        "uninstall": "Undo an installation.",
        "worker": "Drive runs of a Temporal server with the tools of a target.",
    },
    "Ask a model": {
        "chat": "Chat with a model that calls the tools of a target.",
        "run": "Run one prompt with the tools of a target.",
        "runs": "Show the runs of a journal, and resume them.",
    },
    "Check tools": {
        "build": "Write the manifest of a package.",
        "check": "Find mistakes in tools before they run.",
        "diff": "Compare two lists of tools.",
        "doctor": "Run misbehaving models and servers against tools.",
        "lock": "Write the approved definitions to a lock file.",
    },
}
FOLDERS = {"Use tools": "use_tools", "Ask a model": "ask_model", "Check tools": "check_tools"}
COMMANDS = {name: FOLDERS[heading] for heading, group in GROUPS.items() for name in group}
"""Subcommands and their folders; the module of the same name defines `command`."""
GATES = {*GROUPS["Check tools"], "mcp"}
"""Subcommands whose exit code is a verdict."""
MODULES = {"uninstall": "install"}
"""Subcommands of the modules of others, which define a command of this name."""

# Exit codes.
OK = 0
TOOL_ERROR = 1
USAGE = 2
NOT_FOUND = 3
INTERRUPTED = 130
DRIFT = 1
"""Exit code for an outdated manifest or lock, or a breaking change."""

COMPLETE_VARIABLE = "_TOOLMASON_COMPLETE"
"""Environment variable through which a shell requests completions."""


class _OutputClosed(Exception):
    """The reader of standard output has gone. Not an `OSError`, because click would exit with a failure."""


class _GateOutput(io.FileIO):
    """Standard output of a command that continues after its reader has closed the pipe."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(data)


def examples(*lines: str) -> str:
    """Return the end of a help page: commands to copy, which click does not wrap."""
    return "\n".join(("\b", "Examples:", *(f"  toolmason {line}" for line in lines)))


def combine_options(*decorators: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds these arguments and options to a command, in this order."""

    def decorate(function: _F) -> _F:
        for add in reversed(decorators):
            function = add(function)
        return function

    return decorate


class SuggestingGroup(click.Group):
    """A group that names the nearest subcommand for a misspelt one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand of the first argument; fail with the nearest name if it does not exist."""
        known = self.list_commands(ctx)
        if not ctx.resilient_parsing and args and args[0] not in known and not args[0].startswith("-"):
            hint = import_module("toolmason._text").suggest(args[0], known)
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


class _LazyGroup(SuggestingGroup):
    """A group that imports a subcommand on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand of the first argument. The exit code of a check holds though its output is cut off."""
        found, output = super().resolve_command(ctx, args), sys.stdout
        if found[0] in GATES and isinstance(output, io.TextIOWrapper) and not output.isatty():
            with contextlib.suppress(io.UnsupportedOperation):  # the output of a program that runs the command
                raw = _GateOutput(output.fileno(), "wb", closefd=False)
                sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), output.encoding, output.errors)
        return found

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        import_module("toolmason.cli.output").escape_unhandled()
        module = import_module(f"toolmason.cli.commands.{COMMANDS[cmd_name]}.{MODULES.get(cmd_name, cmd_name)}")
        found: click.Command = getattr(module, cmd_name if cmd_name in MODULES else "command")
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as gone:
            raise _OutputClosed from gone

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The default implementation imports every subcommand for its help line.
        del ctx
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("new my-tools", "list app.py", "call app.py get_weather city=Prague", "chat app.py --model offline")
    + "\n\nExit codes: 0 success, 1 the tool or check failed, 2 wrong usage, 3 not found, 130 Ctrl-C."
    + f"\n\nDocumentation: {DOCUMENTATION}",
)
@click.version_option(package_name="toolmason")
def cli() -> None:
    """Write a tool once, as a typed Python function; use it anywhere.

    TARGET is `module:name`, `path/file.py:name`, either without a name, or a manifest. If you omit TARGET, Toolmason
    uses the tools of installed plugins.
    """


def main() -> None:
    """Run the command; exit 0 ok, 1 tool error or drift, 2 usage, 3 not found, 130 on Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters missing from the terminal's encoding must not end the command.
            stream.reconfigure(errors="backslashreplace")
    if COMPLETE_VARIABLE in os.environ:
        import_module("toolmason.cli.complete").register()
    try:
        code = _run()
        sys.stdout.flush()
    except (BrokenPipeError, _OutputClosed):
        # The reader has closed the pipe, as `| head -1` does. Discard the buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = OK
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _print_error(error: Exception) -> None:
    in_flags = isinstance(error, ConfigError | ModelError)
    import_module("toolmason.cli.output").print_error(str(error), in_flags=in_flags)


def _run() -> int:
    try:
        code = cli.main(prog_name="toolmason", complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as mistake:
        shown = io.StringIO()
        mistake.show(shown)
        import_module("toolmason.cli.output").echo(shown.getvalue(), err=True, nl=False)
        return USAGE
    except ToolmasonError as error:
        _print_error(error)
        return TOOL_ERROR if isinstance(error, ToolCallError | Abort) else USAGE
    except ImportError as missing:
        # A missing extra names its install command; any other ImportError is a bug in Toolmason.
        if "pip install" not in str(missing):
            raise
        _print_error(missing)
        return USAGE
    return code if isinstance(code, int) else OK
