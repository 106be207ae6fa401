"""A journal on disk: a run survives its process, and what was done is not done again.

Lives here: `SqliteRuntime`, leases with a fencing number, and outcomes that nobody knows. `started` is written before
an effect and `done` after it. Not here: what the effects are (`effects`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolwright.chat.effects import Effect, Work
from toolwright.chat.runtime import Driven, Form
from toolwright.errors import RunTaken, UnknownOutcome

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, begun REAL NOT NULL, fence INTEGER NOT NULL DEFAULT 0,
    holder TEXT, until REAL NOT NULL DEFAULT 0, state TEXT, finish TEXT
);
CREATE TABLE IF NOT EXISTS effects (
    run TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, arguments TEXT NOT NULL,
    repeatable INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, outcome TEXT, at REAL NOT NULL,
    PRIMARY KEY (run, key)
);
"""
LEASE_SECONDS: Final = 30.0
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the journal knows of a run."""

    run: str
    begun: float
    finish: str | None
    effects: int
    held: bool


class SqliteRuntime:
    """Keeps a journal in a SQLite file. Several processes may share it; each run is driven by one at a time."""

    def __init__(self, path: str | Path, *, lease: float = LEASE_SECONDS) -> None:
        self.path, self.lease = Path(path), lease
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Use the file; what is written is there when the block ends, or not at all."""
        with self._lock:
            connection = self._connection
            if connection is None:
                connection = sqlite3.connect(self.path, timeout=10.0, isolation_level=None, check_same_thread=False)
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.executescript(_SCHEMA)
                connection.execute(f"PRAGMA user_version={_VERSION}")
                self._connection = connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @asynccontextmanager
    async def drive(self, run: str) -> AsyncGenerator[Driven]:
        """Take a run.

        Raises:
            RunTaken: another process drives it, and its lease has not run out.
        """
        holder = f"{os.getpid()}-{os.urandom(6).hex()}"
        fence = self._take(run, holder)
        driven = _Journalled(self, run, fence)
        renewal = asyncio.get_running_loop().create_task(self._renewed(run, fence))
        try:
            yield driven
        finally:
            renewal.cancel()
            with self.transaction() as db:
                db.execute("UPDATE runs SET holder=NULL, until=0 WHERE run=? AND fence=?", (run, fence))

    def _take(self, run: str, holder: str) -> int:
        now = time.time()
        with self.transaction() as db:
            db.execute("INSERT OR IGNORE INTO runs (run, begun) VALUES (?, ?)", (run, now))
            fence, held, until = db.execute("SELECT fence, holder, until FROM runs WHERE run=?", (run,)).fetchone()
            if held is not None and until > now and _alive(held):
                raise RunTaken(run, until - now)
            db.execute(
                "UPDATE runs SET fence=?, holder=?, until=? WHERE run=?", (fence + 1, holder, now + self.lease, run)
            )
            return int(fence) + 1

    async def _renewed(self, run: str, fence: int) -> None:
        while True:
            await asyncio.sleep(self.lease / 3)
            with self.transaction() as db:
                db.execute("UPDATE runs SET until=? WHERE run=? AND fence=?", (time.time() + self.lease, run, fence))

    # --- what a run was asked, and how it ended ------------------------------------------------------

    def save(self, run: str, state: Any, finish: str | None = None) -> None:
        """Keep what is needed to drive a run again."""
        with self.transaction() as db:
            db.execute("INSERT OR IGNORE INTO runs (run, begun) VALUES (?, ?)", (run, time.time()))
            db.execute("UPDATE runs SET state=?, finish=? WHERE run=?", (json.dumps(state), finish, run))

    def load(self, run: str) -> Any:
        """Return what was kept of a run.

        Raises:
            KeyError: there is no such run.
        """
        with self.transaction() as db:
            found = db.execute("SELECT state FROM runs WHERE run=?", (run,)).fetchone()
        if found is None or found[0] is None:
            raise KeyError(f"There is no run {run!r} in {str(self.path)!r}.")
        return json.loads(found[0])

    def runs(self) -> list[RunRecord]:
        """Return every run, the oldest first."""
        with self.transaction() as db:
            rows = db.execute(
                "SELECT r.run, r.begun, r.finish, (SELECT count(*) FROM effects e WHERE e.run=r.run), r.holder, "
                "r.until FROM runs r ORDER BY r.begun, r.run"
            ).fetchall()
        now = time.time()
        return [
            RunRecord(run, begun, finish, effects, bool(holder) and until > now and _alive(holder))
            for run, begun, finish, effects, holder, until in rows
        ]

    def effects(self, run: str) -> list[dict[str, Any]]:
        """Return what a run did, in order."""
        with self.transaction() as db:
            rows = db.execute(
                "SELECT key, kind, name, arguments, attempt, state, outcome FROM effects WHERE run=? ORDER BY at, key",
                (run,),
            ).fetchall()
        names = ("key", "kind", "name", "arguments", "attempt", "state", "outcome")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class _Journalled:
    def __init__(self, runtime: SqliteRuntime, run: str, fence: int) -> None:
        self.runtime, self.run, self.fence = runtime, run, fence

    async def perform(self, effect: Effect, work: Work, form: Form) -> Any:
        found = self._begun(effect)
        if found is not None:
            return form.load(json.loads(found))
        outcome = await work()
        self._write(effect, "done", json.dumps(form.dump(outcome)))
        return outcome

    def _begun(self, effect: Effect) -> str | None:
        """Write down that an effect begins; return its outcome where it has one already."""
        with self.runtime.transaction() as db:
            self._check(db)
            row = db.execute(
                "SELECT state, outcome, attempt, repeatable FROM effects WHERE run=? AND key=?", (self.run, effect.key)
            ).fetchone()
            if row is not None and row[0] == "done":
                return str(row[1])
            if row is not None and not effect.repeatable:
                raise UnknownOutcome(effect.name, effect.key)
            attempt = 1 if row is None else row[2] + 1
            db.execute(
                "INSERT OR REPLACE INTO effects (run, key, kind, name, arguments, repeatable, attempt, state, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, 'started', ?)",
                (
                    self.run,
                    effect.key,
                    effect.kind,
                    effect.name,
                    json.dumps(dict(effect.arguments), default=str),
                    effect.repeatable,
                    attempt,
                    time.time(),
                ),
            )
        return None

    def _write(self, effect: Effect, state: str, outcome: str) -> None:
        with self.runtime.transaction() as db:
            self._check(db)
            db.execute(
                "UPDATE effects SET state=?, outcome=? WHERE run=? AND key=?", (state, outcome, self.run, effect.key)
            )

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse to write where somebody else has taken the run over."""
        [fence] = db.execute("SELECT fence FROM runs WHERE run=?", (self.run,)).fetchone()
        if fence != self.fence:
            raise RunTaken(self.run, 0.0)


def _alive(holder: str) -> bool:
    """Tell whether the process that holds a run is still there; one on another machine is taken to be."""
    try:
        os.kill(int(holder.partition("-")[0]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
