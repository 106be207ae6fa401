"""`toolmason diff A B`: show the changes between two lists of tools and which of them break."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from toolmason.build.compare.comparison import ToolDiff, compare
from toolmason.build.compare.listing import Listings, listings_of, parse_listings
from toolmason.cli.main import DRIFT, NOT_FOUND, examples
from toolmason.cli.output import echo, print_json, print_rows
from toolmason.cli.targets import fail, load_toolbox


@click.command("diff", epilog=examples("diff toolmason.lock app.py:box", "diff old.json new.json --json"))
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
def command(old: str, new: str, *, as_json: bool) -> None:
    """Compare the tools of A with those of B: targets, manifests, locks, or - for a file on standard input.

    Exits 1 if a change breaks callers (input) or readers (output).
    """
    if old == new == "-":
        raise click.UsageError("Only one of A and B can be standard input.")
    diffs = compare(load_listings(old), load_listings(new))
    breaking = any(tool.breaking for tool in diffs)
    if as_json:
        print_json({"breaking": breaking, "tools": [tool.to_dict() for tool in diffs]})
    elif diffs:
        print_changes(diffs)
    else:
        echo("No tool changed.")
    if breaking:
        raise click.exceptions.Exit(DRIFT)


def load_listings(target: str) -> Listings:
    """Return the tools of a target, a manifest, a lock, or standard input."""
    if target == "-":
        return parse_listings(sys.stdin.buffer.read(), "standard input")
    if target.endswith((".json", ".lock")):
        try:
            text = Path(target).read_bytes()
        except OSError as error:
            fail(f"Cannot read {target!r}: {error.strerror}.", NOT_FOUND)
        return parse_listings(text, repr(target))
    return listings_of(load_toolbox(target))


def print_changes(diffs: Sequence[ToolDiff]) -> None:
    """Print a row for each change, by tool."""
    rows = [
        (
            "breaking" if change.breaking else "compatible",
            tool.name,
            change.part if change.part != "tool" else "",
            change.path,
            change.message,
        )
        for tool in diffs
        for change in tool.changes
    ]
    print_rows(("Effect", "Tool", "Part", "Path", "Change"), rows)


def print_server_changes(server: str, changes: Sequence[ToolDiff]) -> None:
    """Print the changes in the tools of a server, with the name of the server before each."""
    if changes:
        print_changes([replace(change, name=f"{server}: {change.name}") for change in changes])
