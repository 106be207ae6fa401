"""List the bars of the design, each with its latest figure and verdict from `results.json`."""

from collections.abc import Sequence
from dataclasses import dataclass

import results
from measure import Row, Table
from samples import PEERS

OFF, DEFAULTS, RATIO = "toolmason, timeout=None", "toolmason, all defaults", "x floor"
WAITS = "toolmason, all defaults, with an await"
"""A tool that may wait: one that does not needs no task for its deadline, so that a bar of its own line says little."""
SERVE, HTTP = "toolmason, serve()", "MCP server over HTTP, 64 connections"
FLAT, NESTED = "flat types", "nested model, Literal, Field"
PROVIDERS = ("openai", "openai-chat", "anthropic", "gemini")
EACH = (
    "text with a URL and a time",
    "dict out",
    "float out",
    "untyped out",
    "default list",
    "ToolContext",
    "injected value",
)
NAMED = (("2 ints", "2 ints"), ("the peers' function", PEERS.name))
LARGE = ("100 KB in, int out", "100 KB in, 100 KB out")


@dataclass(frozen=True, slots=True)
class Bar:
    """Place of a figure: the title of a table, a row and a column. The limit and the verdict are those of the row."""

    line: str
    title: str
    row: str
    column: str


def _calls() -> list[Bar]:
    found = [
        *(
            Bar(f"tracing, {row}", "Tracing: 2 ints", row, "x without")
            for row in ("not loaded", "with the API loaded and no provider", "with spans", "with spans and metrics")
        ),
        *(Bar(f"call, 2 ints, {_short(row)}", "Call: 2 ints", row, RATIO) for row in (OFF, DEFAULTS, WAITS)),
        *(
            Bar(f"call, the peers' function, {_short(row)}", f"Call: {PEERS.name}", row, RATIO)
            for row in (OFF, DEFAULTS, WAITS)
        ),
    ]
    found += [
        Bar(f"call, {name}, {_short(row)}", f"Call: {name}", row, RATIO)
        for name in EACH
        for row in (OFF, DEFAULTS, WAITS)
    ]
    found += [
        Bar(f"call in a run, {name}", f"Call in a run: {title}", "in a run without limits", "x plain call")
        for name, title in NAMED
    ]
    found += [
        Bar(f"invalid arguments, {name}", f"Call: invalid arguments, {name}", DEFAULTS, RATIO)
        for name in ("2 ints", "the peers' function")
    ]
    found += [
        Bar(f"{name}, {kind}", f"Call: {name}, {kind}", DEFAULTS, RATIO)
        for name in LARGE
        for kind in ("models", "TypedDicts")
    ]
    return found


def _catalogs() -> list[Bar]:
    found = [
        Bar(f"define, {source}: {column}", f"Define 1,000 tools, cpu: {source}", "toolmason", column)
        for source in (FLAT, NESTED)
        for column in (RATIO, "first tool, ms")
    ]
    alone = "nested model, no type in common"
    found.append(Bar(f"define, {alone}: {RATIO}", f"Define 1,000 tools, cpu: {alone}", "toolmason", RATIO))
    found += [
        Bar(
            f"export {provider}, {source}: {column}",
            f"Export 1,000 tools, cpu: {source}",
            f"toolmason, {provider}",
            column,
        )
        for source in (FLAT, NESTED)
        for provider in PROVIDERS
        for column in ("cold ms", "warm ms")
    ]
    found += [
        Bar(
            f"export {provider} from a manifest, {source}: cold ms",
            f"Export 1,000 tools, cpu: {source}",
            f"toolmason, {provider}, from a manifest",
            "cold ms",
        )
        for source in (FLAT, NESTED)
        for provider in PROVIDERS
    ]
    largest = f"Toolbox of 10,000 tools: {FLAT}"
    found += [Bar(f"10,000 tools, {name}", largest, f"toolmason, {name}", "is") for name in _GROWTH]
    found.append(Bar("KB per tool, nested", f"Toolbox of 1,000 tools: {NESTED}", "toolmason, KB each", "is"))
    return found


def _others() -> list[Bar]:
    naps = "100 concurrent sleeps of 10 ms (`time.sleep`)"
    return [
        *(
            Bar(f"thread hop, {name}, {_short(row)}", f"Sync tool in a thread: {title}", row, RATIO)
            for name, title in NAMED
            for row in (OFF, DEFAULTS)
        ),
        Bar("100 naps", naps, "toolmason, call_all", "wall ms (best)"),
        *(
            Bar(f"loop against llm, N={steps}", "Run in memory against llm", f"toolmason, N={steps}", "x llm")
            for steps in (50, 200, 800, 3200)
        ),
        Bar("typed answer, each step", "Run in memory with a typed answer", "each further step", "x text"),
        *(
            Bar(f"HTTP, serve(): {column}", HTTP, SERVE, column)
            for column in ("x bare", "x faster than the SDK's best", "p99 / p50")
        ),
        Bar("first stdio answer", "First answer over stdio, fresh processes", "toolmason serve", RATIO),
        Bar("connect to 500 tools", "Connect to an MCP server with 500 tools over HTTP", "toolmason", "x SDK"),
    ]


_GROWTH = ("Toolbox(*tools), ms", "unknown name, ms", "KB each")


def _short(row: str) -> str:
    return row.removeprefix("toolmason, ")


def table() -> Table:
    """Return a line for each bar."""
    found = results.tables()
    rows = [_row(bar, found.get(bar.title)) for bar in (*_calls(), *_catalogs(), *_others())]
    return Table("Bars", ("is",), rows, ["A bar without a figure has not been measured since `results.json` was made."])


def _row(bar: Bar, found: Table | None) -> Row:
    rows: Sequence[Row] = [row for row in found.rows if row.name == bar.row] if found else []
    if found is None or not rows or bar.column not in found.columns:
        return Row(bar.line, [None], "", "not measured")
    value = rows[0].figures[list(found.columns).index(bar.column)]
    over = rows[0].verdict.removeprefix("over: ").split("; ")
    is_alone = not rows[0].verdict.startswith("over: ")
    return Row(
        bar.line, [value], rows[0].limit, rows[0].verdict if is_alone else "over" if bar.column in over else "ok"
    )
