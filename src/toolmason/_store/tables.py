"""Define the tables of runs, conversations, budgets, decisions and rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TableGroup:
    """Tables with one version: the number of the migrations that a store has applied."""

    name: str
    migrations: tuple[str, ...]
    """SQL scripts for SQLite, oldest first. Another store translates the types of the columns."""
    repair: str = "Restore it"
    """Advice for damaged content."""


RUNS: Final = TableGroup(
    "runs",
    (
        """
        CREATE TABLE IF NOT EXISTS runs (
            run TEXT PRIMARY KEY, begun REAL NOT NULL, fence INTEGER NOT NULL DEFAULT 0,
            holder TEXT, until REAL NOT NULL DEFAULT 0, state TEXT, finish TEXT
        );
        CREATE TABLE IF NOT EXISTS effects (
            run TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, arguments TEXT NOT NULL,
            repeatable INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, outcome TEXT, at REAL NOT NULL,
            PRIMARY KEY (run, key)
        );
        """,
        "ALTER TABLE effects ADD COLUMN ended REAL",
    ),
    "Export what is readable with `toolmason runs repair`",
)
CONVERSATIONS: Final = TableGroup(
    "conversations",
    (
        """
        CREATE TABLE IF NOT EXISTS messages (
            id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, message TEXT NOT NULL
        );
        CREATE INDEX IF NOT EXISTS by_conversation ON messages (conversation, id);
        """,
        """
        CREATE TABLE IF NOT EXISTS kept (
            conversation TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (conversation, key)
        ) WITHOUT ROWID;
        """,
        """
        CREATE TABLE IF NOT EXISTS compacted (
            summary INTEGER NOT NULL, conversation TEXT NOT NULL, message TEXT NOT NULL
        );
        CREATE INDEX IF NOT EXISTS compacted_by_conversation ON compacted (conversation);
        """,
    ),
)
BUDGETS: Final = TableGroup(
    "budgets",
    (
        """
        CREATE TABLE IF NOT EXISTS budgets (
            kind TEXT NOT NULL, key TEXT NOT NULL, period INTEGER NOT NULL, input INTEGER NOT NULL,
            output INTEGER NOT NULL, cost REAL, PRIMARY KEY (kind, key, period)
        ) WITHOUT ROWID;
        """,
    ),
)
DECISIONS: Final = TableGroup(
    "decisions",
    (
        """
        CREATE TABLE IF NOT EXISTS used (token TEXT PRIMARY KEY, expires REAL NOT NULL, "user" TEXT NOT NULL);
        CREATE TABLE IF NOT EXISTS remembered (id TEXT PRIMARY KEY, tool TEXT, data TEXT);
        """,
    ),
)
RATES: Final = TableGroup(
    "rates",
    (
        """
        CREATE TABLE IF NOT EXISTS rates (key TEXT NOT NULL, at REAL NOT NULL);
        CREATE INDEX IF NOT EXISTS rates_by_key ON rates (key, at);
        """,
    ),
)
VALUES: Final = TableGroup(
    "large values",
    ("CREATE TABLE IF NOT EXISTS large_values (key TEXT PRIMARY KEY, data TEXT NOT NULL);",),
)
