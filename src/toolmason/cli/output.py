"""Print text, tables and results to a terminal or a pipe; escape sequences of tools are neutralized."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from toolmason._core.run.progress import OnProgress, ProgressReport
from toolmason._text import escape_hidden

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


_KEPT_CHARACTERS: Final = "\t\u00ad\u200d\ufe0f"
"""Tab, soft hyphen, and the marks that join and select emoji."""


def make_console(*, err: bool = False) -> Console:
    """Return a console for standard output or standard error that interprets no markup."""
    from rich.console import Console  # noqa: PLC0415 - 60 ms at start-up, needed only on a terminal

    # Under NO_COLOR rich still prints bold and dim; without a color system it prints plain text.
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=err, markup=False, emoji=False, highlight=False, color_system=None if plain else "auto")


def is_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout.isatty()


def escape_controls(text: str) -> str:
    """Return text that cannot control the terminal, or hide or reorder what it shows."""
    return escape_hidden(text.replace("\r\n", "\n"), keep=_KEPT_CHARACTERS, strict=False)


def print_text(text: str) -> None:
    """Print a result: unchanged into a pipe; escaped, with colored JSON, on a terminal."""
    if not is_terminal():
        # `click.echo` strips escape sequences, but a pipe must receive the unchanged result.
        sys.stdout.write(f"{text}\n")
        return
    escaped = escape_controls(text)
    if escaped[:1] in ("{", "[") and _is_json(escaped):
        from rich.json import JSON  # noqa: PLC0415 - as above

        make_console().print(JSON(escaped))
    else:
        make_console().print(escaped, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


def print_error(text: str) -> None:
    """Print an error message to standard error."""
    click.echo(f"Error: {escape_controls(text) if sys.stderr.isatty() else text}", err=True)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def progress_bar() -> Generator[OnProgress | None]:
    """Yield a callback that draws progress on standard error, or None if that is not a terminal."""
    bar: Progress | None = None

    def draw(report: ProgressReport) -> None:
        nonlocal bar
        text = escape_controls(str(report.message or report.tool))
        done, total = _to_finite(report.done) or 0.0, _to_finite(report.total)
        if bar is None:  # the bar appears with the first report
            bar = _make_progress()
            bar.add_task(text, total=total)
            bar.start()
        bar.update(bar.task_ids[0], completed=done, total=total, description=text)

    try:
        yield draw if sys.stderr.isatty() else None
    finally:
        if bar is not None:
            bar.stop()


def _to_finite(number: float | None) -> float | None:
    """Return a finite number, or None; a tool may report anything."""
    try:
        converted = float(number)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - see above
    except (TypeError, ValueError, OverflowError):
        return None
    return converted if math.isfinite(converted) else None


def _make_progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - as above

    name = TextColumn("{task.description}", markup=False)
    return Progress(name, BarColumn(), MofNCompleteColumn(), console=make_console(err=True), transient=True)


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows; on a terminal as a table with headings."""
    if is_terminal():
        print_table(headings, rows)
        return
    for row in rows:
        click.echo("  ".join(cell for cell in row if cell))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as a table; the column of a heading that begins with `~` is of numbers."""
    from rich.table import Table  # noqa: PLC0415 - 60 ms at start-up, needed only on a terminal
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold", justify="right" if heading.startswith("~") else "left")
    table.columns[0].style = "cyan"
    for row in rows:
        table.add_row(*(Text(escape_controls(cell), style=_STYLES.get(cell, "")) for cell in row))
    make_console().print(table)


_STYLES = {"breaking": "bold red", "compatible": "green"}
