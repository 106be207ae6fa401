"""Show spans as a tree with bars, for a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Final, TextIO

from toolmason._text import clip, to_line
from toolmason.observe.span_record import SpanRecord, walk_tree

_BAR_CHARS: Final = 40
_NAME_CHARS: Final = 60
"""Maximum width of the tree and the names."""
_MIN_WIDTH: Final = 60
_ASCII: Final = str.maketrans({"█": "#", "│": "|", "├": "|", "└": "`", "─": "-", "→": ">", "✗": "x", "…": "."})


def format_milliseconds(milliseconds: float) -> str:
    """Return a duration as text."""
    return f"{milliseconds / 1000:.2f} s" if milliseconds >= 1000 else f"{milliseconds:.1f} ms"  # noqa: PLR2004 - a second


def draw_length(value: float, longest: float, chars: int = 20) -> str:
    """Return a bar for a value among others."""
    return ("█" * round(chars * value / longest if longest else 0)).ljust(chars)


def format_tree(spans: Iterable[SpanRecord], width: int = 120) -> str:
    """Return one line for each span: its place in the tree, its duration, a bar in the time of all, and a note."""
    rows = list(walk_tree(spans))
    if not rows:
        return "No spans."
    start, end = min(row.span.start for row in rows), max(row.span.end for row in rows)
    bar_chars = max(10, min(_BAR_CHARS, width - _MIN_WIDTH))
    names = [_draw_branch(row.lasts) + to_line(clip(row.span.name, _NAME_CHARS)) for row in rows]
    name_chars = min(_NAME_CHARS, max(map(len, names)))
    lines: list[str] = []
    for row, name in zip(rows, names, strict=True):
        bar = _draw_bar(row.span, start, max(1, end - start), bar_chars)
        time = format_milliseconds(row.span.milliseconds)
        lines.append(
            f"{clip(name, name_chars):<{name_chars}} {time:>9} {bar} {to_line(row.span.note)}".rstrip()[:width]
        )
    return "\n".join(lines)


def print_tree(spans: Iterable[SpanRecord], *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print spans as a tree, by default to standard output and as wide as the terminal."""
    output = sys.stdout if file is None else file
    text = format_tree(spans, shutil.get_terminal_size((120, 24)).columns if width is None else width)
    encoding = getattr(output, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_ASCII).encode("ascii", "replace").decode()
    print(text, file=output)


def _draw_branch(lasts: tuple[bool, ...]) -> str:
    if not lasts:
        return ""
    above = "".join("   " if is_last else "│  " for is_last in lasts[:-1])
    return f"{above}{'└─' if lasts[-1] else '├─'} "


def _draw_bar(span: SpanRecord, start: int, duration: int, chars: int) -> str:
    first = min(chars - 1, (span.start - start) * chars // duration)
    length = max(1, -(-(span.end - span.start) * chars // duration))
    return f"{' ' * first}{'█' * min(length, chars - first)}".ljust(chars)
