"""A journal on disk: a run survives its process, and what was done is not done again.

Lives here: `SqliteRuntime`, leases with a fencing number, and outcomes that nobody knows. `started` is written before
an effect and `done` after it. Not here: what the effects are (`effects`), or the file's tables (`ledger`).
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

from pydantic_core import to_json

from toolmason._core.values.messages import dump_result
from toolmason._core.values.results import ToolResult
from toolmason.chat.durable.effects import Ask, Effect, NotDone, Reconciled, WasDone, Work
from toolmason.chat.durable.process_identity import is_gone, this_process
from toolmason.chat.durable.runtime import Driven, Facts, Form
from toolmason.chat.durable.sqlite_file import JOURNAL, Ledger
from toolmason.errors import ConfigError, RunTaken, UnknownOutcome

__all__ = ["EffectRecord", "NotDone", "RunRecord", "SqliteRuntime", "WasDone"]

LEASE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the journal knows of a run."""

    run: str
    begun: float
    """In seconds since 1970."""
    finish: str | None
    """How it ended; `None` where it did not."""
    effects: int
    """How many model turns and calls it has begun."""
    held: bool
    """Whether a process drives it."""
    facts: Mapping[str, Any]
    """What it was asked, and what was noted with it."""

    @property
    def state(self) -> str:
        """How it stands: `running`, `interrupted`, or how it ended."""
        return "running" if self.held else self.finish or "interrupted"


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """What the journal knows of one model turn or call."""

    key: str
    kind: str
    name: str
    arguments: Mapping[str, Any]
    repeatable: bool
    attempt: int
    state: str
    """`started`, `done`, `waits` for approval, to be made `again`, or `unknown`, and the model was told so."""
    outcome: Any
    at: float

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


class SqliteRuntime:
    """Keeps a journal in a SQLite file. Several processes may share it; each run is driven by one at a time."""

    def __init__(self, path: str | Path, *, lease: float = LEASE_SECONDS) -> None:
        if lease <= 0:
            raise ConfigError(f"SqliteRuntime(lease={lease!r}): give seconds above 0.")
        self.path, self.lease = Path(path), lease
        self.ledger = Ledger(self.path, "runs", JOURNAL)

    @asynccontextmanager
    async def drive(self, run: str) -> AsyncGenerator[Driven]:
        """Take a run.

        Raises:
            RunTaken: another process drives it, and its lease has not run out.
        """
        now = time.time()
        fence = await self.ledger.write(
            lambda db: _take(db, run, now, now + self.lease), lambda db, fence: _release(db, run, fence)
        )
        renewal = asyncio.get_running_loop().create_task(self._renewed(run, fence))
        try:
            yield _Journalled(self.ledger, run, fence)
        finally:
            renewal.cancel()
            await asyncio.wait((renewal,))
            await self.ledger.write(lambda db: _release(db, run, fence))

    async def _renewed(self, run: str, fence: int) -> None:
        while True:
            await asyncio.sleep(self.lease / 3)
            until = time.time() + self.lease
            # A file that is busy for long is tried again; whoever takes the run over meanwhile is seen by its fence.
            with suppress(sqlite3.OperationalError):
                await self.ledger.write(partial(_renew, run=run, fence=fence, until=until))

    # --- what is known of runs -----------------------------------------------------------------------

    def note(self, run: str, facts: Mapping[str, Any]) -> None:
        """Keep facts with a run, as JSON data, beside what a chat keeps there."""
        with self.ledger.writing() as db:
            db.execute("INSERT OR IGNORE INTO runs (run, begun) VALUES (?, ?)", (run, time.time()))
            _merge(db, run, facts)

    def run(self, run: str) -> RunRecord:
        """Return what is known of a run.

        Raises:
            KeyError: there is no such run.
        """
        found = self._records(run)
        if not found:
            raise KeyError(f"There is no run {run!r} in {str(self.path)!r}.")
        return found[0]

    def runs(self) -> list[RunRecord]:
        """Return every run, the oldest first."""
        return self._records(None)

    def _records(self, run: str | None) -> list[RunRecord]:
        with self.ledger.reading() as db:
            rows = db.execute(
                "SELECT r.run, r.begun, r.finish, (SELECT count(*) FROM effects e WHERE e.run=r.run), r.holder, "
                "r.until, r.state FROM runs r WHERE ?1 IS NULL OR r.run=?1 ORDER BY r.begun, r.run",
                (run,),
            ).fetchall()
        now = time.time()
        return [
            RunRecord(name, begun, finish, effects, _held(holder, until, now), json.loads(facts or "{}"))
            for name, begun, finish, effects, holder, until, facts in rows
        ]

    def effects(self, run: str) -> list[EffectRecord]:
        """Return what a run did, in order."""
        with self.ledger.reading() as db:
            rows = db.execute(
                "SELECT key, kind, name, arguments, repeatable, attempt, state, outcome, at FROM effects WHERE run=? "
                "ORDER BY at, rowid",
                (run,),
            ).fetchall()
        return [
            EffectRecord(key, kind, name, json.loads(arguments), bool(again), attempt, state, _json(outcome), at)
            for key, kind, name, arguments, again, attempt, state, outcome, at in rows
        ]

    def unknown(self, run: str) -> list[EffectRecord]:
        """Return the calls of a run that were interrupted, and must not be made again without a word."""
        return [effect for effect in self.effects(run) if effect.state == "started" and not effect.repeatable]

    def reconcile(self, run: str, key: str, outcome: Reconciled) -> None:
        """Say what became of an interrupted call: `WasDone(value)`, or `NotDone()`, after which it is made again.

        Raises:
            KeyError: there is no such run, or no such call in it.
            ConfigError: the call was not interrupted, or the model was told already that nobody knows.
            RunTaken: a process drives the run.
        """
        with self.ledger.writing() as db:
            _refuse_taken(db, run, time.time())
            found = db.execute("SELECT name, state FROM effects WHERE run=? AND key=?", (run, key)).fetchone()
            if found is None:
                raise KeyError(f"There is no call {key!r} in the run {run!r}. `runtime.effects({run!r})` lists them.")
            name, state = found
            if state != "started":
                raise ConfigError(
                    f"The call {key!r} of the run {run!r} is {state!r}, not interrupted. There is nothing to reconcile."
                )
            if isinstance(outcome, NotDone):
                # Not deleted: the number of attempts stays known.
                db.execute("UPDATE effects SET state='again' WHERE run=? AND key=?", (run, key))
            else:
                told = json.dumps(dump_result(result_with(name, outcome.value)))
                db.execute("UPDATE effects SET state='done', outcome=? WHERE run=? AND key=?", (told, run, key))

    def close(self) -> None:
        """Close the file."""
        self.ledger.close()


