"""Keep tables in a SQLite file that the processes of one machine share."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from toolmason._explain import explain_arguments
from toolmason._secrets import write_private
from toolmason._store.store import Transaction, find_pending_migrations, forget_after_fork, make_damage_error
from toolmason._store.tables import TableGroup
from toolmason.errors import ConfigError, StoreUnavailable

BUSY_SECONDS: Final = 10.0
"""Seconds a write waits for a write of another process."""
_MIN_BYTES: Final = 512
"""Size of the smallest SQLite file. SQLite takes a shorter one for a new database, and writes over it."""
_HEADER: Final = b"SQLite format 3\0"
_T = TypeVar("_T")
_CREATE_VERSIONS: Final = "CREATE TABLE IF NOT EXISTS versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_SELECT_VERSION: Final = "SELECT coalesce((SELECT version FROM versions WHERE part=?), 0)"


class _Connection(sqlite3.Connection):
    """Connection that is closed with its last reference. Since Python 3.13 others warn if they are not closed."""

    def __del__(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error):  # it was never opened
            self.close()


class SqliteStore:
    """SQLite file that several processes may share. Its transactions run one at a time."""

    @explain_arguments
    def __init__(self, path: str | Path) -> None:
        self.path, self.max_threads = Path(path), 1
        self.reset()
        forget_after_fork(self)

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    def reset(self) -> None:
        """Reset the state without touching the file: after a fork, the connection belongs to the parent."""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._migrated: set[TableGroup] = set()

    def transact(self, group: TableGroup, key: str, work: Callable[[Transaction], _T]) -> _T:  # noqa: ARG002 - one lock for all keys
        """Run `work` in a transaction. It is committed at the end, or rolled back on an error."""
        with self._lock:
            connection = self._get_connection(group)
            with self._explain_errors(group):
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = work(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # SQLite itself rolls back if the disk is full
                        connection.execute("ROLLBACK")
                    raise
                return result

    def read(self, group: TableGroup, work: Callable[[Transaction], _T]) -> _T:
        """Run `work` without a transaction."""
        with self._lock, self._explain_errors(group):
            return work(self._get_connection(group))

    def get_time(self, db: Transaction) -> float:  # noqa: ARG002 - one machine has one clock
        """Return the seconds since the epoch."""
        return time.time()

    @contextmanager
    def _explain_errors(self, group: TableGroup) -> Generator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite may hold damaged bytes
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
                raise StoreUnavailable(
                    f"{self.name!r} cannot be written: {error}. Free space, or correct the rights of its folder, "
                    "and try again. Nothing was recorded."
                ) from error
            raise make_damage_error(self.name, group, error) from error

    def _get_connection(self, group: TableGroup) -> sqlite3.Connection:
        try:
            if self._connection is None:
                if not self.path.exists():
                    self._create(group)
                elif self.path.is_file() and self.path.stat().st_size < _MIN_BYTES:
                    self._refuse_short_file()
                self._connection = _connect(self.path)
            if group not in self._migrated:
                self._migrate(self._connection, group)
                self._migrated.add(group)
        except (sqlite3.Error, OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error  # without the name of the draft
            if isinstance(error, FileNotFoundError):
                reason = "its folder does not exist"
            raise ConfigError(
                f"{self.name!r} cannot be opened as a SQLite file: {reason}. Use another path."
            ) from error
        return self._connection

    def _refuse_short_file(self) -> None:
        content = self.path.read_bytes()
        if content[: len(_HEADER)] != _HEADER[: len(content)]:
            raise sqlite3.DatabaseError("file is not a database")
        raise ConfigError(
            f"{self.name!r} is empty: it was truncated, and what it recorded is lost. Restore it, or delete it to "
            "begin a new one."
        )

    def _create(self, group: TableGroup) -> None:
        """Create the file with its tables at once: an empty one would look like one that was truncated."""
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}.new")
        try:
            write_private(draft, b"", new=True)
            connection = _connect(draft)
            try:
                self._migrate(connection, group)
            finally:
                connection.close()
            with suppress(FileExistsError):  # another process was faster
                draft.rename(self.path) if os.name == "nt" else os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)

    def _migrate(self, connection: sqlite3.Connection, group: TableGroup) -> None:
        # In one transaction: another process may open the same file at the same time.
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_CREATE_VERSIONS)
            [version] = connection.execute(_SELECT_VERSION, (group.name,)).fetchone()
            for migration in find_pending_migrations(self.name, group, version):
                for statement in filter(str.strip, migration.split(";")):
                    connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", (group.name, len(group.migrations)))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                self._migrated.clear()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=_Connection
    )
    try:
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # SQLite does not apply the busy time-out to this statement: two processes that open a new file at the same time
    # would wait for each other, so one of them gets SQLITE_BUSY at once.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.005)
