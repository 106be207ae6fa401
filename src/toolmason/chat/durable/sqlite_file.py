"""Run transactions in a SQLite file, one at a time, in a thread that keeps the event loop free."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakSet

from toolmason.errors import ConfigError

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
)
"""SQL scripts that migrate conversations, oldest first."""

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
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def read_connection(self) -> Generator[sqlite3.Connection]:
        """Open a connection for reading, without a transaction."""
        with self._lock:
            yield self._get_connection()

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._connect()
            except sqlite3.Error as error:
                raise ConfigError(
                    f"{str(self.path)!r} cannot be opened as a SQLite file: {error}. Use another path."
                ) from error
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
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