class _Journalled:
    """One run, driven under one fence."""

    keeps = True

    def __init__(self, ledger: Ledger, run: str, fence: int) -> None:
        self.ledger, self.run, self.fence = ledger, run, fence

    async def begin(self, facts: Facts) -> Mapping[str, Any] | None:
        def begun(db: sqlite3.Connection) -> Mapping[str, Any] | None:
            self._check(db)
            [state] = db.execute("SELECT state FROM runs WHERE run=?", (self.run,)).fetchone()
            known: dict[str, Any] = json.loads(state or "{}")
            if "asked" in known:
                db.execute("UPDATE runs SET finish=NULL WHERE run=?", (self.run,))
                return known
            _merge(db, self.run, facts())
            return None

        return await self.ledger.write(begun)

    async def end(self, finish: str, facts: Facts) -> None:
        def ended(db: sqlite3.Connection) -> None:
            self._check(db)
            _merge(db, self.run, facts())
            db.execute("UPDATE runs SET finish=? WHERE run=?", (finish, self.run))

        await self.ledger.write(ended)

    async def perform(self, effect: Effect, work: Work, form: Form, ask: Ask | None = None) -> Any:
        try:
            found = await self._begun(effect)
        except UnknownOutcome:
            said = None if ask is None else await ask()
            if said is None:
                await self._write(effect, "unknown", None)
                raise
            if isinstance(said, WasDone):
                await self._write(effect, "done", json.dumps(form.dump(said.value)))
                return said.value
            found = await self._begun(effect, again=True)
        if found is not None:
            return form.load(json.loads(found))
        outcome = await work()
        told = form.dump(outcome)
        done = None if told is None else json.dumps(told, default=str)
        await self._write(effect, "waits" if done is None else "done", done)
        return outcome

    async def _begun(self, effect: Effect, *, again: bool = False) -> str | None:
        """Write down that an effect begins; return its outcome where it has one already."""

        def undo(db: sqlite3.Connection, known: _Known) -> None:
            # Whoever is cancelled while this is written never begins: nobody has to ask later what became of it.
            if known.outcome is None:
                _reset(db, self.run, effect.key, known)

        return (await self.ledger.write(lambda db: self._begin(db, effect, again=again), undo)).outcome

    def _begin(self, db: sqlite3.Connection, effect: Effect, *, again: bool) -> _Known:
        arguments = json.dumps(dict(effect.arguments), default=str)
        self._check(db)
        row = db.execute(
            "SELECT state, outcome, attempt, name, arguments FROM effects WHERE run=? AND key=?",
            (self.run, effect.key),
        ).fetchone()
        if row is not None and effect.kind == "tool" and row[3:] != (effect.name, arguments):
            raise ConfigError(
                f"The run {self.run!r} did something else at {effect.key!r} before: {row[3]} {row[4]}. "
                "Its code, its tools or its messages have changed. Start another run."
            )
        if row is not None and row[0] == "done":
            return _Known(str(row[1]))
        if row is not None and not effect.repeatable and row[0] not in ("waits", "again") and not again:
            raise UnknownOutcome(effect.name, effect.key)
        attempt = 1 if row is None else row[2] + (row[0] != "waits")
        fresh = (effect.kind, effect.name, arguments, effect.repeatable, attempt)
        db.execute(
            "INSERT INTO effects (run, key, kind, name, arguments, repeatable, attempt, state, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'started', ?) "
            "ON CONFLICT (run, key) DO UPDATE SET state='started', attempt=excluded.attempt",
            (self.run, effect.key, *fresh, time.time()),
        )
        return _Known() if row is None else _Known(None, row[0], row[2])

    async def _write(self, effect: Effect, state: str, outcome: str | None) -> None:
        def write(db: sqlite3.Connection) -> None:
            self._check(db)
            db.execute(
                "UPDATE effects SET state=?, outcome=? WHERE run=? AND key=?", (state, outcome, self.run, effect.key)
            )

        await self.ledger.write(write)

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse to write where somebody else has taken the run over."""
        [fence] = db.execute("SELECT fence FROM runs WHERE run=?", (self.run,)).fetchone()
        if fence != self.fence:
            raise RunTaken(self.run, 0.0)


@dataclass(frozen=True, slots=True)
class _Known:
    """What an effect came to, or how it stood before it began."""

    outcome: str | None = None
    state: str | None = None
    attempt: int = 0


def _take(db: sqlite3.Connection, run: str, now: float, until: float) -> int:
    db.execute("INSERT OR IGNORE INTO runs (run, begun) VALUES (?, ?)", (run, now))
    _refuse_taken(db, run, now)
    db.execute("UPDATE runs SET fence=fence+1, holder=?, until=? WHERE run=?", (this_process(), until, run))
    [fence] = db.execute("SELECT fence FROM runs WHERE run=?", (run,)).fetchone()
    return int(fence)


def _renew(db: sqlite3.Connection, *, run: str, fence: int, until: float) -> None:
    db.execute("UPDATE runs SET until=? WHERE run=? AND fence=?", (until, run, fence))


def _release(db: sqlite3.Connection, run: str, fence: int) -> None:
    db.execute("UPDATE runs SET holder=NULL, until=0 WHERE run=? AND fence=?", (run, fence))


def _reset(db: sqlite3.Connection, run: str, key: str, known: _Known) -> None:
    if known.state is None:
        db.execute("DELETE FROM effects WHERE run=? AND key=?", (run, key))
    else:
        again = (known.state, known.attempt, run, key)
        db.execute("UPDATE effects SET state=?, attempt=? WHERE run=? AND key=?", again)


def result_with(name: str, value: Any, call_id: str = "") -> ToolResult:
    """Return the result of a call that was done elsewhere, or before."""
    text = value if isinstance(value, str) else to_json(value, fallback=repr).decode()
    return ToolResult(call_id, name, value=value, text=text)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _held(holder: str | None, until: float, now: float) -> bool:
    return holder is not None and until > now and not is_gone(holder)


def _refuse_taken(db: sqlite3.Connection, run: str, now: float) -> None:
    found = db.execute("SELECT holder, until FROM runs WHERE run=?", (run,)).fetchone()
    if found is None:
        raise KeyError(f"There is no run {run!r}.")
    holder, until = found
    if _held(holder, until, now):
        raise RunTaken(run, until - now)


def _merge(db: sqlite3.Connection, run: str, facts: Mapping[str, Any]) -> None:
    [state] = db.execute("SELECT state FROM runs WHERE run=?", (run,)).fetchone()
    merged = {**json.loads(state or "{}"), **facts}
    db.execute("UPDATE runs SET state=? WHERE run=?", (json.dumps(merged), run))
