"""`toolmason doctor [TARGET]`: run misbehaving models and servers against the tools of a target."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict

import click

from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._text import pluralize
from toolmason.cli.main import TOOL_ERROR, examples
from toolmason.cli.output import echo, print_json, print_rows
from toolmason.cli.targets import load_toolbox
from toolmason.testing.faults import FaultOutcome, check_faults


@click.command("doctor", epilog=examples("doctor app.py:box"))
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON.")
def command(target: str | None, *, as_json: bool) -> None:
    """Run faults of models and MCP servers against the tools of TARGET, and print what held; exit 1 if one did not.

    No tool runs: each is replaced by a stand-in with the same definition.
    """
    box = load_toolbox(target)
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.CRITICAL)  # each fault is in the log, as it should be
    outcomes = asyncio.run(_run_faults(box))
    failed = sum(not outcome.held for outcome in outcomes)
    if as_json:
        print_json([asdict(outcome) for outcome in outcomes])
    else:
        rows = [("held" if outcome.held else "FAILED", outcome.case, outcome.detail) for outcome in outcomes]
        print_rows(("Outcome", "Fault", "Detail"), rows)
        echo(f"{len(outcomes) - failed} of {pluralize(len(outcomes), 'case')} held.", err=True)
    if failed:
        raise click.exceptions.Exit(TOOL_ERROR)


async def _run_faults(box: Toolbox) -> list[FaultOutcome]:
    # Said here because Ctrl-C is handled from now on; while asyncio makes its loop, it leaves a traceback.
    echo(f"Running faults against {pluralize(len(box.tools), 'tool')}, which takes some seconds.", err=True)
    return await check_faults(box)
