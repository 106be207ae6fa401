"""`toolmason runs list | show | resume | repair`: show the runs of a journal, resume and export them."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import click

from toolmason._text import pluralize
from toolmason.chat.chat import Chat
from toolmason.chat.durable.effects import Completed, NotExecuted
from toolmason.chat.durable.export import export_journal
from toolmason.chat.durable.journal import EffectRecord, RunRecord, StoreRuntime
from toolmason.chat.durable.run_records import describe_record, format_prompt, make_spans, read_input
from toolmason.cli.commands.ask_model.chat import write_page
from toolmason.cli.commands.ask_model.run import DEFAULT_JOURNAL, execute_run, is_database, open_runtime
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR, USAGE, SuggestingGroup, examples
from toolmason.cli.output import echo, print_json, print_rows
from toolmason.cli.targets import fail, load_toolbox, parse_json_or_text
from toolmason.errors import ConfigError, RunTaken
from toolmason.models.by_name import model
from toolmason.observe.tree import draw_length, format_milliseconds

RESUMABLE_STATES = ("interrupted", "pending")
"""States of runs that can be resumed."""


@click.group("runs", cls=SuggestingGroup, epilog=examples("runs list", "runs show"))
def command() -> None:
    """Show the runs of a journal, and resume them."""


@command.command("list", epilog=examples("runs list", "runs list other.db --json"))
@click.argument("path", default=DEFAULT_JOURNAL)
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON.")
def list_(path: str, *, as_json: bool) -> None:
    """List the runs of the journal PATH, oldest first."""
    records = _open_journal(path).runs()
    if as_json:
        print_json([describe_record(record) for record in records])
    else:
        rows = [(r.run, r.state, _format_time(r.begun), f"{r.effects} steps", format_prompt(r)) for r in records]
        print_rows(("Run", "State", "Started", "Steps", "Prompt"), rows)


@command.command("show", epilog=examples("runs show", "runs show runs.db 3f2a"))
@click.argument("path", default=DEFAULT_JOURNAL)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
@click.option("--html", metavar="FILE", help="Write the run as one HTML page.")
def show(path: str, run: str | None, *, as_json: bool, html: str | None) -> None:
    """Show the steps of a run of the journal PATH; without RUN, of the last one.

    A single argument that is not a file is a run of the default journal.
    """
    if run is None and not is_database(path) and not Path(path).exists() and Path(DEFAULT_JOURNAL).is_file():
        path, run = DEFAULT_JOURNAL, path
    runtime = _open_journal(path)
    record = _find_record(runtime, run)
    effects = runtime.effects(record.run)
    if as_json:
        print_json({**describe_record(record), "effects": [effect.to_dict() for effect in effects]})
        return
    if html is not None:
        write_page(html, make_spans(runtime, record), f"Run {record.run}")
        return
    echo(f"{record.run}  {record.state}  {_format_time(record.begun)}  {format_prompt(record)}")
    longest = max((effect.ended - effect.at for effect in effects if effect.ended is not None), default=0.0)
    for effect in effects:
        echo(_format_effect(effect, longest))
    if record.facts.get("text"):
        echo(str(record.facts["text"]))
    for effect in runtime.interrupted_calls(record.run) if not record.held else ():
        echo(
            f"{effect.key} was interrupted, and its outcome is unknown. Pass to `toolmason runs resume`: "
            f"--done {effect.key}=RESULT or --again {effect.key}. Without it, the model is informed.",
            err=True,
        )


@command.command("resume", epilog=examples("runs resume", "runs resume runs.db 3f2a --yes"))
@click.argument("path", default=DEFAULT_JOURNAL)
@click.argument("run", required=False)
@click.option("--target", help="Target, if a program started the run or the target has moved.")
@click.option("--model", "name", help="Model to use instead of the original one.")
@click.option(
    "--done", multiple=True, metavar="KEY=RESULT", help="An interrupted call was completed, with this result."
)
@click.option("--again", multiple=True, metavar="KEY", help="An interrupted call was not executed: repeat it.")
@click.option("--yes", is_flag=True, help="Approve calls without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole reply as JSON.")
def resume(path: str, run: str | None, **options: Any) -> None:
    """Resume a run of the journal PATH; without RUN, every interrupted or pending one.

    Completed steps are not repeated. An interrupted call that may not be repeated is reported to the model as
    unknown, unless --done or --again states its outcome.
    """
    runtime = _open_journal(path)
    if run is None and (options["done"] or options["again"]):
        raise click.UsageError("--done and --again apply to one run. Name it.")
    resumable = [record for record in runtime.runs() if record.state in RESUMABLE_STATES]
    records = resumable if run is None else [_find_record(runtime, run)]
    if not records:
        echo("No runs to resume.", err=True)
    codes = [_resume(runtime, record, options) for record in records]
    if any(codes):
        raise click.exceptions.Exit(max(codes))


@command.command("repair", epilog=examples("runs repair runs.db repaired.db"))
@click.argument("path")
@click.argument("output")
def repair(path: str, output: str) -> None:
    """Export what is readable of the damaged journal PATH to the new journal OUTPUT.

    A run that may have lost a call can be shown, but not resumed: the call would be made again.
    """
    if not Path(path).is_file():
        fail(f"No journal at {path!r}. Use the file that was passed to --durable.", NOT_FOUND)
    report = export_journal(path, output)
    echo(f"Exported {pluralize(report.runs, 'run')} and {pluralize(report.effects, 'step')} to {output}.")
    if report.closed:
        echo(f"These runs may have lost calls and cannot be resumed: {', '.join(report.closed)}.", err=True)


def _resume(runtime: StoreRuntime, record: RunRecord, options: dict[str, Any]) -> int:
    command_record: dict[str, Any] = record.facts.get("command", {})
    name = options["name"] or command_record.get("model")
    if name is None:
        fail(f"Run {record.run} was started by a program. Add --target and --model.", USAGE)
    try:
        _reconcile(runtime, record.run, options)
        box = load_toolbox(options["target"] or command_record.get("target"))
        made = model(name, base_url=None if options["name"] else command_record.get("base_url"))
        chat = Chat(made, box, runtime=runtime, options=command_record.get("options") or None)
        execute_run(chat, read_input(record), record.run, yes=options["yes"], as_json=options["as_json"])
    except click.exceptions.Exit as exit_error:
        return int(exit_error.exit_code)
    return 0


def _reconcile(runtime: StoreRuntime, run: str, options: dict[str, Any]) -> None:
    try:
        for item in options["done"]:
            key, equals, value = item.partition("=")
            if not equals:
                raise click.UsageError(f"--done {item!r}: write KEY=RESULT.")
            runtime.reconcile(run, key, Completed(parse_json_or_text(value)))
        for key in options["again"]:
            runtime.reconcile(run, key, NotExecuted())
    except KeyError as error:
        fail(str(error.args[0]), NOT_FOUND)
    except ConfigError as error:
        fail(str(error), USAGE)
    except RunTaken as error:
        fail(str(error), TOOL_ERROR)


def _open_journal(path: str) -> StoreRuntime:
    if not is_database(path) and not Path(path).is_file():
        fail(f"No journal at {path!r}. Use the file that was passed to --durable.", NOT_FOUND)
    runtime = open_runtime(path)
    click.get_current_context().call_on_close(runtime.close)
    return runtime


def _find_record(runtime: StoreRuntime, run: str | None) -> RunRecord:
    """Return the record of a run, or of the last one if `run` is None; exit if it does not exist."""
    records = runtime.runs()
    if not records:
        fail(
            f"The journal {runtime.tables.store.name!r} has no runs. Start one with `toolmason run --durable`.",
            NOT_FOUND,
        )
    if run is None:
        return records[-1]
    found = next((record for record in records if record.run == run), None)
    if found is None:
        known_runs = ", ".join(record.run for record in records[-10:])
        fail(f"No run {run!r} in {runtime.tables.store.name!r}. Available: {known_runs}.", NOT_FOUND)
    return found


def _format_time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _format_effect(effect: EffectRecord, longest: float) -> str:
    arguments = json.dumps(effect.arguments, ensure_ascii=False) if effect.kind == "tool" else ""
    attempts = f" ({effect.attempt} attempts)" if effect.attempt > 1 else ""
    line = f"  {effect.key}  {effect.state}{attempts}  {effect.name} {arguments}".rstrip()
    if effect.ended is None:
        return line
    seconds = effect.ended - effect.at
    return f"{line:<60}  {format_milliseconds(seconds * 1000):>9} {draw_length(seconds, longest)}".rstrip()
