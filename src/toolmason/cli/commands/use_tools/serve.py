"""`toolmason serve [TARGET]`: serve the tools of a target over MCP."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from toolmason._core.load.reload import Reloader
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._text import LOOPBACK_NAMES, pluralize, to_line
from toolmason.cli.main import examples
from toolmason.cli.output import echo
from toolmason.cli.targets import load_source, load_toolbox

if TYPE_CHECKING:  # 0.1 s at start-up
    from toolmason.mcp_server.handlers import Handlers
    from toolmason.mcp_server.http.app import McpApp

TOKEN_VARIABLE = "TOOLMASON_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the bearer token; other users of the machine can read a command line."""

STATE_KEY_VARIABLE = "TOOLMASON_STATE_KEY"
"""Environment variable with the key that signs what clients carry between two rounds of a call."""


@click.command("serve", epilog=examples("serve app.py:box --reload", "serve app.py:box --transport http --port 8000"))
@click.argument("target", required=False)
@click.option("--transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="HTTP address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="HTTP port; 0 picks a free one."
)
@click.option("--path", default="/mcp", show_default=True, help="HTTP path of the endpoint.")
@click.option("--allowed-host", multiple=True, help="Host name that clients use. Can be repeated.")
@click.option("--allowed-origin", multiple=True, help="Origin of web pages that may call. Can be repeated.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False), help="Folder to work in, instead of this one.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="VARIABLE=USER",
    help="Environment variable with a bearer token, and its user; scopes may follow. Can be repeated.",
)
@click.option("--replicas", is_flag=True, help="Other processes answer requests of the same clients.")
@click.option("--reload", is_flag=True, help="Load the target again when one of its files changes.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    target: str | None,
    transport: Literal["stdio", "http"],
    folder: str | None,
    *,
    reload: bool,
    **options: Any,
) -> None:
    """Serve the tools of TARGET, or of installed plugins, over MCP until interrupted.

    Over HTTP, clients need a bearer token if the variable TOOLMASON_TOKEN is set, or with --token. TOOLMASON_STATE_KEY
    is the key that replicas share.
    """
    from toolmason.mcp_server.handlers import Handlers  # noqa: PLC0415 - 0.1 s at start-up, only for this command
    from toolmason.mcp_server.serve import run_http, run_stdio  # noqa: PLC0415 - as above
    from toolmason.mcp_server.stdio.pipes import redirect_standard_streams  # noqa: PLC0415 - as above

    if folder is not None:
        os.chdir(folder)
    # Output of the target while loading is not for the client, and the client's input is not for the target.
    with redirect_standard_streams() if transport == "stdio" else nullcontext():
        box = load_toolbox(target, logs_failures=True)
    if transport == "stdio":
        used_options = [name for name in options if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if used_options:
            raise click.UsageError(f"--{used_options[0].replace('_', '-')} needs HTTP. Add --transport http.", ctx)
        if sys.stdin.isatty():
            echo(
                f"Serving {pluralize(len(box), 'tool')} over standard input and output, for a client that starts this "
                "command. Press Ctrl-C to stop. To serve over HTTP, add --transport http.",
                err=True,
            )
        handlers = Handlers(box)
        if reload:
            watch_target(ctx, handlers, target)
        run_stdio(handlers)
        return
    if options["host"] not in LOOPBACK_NAMES and not options["allowed_host"]:
        raise click.UsageError(
            f"--host {options['host']} opens the server to other machines. Add --allowed-host with the name that "
            f"clients use, and set {TOKEN_VARIABLE} to check who may call.",
            ctx,
        )
    app = _make_app(box, options)
    if reload:
        watch_target(ctx, app.handlers, target)
    run_http(app, options["host"], options["port"], started=partial(announce, app, options["host"]))


def _make_app(box: Toolbox, options: Mapping[str, Any]) -> McpApp:
    from toolmason.mcp import asgi_app, tokens_from_env  # noqa: PLC0415 - 0.1 s at start-up, needed only by this command

    users = _parse_users(options["tokens"])
    if os.environ.get(TOKEN_VARIABLE):
        users.setdefault(TOKEN_VARIABLE, "token")
    given: dict[str, Any] = {
        "allowed_hosts": list(options["allowed_host"]),
        "allowed_origins": list(options["allowed_origin"]),
        "auth": tokens_from_env(users) if users else None,
        "state_key": os.environ.get(STATE_KEY_VARIABLE),
        "replicas": options["replicas"],
    }
    return asgi_app(box, path=options["path"], **{name: value for name, value in given.items() if value})


def announce(app: McpApp, host: str, port: int) -> str:
    """Print the address of a server, and return it."""
    address = f"http://{host}:{port}{app.path}"
    echo(f"Serving {pluralize(len(app.box), 'tool')} on {address}", err=True)
    return address


def watch_target(ctx: click.Context, handlers: Handlers, target: str | None) -> None:
    """Load a target again when one of its files changes, and print one line about it."""

    def load() -> Toolbox:
        with ctx.scope(cleanup=False):  # a reload runs in another thread
            found = load_source(target)
        return found if isinstance(found, Toolbox) else found.box

    async def replace(box: Toolbox) -> None:
        await handlers.replace(box)
        echo(f"Loaded again: {pluralize(len(box), 'tool')}.", err=True)

    def report(problem: str) -> None:
        echo(f"Not loaded again, so the tools from before stay: {to_line(problem)}", err=True)

    handlers.reload_with(Reloader(load, replace, report, target))


def _parse_users(entries: Sequence[str]) -> dict[str, Any]:
    """Return the users of the variables in `VARIABLE=USER SCOPE SCOPE`."""
    users: dict[str, Any] = {}
    for entry in entries:
        variable, _, rest = entry.partition("=")
        user, *scopes = rest.split() or [""]
        if not variable or not user:
            raise click.UsageError(f"Invalid --token {entry!r}. Write VARIABLE=USER, or 'VARIABLE=USER SCOPE SCOPE'.")
        users[variable] = {"user": user, "scopes": tuple(scopes)}
    return users
