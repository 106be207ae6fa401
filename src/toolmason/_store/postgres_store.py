"""Keep tables in a PostgreSQL database that several machines share."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from toolmason._explain import explain_arguments
from toolmason._secrets import remember_secrets, scrub
from toolmason._store.store import Rows, Transaction, find_pending_migrations, forget_after_fork
from toolmason._store.tables import TableGroup
from toolmason.errors import ConfigError, StoreUnavailable, clip

_missing: ImportError | None = None
"""Error of a missing package. The class has its name and its help without it."""
if TYPE_CHECKING:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
else:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        _missing = error

MAX_CONNECTIONS: Final = 4
RECONNECT_SECONDS: Final = 10.0
"""Seconds for which a transaction tries to connect again, and for which it waits for one of the same key."""
IDLE_SECONDS: Final = 10
"""Seconds after which the server ends a transaction whose process has stopped, so that others can go on."""
_T = TypeVar("_T")
_Raw: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
# A dead server or network is noticed after 25 seconds, instead of two hours.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "application_name": "toolmason",
    "client_encoding": "UTF8",
}
_TYPES: Final = {
    r"\bINTEGER PRIMARY KEY\b": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    r"\bINTEGER\b": "BIGINT",
    r"\bREAL\b": "DOUBLE PRECISION",
    r"\bTEXT\b": 'TEXT COLLATE "C"',  # the order of bytes, as in SQLite
    r"\bWITHOUT ROWID\b": "",
}
_RETRIED: Final = ("08", "40", "53300", "57P01", "57P02", "57P03", "25P03")
"""SQLSTATE codes, or their classes, after which a transaction is repeated: it was certainly rolled back."""
_RETRIED_FATAL: Final = ("starting up", "shutting down", "recovery mode", "too many clients", "not yet accepting")
_UNAVAILABLE: Final = ("53", "55P03", "58", "25006")
"""SQLSTATE codes of full disks, full servers, locks and standbys."""


class PostgresStore:
    """PostgreSQL database that several machines share. Its tables are in `schema`.

    If the server restarts, transactions wait for it for `reconnect_seconds`. One whose commit was interrupted asks the
    server whether it was committed, and is repeated only if it was not.
    """

    @explain_arguments
    def __init__(
        self,
        url: str,
        *,
        schema: str = "toolmason",
        max_connections: int = MAX_CONNECTIONS,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        if _missing is not None:
            raise ImportError("PostgreSQL needs psycopg: pip install 'toolmason[postgres]'") from _missing
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,50}", schema):
            raise ConfigError(f"PostgresStore(schema={schema!r}): use lower-case letters, digits and underscores.")
        if max_connections < 1 or reconnect_seconds < 0:
            raise ConfigError("PostgresStore(...): max_connections must be positive, reconnect_seconds not negative.")
        remember_secrets({}, url)
        self._options = _parse_url(url)
        self.schema, self.max_threads, self.reconnect_seconds = schema, max_connections, reconnect_seconds
        where = "".join(f":{port}" for port in [self._options.get("port")] if port)
        user = "".join(f"{user}@" for user in [self._options.get("user")] if user)
        self.name = f"postgresql://{user}{self._options.get('host', '')}{where}/{self._options.get('dbname', '')}"
        """Address for messages, without the password."""
        self.reset()
        forget_after_fork(self)

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    def reset(self) -> None:
        """Reset the state without touching the connections: after a fork, they belong to the parent."""
        _abandoned.extend(getattr(self, "_idle", ()))
        self._slots = threading.BoundedSemaphore(self.max_threads)
        self._idle: list[_Session] = []
        self._migrated: set[TableGroup] = set()
        self._was_connected = False

    def transact(self, group: TableGroup, key: str, work: Callable[[Transaction], _T]) -> _T:
        """Run `work` in a transaction, after all other ones of this group and key, and commit it."""
        begin = f"BEGIN; SELECT pg_advisory_xact_lock({self._make_lock(group.name, key)})"
        doubtful: list[tuple[_Session, _T]] = []
        """Connection whose last commit was interrupted, and the result of its transaction."""

        def commit(session: _Session) -> _T:
            session.raw.execute(begin.encode())
            # The lock of the key is held, so that the interrupted transaction has ended.
            if doubtful and session.has_committed(doubtful[0][0]):
                session.raw.execute("ROLLBACK")
                return doubtful[0][1]
            result = work(session)
            try:
                session.commit()
            except psycopg.Error:
                if session.raw.closed:  # otherwise, the server has answered that it did not commit
                    doubtful[:] = [(session, result)]
                raise
            return result

        return self._run(group, commit)

    def read(self, group: TableGroup, work: Callable[[Transaction], _T]) -> _T:
        """Run `work` without a transaction."""
        return self._run(group, work)

    def get_time(self, db: Transaction) -> float:
        """Return the seconds since the epoch by the clock of the server: those of the machines may differ."""
        [seconds] = db.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        return float(seconds)

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                self._idle.pop().raw.close()

    def _run(self, group: TableGroup, work: Callable[[_Session], _T]) -> _T:
        """Run `work` with a connection, and again if it was lost."""
        deadline = time.monotonic() + self.reconnect_seconds
        pause = 0.01
        while True:
            try:
                with self._borrow() as session:
                    if group not in self._migrated:
                        self._migrate(session, group)
                        self._migrated.add(group)
                    return work(session)
            except psycopg.IntegrityError:
                raise
            except (psycopg.Error, UnicodeEncodeError) as error:
                if not _is_retried(error) or not self._was_connected or time.monotonic() > deadline:
                    raise self._explain(error) from None
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    @contextmanager
    def _borrow(self) -> Generator[_Session]:
        """Lend a connection. It is kept for the next transaction if it is idle at the end."""
        with self._slots:
            session = self._take_idle() or self._connect()
            try:
                yield session
            finally:
                info, statuses = session.raw.info, psycopg.pq.TransactionStatus
                with suppress(psycopg.Error):
                    if info.transaction_status in (statuses.INTRANS, statuses.INERROR):
                        session.raw.execute("ROLLBACK")
                if info.transaction_status == statuses.IDLE:
                    self._idle.append(session)
                else:
                    session.raw.close()
                    self.close()  # the others are lost as well, if the server is

    def _take_idle(self) -> _Session | None:
        with suppress(IndexError):
            return self._idle.pop()
        return None

    def _connect(self) -> _Session:
        connection = psycopg.connect(**self._options, autocommit=True)
        milliseconds = int(1000 * max(self.reconnect_seconds, 1.0))
        settings = (
            f"SET search_path TO {self.schema}; SET lock_timeout={milliseconds}; "
            f"SET idle_in_transaction_session_timeout='{IDLE_SECONDS}s'"
        )
        connection.execute(settings.encode())
        self._was_connected = True
        return _Session(connection)

    def _migrate(self, session: _Session, group: TableGroup) -> None:
        # In one transaction: another process may do the same. Without anything to create, no right to create is needed.
        session.execute("BEGIN")
        session.execute(f"SELECT pg_advisory_xact_lock({self._make_lock('versions', '')})")
        [schema] = session.execute("SELECT to_regnamespace(?)", (self.schema,)).fetchone()
        [versions] = session.execute("SELECT to_regclass(?)", (f"{self.schema}.versions",)).fetchone()
        if schema is None:
            session.execute(f"CREATE SCHEMA {self.schema}")
        if versions is None:
            session.execute("CREATE TABLE versions (part TEXT PRIMARY KEY, version BIGINT NOT NULL)")
            session.execute("CREATE TABLE commits (connection TEXT PRIMARY KEY, number BIGINT, at TIMESTAMPTZ)")
        # Of processes that were killed.
        session.execute("DELETE FROM commits WHERE at < now() - interval '1 day'")
        row = session.execute("SELECT version FROM versions WHERE part=?", (group.name,)).fetchone()
        if pending := find_pending_migrations(self.name, group, 0 if row is None else row[0]):
            for statement in filter(str.strip, ";".join(pending).split(";")):
                session.execute(_translate_types(statement))
            session.execute(
                "INSERT INTO versions VALUES (?, ?) ON CONFLICT (part) DO UPDATE SET version=excluded.version",
                (group.name, len(group.migrations)),
            )
        session.execute("COMMIT")

    def _make_lock(self, group: str, key: str) -> int:
        """Return the number of the lock of a key."""
        digest = blake2b(repr((self.schema, group, key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def _explain(self, error: psycopg.Error | UnicodeEncodeError) -> ConfigError:
        text = clip(scrub(next(iter(str(error).splitlines()), ""), self._options), 300)
        code = getattr(error, "sqlstate", None) or ""
        if isinstance(error, UnicodeEncodeError | psycopg.DataError):
            return ConfigError(f"{self.name!r} cannot store a value: {text}. Change the name or the ID of it.")
        if code == "42501":
            return ConfigError(
                f"{self.name!r} refuses this user: {text}. Grant it the right to create the schema {self.schema!r}, or "
                "to use its tables."
            )
        if code.startswith(_UNAVAILABLE):
            return StoreUnavailable(
                f"{self.name!r} cannot be written: {text}. Free space or connections of the server, or connect to "
                "the primary one, and try again. Nothing was recorded."
            )
        if not code or _is_retried(error):
            return StoreUnavailable(
                f"{self.name!r} cannot be reached: {text}. Check that the server runs and the address is right, and "
                "try again. Resume runs that it interrupted."
            )
        return ConfigError(f"{self.name!r} refused a statement: {text} ({code}). Check that no other program uses it.")


class _Session:
    """Connection that takes statements with question marks, and numbers its commits.

    The number of the last commit is in a row of the database. `pg_xact_status` is not enough: a server that restarts
    after a crash gives the number of a transaction that was not written to another one.
    """

    def __init__(self, connection: _Raw) -> None:
        self.raw, self.id, self.number = connection, token_hex(12), 0

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self.raw.execute(_translate_marks(statement), values)

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        self.raw.cursor().executemany(_translate_marks(statement), values)

    def commit(self) -> None:
        """Commit the transaction. If the connection is lost, another one can ask with `has_committed`."""
        self.number += 1
        # Text without values is sent in one message.
        self.raw.execute(
            f"INSERT INTO commits VALUES ('{self.id}', {self.number}, now()) ON CONFLICT (connection) "  # noqa: S608 - own values
            "DO UPDATE SET number=excluded.number, at=excluded.at; COMMIT".encode()
        )

    def has_committed(self, other: _Session) -> bool:
        """Return True if the last commit of another connection took effect."""
        row = self.execute("SELECT number FROM commits WHERE connection=?", (other.id,)).fetchone()
        return row is not None and bool(row[0] == other.number)


_abandoned: Final[list[_Session]] = []
"""Connections of the parent of a fork. To close them here would close them there."""


@lru_cache(maxsize=256)
def _translate_marks(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _translate_types(statement: str) -> str:
    for pattern, replacement in _TYPES.items():
        statement = re.sub(pattern, replacement, statement)
    return statement


def _is_retried(error: Exception) -> bool:
    code = getattr(error, "sqlstate", None)
    if code is not None:
        return str(code).startswith(_RETRIED)
    # The client library reports no code if it cannot connect.
    is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return is_lost and ("FATAL" not in str(error) or any(text in str(error) for text in _RETRIED_FATAL))


def _parse_url(url: str) -> dict[str, Any]:
    """Return the options of a connection. An error does not show the URL, because it may hold a password."""
    expected = "postgresql://user:password@host:port/database"
    if not url.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"PostgresStore(url): not a URL of PostgreSQL. Write {expected}.")
    try:
        options = conninfo_to_dict(url)
        port_is_valid = all(part.isdigit() for part in str(options.get("port", "")).split(",") if part)
    except psycopg.Error:
        raise ConfigError(f"PostgresStore(url): the URL is not valid. Write {expected}.") from None
    # A part of a password that is not encoded would be taken for the host, the port or the database.
    if not port_is_valid or "@" in f"{options.get('host')}{options.get('dbname')}" or "@" in urlsplit(url).path:
        raise ConfigError(
            "PostgresStore(url): a part of the URL is not valid. Encode special characters of the password, such as "
            "%40 for @."
        )
    return {**_DEFAULTS, **options}
