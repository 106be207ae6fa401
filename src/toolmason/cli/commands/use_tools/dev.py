"""`toolmason dev [TARGET]`: serve the tools of a target, load it again after changes, and start the MCP Inspector."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import click

from toolmason.cli.commands.use_tools.serve import announce, watch_target
from toolmason.cli.main import examples
from toolmason.cli.output import echo
from toolmason.cli.targets import load_toolbox

INSPECTOR: Final = "@modelcontextprotocol/inspector@^2"
"""Package of the Inspector on npm."""
END_SECONDS: Final = 3.0
"""Time that the Inspector has to end after SIGTERM."""


@click.command("dev", epilog=examples("dev app.py", "dev app.py:box --port 8000 --open"))
@click.argument("target", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the server; without it, a free one.")
@click.option("--inspector/--no-inspector", default=True, help="Start the MCP Inspector, with npm.  [default: yes]")
@click.option("--open", "opens", is_flag=True, help="Open the Inspector in the browser.")
@click.pass_context
def command(ctx: click.Context, /, target: str | None, port: int, *, inspector: bool, opens: bool) -> None:
    """Serve the tools of TARGET on this machine, load it again when a file changes, and start the MCP Inspector."""
    from toolmason.mcp_server.http.app import asgi_app  # noqa: PLC0415 - 0.1 s at start-up, only for this command
    from toolmason.mcp_server.serve import run_http  # noqa: PLC0415 - as above

    app = asgi_app(load_toolbox(target, logs_failures=True))
    watch_target(ctx, app.handlers, target)
    children: list[subprocess.Popen[bytes]] = []

    def start(port: int) -> None:
        address = announce(app, "127.0.0.1", port)
        if inspector:
            children.extend(start_inspector(address, opens=opens))

    def end() -> None:
        for child in children:
            _end(child)

    run_http(app, "127.0.0.1", port, 2, start, end)


def start_inspector(address: str, *, opens: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Start the Inspector for a server, or print what is missing. Yield its process."""
    npm = shutil.which("npm")
    if npm is None:
        echo("The MCP Inspector needs npm, which is not installed. `toolmason ui` needs none.", err=True)
        return
    child = subprocess.Popen(  # noqa: S603 - fixed words, and an address that this command chose
        [npm, "exec", "--yes", "--", INSPECTOR, "--transport", "http", "--server-url", address],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HOST": "127.0.0.1", "MCP_AUTO_OPEN_ENABLED": "true" if opens else "false"},
        start_new_session=True,
    )
    threading.Thread(target=_report_end, args=(child,), name="toolmason-inspector", daemon=True).start()
    yield child


def _report_end(child: subprocess.Popen[bytes]) -> None:
    if (code := child.wait()) > 0:
        echo(f"The MCP Inspector ended with exit code {code}. The server goes on. Press Ctrl-C to stop.", err=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the Inspector with the processes that it started."""
    from toolmason.mcp_client.transport.stdio import signal_group  # noqa: PLC0415 - loads the SDK

    if not signal_group(child.pid, signal.SIGTERM):
        child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(END_SECONDS)
    if not signal_group(child.pid, signal.SIGKILL):
        child.kill()
