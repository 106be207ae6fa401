"""Keep decisions in a SQLite file that processes share: those that were used, and those that are remembered."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json, to_json

_log = logging.getLogger("toolmason")

_BUSY_SECONDS: Final = 10.0


class ApprovalLedger:
    """File of used decisions. Each use opens it: forks and threads cannot share a connection."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        """The application's file; None for the one that all programs of the user share."""

    def add(self, token: str, expires: float, user: str = "") -> bool:
        """Record a token as used. Return False if it was used before, unless by the same journaled run `user`.

        Raises:
            OSError: the file is damaged, or the application's own file cannot be opened.
        """
        try:
            path = self.path or _get_shared_path()
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except (OSError, RuntimeError) as error:
            if self.path is not None:
                raise
            _log.warning("decisions are valid once in this process only: %s. Set approvals_file=", error)
            return True
        try:
            return _insert(path, token, expires, user)
        except sqlite3.Error as error:
            raise OSError(f"{str(path)!r} is not a file of used decisions, or is in use: {error}") from error


def _get_shared_path() -> Path:
    folder = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".local" / "state"
    return Path(folder) / "toolmason" / "approvals.db"


def _insert(path: Path, token: str, expires: float, user: str) -> bool:
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level="IMMEDIATE")) as db, db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS used (token TEXT PRIMARY KEY, expires REAL NOT NULL, user TEXT NOT NULL)"
        )
        db.execute("DELETE FROM used WHERE expires < ?", (time.time(),))
        if db.execute("INSERT OR IGNORE INTO used VALUES (?, ?, ?)", (token, expires, user)).rowcount == 1:
            return True
        [known_user] = db.execute("SELECT user FROM used WHERE token=?", (token,)).fetchone()
        return bool(user) and known_user == user


class SqliteDecisions:
    """File of remembered decisions, which may be that of the used ones."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self, tool: str | None) -> Iterable[Mapping[str, Any]]:
        """Return the decisions about a tool, or all.

        Raises:
            OSError: the file is damaged or cannot be opened.
        """
        where, values = ("", ()) if tool is None else (" WHERE tool=?", (tool,))
        return [_read_row(row) for [row] in self._execute(f"SELECT data FROM remembered{where}", values)[0]]  # noqa: S608 - no input

    def save(self, decision: Mapping[str, Any]) -> None:
        """Keep a decision, in place of another one with its ID.

        Raises:
            OSError: the file is damaged or cannot be written.
        """
        values = (decision["id"], decision["tool"], to_json(decision).decode())
        self._execute("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?)", values)

    def remove(self, decision_id: str) -> bool:
        """Remove a decision. Return False if there is none.

        Raises:
            OSError: the file is damaged or cannot be written.
        """
        return self._execute("DELETE FROM remembered WHERE id=?", (decision_id,))[1] > 0

    def _execute(self, statement: str, values: tuple[str, ...]) -> tuple[list[Any], int]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as db, db:
                db.execute("CREATE TABLE IF NOT EXISTS remembered (id TEXT PRIMARY KEY, tool TEXT, data TEXT)")
                cursor = db.execute(statement, values)
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as error:
            raise OSError(f"{str(self.path)!r} is not a file of decisions, or is in use: {error}") from error


def _read_row(text: Any) -> Mapping[str, Any]:
    try:
        data = from_json(text)
    except (TypeError, ValueError):
        return {}  # refused later, as one without a signature
    return data if isinstance(data, dict) else {}
