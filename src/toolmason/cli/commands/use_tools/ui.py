"""`toolmason ui [TARGET]`: show the tools of a target on a page in the browser."""

from __future__ import annotations

import atexit
import os
import tempfile
import webbrowser
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from toolmason._core.load.reload import Reloader
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._text import pluralize
from toolmason.cli.main import NOT_FOUND, examples
from toolmason.cli.output import echo
from toolmason.cli.targets import TargetNotFound, fail, load_source
from toolmason.errors import ConfigError
from toolmason.models.by_name import model


@click.command(
    "ui",
    epilog=examples("ui app.py", "ui app.py:box --reload", "ui mcp.json --model openai:gpt-5 --durable"),
)
@click.argument("target", required=False)
@click.option("--model", "names", multiple=True, metavar="NAME", help="Model to offer; repeatable.")
@click.option("--system", help="System prompt of the chats.")
@click.option(
    "--durable",
    is_flag=False,
    flag_value="runs.db",
    metavar="[PATH]",
    help="Keep a journal of the runs, by default in runs.db, and show its runs.",
)
@click.option("--reload", is_flag=True, help="Load the target again when one of its files changes.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; without it, a free one.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.pass_context
def command(ctx: click.Context, /, target: str | None, *, reload: bool, port: int, opens: bool, **options: Any) -> None:
    """Show the tools of TARGET, or of installed plugins, on a page: try them, and watch a model use them.

    The page is for this machine and for those who have its address, which holds a token.
    """
    from toolmason.cli.commands.ask_model.run import open_runtime  # noqa: PLC0415 - 0.1 s, only for this command
    from toolmason.mcp_server.serve import run_http  # noqa: PLC0415 - as above
    from toolmason.ui.page import Page, PageOptions  # noqa: PLC0415 - as above
    from toolmason.ui.page_app import PageApp, make_token  # noqa: PLC0415 - an optional package
    from toolmason.ui.page_chats import TARGET_CHAT  # noqa: PLC0415 - as above

    runtime = None if options["durable"] is None else open_runtime(options["durable"])
    if runtime is not None:
        ctx.call_on_close(runtime.close)
    models = list_models(options["names"])

    def load() -> tuple[Toolbox, PageOptions]:
        with ctx.scope(cleanup=False):  # a reload runs in another thread
            source = load_source(target)
        if isinstance(source, Toolbox):
            return source, PageOptions(target, models, options["system"], runtime)
        offered = {TARGET_CHAT: f"the chat {target}", **models}
        return source.box, PageOptions(target, offered, options["system"], runtime, source)

    try:
        page = Page(*load())
    except TargetNotFound as error:
        fail(str(error), NOT_FOUND)
    token = make_token()
    app = PageApp(page, token)
    if reload:
        app.reloader = Reloader(load, page.replace, page.report, target)
    run_http(app, "127.0.0.1", port, 2, partial(_announce, page.box, token, opens))


def list_models(names: tuple[str, ...]) -> dict[str, str]:
    """Return the models that the page offers, each with a note: those of --model, of API keys, and on this machine.

    Raises:
        ConfigError: a model of --model cannot be used.
    """
    from toolmason.cli.commands.ask_model.chat import MODEL_BY_VARIABLE  # noqa: PLC0415 - as above

    found: dict[str, str] = {}
    for name in names:
        model(name)  # this connects nothing; it raises for an unknown name
        found[name] = "--model"
    for variable, name in MODEL_BY_VARIABLE.items():
        if os.environ.get(variable):
            found.setdefault(name, f"{variable} is set")
    with suppress(ConfigError, ImportError):
        model("local")
        found.setdefault("local", "on this machine; very small, and often wrong")
    return {**found, "offline": "matches keywords; asks no model"}


def _announce(box: Toolbox, token: str, opens: bool, port: int) -> None:  # noqa: FBT001 - bound by `partial`
    # In the fragment, which a browser sends to no server and in no Referer.
    address = f"http://127.0.0.1:{port}/#token={token}"
    echo(f"The page of {pluralize(len(box), 'tool')}: {address}", err=True)
    echo("It is for you alone: the address holds a token. Press Ctrl-C to stop.", err=True)
    if opens:
        webbrowser.open(_write_redirect(address).as_uri())


def _write_redirect(address: str) -> Path:
    """Write a file of this user that leads to the page: other users can read the command line of a browser."""
    handle, name = tempfile.mkstemp(prefix="toolmason-page-", suffix=".html")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><a href="{address}">The page</a>'
        )
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)
