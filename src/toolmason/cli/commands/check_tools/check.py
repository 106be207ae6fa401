"""`toolmason check TARGET…`: find mistakes in tools, if possible without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from toolmason._core.config.config import Config
from toolmason._core.define.experimental import allow_experimental
from toolmason.build.check.find_files import find_target
from toolmason.build.check.report import format_json, format_rule, format_sarif, format_summary, format_table
from toolmason.build.check.rules import RULES, Finding, Severity
from toolmason.build.check.run_checks import Mode, Report, check
from toolmason.build.check.settings import override_settings, read_settings
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR, examples
from toolmason.cli.output import escape_controls, has_colors, is_terminal
from toolmason.cli.targets import fail
from toolmason.errors import ConfigError

_COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("check", epilog=examples("check app.py", "check src --strict --format sarif", "check --explain TM103"))
@click.argument("targets", nargs=-1, metavar="TARGET...")
@click.option("--strict", is_flag=True, help="Also fail on warnings, and report unused ignore comments.")
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", "sarif"]), default="text", help="Output format."
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--select", multiple=True, metavar="CODES", help="Check only these: TM101, TM1, ALL.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Do not check these.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Skip these paths in folders.")
@click.option("--budget", type=int, metavar="TOKENS", help="Fail if the tools of a target take more tokens.")
@click.option("--static", "mode", flag_value="static", help="Only read the source; load nothing.")
@click.option("--dynamic", "mode", flag_value="dynamic", help="Load every target, including paths and packages.")
@click.option("--config", "config", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file.")
@click.option("--explain", metavar="CODE", help="Explain a rule and exit.")
@click.pass_context
def command(ctx: click.Context, /, targets: tuple[str, ...], *, strict: bool, **options: Any) -> None:
    """Check TARGETs: files, folders, packages, modules; `module:name` and `file.py:name` are also loaded."""
    if options["explain"] is not None:
        _explain(options["explain"])
        return
    if not targets:
        raise click.UsageError("Give a target: a file, a folder, a package, or `module:name`.", ctx)
    mode: Mode | None = options["mode"]
    if options["budget"] is not None and mode is None and not any(":" in text for text in targets):
        raise click.UsageError(f"--budget needs loaded tools. Name a toolbox, such as {targets[0]}:box.", ctx)
    overrides = {name: options[name] for name in ("select", "ignore", "exclude", "budget")}
    config = Config.load(options["config"]) if options["config"] else Config.find()
    settings = override_settings(read_settings(config), **overrides)
    if settings.experimental:
        allow_experimental()
    try:
        found = [find_target(text, settings.exclude) for text in targets]
        report = check(found, settings, mode=mode or "auto", strict=strict)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    output_format = "json" if options["as_json"] else options["output_format"]
    if output_format == "text":
        use_color = is_terminal() and has_colors()
        for line in _format_report(report):
            click.echo(line, color=use_color)
    else:
        click.echo(format_json(report) if output_format == "json" else format_sarif(report))
    if report.has_failed(strict=strict):
        raise click.exceptions.Exit(TOOL_ERROR)


def _explain(code: str) -> None:
    rule = RULES.get(code.strip().upper())
    if rule is None:
        raise click.UsageError(f"Unknown rule {code!r}. Codes range from {min(RULES)} to {max(RULES)}.")
    click.echo(format_rule(rule))


def _format_report(report: Report) -> Iterator[str]:
    """Yield the lines of the text report, with colors."""
    for finding in report.findings:
        yield from _format_finding(finding)
    rows = [escape_controls(row) for row in format_table(report)]
    if rows:
        yield from ["", *rows] if report.findings else rows
    if report.findings or rows:
        yield ""
    color = "yellow" if report.findings else "green"
    if report.count("error"):
        color = "red"
    yield click.style(format_summary(report), fg=color, bold=True)


def _format_finding(finding: Finding) -> Iterator[str]:
    code = click.style(finding.code, fg=_COLORS[finding.severity], bold=True)
    yield f"{click.style(escape_controls(str(finding.location)), bold=True)}: {code} {escape_controls(finding.message)}"
    yield click.style(f"    {finding.severity}: {escape_controls(finding.hint)}", dim=True)
