"""`toolmason diff A B`: what changed from one list of tools to another, and what of it breaks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from toolmason.build.compare.comparison import ToolDiff, compare
from toolmason.build.compare.listing import Listings, listings_in, listings_of
from toolmason.cli.main import DRIFT, NOT_FOUND
from toolmason.cli.output import print_json, print_rows
from toolmason.cli.targets import fail, toolbox_at


@click.command("diff")
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
def command(old: str, new: str, *, as_json: bool) -> None:
    """Compare the tools of A with those of B: targets, manifests, locks, or - for a file on standard input.

    Exits 1 if a change breaks callers (input) or readers (output).
    """
    if old == new == "-":
        raise click.UsageError("Only one of the two can be standard input.")
    found = compare(listings_at(old), listings_at(new))
    breaking = any(tool.breaking for tool in found)
    if as_json:
        print_json({"breaking": breaking, "tools": [tool.form() for tool in found]})
    elif found:
        print_changes(found)
    else:
        click.echo("No tool changed.")
    if breaking:
        raise click.exceptions.Exit(DRIFT)


def listings_at(target: str) -> Listings:
    """Return the tools of a target, a file of ours, or standard input."""
    if target == "-":
        return listings_in(sys.stdin.buffer.read(), "standard input")
    if target.endswith((".json", ".lock")):
        try:
            text = Path(target).read_bytes()
        except OSError as error:
            fail(f"{target!r} cannot be read: {error.strerror}.", NOT_FOUND)
        return listings_in(text, repr(target))
    return listings_of(toolbox_at(target))


def print_changes(found: Sequence[ToolDiff]) -> None:
    """Print a row for each change, by tool."""
    rows = [
        (
            "breaking" if change.breaking else "compatible",
            tool.name,
            change.part if change.part != "tool" else "",
            change.path,
            change.words,
        )
        for tool in found
        for change in tool.changes
    ]
    print_rows(("Effect", "Tool", "Part", "Where", "Change"), rows)
