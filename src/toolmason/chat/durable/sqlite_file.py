"""A SQLite file of our own → transactions in it, one at a time in this process.

Lives here: opening, settings, versions of the tables, and the thread in which the file is used while a loop runs: a
slow disk, or another process that writes, holds up nobody else. Not here: what is written (`journal`, `memory`).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakSet

from toolmason.errors import ConfigError

BUSY_SECONDS: Final = 10.0
"""How long a write waits for that of another process."""

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
"""The steps from one version of the tables to the next; the version of a file is how many were taken."""

_T = TypeVar("_T")
_Db: TypeAlias = sqlite3.Connection
_CREATE_VERSIONS: Final = "CREATE TABLE IF NOT EXISTS versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_SELECT_VERSION: Final = "SELECT coalesce((SELECT version FROM versions WHERE part=?), 0)"


class SqliteFile:
    """A SQLite file that several processes may share."""

    def __init__(self, path: str | Path, table_group: str, migrations: Sequence[str]) -> None:
        self.path, self.table_group, self.migrations = Path(path), table_group, migrations
        self.reset()
        _open_files.add(self)

    def reset(self) -> None:
        """Begin anew, without touching the file: what a forked process inherits belongs to its parent."""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def write(self, work: Callable[[_Db], _T], undo: Callable[[_Db, _T], object] | None = None) -> _T:
        """Do `work` in a transaction of its own, in a thread.

        A caller who is cancelled goes when it is over, and takes it back with `undo`: nothing is left half known.
        """
        future = self._submit(self.write_transaction, work)
        cancellation = await _wait_until_done(future)
        if cancellation is None:
            return future.result()
        if future.exception() is None and undo is not None:
            undo_future = self._submit(self.write_transaction, lambda db: undo(db, future.result()))
            await _wait_until_done(undo_future)
            undo_future.exception()  # looked at, so that nobody complains about it
        raise cancellation

    async def read(self, work: Callable[[_Db], _T]) -> _T:
        """Look into the file, in a thread."""
        future = self._submit(self.read_connection, work)
        if (cancellation := await _wait_until_done(future)) is not None:
            future.exception()  # looked at, so that nobody complains about it
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
        """Use the file; what is written is there when the block ends, or not at all."""
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
        """Look into the file; nobody waits for that."""
        with self._lock:
            yield self._get_connection()

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._connect()
            except sqlite3.Error as error:
                raise ConfigError(
                    f"{str(self.path)!r} cannot be used as a SQLite file: {error}. Give another path."
                ) from error
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        # In one transaction: another process may open the same file just now.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_CREATE_VERSIONS)
        [version] = connection.execute(_SELECT_VERSION, (self.table_group,)).fetchone()
        if version > len(self.migrations):
            connection.execute("ROLLBACK")
            raise ConfigError(
                f"{str(self.path)!r} was written by a later version of this package: its {self.table_group} have "
                f"version {version}, and we know {len(self.migrations)}. Update the package."
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


async def _wait_until_done(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until it is done, also where the caller should go; return what told him so."""
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
