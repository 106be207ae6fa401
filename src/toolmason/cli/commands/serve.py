"""`toolmason serve [TARGET]`: the tools of a target, over MCP."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, Literal

import click
from click.core import ParameterSource

from toolmason.cli.targets import toolbox_at
from toolmason.errors import ConfigError

TOKEN = "TOOLMASON_TOKEN"  # noqa: S105 - the name of a variable
"""The variable that holds the bearer token; a command line is seen by every user of a machine."""


@click.command("serve")
@click.argument("target", required=False)
@click.option("--transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where HTTP listens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--path", default="/mcp", show_default=True, help="Where the endpoint is.")
@click.option("--allowed-host", multiple=True, help="A name under which the server is reached. Can be repeated.")
@click.option("--allowed-origin", multiple=True, help="An origin of pages that may call. Can be repeated.")
@click.pass_context
def command(ctx: click.Context, /, target: str | None, transport: Literal["stdio", "http"], **words: Any) -> None:
    """Serve the tools of TARGET, or of installed plugins, over MCP until told to stop.

    Over HTTP, a bearer token is needed where the variable TOOLMASON_TOKEN is set.
    """
    try:
        from toolmason.mcp import token_is  # noqa: PLC0415 - half a second, for this command alone
        from toolmason.mcp_server.serve import serve  # noqa: PLC0415 - as above
        from toolmason.mcp_server.stdio.pipes import standard_streams  # noqa: PLC0415 - as above
    except ImportError as missing:
        raise ConfigError(str(missing)) from missing
    # What a target prints when it is loaded is not for the client, nor is what the client sends for the target.
    with standard_streams() if transport == "stdio" else nullcontext():
        box = toolbox_at(target)
    if transport == "stdio":
        given = [name for name in words if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise click.UsageError(f"--{given[0].replace('_', '-')} is for HTTP. Add --transport http.", ctx)
        serve(box)
        return
    more: Any = {key: list(words[f"{key[:-1]}"]) for key in ("allowed_hosts", "allowed_origins") if words[key[:-1]]}
    token = os.environ.get(TOKEN)
    if token:
        more["auth"] = token_is(token)

    path = "/" + words["path"].strip("/")

    def told(port: int) -> None:
        click.echo(f"Serving {len(box)} tools on http://{words['host']}:{port}{path}", err=True)

    serve(box, "http", host=words["host"], port=words["port"], path=path, started=told, **more)
