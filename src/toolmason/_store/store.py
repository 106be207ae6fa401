"""Define the interface of a store, and run its transactions in threads that keep the event loop free."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from toolmason._store.tables import TableGroup
from toolmason.errors import ConfigError, clip

_T = TypeVar("_T")


class Rows(Protocol):
    """Rows that a statement returns."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """Statements of one transaction. Values take the places of the question marks of a statement."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Execute a statement."""
        ...

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement for each of the values."""
        ...


class Store(Protocol):
    """Place of tables that several processes may share."""

    @property
    def name(self) -> str:
        """Path or address for messages, without secrets."""
        ...

    @property
    def max_threads(self) -> int:
        """Number of transactions that run at the same time."""
        ...

    def transact(self, group: TableGroup, key: str, work: Callable[[Transaction], _T]) -> _T:
        """Run `work` in a transaction, after all other ones of this group and key, and commit it.

        `work` may be repeated if its transaction was not committed.

        Raises:
            ConfigError: the store cannot be opened or written, or it is damaged.
        """
        ...

    def read(self, group: TableGroup, work: Callable[[Transaction], _T]) -> _T:
        """Run `work`, which changes nothing.

        Raises:
            ConfigError: the store cannot be opened or read, or it is damaged.
        """
        ...

    def get_time(self, db: Transaction) -> float:
        """Return the seconds since the epoch, by the clock that all processes of the store share."""
        ...

    def close(self) -> None:
        """Close the connections. A later use opens new ones."""
        ...


class Tables:
    """A group of tables in a store, with threads for its transactions."""

    def __init__(self, store: Store, group: TableGroup) -> None:
        self.store, self.group = store, group
        self.reset()
        forget_after_fork(self)

    def reset(self) -> None:
        """Forget the threads, which belong to the parent after a fork."""
        self._threads: ThreadPoolExecutor | None = None

    def transact(self, key: str, work: Callable[[Transaction], _T]) -> _T:
        """Run `work` in its own transaction."""
        return self.store.transact(self.group, key, work)

    def query(self, work: Callable[[Transaction], _T]) -> _T:
        """Read from the tables."""
        return self.store.read(self.group, work)

    async def write(
        self, key: str, work: Callable[[Transaction], _T], undo: Callable[[Transaction, _T], object] | None = None
    ) -> _T:
        """Run `work` in its own transaction, in a thread.

        If the caller is cancelled, the transaction still completes and is then reverted with `undo`, so that its
        outcome is always known.
        """
        future = self._submit(lambda: self.transact(key, work))
        cancellation = await _wait_until_done(future)
        if cancellation is None:
            return future.result()
        if future.exception() is None and undo is not None:
            undo_future = self._submit(lambda: self.transact(key, lambda db: undo(db, future.result())))
            await _wait_until_done(undo_future)
            undo_future.exception()  # retrieved, so that asyncio does not log it
        raise cancellation

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Read from the tables, in a thread."""
        future = self._submit(lambda: self.query(work))
        if (cancellation := await _wait_until_done(future)) is not None:
            future.exception()  # retrieved, so that asyncio does not log it
            raise cancellation
        return future.result()

    def _submit(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.store.max_threads, f"toolmason-{self.group.name}")
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

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
        """Return the error for content that cannot be read."""
        return make_damage_error(self.store.name, self.group, error)

    def close(self) -> None:
        """End the threads, and close the connections of the store. A later use opens new ones."""
        self.store.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None


def make_damage_error(name: str, group: TableGroup, error: object) -> ConfigError:
    """Return the error for a store whose content cannot be read."""
    reason = clip(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error), 200)
    return ConfigError(f"{name!r} is damaged: {reason}. {group.repair}, or use another path.")


def find_pending_migrations(name: str, group: TableGroup, version: int) -> tuple[str, ...]:
    """Return the migrations that a store of this version lacks.

    Raises:
        ConfigError: a newer Toolmason has migrated the store.
    """
    supported = len(group.migrations)
    if version > supported:
        raise ConfigError(
            f"{name!r} was written by a newer version of Toolmason: its {group.name} have version {version}, this "
            f"one supports {supported}. Update Toolmason."
        )
    return group.migrations[version:]


class _Forgetful(Protocol):
    def reset(self) -> None: ...


def forget_after_fork(item: _Forgetful) -> None:
    """Reset an item in each child of this process, which cannot use its threads and connections."""
    _reset_in_child.add(item)


_reset_in_child: Final[WeakSet[_Forgetful]] = WeakSet()


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
    for item in _reset_in_child:
        item.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
