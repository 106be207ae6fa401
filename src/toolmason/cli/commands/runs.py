"""`toolmason runs list | show | resume`: look at the runs of a journal, and go on with those that were cut off."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import click
from pydantic_core import from_json
from typing_extensions import Unpack

from toolmason._core.values.messages import Message
from toolmason.chat.chat import Chat
from toolmason.chat.durable.journal import EffectRecord, NotDone, RunRecord, SqliteRuntime, WasDone
from toolmason.cli.commands.run import JOURNAL, Talk, drive, messages_of
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR, USAGE
from toolmason.cli.output import harmless, print_json, print_rows
from toolmason.cli.targets import fail, toolbox_at
from toolmason.errors import ConfigError, RunTaken

OPEN = ("interrupted", "pending")
"""How a run stands that can go on."""


@click.group("runs")
def command() -> None:
    """Look at the runs of a journal, and go on with them."""


@command.command("list")
@click.argument("path", default=JOURNAL)
@click.option("--json", "as_json", is_flag=True, help="Print what is known of them as JSON.")
def list_(path: str, *, as_json: bool) -> None:
    """List the runs of the journal PATH, the oldest first."""
    records = _journal(path).runs()
    if as_json:
        print_json([_described(record) for record in records])
    else:
        rows = [(r.run, r.state, _when(r.begun), f"{r.effects} steps", _asked(r)) for r in records]
        print_rows(("Run", "State", "Begun", "Steps", "Asked"), rows)


@command.command("show")
@click.argument("path", default=JOURNAL)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
def show(path: str, run: str | None, *, as_json: bool) -> None:
    """Show what a run of the journal PATH did; without RUN, the last one."""
    runtime = _journal(path)
    record = _record(runtime, run)
    effects = runtime.effects(record.run)
    if as_json:
        print_json({**_described(record), "effects": [effect.to_dict() for effect in effects]})
        return
    click.echo(f"{record.run}  {record.state}  {_when(record.begun)}  {harmless(_asked(record))}")
    for effect in effects:
        click.echo(harmless(_line(effect)))
    if record.facts.get("text"):
        click.echo(harmless(str(record.facts["text"])))
    for effect in runtime.unknown(record.run) if not record.held else ():
        click.echo(
            f"Nobody knows whether {effect.key} was done. Say it to `toolmason runs resume`: "
            f"--done {effect.key}=RESULT or --again {effect.key}; else the model is told.",
            err=True,
        )


class Words(Talk, total=False):
    """What the command line says of a run to go on with."""

    target: str | None
    name: str | None
    done: tuple[str, ...]
    again: tuple[str, ...]


@command.command("resume")
@click.argument("path", default=JOURNAL)
@click.argument("run", required=False)
@click.option("--target", help="The tools, where the run was begun by a program, or has moved.")
@click.option("--model", "name", help="Another model than the one that it was begun with.")
@click.option("--done", multiple=True, metavar="KEY=RESULT", help="An interrupted call was done, with this result.")
@click.option("--again", multiple=True, metavar="KEY", help="An interrupted call was not done: make it again.")
@click.option("--yes", is_flag=True, help="Approve calls without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole reply as JSON.")
def resume(path: str, run: str | None, **words: Unpack[Words]) -> None:
    """Go on with a run of the journal PATH; without RUN, with every one that was cut off.

    What was done is not done again. A call that was interrupted and may not be repeated is told to the model as
    unknown, unless --done or --again says what became of it.
    """
    runtime = _journal(path)
    said = (*words.get("done", ()), *words.get("again", ()))
    if run is None and said:
        raise click.UsageError("--done and --again are about one run. Name it.")
    records = [_record(runtime, run)] if run is not None else [r for r in runtime.runs() if r.state in OPEN]
    if not records:
        click.echo("There is nothing to go on with.", err=True)
    codes = [_resumed(runtime, record, words) for record in records]
    if any(codes):
        raise click.exceptions.Exit(max(codes))


def _resumed(runtime: SqliteRuntime, record: RunRecord, words: Words) -> int:
    begun: dict[str, Any] = record.facts.get("command", {})
    target, name = words.get("target") or begun.get("target"), words.get("name") or begun.get("model")
    if name is None:
        fail(f"Run {record.run} was begun by a program. Give --target and --model.", USAGE)
    try:
        _reconcile(runtime, record.run, words)
        chat = Chat(name, toolbox_at(target), runtime=runtime)
        drive(chat, _said(record), record.run, {"yes": words.get("yes", False), "as_json": words.get("as_json", False)})
    except click.exceptions.Exit as ended:
        return int(ended.exit_code)
    return 0


def _said(record: RunRecord) -> list[Message]:
    """Return what a run was asked; one that was killed at once has it from its command line alone."""
    if "asked" in record.facts:
        return messages_of([*record.facts["system"], *record.facts["asked"]])
    begun = record.facts.get("command", {})
    system = [Message("system", begun["system"])] if begun.get("system") else []
    return [*system, Message("user", begun.get("prompt", ""))]


def _reconcile(runtime: SqliteRuntime, run: str, words: Words) -> None:
    try:
        for word in words.get("done", ()):
            key, equals, value = word.partition("=")
            if not equals:
                raise click.UsageError(f"--done {word!r}: write KEY=RESULT.")
            runtime.reconcile(run, key, WasDone(_value(value)))
        for key in words.get("again", ()):
            runtime.reconcile(run, key, NotDone())
    except KeyError as error:
        fail(str(error.args[0]), NOT_FOUND)
    except ConfigError as error:
        fail(str(error), USAGE)
    except RunTaken as error:
        fail(str(error), TOOL_ERROR)


def _value(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text


def _journal(path: str) -> SqliteRuntime:
    if not Path(path).is_file():
        fail(f"There is no journal {path!r}. Give the file that --durable named.", NOT_FOUND)
    runtime = SqliteRuntime(path)
    click.get_current_context().call_on_close(runtime.close)
    return runtime


def _record(runtime: SqliteRuntime, run: str | None) -> RunRecord:
    records = runtime.runs()
    found = [r for r in records if r.run == run] if run is not None else records[-1:]
    if not found:
        there = ", ".join(r.run for r in records[-10:]) or "none"
        fail(f"There is no run {run!r} in {str(runtime.path)!r}. There are: {there}.", NOT_FOUND)
    return found[0]


def _described(record: RunRecord) -> dict[str, Any]:
    return {
        "run": record.run,
        "state": record.state,
        "begun": record.begun,
        "finish": record.finish,
        "steps": record.effects,
        "held": record.held,
        "asked": _asked(record, None),
        "text": record.facts.get("text"),
        "command": record.facts.get("command"),
    }


def _asked(record: RunRecord, most: int | None = 60) -> str:
    return " ".join(message.text for message in _said(record) if message.role == "user")[:most]


def _when(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _line(effect: EffectRecord) -> str:
    what = json.dumps(effect.arguments, ensure_ascii=False) if effect.kind == "tool" else ""
    times = f" ({effect.attempt} attempts)" if effect.attempt > 1 else ""
    return f"  {effect.key}  {effect.state}{times}  {effect.name} {what}".rstrip()
