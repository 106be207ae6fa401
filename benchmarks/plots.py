"""Draw the tables of `results.json` as SVG files in `benchmarks/plots`, without a library; some also for the docs.

Usage: python benchmarks/plots.py
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import results
from measure import Table, format_number

FOLDER = Path(__file__).with_name("plots")
DOCS = Path(__file__).parents[1] / "docs" / "images"
SHOWN = {
    "Call: the peers' function (nested model, Literal, Field, default, dict out)": "speed-call",
    "Sync tool in a thread: the peers' function (nested model, Literal, Field, default, dict out)": "speed-thread",
    "Run in memory": "speed-run",
    "MCP server over HTTP, 64 connections": "speed-server",
    "Import, fresh processes": "speed-import",
}
"""Tables that `docs/why/speed.md` shows."""
WIDTH, LABEL, LINE, TOP = 860, 330, 24, 56
WIDE = 20
"""Ratio of the longest to the shortest bar from which the scale is logarithmic."""
OWN, OTHER, LIMIT = "#1f6feb", "#b9c0c9", "#d1242f"
COLOURS = ("#d1242f", "#2da44e", "#bf8700", "#8250df", "#57606a", "#0a9396", "#e85d04", "#9d4edd", "#6c757d")
RATIOS = ("x floor", "x plain call", "x bare", "x SDK", "cold ms", "wall ms (best)", "cpu ms", "cpu µs")
"""Columns for bars, in order of preference."""

Series = Mapping[str, Sequence[tuple[float, float]]]


def main() -> int:
    """Write a plot for each table that has figures."""
    tables = results.tables()
    if not tables:
        print(f"{results.FILE.name} does not exist. Run `make bench` first.", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    for title, table in tables.items():
        if drawn := draw(table):
            name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            (FOLDER / f"{name}.svg").write_text(drawn, "utf-8")
            if title in SHOWN:
                (DOCS / f"{SHOWN[title]}.svg").write_text(drawn, "utf-8")
    print(f"Wrote {len(list(FOLDER.glob('*.svg')))} plots to {FOLDER.parent.name}/{FOLDER.name}.")
    return 0


def draw(table: Table) -> str | None:
    """Draw lines if the columns or the rows are sizes, otherwise bars; return None if there is nothing to draw."""
    series = {name: line for name, line in (_by_columns(table) or _by_rows(table)).items() if line}
    if series:
        unit = next((column.partition(",")[0] for column in table.columns if column.startswith("cpu")), "")
        return draw_lines(f"{table.title} ({unit}, logarithmic)" if unit else table.title, series)
    column = next((name for name in RATIOS if name in table.columns), None)
    if column is None or not table.rows:
        return None
    index = list(table.columns).index(column)
    values = [(row.name, value, row.limit) for row in table.rows if (value := row.figures[index]) is not None]
    return _bars(f"{table.title} ({column})", values) if values else None


def _by_columns(table: Table) -> Series:
    """Return a line for each row of a table whose columns are sizes: `cpu ms, 10 KB`, `cpu µs per step, N=50`."""
    sizes = [(index, _size(column)) for index, column in enumerate(table.columns) if column.startswith("cpu")]
    points = [(index, size) for index, size in sizes if size]
    if len(points) < 2:
        return {}
    return {row.name: [(size, value) for index, size in points if (value := row.figures[index])] for row in table.rows}


def _by_rows(table: Table) -> Series:
    """Return a line for each column of a table whose rows are numbers of tools."""
    sizes = [_size(row.name) if row.name.endswith(" tools") else None for row in table.rows]
    if len(sizes) < 2 or not all(sizes):
        return {}
    return {
        column: [
            (size or 0, value) for size, row in zip(sizes, table.rows, strict=True) if (value := row.figures[index])
        ]
        for index, column in enumerate(table.columns)
    }


def _size(text: str) -> float | None:
    found = re.search(r"([\d,]+) ?(KB|MB|tools)?$", text)
    if found is None or not found[1].strip(","):
        return None
    return float(found[1].replace(",", "")) * {"KB": 1e3, "MB": 1e6}.get(found[2], 1.0)


def _bars(title: str, values: Sequence[tuple[str, float, str]]) -> str:
    """Draw bars, on a logarithmic scale if a linear one would hide the short ones."""
    room, most = WIDTH - LABEL - 90, max(value for _, value, _ in values)
    least = min((value for _, value, _ in values if value > 0), default=most)
    is_wide = most > WIDE * least

    def reach(value: float) -> float:
        share = math.log(max(value, least) / least * 1.5) / math.log(most / least * 1.5) if is_wide else value / most
        return LABEL + max(1.0, share * room)

    parts = []
    for place, (name, value, limit) in enumerate(values):
        y, end = TOP + place * LINE, reach(value)
        colour = OWN if name.startswith(("toolmason", "in a run", "with ")) else OTHER
        parts += [
            _text(LABEL - 8, y + 14, name, "end"),
            f'<rect x="{LABEL}" y="{y}" width="{end - LABEL:.1f}" height="{LINE - 6}" fill="{colour}"/>',
            _text(end + 6, y + 14, format_number(value)),
        ]
        if found := re.match(r"≤ ([\d.]+) (?:x|ms)", limit):
            at = reach(float(found[1]))
            if at <= LABEL + room:
                parts.append(f'<path d="M{at:.1f} {y - 2}v{LINE - 2}" stroke="{LIMIT}" stroke-width="2"/>')
    title += ", logarithmic" if is_wide else ""
    return _page(title, TOP + len(values) * LINE + 14, parts)


def draw_lines(title: str, series: Series) -> str:
    """Draw both axes on logarithmic scales."""
    height, left, right = 420, 70, WIDTH - 270
    points = [point for line in series.values() for point in line]
    low_x, high_x = (pick(math.log10(x) for x, _ in points) for pick in (min, max))
    low_y, high_y = (pick(math.log10(y) for _, y in points) for pick in (min, max))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / ((high_x - low_x) or 1)
        up = (math.log10(y) - low_y) / ((high_y - low_y) or 1)
        return left + across * (right - left), height - 40 - up * (height - 40 - TOP)

    parts = [f'<path d="M{left} {TOP}V{height - 40}H{right}" stroke="#57606a" fill="none"/>']
    parts += [_text(at(x, 10**low_y)[0], height - 22, f"{x:,.0f}", "middle") for x in sorted({x for x, _ in points})]
    parts += [
        _text(left - 8, at(10**low_x, 10**power)[1] + 4, f"{10.0**power:g}", "end")
        for power in range(math.ceil(low_y), math.floor(high_y) + 1)
    ]
    for number, (name, line) in enumerate(series.items()):
        colour = OWN if name.startswith("toolmason") else COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        parts.append(f'<polyline points="{path}" stroke="{colour}" fill="none" stroke-width="2"/>')
        parts.append(f'<rect x="{right + 16}" y="{TOP + number * 20}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(right + 32, TOP + 9 + number * 20, name))
    return _page(title, max(height, TOP + 20 * len(series)), parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _page(title: str, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" font-family="sans-serif"'
    body = [
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="12" y="28" font-size="16">{escape(title)}</text>',
    ]
    return "\n".join([f'{head} font-size="12">', *body, *parts, "</svg>\n"])


if __name__ == "__main__":
    sys.exit(main())
