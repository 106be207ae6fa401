"""`toolmason run TARGET "prompt"`: run a model once with the tools of a target; --durable makes it resumable."""

from __future__ import annotations

import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from toolmason.chat.chat import Chat
from toolmason.chat.durable.journal import SqliteRuntime, StoreRuntime
from toolmason.chat.send_options import MessageInput
from toolmason.cli.commands.ask_model.chat import (
    choose_and_announce_model,
    make_chat,
    print_reply,
    prompt_options,
    read_model_options,
    send_and_show,
    tracing,
)
from toolmason.cli.main import TOOL_ERROR, examples
from toolmason.cli.main_thread import run_beside
from toolmason.cli.output import echo, is_terminal
from toolmason.cli.targets import fail, load_toolbox
from toolmason.errors import ModelError, RunTaken

DEFAULT_JOURNAL: Final = "runs.db"
"""Default journal file."""


@click.command(
    "run",
    epilog=examples(
        "run app.py 'Close the old tickets' --model openai:gpt-5", "run app.py 'Close the old tickets' --durable --yes"
    ),
)
@prompt_options
@click.option(
    "--durable",
    is_flag=False,
    flag_value=DEFAULT_JOURNAL,
    metavar="[PATH]",
    help=f"Keep a journal, by default in {DEFAULT_JOURNAL}; PATH may be the URL of a PostgreSQL database.",
)
@click.option("--run", metavar="ID", help="ID of the run; an existing ID resumes that run.")
def command(target: str | None, prompt: str | None, *, yes: bool, as_json: bool, **options: Any) -> None:
    """Have a model carry out PROMPT, or the text on standard input, with the tools of TARGET.

    With --durable, `toolmason runs resume` continues a run that was killed.
    """
    if options["run"] is not None and options["durable"] is None:
        raise click.UsageError("--run names a run in a journal. Add --durable.")
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read().strip()
    if not prompt:
        raise click.UsageError("Missing argument 'PROMPT'. Describe the task.")
    box = load_toolbox(target)
    options["name"] = name = options["name"] or choose_and_announce_model()
    if options["durable"] is None:
        with tracing(options):
            execute_run(make_chat(box, options), prompt, yes=yes, as_json=as_json)
        return
    if options["headers"]:
        raise click.UsageError("--header is not kept in a journal, because it may be secret. Omit --durable.")
    run = options["run"] or uuid.uuid4().hex[:12]
    with tracing(options), closing(open_runtime(options["durable"])) as runtime:
        chat = make_chat(box, options, runtime=runtime)
        command_record = {"target": make_absolute(target), "model": name, "system": options["system"], "prompt": prompt}
        command_record |= {"base_url": options["base_url"], "options": read_model_options(options)}
        runtime.add_facts(run, {"command": command_record})
        echo(f"Run {run} in {runtime.tables.store.name}.", err=True)
        execute_run(chat, prompt, run, yes=yes, as_json=as_json)


def is_database(place: str) -> bool:
    """Return True for the URL of a PostgreSQL database."""
    return place.startswith(("postgresql://", "postgres://"))


def open_runtime(place: str) -> StoreRuntime:
    """Return the runtime with the journal in a file, or in a PostgreSQL database."""
    if not is_database(place):
        return SqliteRuntime(place)
    from toolmason._store.postgres_store import PostgresStore  # noqa: PLC0415 - an optional package

    return StoreRuntime(PostgresStore(place))


def make_absolute(target: str | None) -> str | None:
    """Return a target that works from any folder."""
    if target is None:
        return None
    path, colon, name = target.partition(":")
    return f"{Path(path).resolve()}{colon}{name}" if Path(path).exists() else target


def execute_run(chat: Chat, message: MessageInput, run: str | None = None, *, yes: bool, as_json: bool) -> None:
    """Run a message to the end and print the reply; exit with a failure if the run fails or stays incomplete."""
    quiet = as_json or not is_terminal()
    try:
        reply = run_beside(send_and_show(chat, message, yes=yes, quiet=quiet, run=run))
    except (ModelError, RunTaken) as error:
        fail(str(error), TOOL_ERROR)
    print_reply(reply, as_json=as_json)
