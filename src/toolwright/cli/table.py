"""Rows → a table on a terminal, one line for each row elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import click


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Print rows; on a terminal under their headings, in columns."""
    if not stream.isatty():
        for row in rows:
            click.echo("  ".join(cell for cell in row if cell), file=stream)
        return
    from rich.console import Console  # noqa: PLC0415 - 40 ms that a pipe does not need
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        # As text: a description may hold what rich would read as a style.
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(file=stream).print(table)


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 tool`, `2 tools`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


_STYLES = {"breaking": "bold red", "compatible": "green"}
