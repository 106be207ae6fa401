"""Print text, tables and results to a terminal or a pipe; escape sequences of tools are neutralized."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import traceback
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import click
from typing_extensions import override

from toolmason._text import escape_hidden
from toolmason.errors import StaleManifest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from toolmason._core.run.progress import OnProgress, ProgressReport

_KEPT_CHARACTERS: Final = "\t\u00ad\u200d\ufe0f"
"""Tab, soft hyphen, and the marks that join and select emoji."""


def make_console(*, err: bool = False) -> Console:
    """Return a console for standard output or standard error that interprets no markup."""
    from rich.console import Console  # noqa: PLC0415 - 60 ms at start-up, needed only on a terminal

    # Under NO_COLOR rich still prints bold and dim; without a color system it prints plain text.
    system: Literal["auto"] | None = "auto" if has_colors() else None
    return Console(stderr=err, markup=False, emoji=False, highlight=False, color_system=system)


def is_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout.isatty()


def has_colors() -> bool:
    """Return True unless the environment asks for plain text."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Return True if tables, colors and bars can be drawn: on a terminal, if rich is installed.

    Other packages install click, so that the command may run without `toolmason[cli]`.
    """
    return stream.isatty() and find_spec("rich") is not None


def escape_controls(text: str) -> str:
    """Return text that cannot control the terminal, or hide or reorder what it shows."""
    return escape_hidden(text.replace("\r\n", "\n"), keep=_KEPT_CHARACTERS, strict=False)


def echo(text: str = "", *, err: bool = False, nl: bool = True, fg: str | None = None) -> None:
    """Print a line of the command. Control characters in it are escaped, whether it goes to a terminal or a file."""
    escaped = escape_controls(text)
    click.echo(escaped if fg is None or not has_colors() else click.style(escaped, fg=fg), err=err, nl=nl)


def escape_unhandled() -> None:
    """Escape what other code prints through Python: warnings, log records without a handler, and exceptions."""
    warnings.formatwarning = _format_warning
    sys.excepthook = _show_exception
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_LogFormatter("%(levelname)s: %(message)s"))
        # The errors of the MCP SDK, with stacks, are about failures that the command reports itself.
        logging.lastResort.addFilter(lambda record: record.name.partition(".")[0] != "mcp")


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a `StaleManifest` warning as one line, and any other warning with its location."""
    del line
    if issubclass(category, StaleManifest):
        return escape_controls(f"Warning: {message}\n")
    return escape_controls(f"{filename}:{lineno}: {category.__name__}: {message}\n")


def _show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    echo("".join(traceback.format_exception(kind, error, trace)), err=True, nl=False)


class _LogFormatter(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


def print_text(text: str) -> None:
    """Print a result: unchanged into a pipe; escaped, with colored JSON, on a terminal."""
    if not can_draw(sys.stdout):
        if is_terminal():
            echo(text)
            return
        # `click.echo` strips escape sequences, but a pipe must receive the unchanged result.
        sys.stdout.write(f"{text}\n")
        return
    data = _parse_json(text) if text[:1] in ("{", "[") else None
    if data is None:
        make_console().print(escape_controls(text), soft_wrap=True)
        return
    from rich.highlighter import JSONHighlighter  # noqa: PLC0415 - as above

    # Escaped after it is written: an escape sequence in a string would become the character again.
    escaped = escape_controls(json.dumps(data, indent=2, ensure_ascii=False))
    make_console().print(JSONHighlighter()(escaped), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


_COMMAND_WORDS: Final = (
    (r", or pass `api_key=`", ""),  # no flag: other users see the arguments of a process
    (r'model\("([^"]+)", base_url="([^"]+)"\)', r"--model \1 --base-url \2"),
    (r'model\("([^"]+)"\)', r"--model \1"),
    (r"TemporalRuntime\(address='([^']*)'\)", r"--temporal \1"),
    (r"`base_url=`", "--base-url"),
    (r"\bbase_url=", "--base-url "),
    (r"\bbase_url\b", "--base-url"),
    (r"options=\{'reasoning': ([^}]*)\}", r"--reasoning \1"),
    (r"options=\{'(\w+)': ([^}]*)\}", r"--option \1=\2"),
    (r"""options=\{"body": \{['"]?(\w*)['"]?[^}]*\}\}""", r"""--option 'body={"\1": …}'"""),
)
"""Parts of messages that name keywords of Python, and the flags of the command that replace them."""


def print_error(text: str, *, in_flags: bool = False) -> None:
    """Print an error message to standard error; with `in_flags`, name flags instead of keywords of Python."""
    for pattern, flag in _COMMAND_WORDS if in_flags else ():
        text = re.sub(pattern, flag, text)
    echo(f"Error: {text}", err=True)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
        yield draw if can_draw(sys.stderr) else None
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
    if can_draw(sys.stdout):
        print_table(headings, rows)
        return
    for row in rows:
        echo("  ".join(cell for cell in row if cell).replace("\n", "\\n"))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, one_line: bool = False) -> None:
    """Print rows as a table; the column of a heading that begins with `~` is of numbers.

    With `one_line`, cells after the first are truncated to the width of the terminal, instead of wrapped.
    """
    from rich.table import Table  # noqa: PLC0415 - 60 ms at start-up, needed only on a terminal
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold", justify="right" if heading.startswith("~") else "left")
    table.columns[0].style = "cyan"
    for row in rows:
        cells = [Text(escape_controls(cell), style=_STYLES.get(cell, "")) for cell in row]
        for cell in cells[1:] if one_line else ():
            cell.no_wrap, cell.overflow = True, "ellipsis"
        table.add_row(*cells)
    make_console().print(table)


_STYLES = {"breaking": "bold red", "compatible": "green"}
