"""Record runs in a journal, so that they survive a crash and completed effects are not repeated.

A run is protected by a lease with a fencing number. `started` is written before an effect and `done` after it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import open_span
from toolmason._core.values.messages import dump_result
from toolmason._core.values.policy import check_store
from toolmason._explain import explain_arguments
from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.store import Store, Tables, Transaction
from toolmason._store.tables import RUNS
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
    """Time when the outcome was recorded, or None if it has none, or an operator set it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


class StoreRuntime:
    """Runtime with a journal in a store. Processes may share it, but only one executes a run at a time."""

    @explain_arguments
    def __init__(self, store: Store, *, lease: float = LEASE_SECONDS) -> None:
        check_store(store)
        if lease <= 0:
            raise ConfigError(f"{type(self).__name__}(lease={lease!r}): lease must be positive.")
        self.lease = lease
        self.tables = Tables(store, RUNS)
        self._unreleased: dict[str, int] = {}
        """Fences of leases that this process gave up, but could not release, because the store was unavailable."""

    @asynccontextmanager
    async def execute(self, run: str) -> AsyncGenerator[RunExecution]:
        """Acquire a run and execute it.

        Raises:
            RunTaken: another process holds the run, and its lease has not expired.
        """

        def acquire(db: Transaction) -> int:
            now = self.tables.store.get_time(db)
            _release_lease(db, run, self._unreleased.get(run, -1))
            return _acquire_lease(db, run, now, now + self.lease)

        fence = await self.tables.write(run, acquire, lambda db, fence: _release_lease(db, run, fence))
        self._unreleased.pop(run, None)
        renewal = asyncio.get_running_loop().create_task(self._renew_lease(run, fence))
        try:
            yield _JournaledRun(self.tables, run, fence)
        finally:
            renewal.cancel()
            await asyncio.wait((renewal,))
            try:
                await self.tables.write(run, lambda db: _release_lease(db, run, fence))
            except ConfigError:  # what the run did is recorded already, and the lease expires
                self._unreleased[run] = fence

    async def _renew_lease(self, run: str, fence: int) -> None:
        def extend(db: Transaction) -> None:
            until = self.tables.store.get_time(db) + self.lease
            db.execute("UPDATE runs SET until=? WHERE run=? AND fence=?", (until, run, fence))

        while True:
            await asyncio.sleep(self.lease / 3)
            # A busy store is retried at the next renewal. If another process takes the run, the fence detects it.
            with suppress(ConfigError):
                await self.tables.write(run, extend)

    # --- queries -------------------------------------------------------------------------------------

    def add_facts(self, run: str, facts: Mapping[str, Any]) -> None:
        """Store facts with a run, as JSON data, in addition to those a chat stores."""

        def add(db: Transaction) -> None:
            _insert_run(db, run, self.tables.store.get_time(db))
            _write_facts(db, run, {**_read_facts(self.tables, db, run), **facts})

        self.tables.transact(run, add)

    def run(self, run: str) -> RunRecord:
        """Return the record of a run.

        Raises:
            KeyError: the run is unknown.
        """
        found = self.tables.query(lambda db: self._load_records(db, "WHERE r.run=?", run))
        if not found:
            raise UnknownName(
                f"Unknown run {run!r} in {self.tables.store.name!r}. List the runs with `runtime.runs()`."
            )
        return found[0]

    def runs(self) -> list[RunRecord]:
        """Return all runs, oldest first."""
        return self.tables.query(self._load_records)

    async def find_runs(self, prefix: str) -> list[RunRecord]:
        """Return the runs whose IDs start with `prefix`, oldest first."""
        where = ("WHERE r.run >= ? AND r.run < ?", prefix, f"{prefix}{chr(sys.maxunicode)}")
        return await self.tables.read(lambda db: self._load_records(db, *where))

    def _load_records(self, db: Transaction, where: str = "", *values: str) -> list[RunRecord]:
        query = (
            "SELECT r.run, r.begun, r.finish, (SELECT count(*) FROM effects e WHERE e.run=r.run), r.holder, "  # noqa: S608 - constants
            f"r.until, r.state FROM runs r {where} ORDER BY r.begun, r.run"
        )
        rows = db.execute(query, values).fetchall()
        now = self.tables.store.get_time(db)
        return [
            RunRecord(name, begun, finish, effects, _is_held(holder, until, now), self.tables.load_object(facts))
            for name, begun, finish, effects, holder, until, facts in rows
        ]

    def effects(self, run: str) -> list[EffectRecord]:
        """Return the effects of a run, in order."""
        columns = "key, kind, name, arguments, repeatable, attempt, state, outcome, at, ended"
        query = f"SELECT {columns} FROM effects WHERE run=? ORDER BY at, key"  # noqa: S608 - constant
        rows = self.tables.query(lambda db: db.execute(query, (run,)).fetchall())
        load, load_object = self.tables.load_json, self.tables.load_object
        return [
            EffectRecord(key, kind, name, load_object(arguments), bool(again), attempt, state, load(outcome), at, ended)
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

        def write_outcome(db: Transaction) -> None:
            _raise_if_held(db, run, self.tables.store.get_time(db))
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

        self.tables.transact(run, write_outcome)

    def close(self) -> None:
        """Close the journal."""
        self.tables.close()


class SqliteRuntime(StoreRuntime):
    """Runtime with a journal in a SQLite file, for the processes of one machine."""

    @explain_arguments
    def __init__(self, path: str | Path, *, lease: float = LEASE_SECONDS) -> None:
        super().__init__(SqliteStore(path), lease=lease)
        self.path = Path(path)


class _JournaledRun:
    """One execution of a run under one fence."""

    def __init__(self, tables: Tables, run: str, fence: int) -> None:
        self.tables, self.run, self.fence = tables, run, fence

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        def write_begin(db: Transaction) -> Mapping[str, Any] | None:
            self._check_fence(db)
            known = _read_facts(self.tables, db, self.run)
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

        return await self.tables.write(self.run, write_begin)

    async def end(self, finish: str, facts: FactsProvider) -> None:
        def write_end(db: Transaction) -> None:
            self._check_fence(db)
            _write_facts(db, self.run, {**_read_facts(self.tables, db, self.run), **facts()})
            db.execute("UPDATE runs SET finish=? WHERE run=?", (finish, self.run))

        await self.tables.write(self.run, write_end)

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
            data = self.tables.load_json(stored)
            try:
                return serializer.load(data), True
            except (ValueError, TypeError, LookupError, AttributeError, ToolmasonError) as error:
                raise self.tables.make_damage_error(error) from error
        outcome = await work()
        dumped = serializer.dump(outcome)
        outcome_json = None if dumped is None else json.dumps(dumped, default=str)
        await self._write_outcome(effect, "waits" if outcome_json is None else "done", outcome_json)
        return outcome, False

    async def _begin_effect(self, effect: RunEffect, *, again: bool = False) -> str | None:
        """Record the start of an effect. Return its outcome if it already has one."""

        def undo(db: Transaction, state: _EffectState) -> None:
            # If cancelled during this write, the effect never starts, so it must not look interrupted.
            if state.outcome is None:
                _restore_effect(db, self.run, effect.key, state)

        state = await self.tables.write(self.run, lambda db: self._insert_effect(db, effect, again=again), undo)
        return state.outcome

    def _insert_effect(self, db: Transaction, effect: RunEffect, *, again: bool) -> _EffectState:
        arguments = json.dumps(dict(effect.arguments), default=str)
        self._check_fence(db)
        row = db.execute(
            "SELECT state, outcome, attempt, repeatable, name, arguments FROM effects WHERE run=? AND key=?",
            (self.run, effect.key),
        ).fetchone()
        if row is not None and effect.kind == "tool" and row[4:] != (effect.name, arguments):
            raise ConfigError(
                f"Run {self.run!r} made another call at {effect.key!r} before: {row[4]} {row[5]}. "
                "Its code, tools or messages have changed. Start another run."
            )
        if row is not None and row[0] == "done":
            return _EffectState(str(row[1]))
        # The tool of the interrupted attempt may have been changed or removed since.
        may_repeat = again or row is None or (effect.repeatable and row[3]) or row[0] in ("waits", "again")
        if not may_repeat:
            raise UnknownOutcome(effect.name, effect.key)
        attempt = 1 if row is None else row[2] + (row[0] != "waits")
        values = (effect.kind, effect.name, arguments, int(effect.repeatable), attempt)
        db.execute(
            "INSERT INTO effects (run, key, kind, name, arguments, repeatable, attempt, state, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'started', ?) "
            "ON CONFLICT (run, key) DO UPDATE SET state='started', attempt=excluded.attempt",
            (self.run, effect.key, *values, time.time()),
        )
        return _EffectState() if row is None else _EffectState(None, row[0], row[2])

    async def _write_outcome(self, effect: RunEffect, state: str, outcome: str | None) -> None:
        def update(db: Transaction) -> None:
            self._check_fence(db)
            db.execute(
                "UPDATE effects SET state=?, outcome=?, ended=? WHERE run=? AND key=?",
                (state, outcome, time.time(), self.run, effect.key),
            )

        await self.tables.write(self.run, update)

    def _check_fence(self, db: Transaction) -> None:
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


def _insert_run(db: Transaction, run: str, now: float) -> None:
    db.execute("INSERT INTO runs (run, begun) VALUES (?, ?) ON CONFLICT (run) DO NOTHING", (run, now))


def _acquire_lease(db: Transaction, run: str, now: float, until: float) -> int:
    _insert_run(db, run, now)
    _raise_if_held(db, run, now)
    db.execute("UPDATE runs SET fence=fence+1, holder=?, until=? WHERE run=?", (get_process_identity(), until, run))
    [fence] = db.execute("SELECT fence FROM runs WHERE run=?", (run,)).fetchone()
    return int(fence)


def _release_lease(db: Transaction, run: str, fence: int) -> None:
    db.execute("UPDATE runs SET holder=NULL, until=0 WHERE run=? AND fence=?", (run, fence))


def _restore_effect(db: Transaction, run: str, key: str, state: _EffectState) -> None:
    if state.state is None:
        db.execute("DELETE FROM effects WHERE run=? AND key=?", (run, key))
    else:
        values = (state.state, state.attempt, run, key)
        db.execute("UPDATE effects SET state=?, attempt=? WHERE run=? AND key=?", values)


def _is_held(holder: str | None, until: float, now: float) -> bool:
    return holder is not None and until > now and not is_dead(holder)


def _raise_if_held(db: Transaction, run: str, now: float) -> None:
    found = db.execute("SELECT holder, until FROM runs WHERE run=?", (run,)).fetchone()
    if found is None:
        raise UnknownName(f"Unknown run {run!r}. List the runs with `runtime.runs()`.")
    holder, until = found
    if _is_held(holder, until, now):
        raise RunTaken(run, until - now)


def _read_facts(tables: Tables, db: Transaction, run: str) -> dict[str, Any]:
    [state] = db.execute("SELECT state FROM runs WHERE run=?", (run,)).fetchone()
    return tables.load_object(state)


def _write_facts(db: Transaction, run: str, facts: Mapping[str, Any]) -> None:
    db.execute("UPDATE runs SET state=? WHERE run=?", (json.dumps(facts), run))
