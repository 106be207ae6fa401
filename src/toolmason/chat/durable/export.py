"""Export what is readable of a damaged journal to a new one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.store import Transaction
from toolmason._store.tables import RUNS
from toolmason.errors import ConfigError

_RUN_COLUMNS: Final = ("run", "begun", "state", "finish")
_EFFECT_COLUMNS: Final = (
    *("run", "key", "kind", "name", "arguments", "repeatable", "attempt", "state", "outcome", "at"),
    "ended",
)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Result of an export."""

    runs: int
    effects: int
    closed: tuple[str, ...]
    """Runs that cannot be resumed, because calls that they made may be missing."""


def export_journal(path: str | Path, output: str | Path) -> ExportReport:
    """Write the readable runs and effects of a journal to a new file.

    Raises:
        ConfigError: the output exists, or nothing in the journal is readable.
    """
    if Path(output).exists():
        raise ConfigError(f"{str(output)!r} exists. Name a new file.")
    damaged: list[str] = []
    runs = {row["run"]: row for row in _read_rows(path, "runs", _RUN_COLUMNS, damaged) if isinstance(row["run"], str)}
    effects = list(_read_rows(path, "effects", _EFFECT_COLUMNS, damaged))
    if not runs and not effects:
        reason = damaged[0] if damaged else "it has no row"
        raise ConfigError(f"Nothing in {str(path)!r} is readable: {reason}. Restore a copy.")
    for effect in effects:
        run = str(effect["run"])
        runs.setdefault(run, {"run": run, "begun": effect["at"], "state": None, "finish": None})
    broken = {str(effect["run"]) for effect in effects if not _is_whole(effect)}
    closed = [
        run for run, row in runs.items() if damaged or run in broken or not isinstance(_parse(row["state"]), dict)
    ]
    whole = [effect for effect in effects if _is_whole(effect)]

    def insert(db: Transaction) -> None:
        for run, row in runs.items():
            facts = _parse(row["state"])
            if run in closed:
                facts = {**(facts if isinstance(facts, dict) else {}), "damaged": True}
            begun = float(row["begun"]) if isinstance(row["begun"], int | float) else 0.0
            values = (run, begun, json.dumps(facts), row["finish"])
            db.execute("INSERT INTO runs (run, begun, state, finish) VALUES (?, ?, ?, ?)", values)
        marks = ", ".join("?" * len(_EFFECT_COLUMNS))
        statement = f"INSERT OR IGNORE INTO effects ({', '.join(_EFFECT_COLUMNS)}) VALUES ({marks})"  # noqa: S608 - constant
        db.executemany(statement, [tuple(effect.values()) for effect in whole])

    with closing(SqliteStore(output)) as store:
        store.transact(RUNS, "", insert)
    return ExportReport(len(runs), len(whole), tuple(sorted(closed)))


def _read_rows(path: str | Path, table: str, columns: tuple[str, ...], damaged: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table: from its begin and, if that fails, from its end up to the damage."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        before = len(damaged)
        try:
            with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
                db.text_factory = lambda data: data.decode("utf-8", "replace")
                query = f"SELECT rowid, {', '.join(columns)} FROM {table} NOT INDEXED ORDER BY rowid {order}"  # noqa: S608 - constant
                for number, *values in db.execute(query):
                    if number not in seen:
                        seen.add(number)
                        yield dict(zip(columns, values, strict=True))
        except (sqlite3.Error, UnicodeError) as error:
            damaged.append(str(error))
        if len(damaged) == before:
            return


def _is_whole(effect: dict[str, Any]) -> bool:
    has_outcome = effect["state"] != "done" or _parse(effect["outcome"]) is not None
    texts = all(isinstance(effect[name], str) for name in ("run", "key", "kind", "name", "state"))
    numbers = all(isinstance(effect[name], int | float) for name in ("repeatable", "attempt", "at"))
    numbers = numbers and isinstance(effect["ended"], int | float | None)
    return has_outcome and texts and numbers and isinstance(_parse(effect["arguments"]), dict)


def _parse(text: Any) -> Any:
    with suppress(ValueError, TypeError, RecursionError):
        return json.loads(text or "{}")
    return None
