"""`toolmason check TARGET…`: find mistakes in tools, without importing them where that is possible."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from typing_extensions import TypedDict, Unpack

from toolmason._core.config.config import Config
from toolmason._core.define.experimental import allow_experimental
from toolmason.build.check.find_files import find_target
from toolmason.build.check.report import as_json, as_sarif, explanation_of, summary_of, table_lines
from toolmason.build.check.rules import RULES, Finding, Severity
from toolmason.build.check.run_checks import Mode, Report, check
from toolmason.build.check.settings import changed, settings_from
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR
from toolmason.cli.output import harmless, is_terminal
from toolmason.cli.targets import fail
from toolmason.errors import ConfigError

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


class _Words(TypedDict):
    """What the command is given."""

    targets: tuple[str, ...]
    strict: bool
    form: str
    as_data: bool
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    exclude: tuple[str, ...]
    budget: int | None
    mode: Mode | None
    config: Path | None
    explain: str | None


@click.command("check")
@click.argument("targets", nargs=-1, metavar="TARGET...")
@click.option("--strict", is_flag=True, help="Fail on warnings too, and tell of unused ignore comments.")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text", help="How to print.")
@click.option("--json", "as_data", is_flag=True, help="The same as --format json.")
@click.option("--select", multiple=True, metavar="CODES", help="Look for these alone: TM101, TM1, ALL.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Do not look for these.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave these paths out of folders.")
@click.option("--budget", type=int, metavar="TOKENS", help="Fail if the tools of a target take more.")
@click.option("--static", "mode", flag_value="static", help="Read the source alone; load nothing.")
@click.option("--dynamic", "mode", flag_value="dynamic", help="Load every target, also paths and packages.")
@click.option("--config", "config", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file.")
@click.option("--explain", metavar="CODE", help="Say what a rule is about, and exit.")
@click.pass_context
def command(ctx: click.Context, /, **words: Unpack[_Words]) -> None:
    """Check TARGETs: files, folders, packages, modules; `module:name` and `file.py:name` are also loaded."""
    raise click.exceptions.Exit(_run(ctx, words))


def _run(ctx: click.Context, words: _Words) -> int:
    if words["explain"] is not None:
        return _explain(words["explain"])
    if not words["targets"]:
        raise click.UsageError("Give a target: a file, a folder, a package, or `module:name`.", ctx)
    if words["budget"] is not None and words["mode"] is None and not any(":" in text for text in words["targets"]):
        raise click.UsageError(f"--budget counts tools that are loaded: name them, as {words['targets'][0]}:box.", ctx)
    over = {name: words[name] for name in ("select", "ignore", "exclude", "budget")}
    settings = changed(settings_from(Config.load(words["config"]) if words["config"] else Config.find()), **over)
    if settings.experimental:
        allow_experimental()
    strict, form = words["strict"], "json" if words["as_data"] else words["form"]
    try:
        targets = [find_target(text, settings.exclude) for text in words["targets"]]
        report = check(targets, settings, mode=words["mode"] or "auto", strict=strict)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    if form == "text":
        plain = not is_terminal() or bool(os.environ.get("NO_COLOR"))
        for line in _lines(report):
            click.echo(line, color=not plain)
    else:
        click.echo(as_json(report) if form == "json" else as_sarif(report))
    return TOOL_ERROR if report.failed(strict=strict) else 0


def _explain(code: str) -> int:
    rule = RULES.get(code.strip().upper())
    if rule is None:
        raise click.UsageError(f"There is no rule {code!r}. The codes go from {min(RULES)} to {max(RULES)}.")
    click.echo(explanation_of(rule))
    return 0


def _lines(report: Report) -> Iterator[str]:
    """Yield the lines for a person, in colour."""
    for found in report.findings:
        yield from _finding_lines(found)
    rows = [harmless(row) for row in table_lines(report)]
    if rows:
        yield from ["", *rows] if report.findings else rows
    if report.findings or rows:
        yield ""
    failed = report.count("error")
    yield click.style(summary_of(report), fg="red" if failed else "yellow" if report.findings else "green", bold=True)


def _finding_lines(found: Finding) -> Iterator[str]:
    code = click.style(found.code, fg=_COLOURS[found.severity], bold=True)
    yield f"{click.style(harmless(str(found.place)), bold=True)}: {code} {harmless(found.message)}"
    yield click.style(f"    {found.severity}: {found.hint}", dim=True)
