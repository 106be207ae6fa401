"""Run transactions in a SQLite file, one at a time, in a thread that keeps the event loop free."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakSet

from toolmason._secrets import write_private
from toolmason.errors import ConfigError, clip

BUSY_SECONDS: Final = 10.0
"""Seconds a write waits for a write of another process."""

# The version of a group of tables is the number of its migrations that a file has applied.
JOURNAL_MIGRATIONS: Final = (
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
)
"""SQL scripts that migrate runs, oldest first."""
MEMORY_MIGRATIONS: Final = (
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
)
"""SQL scripts that migrate conversations, oldest first."""
BUDGET_MIGRATIONS: Final = (
    """
    CREATE TABLE IF NOT EXISTS budgets (
        kind TEXT NOT NULL, key TEXT NOT NULL, period INTEGER NOT NULL, input INTEGER NOT NULL,
        output INTEGER NOT NULL, cost REAL, PRIMARY KEY (kind, key, period)
    ) WITHOUT ROWID;
    """,
)
"""SQL scripts that migrate budgets, oldest first."""

_MIN_BYTES: Final = 512
"""Size of the smallest SQLite file. SQLite takes an empty file, and one of a few bytes, for a new one."""
_T = TypeVar("_T")
_Db: TypeAlias = sqlite3.Connection
_CREATE_VERSIONS: Final = "CREATE TABLE IF NOT EXISTS versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_SELECT_VERSION: Final = "SELECT coalesce((SELECT version FROM versions WHERE part=?), 0)"


class SqliteFile:
    """SQLite file that several processes may share.

    `table_group` names the tables that `migrations` create: a file may hold both runs and conversations.
    """

    def __init__(self, path: str | Path, table_group: str, migrations: Sequence[str]) -> None:
        self.path, self.table_group, self.migrations = Path(path), table_group, migrations
        self.reset()
        _open_files.add(self)

    def reset(self) -> None:
        """Reset the state without touching the file: after a fork, the connection belongs to the parent."""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def write(self, work: Callable[[_Db], _T], undo: Callable[[_Db, _T], object] | None = None) -> _T:
        """Run `work` in its own transaction, in a thread.

        If the caller is cancelled, the transaction still completes and is then reverted with `undo`, so that its
        outcome is always known.
        """
        future = self._submit(self.write_transaction, work)
        cancellation = await _wait_until_done(future)
        if cancellation is None:
            return future.result()
        if future.exception() is None and undo is not None:
            undo_future = self._submit(self.write_transaction, lambda db: undo(db, future.result()))
            await _wait_until_done(undo_future)
            undo_future.exception()  # retrieved, so that asyncio does not log it
        raise cancellation

    async def read(self, work: Callable[[_Db], _T]) -> _T:
        """Read from the file, in a thread."""
        future = self._submit(self.read_connection, work)
        if (cancellation := await _wait_until_done(future)) is not None:
            future.exception()  # retrieved, so that asyncio does not log it
            raise cancellation
        return future.result()

    def _submit(
        self, open_connection: Callable[[], AbstractContextManager[_Db]], work: Callable[[_Db], _T]
    ) -> asyncio.Future[_T]:
        def run() -> _T:
            with open_connection() as db:
                return work(db)

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, f"toolmason-{self.table_group}")
        return asyncio.get_running_loop().run_in_executor(self._thread, run)

    @contextmanager
    def write_transaction(self) -> Generator[sqlite3.Connection]:
        """Open a transaction. It is committed at the end of the block, or rolled back on an error."""
        with self._lock:
            connection = self._get_connection()
            with self._explain_errors():
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # SQLite itself rolls back if the disk is full
                        connection.execute("ROLLBACK")
                    raise

    @contextmanager
    def read_connection(self) -> Generator[sqlite3.Connection]:
        """Open a connection for reading, without a transaction."""
        with self._lock, self._explain_errors():
            yield self._get_connection()

    def load_object(self, text: str | None) -> dict[str, Any]:
        """Return the object in a JSON column, empty if the column is null.

        Raises:
            ConfigError: the column is damaged.
        """
        data = {} if text is None else self.load_json(text)
        if not isinstance(data, dict):
            raise self.make_damage_error(clip(f"{text} is not an object"))
        return data

    def load_json(self, text: str | None) -> Any:
        """Return the data of a JSON column, or None.

        Raises:
            ConfigError: the column is damaged.
        """
        try:
            return None if text is None else json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self.make_damage_error(error) from error

    def make_damage_error(self, error: object) -> ConfigError:
        """Return the error for a file whose content cannot be read."""
        advice = "Export what is readable with `toolmason runs repair`" if self.table_group == "runs" else "Restore it"
        reason = clip(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error), 200)
        return ConfigError(f"{str(self.path)!r} is damaged: {reason}. {advice}, or use another path.")

    @contextmanager
    def _explain_errors(self) -> Generator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite may hold damaged bytes
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
                raise ConfigError(
                    f"{str(self.path)!r} cannot be written: {error}. Free space, or correct the rights of its folder, "
                    "and try again. Nothing was recorded."
                ) from error
            raise self.make_damage_error(error) from error

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                if not self.path.exists():
                    self._create()
                elif self.path.is_file() and self.path.stat().st_size < _MIN_BYTES:
                    raise ConfigError(
                        f"{str(self.path)!r} is empty: it was truncated, and what it recorded is lost. Restore it, or "
                        "delete it to begin a new one."
                    )
                self._connection = self._connect(self.path)
            except (sqlite3.Error, OSError, UnicodeError) as error:
                raise ConfigError(
                    f"{str(self.path)!r} cannot be opened as a SQLite file: {error}. Use another path."
                ) from error
        return self._connection

    def _create(self) -> None:
        """Create the file with its tables at once: an empty one would look like one that was truncated."""
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}.new")
        try:
            write_private(draft, b"", new=True)
            self._connect(draft).close()
            with suppress(FileExistsError):  # another process was faster
                draft.rename(self.path) if os.name == "nt" else os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _use_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous=FULL")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        # In one transaction: another process may open the same file at the same time.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_CREATE_VERSIONS)
        [version] = connection.execute(_SELECT_VERSION, (self.table_group,)).fetchone()
        if version > len(self.migrations):
            connection.execute("ROLLBACK")
            raise ConfigError(
                f"{str(self.path)!r} was written by a newer version of Toolmason: its {self.table_group} have "
                f"version {version}, this one supports {len(self.migrations)}. Update Toolmason."
            )
        for migration in self.migrations[version:]:
            for statement in filter(str.strip, migration.split(";")):
                connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", (self.table_group, len(self.migrations)))
        connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._thread is not None:
                self._thread.shutdown(wait=False)
                self._thread = None


_open_files: Final[WeakSet[SqliteFile]] = WeakSet()


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


async def _wait_until_done(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for completion even if cancelled. Return the CancelledError, or None."""
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as cancelled:
            cancellation = cancelled
    return cancellation


def _reset_after_fork() -> None:
    for file in _open_files:
        file.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
