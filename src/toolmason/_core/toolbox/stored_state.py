"""Keep decisions and rates in a store that processes share: decisions that were used, and those that are remembered."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic_core import from_json, to_json

from toolmason._core.call.limits import make_rate_error, name_callers
from toolmason._core.config.layers import get_state_folder
from toolmason._core.values.policy import Rate
from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.store import Store, Tables, Transaction
from toolmason._store.tables import DECISIONS, RATES
from toolmason.errors import ConfigError, LimitExceeded

_log = logging.getLogger("toolmason")

_T = TypeVar("_T")
_INSERT_USED: Final = "INSERT INTO used VALUES (?, ?, ?) ON CONFLICT (token) DO NOTHING"
_SAVE: Final = (
    "INSERT INTO remembered VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET tool=excluded.tool, data=excluded.data"
)


class ApprovalLedger:
    """Used decisions, in a store or in the file that all programs of the user share."""

    def __init__(self, store: Store | str | Path | None = None) -> None:
        self._store = store

    def add(self, token: str, expires: float, user: str = "") -> bool:
        """Record a token as used. Return False if it was used before, unless by the same journaled run `user`.

        Raises:
            OSError: the store is damaged, or that of the application cannot be opened.
        """
        store = self._store
        if store is None:
            try:
                store = get_state_folder() / "approvals.db"
                _make_folder(store)
                if not os.access(store if store.exists() else store.parent, os.W_OK):
                    raise PermissionError(f"{str(store)!r} is read-only")
            except (OSError, RuntimeError) as error:
                _log.warning("decisions are valid once in this process only: %s. Set approvals_file=", error)
                return True

        def insert(store: Store, db: Transaction) -> bool:
            db.execute("DELETE FROM used WHERE expires < ?", (store.get_time(db),))
            if db.execute(_INSERT_USED, (token, expires, user)).rowcount == 1:
                return True
            [known_user] = db.execute('SELECT "user" FROM used WHERE token=?', (token,)).fetchone()
            return bool(user) and known_user == user

        return _transact(store, token, insert)


class StoredDecisions:
    """Remembered decisions, in a store that may be that of the used ones."""

    def __init__(self, store: Store | str | Path) -> None:
        self._store = store

    def load(self, tool: str | None) -> Iterable[Mapping[str, Any]]:
        """Return the decisions about a tool, or all.

        Raises:
            OSError: the store is damaged or cannot be opened.
        """
        where, values = ("", ()) if tool is None else (" WHERE tool=?", (tool,))
        query = f"SELECT data FROM remembered{where}"  # noqa: S608 - no input
        rows = _transact(self._store, "", lambda _, db: db.execute(query, values).fetchall())
        return [_read_row(row) for [row] in rows]

    def save(self, decision: Mapping[str, Any]) -> None:
        """Keep a decision, in place of another one with its ID.

        Raises:
            OSError: the store is damaged or cannot be written.
        """
        values = (decision["id"], decision["tool"], to_json(decision).decode())
        _transact(self._store, decision["id"], lambda _, db: db.execute(_SAVE, values))

    def remove(self, decision_id: str) -> bool:
        """Remove a decision. Return False if there is none.

        Raises:
            OSError: the store is damaged or cannot be written.
        """
        query = "DELETE FROM remembered WHERE id=?"
        return _transact(self._store, decision_id, lambda _, db: db.execute(query, (decision_id,)).rowcount) > 0


class StoredRates:
    """Rates by the names of tools, each with a sliding window."""

    def __init__(self, store: Store) -> None:
        self._tables = Tables(store, RATES)
        self._swept: dict[str, float] = {}
        """Times at which the calls of callers that did not come back were deleted."""

    async def count(self, tool: str, rate: Rate, caller: str = "") -> None:
        """Count one call. `caller` distinguishes the callers of a rate that is not shared by all.

        Raises:
            LimitExceeded: the rate is exceeded, or the store is not available.
        """
        prefix = f"{tool} {rate.calls}/{rate.per:g}"
        key = f"{prefix} {caller}" if caller else prefix
        sweeps = bool(caller) and time.monotonic() - self._swept.get(prefix, -math.inf) > rate.per

        def insert(db: Transaction) -> float:
            """Return the seconds until a call is free; 0 if this one is counted."""
            now = self._tables.store.get_time(db)
            if sweeps:
                # Not a range of keys: their order depends on the locale of the server.
                values = (len(prefix) + 1, f"{prefix} ", len(key), now - rate.per)
                db.execute("DELETE FROM rates WHERE substr(key, 1, ?)=? AND length(key)=? AND at<=?", values)
            else:
                db.execute("DELETE FROM rates WHERE key=? AND at<=?", (key, now - rate.per))
            [used, oldest] = db.execute("SELECT count(*), min(at) FROM rates WHERE key=?", (key,)).fetchone()
            if used >= rate.calls:
                return float(max(oldest + rate.per - now, 0.001))
            db.execute("INSERT INTO rates VALUES (?, ?)", (key, now))
            return 0.0

        try:
            retry_after = await self._tables.write(key, insert)
        except ConfigError as error:
            _log.warning("the rate of %s cannot be counted: %s", tool, error)
            limit = f"rate of {rate.calls} calls per {rate.per:g} s{name_callers(rate)}, which cannot be counted now"
            raise LimitExceeded(tool, limit, "Try again later.", retryable=True) from error
        if sweeps:
            self._swept[prefix] = time.monotonic()
        if retry_after:
            raise make_rate_error(tool, rate, retry_after)


def _transact(store: Store | str | Path, key: str, work: Callable[[Store, Transaction], _T]) -> _T:
    """Run a transaction. A file is closed after it: it is rarely used, and may be deleted in between."""
    if isinstance(store, str | Path):
        path = Path(store)
        _make_folder(path)
        opened: Store = SqliteStore(path)
    else:
        opened = store
    try:
        return opened.transact(DECISIONS, key, lambda db: work(opened, db))
    except ConfigError as error:
        raise OSError(str(error)) from error
    finally:
        if opened is not store:
            opened.close()


def _make_folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def _read_row(text: Any) -> Mapping[str, Any]:
    try:
        data = from_json(text)
    except (TypeError, ValueError):
        return {}  # refused later, as one without a signature
    return data if isinstance(data, dict) else {}
