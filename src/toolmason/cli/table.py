"""Rows → a table on a terminal, one line for each row elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import click

from toolmason.cli.terminal import console, harmless, is_terminal


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows; on a terminal under their headings, in columns."""
    if not is_terminal():
        for row in rows:
            click.echo("  ".join(cell for cell in row if cell))
        return
    from rich.table import Table  # noqa: PLC0415 - 60 ms at start-up, for a terminal alone
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(cell), style=_STYLES.get(cell, "")) for cell in row))
    console().print(table)


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 tool`, `2 tools`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


_STYLES = {"breaking": "bold red", "compatible": "green"}
