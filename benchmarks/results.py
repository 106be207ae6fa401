"""Keep the tables of a run in `results.json`, for plots and for the table of bars."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measure import Row, Table

FILE = Path(__file__).with_name("results.json")


def save(subject: str, head: str, tables: Sequence[Table], *, is_part: bool = False) -> None:
    """Replace the tables of a subject, or those with the same titles if only a part of it was measured."""
    found = _read()
    old = found.get(subject, {"tables": []})["tables"] if is_part else []
    by_title = {table["title"]: table for table in (*old, *map(asdict, tables))}
    found[subject] = {"head": head, "tables": list(by_title.values())}
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


def tables() -> dict[str, Table]:
    """Return all saved tables by their titles."""
    return {table["title"]: _table(table) for subject in _read().values() for table in subject["tables"]}


def heads() -> dict[str, str]:
    """Return the head of each subject's report: date, rounds and load."""
    return {subject: found["head"] for subject, found in _read().items()}


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return found


def _table(found: Mapping[str, Any]) -> Table:
    rows = [Row(row["name"], row["figures"], row["limit"], row["verdict"]) for row in found["rows"]]
    return Table(found["title"], found["columns"], rows, found["notes"])
