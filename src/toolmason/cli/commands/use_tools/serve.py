"""`toolmason serve [TARGET]`: serve the tools of a target over MCP."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Any, Literal

import click
from click.core import ParameterSource

from toolmason._text import pluralize
from toolmason.cli.main import examples
from toolmason.cli.output import echo
from toolmason.cli.targets import load_toolbox

TOKEN_VARIABLE = "TOOLMASON_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the bearer token; other users of the machine can read a command line."""

STATE_KEY_VARIABLE = "TOOLMASON_STATE_KEY"
"""Environment variable with the key that signs what clients carry between two rounds of a call."""


@click.command("serve", epilog=examples("serve app.py:box", "serve app.py:box --transport http --port 8000"))
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
@click.option("--replicas", is_flag=True, help="Other processes answer requests of the same clients.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    target: str | None,
    transport: Literal["stdio", "http"],
    folder: str | None,
    **options: Any,
) -> None:
    """Serve the tools of TARGET, or of installed plugins, over MCP until interrupted.

    Over HTTP, clients need a bearer token if the variable TOOLMASON_TOKEN is set. TOOLMASON_STATE_KEY is the key that
    replicas share.
    """
    from toolmason.mcp import token_is  # noqa: PLC0415 - 0.1 s at start-up, needed only by this command
    from toolmason.mcp_server.serve import LOOPBACK_NAMES, serve  # noqa: PLC0415 - as above
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
        serve(box)
        return
    if options["host"] not in LOOPBACK_NAMES and not options["allowed_host"]:
        raise click.UsageError(
            f"--host {options['host']} opens the server to other machines. Add --allowed-host with the name that "
            f"clients use, and set {TOKEN_VARIABLE} to check who may call.",
            ctx,
        )
    token = os.environ.get(TOKEN_VARIABLE)
    given: dict[str, Any] = {
        "allowed_hosts": list(options["allowed_host"]),
        "allowed_origins": list(options["allowed_origin"]),
        "auth": token_is(token) if token else None,
        "state_key": os.environ.get(STATE_KEY_VARIABLE),
        "replicas": options["replicas"],
    }
    http_options: dict[str, Any] = {name: value for name, value in given.items() if value}
    path = "/" + options["path"].strip("/")

    def announce(port: int) -> None:
        echo(f"Serving {pluralize(len(box), 'tool')} on http://{options['host']}:{port}{path}", err=True)

    serve(box, "http", host=options["host"], port=options["port"], path=path, started=announce, **http_options)
