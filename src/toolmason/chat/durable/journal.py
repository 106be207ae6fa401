"""Record runs in a SQLite journal, so that they survive a crash and completed effects are not repeated.

A run is protected by a lease with a fencing number. `started` is written before an effect and `done` after it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import open_span
from toolmason._core.values.messages import dump_result
from toolmason._explain import explain_arguments
from toolmason.chat.durable.effects import (
    Completed,
    FactsProvider,
    NotExecuted,
    OutcomeSerializer,
    ReconciledOutcome,
    Reconciler,
    RunEffect,
    RunExecution,
    Work,
    make_result,
)
from toolmason.chat.durable.process_identity import get_process_identity, is_dead
from toolmason.chat.durable.sqlite_file import JOURNAL_MIGRATIONS, SqliteFile
from toolmason.errors import ConfigError, RunTaken, ToolmasonError, UnknownName, UnknownOutcome

LEASE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Journal record of a run."""

    run: str
    begun: float
    """Start time, in seconds since the epoch."""
    finish: str | None
    """Reason the run ended, or None if it has not."""
    effects: int
    """Number of model turns and calls started."""
    held: bool
    """True if a process is executing the run."""
    facts: Mapping[str, Any]
    """Messages and other facts recorded with the run."""

    @property
    def state(self) -> str:
        """State of the run: `running`, `interrupted`, or the reason it ended."""
        return "running" if self.held else self.finish or "interrupted"


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """Journal record of one model turn or call."""

    key: str
    kind: str
    name: str
    arguments: Mapping[str, Any]
    repeatable: bool
    attempt: int
    state: str
    """`started`, `done`, `waits` (for approval), `again` (to be repeated), or `unknown` (and reported to the model)."""
    outcome: Any
    at: float
    """Start time, in seconds since the epoch."""
    ended: float | None = None
    """Time when the outcome was recorded, or None if it has none, or an older version recorded it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


class SqliteRuntime:
    """Runtime with a journal in a SQLite file. Processes may share it, but only one executes a run at a time."""

    @explain_arguments
    def __init__(self, path: str | Path, *, lease: float = LEASE_SECONDS) -> None:
        if lease <= 0:
            raise ConfigError(f"SqliteRuntime(lease={lease!r}): lease must be positive.")
        self.path, self.lease = Path(path), lease
        self.file = SqliteFile(self.path, "runs", JOURNAL_MIGRATIONS)
        self._unreleased: dict[str, int] = {}
        """Fences of leases that this process gave up, but could not release, because the disk was full."""

    @asynccontextmanager
    async def execute(self, run: str) -> AsyncGenerator[RunExecution]:
        """Acquire a run and execute it.

        Raises:
            RunTaken: another process holds the run, and its lease has not expired.
        """
        now = time.time()

        def acquire(db: sqlite3.Connection) -> int:
            _release_lease(db, run, self._unreleased.pop(run, -1))
            return _acquire_lease(db, run, now, now + self.lease)

        fence = await self.file.write(acquire, lambda db, fence: _release_lease(db, run, fence))
        renewal = asyncio.get_running_loop().create_task(self._renew_lease(run, fence))
        try:
            yield _JournaledRun(self.file, run, fence)
        finally:
            renewal.cancel()
            await asyncio.wait((renewal,))
            try:
                await self.file.write(lambda db: _release_lease(db, run, fence))
            except ConfigError:  # what the run did is recorded already, and the lease expires
                self._unreleased[run] = fence

    async def _renew_lease(self, run: str, fence: int) -> None:
        while True:
            await asyncio.sleep(self.lease / 3)
            until = time.time() + self.lease
            # A busy file is retried at the next renewal. If another process takes the run, the fence detects it.
            with suppress(ConfigError):
                await self.file.write(partial(_extend_lease, run=run, fence=fence, until=until))

    # --- queries -------------------------------------------------------------------------------------

    def add_facts(self, run: str, facts: Mapping[str, Any]) -> None:
        """Store facts with a run, as JSON data, in addition to those a chat stores."""
        with self.file.write_transaction() as db:
            db.execute("INSERT OR IGNORE INTO runs (run, begun) VALUES (?, ?)", (run, time.time()))
            _write_facts(db, run, {**_read_facts(self.file, db, run), **facts})

    def run(self, run: str) -> RunRecord:
        """Return the record of a run.

        Raises:
            KeyError: the run is unknown.
        """
        found = self._records(run)
        if not found:
            raise UnknownName(f"Unknown run {run!r} in {str(self.path)!r}. List the runs with `runtime.runs()`.")
        return found[0]

    def runs(self) -> list[RunRecord]:
        """Return all runs, oldest first."""
        return self._records(None)

    async def find_runs(self, prefix: str) -> list[RunRecord]:
        """Return the runs whose IDs start with `prefix`, oldest first."""
        query = "SELECT run FROM runs WHERE run >= ?1 AND run < ?1 || char(1114111) ORDER BY begun, run"
        found = await self.file.read(lambda db: db.execute(query, (prefix,)).fetchall())
        return [self.run(name) for (name,) in found]

    def _records(self, run: str | None) -> list[RunRecord]:
        rows = self._select(
            "SELECT r.run, r.begun, r.finish, (SELECT count(*) FROM effects e WHERE e.run=r.run), r.holder, "
            "r.until, r.state FROM runs r WHERE ?1 IS NULL OR r.run=?1 ORDER BY r.begun, r.run",
            run,
        )
        now = time.time()
        return [
            RunRecord(name, begun, finish, effects, _is_held(holder, until, now), self.file.load_object(facts))
            for name, begun, finish, effects, holder, until, facts in rows
        ]

    def _select(self, query: str, run: str | None) -> list[tuple[Any, ...]]:
        with self.file.read_connection() as db:
            return db.execute(query, (run,)).fetchall()

    def effects(self, run: str) -> list[EffectRecord]:
        """Return the effects of a run, in order."""
        columns = "key, kind, name, arguments, repeatable, attempt, state, outcome, at, ended"
        rows = self._select(f"SELECT {columns} FROM effects WHERE run=? ORDER BY at, rowid", run)  # noqa: S608 - constant
        load = self.file.load_json
        return [
            EffectRecord(
                key, kind, name, self.file.load_object(arguments), bool(again), attempt, state, load(outcome), at, ended
            )
            for key, kind, name, arguments, again, attempt, state, outcome, at, ended in rows
        ]

    def interrupted_calls(self, run: str) -> list[EffectRecord]:
        """Return the interrupted calls of a run that must not be repeated without reconciliation."""
        return [effect for effect in self.effects(run) if effect.state == "started" and not effect.repeatable]

    def reconcile(self, run: str, key: str, outcome: ReconciledOutcome) -> None:
        """Set the outcome of an interrupted call: `Completed(value)`, or `NotExecuted()` to repeat it.

        Raises:
            KeyError: the run or the call is unknown.
            ConfigError: the call was not interrupted, or was already reported to the model as unknown.
            RunTaken: a process is executing the run.
        """
        with self.file.write_transaction() as db:
            _raise_if_held(db, run, time.time())
            found = db.execute("SELECT name, state FROM effects WHERE run=? AND key=?", (run, key)).fetchone()
            if found is None:
                raise UnknownName(f"Unknown call {key!r} in run {run!r}. List them with `runtime.effects({run!r})`.")
            name, state = found
            if state != "started":
                raise ConfigError(
                    f"Call {key!r} of run {run!r} is {state!r}, not interrupted, so it cannot be reconciled."
                )
            if isinstance(outcome, NotExecuted):
                # Not deleted, to keep the number of attempts.
                db.execute("UPDATE effects SET state='again' WHERE run=? AND key=?", (run, key))
            else:
                result_json = json.dumps(dump_result(make_result(name, outcome.value)))
                db.execute("UPDATE effects SET state='done', outcome=? WHERE run=? AND key=?", (result_json, run, key))

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class _JournaledRun:
    """One execution of a run under one fence."""

    def __init__(self, file: SqliteFile, run: str, fence: int) -> None:
        self.file, self.run, self.fence = file, run, fence

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        def write_begin(db: sqlite3.Connection) -> Mapping[str, Any] | None:
            self._check_fence(db)
            known = _read_facts(self.file, db, self.run)
            if "damaged" in known:
                raise ConfigError(
                    f"Run {self.run!r} comes from a damaged journal, which may have lost calls that it made. "
                    "Start another run."
                )
            if "asked" in known:
                db.execute("UPDATE runs SET finish=NULL WHERE run=?", (self.run,))
                return known
            _write_facts(db, self.run, {**known, **facts()})
            return None

        return await self.file.write(write_begin)

    async def end(self, finish: str, facts: FactsProvider) -> None:
        def write_end(db: sqlite3.Connection) -> None:
            self._check_fence(db)
            _write_facts(db, self.run, {**_read_facts(self.file, db, self.run), **facts()})
            db.execute("UPDATE runs SET finish=? WHERE run=?", (finish, self.run))

        await self.file.write(write_end)

    async def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Any:
        attributes = {"toolmason.run.id": self.run, "toolmason.effect.key": effect.key}
        with open_span(f"effect {effect.name}", attributes) as span:
            outcome, is_replayed = await self._perform(effect, work, serializer, reconciler)
            if span is not None:
                span.set({"toolmason.effect.replayed": is_replayed})
        if is_replayed:
            measure("toolmason.cache.hits", 1, {"toolmason.cache": "journal"})
        return outcome

    async def _perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None
    ) -> tuple[Any, bool]:
        """Return the outcome of an effect, and True if the journal had it."""
        try:
            stored = await self._begin_effect(effect)
        except UnknownOutcome:
            answer = None if reconciler is None else await reconciler()
            if answer is None:
                await self._write_outcome(effect, "unknown", None)
                raise
            if isinstance(answer, Completed):
                await self._write_outcome(effect, "done", json.dumps(serializer.dump(answer.value)))
                return answer.value, True
            stored = await self._begin_effect(effect, again=True)
        if stored is not None:
            data = self.file.load_json(stored)
            try:
                return serializer.load(data), True
            except (ValueError, TypeError, LookupError, AttributeError, ToolmasonError) as error:
                raise self.file.make_damage_error(error) from error
        outcome = await work()
        dumped = serializer.dump(outcome)
        outcome_json = None if dumped is None else json.dumps(dumped, default=str)
        await self._write_outcome(effect, "waits" if outcome_json is None else "done", outcome_json)
        return outcome, False

    async def _begin_effect(self, effect: RunEffect, *, again: bool = False) -> str | None:
        """Record the start of an effect. Return its outcome if it already has one."""

        def undo(db: sqlite3.Connection, state: _EffectState) -> None:
            # If cancelled during this write, the effect never starts, so it must not look interrupted.
            if state.outcome is None:
                _restore_effect(db, self.run, effect.key, state)

        return (await self.file.write(lambda db: self._insert_effect(db, effect, again=again), undo)).outcome

    def _insert_effect(self, db: sqlite3.Connection, effect: RunEffect, *, again: bool) -> _EffectState:
        arguments = json.dumps(dict(effect.arguments), default=str)
        self._check_fence(db)
        row = db.execute(
            "SELECT state, outcome, attempt, name, arguments FROM effects WHERE run=? AND key=?",
            (self.run, effect.key),
        ).fetchone()
        if row is not None and effect.kind == "tool" and row[3:] != (effect.name, arguments):
            raise ConfigError(
                f"Run {self.run!r} made another call at {effect.key!r} before: {row[3]} {row[4]}. "
                "Its code, tools or messages have changed. Start another run."
            )
        if row is not None and row[0] == "done":
            return _EffectState(str(row[1]))
        if row is not None and not effect.repeatable and row[0] not in ("waits", "again") and not again:
            raise UnknownOutcome(effect.name, effect.key)
        attempt = 1 if row is None else row[2] + (row[0] != "waits")
        values = (effect.kind, effect.name, arguments, effect.repeatable, attempt)
        db.execute(
            "INSERT INTO effects (run, key, kind, name, arguments, repeatable, attempt, state, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'started', ?) "
            "ON CONFLICT (run, key) DO UPDATE SET state='started', attempt=excluded.attempt",
            (self.run, effect.key, *values, time.time()),
        )
        return _EffectState() if row is None else _EffectState(None, row[0], row[2])

    async def _write_outcome(self, effect: RunEffect, state: str, outcome: str | None) -> None:
        def update(db: sqlite3.Connection) -> None:
            self._check_fence(db)
            db.execute(
                "UPDATE effects SET state=?, outcome=?, ended=? WHERE run=? AND key=?",
                (state, outcome, time.time(), self.run, effect.key),
            )

        await self.file.write(update)

    def _check_fence(self, db: sqlite3.Connection) -> None:
        """Raise if another process has acquired the run."""
        [fence] = db.execute("SELECT fence FROM runs WHERE run=?", (self.run,)).fetchone()
        if fence != self.fence:
            raise RunTaken(self.run, 0.0)


@dataclass(frozen=True, slots=True)
class _EffectState:
    """Outcome of an effect, or its previous state."""

    outcome: str | None = None
    state: str | None = None
    attempt: int = 0


def _acquire_lease(db: sqlite3.Connection, run: str, now: float, until: float) -> int:
    db.execute("INSERT OR IGNORE INTO runs (run, begun) VALUES (?, ?)", (run, now))
    _raise_if_held(db, run, now)
    db.execute("UPDATE runs SET fence=fence+1, holder=?, until=? WHERE run=?", (get_process_identity(), until, run))
    [fence] = db.execute("SELECT fence FROM runs WHERE run=?", (run,)).fetchone()
    return int(fence)


def _extend_lease(db: sqlite3.Connection, *, run: str, fence: int, until: float) -> None:
    db.execute("UPDATE runs SET until=? WHERE run=? AND fence=?", (until, run, fence))


def _release_lease(db: sqlite3.Connection, run: str, fence: int) -> None:
    db.execute("UPDATE runs SET holder=NULL, until=0 WHERE run=? AND fence=?", (run, fence))


def _restore_effect(db: sqlite3.Connection, run: str, key: str, state: _EffectState) -> None:
    if state.state is None:
        db.execute("DELETE FROM effects WHERE run=? AND key=?", (run, key))
    else:
        values = (state.state, state.attempt, run, key)
        db.execute("UPDATE effects SET state=?, attempt=? WHERE run=? AND key=?", values)


def _is_held(holder: str | None, until: float, now: float) -> bool:
    return holder is not None and until > now and not is_dead(holder)


def _raise_if_held(db: sqlite3.Connection, run: str, now: float) -> None:
    found = db.execute("SELECT holder, until FROM runs WHERE run=?", (run,)).fetchone()
    if found is None:
        raise UnknownName(f"Unknown run {run!r}. List the runs with `runtime.runs()`.")
    holder, until = found
    if _is_held(holder, until, now):
        raise RunTaken(run, until - now)


def _read_facts(file: SqliteFile, db: sqlite3.Connection, run: str) -> dict[str, Any]:
    [state] = db.execute("SELECT state FROM runs WHERE run=?", (run,)).fetchone()
    return file.load_object(state)


def _write_facts(db: sqlite3.Connection, run: str, facts: Mapping[str, Any]) -> None:
    db.execute("UPDATE runs SET state=? WHERE run=?", (json.dumps(facts), run))
