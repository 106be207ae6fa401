"""Keep values that are too large for Temporal in a store, and record their handles in its place."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from toolmason._store.store import Store, Tables, Transaction
from toolmason._store.tables import VALUES
from toolmason.errors import ConfigError

MAX_BYTES: Final = 2_000_000
"""Maximum size of the data of one effect or of the facts of a run. Temporal rejects a payload of 2 MiB."""
_MIN_STORED_BYTES: Final = 50_000
"""Minimum size of a value for which a handle is recorded."""
_HANDLE: Final = "toolmason.stored"


class LargeValues:
    """Values by their hashes, so that a value that is recorded twice is stored once."""

    def __init__(self, store: Store | None) -> None:
        self.tables = None if store is None else Tables(store, VALUES)

    async def pack(self, what: str, run: str, data: dict[str, Any]) -> dict[str, Any]:
        """Return data that Temporal accepts: unchanged, or with handles in place of the large values.

        Raises:
            ConfigError: the data is too large for Temporal, and the runtime has no store.
        """
        sizes = {key: len(json.dumps(value)) for key, value in data.items()}
        if sum(sizes.values()) <= MAX_BYTES:
            return data
        if self.tables is None:
            raise ConfigError(
                f"{what} in run {run!r}: {sum(sizes.values()):,} bytes are more than the {MAX_BYTES:,} that Temporal "
                "keeps for one effect. Pass TemporalRuntime(store=...), which keeps them, or return a reference."
            )
        large = {key: value for key, value in data.items() if sizes[key] > _MIN_STORED_BYTES}
        return {**data, **{key: await self._store(value) for key, value in large.items()}}

    async def _store(self, value: Any) -> dict[str, str]:
        assert self.tables is not None  # noqa: S101 - the caller checked it
        text = json.dumps(value)
        key = hashlib.sha256(text.encode()).hexdigest()

        def write(db: Transaction) -> None:
            db.execute("INSERT INTO large_values VALUES (?, ?) ON CONFLICT DO NOTHING", (key, text))

        await self.tables.write(key, write)
        return {_HANDLE: key}

    async def unpack(self, value: Any) -> Any:
        """Return the value of a handle. Other values are returned unchanged.

        Raises:
            ConfigError: the store does not have the value.
        """
        if not isinstance(value, dict) or value.keys() != {_HANDLE}:
            return value
        key, tables = value[_HANDLE], self.tables
        if tables is None:
            raise ConfigError("A value of the run is in a store. Pass TemporalRuntime(store=...) with that store.")
        row = await tables.read(lambda db: db.execute("SELECT data FROM large_values WHERE key=?", (key,)).fetchone())
        if row is None:
            raise ConfigError(f"{tables.store.name!r} does not have the value {key!r} of the run. Use its store.")
        return tables.load_json(row[0])

    async def unpack_all(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return data with the values of its handles."""
        return {key: await self.unpack(value) for key, value in data.items()}
