"""Show spans as one HTML page with a waterfall, which loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from string import Template
from typing import Any, Final

from toolmason._core.run.conventions import ATTRIBUTES
from toolmason._text import escape_hidden
from toolmason.observe.span_record import MAX_SHOWN, SpanRecord, TreeRow, walk_tree
from toolmason.observe.tree import format_milliseconds

_KINDS: Final = {"invoke_agent": "run", "chat": "turn", "execute_tool": "tool", "approve": "wait", "retry": "wait"}
"""Colour of a span by the first word of its name."""
_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --run: #6b7280; --turn: #7c3aed; --tool: #0d9488; --wait: #d97706; --other: #2563eb;
  --error: #dc2626; --line: #8884 }
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem }
h1 { font-size: 1.25rem; margin: 0 } p { margin: .25rem 0 1rem; opacity: .7 }
summary { display: grid; grid-template-columns: minmax(14rem, 26rem) 5rem 1fr; gap: .75rem; align-items: center;
  border-bottom: 1px solid var(--line); padding: .2rem .25rem; cursor: pointer; list-style: none }
summary::-webkit-details-marker { display: none } summary:hover { background: #8881 }
.name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.note { opacity: .65; font-size: .85em; margin-left: .5rem }
.time { text-align: right; font-variant-numeric: tabular-nums }
.lane { position: relative; height: 1rem } .bar { position: absolute; height: 100%; min-width: 2px; border-radius: 2px;
  background: var(--other) }
.run { background: var(--run) } .turn { background: var(--turn) } .tool { background: var(--tool) }
.wait { background: var(--wait) } .failed { background: var(--error) } .mark { color: var(--error) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0 1rem 2em; font-size: 1em }
dt { opacity: .7 } dd { margin: 0; overflow-wrap: anywhere; font-family: monospace; white-space: pre-wrap }
@media (max-width: 40rem) { summary { grid-template-columns: 1fr 5rem } .lane { grid-column: 1 / -1 } }
</style>
<h1>$title</h1>
<p>$facts</p>
$rows
</html>
""")


def to_html(spans: Iterable[SpanRecord], title: str = "Trace") -> str:
    """Return spans as one HTML page. A row opens to show the attributes of its span."""
    given = list(spans)
    rows = list(walk_tree(given))
    start = min((row.span.start for row in rows), default=0)
    duration = max(1, max((row.span.end for row in rows), default=0) - start)
    errors = sum(row.span.failed for row in rows)
    facts = f"{len(rows):,} spans in {format_milliseconds(duration / 1e6 if rows else 0.0)}, {errors:,} failed"
    if len(given) > MAX_SHOWN:
        facts += f"; {len(given) - MAX_SHOWN:,} more are not shown"
    shown = "\n".join(_write_row(row, start, duration) for row in rows)
    return _PAGE.substitute(title=_escape(title), facts=facts, rows=shown)


def _write_row(row: TreeRow, start: int, duration: int) -> str:
    span = row.span
    left, width = 100 * (span.start - start) / duration, 100 * (span.end - span.start) / duration
    kind = "failed" if span.failed else _KINDS.get(span.name.partition(" ")[0], "")
    note = f'<span class="note{" mark" if span.failed else ""}">{_escape(span.note)}</span>' if span.note else ""
    return (
        f'<details><summary><span class="name" style="padding-left:{len(row.lasts) * 1.25:.2f}rem">{_escape(span.name)}'
        f'{note}</span><span class="time">{format_milliseconds(span.milliseconds)}</span>'
        f'<span class="lane"><i class="bar {kind}" style="left:{left:.3f}%;width:{width:.3f}%"></i></span></summary>'
        f"<dl>{''.join(_write_attribute(name, value) for name, value in sorted(span.attributes.items()))}"
        f"{_write_attribute('trace', span.trace)}{_write_attribute('span', span.id)}</dl></details>"
    )


def _write_attribute(name: str, value: Any) -> str:
    meaning = ATTRIBUTES[name].meaning if name in ATTRIBUTES else ""
    return f'<dt title="{_escape(meaning)}">{_escape(name)}</dt><dd>{_escape(value)}</dd>'


def _escape(value: Any) -> str:
    """Return a value as text of HTML. Characters that hide or reorder text are shown as escapes."""
    return escape(escape_hidden(str(value)))
