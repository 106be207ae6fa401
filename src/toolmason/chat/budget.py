"""Budgets that runs share: of a user, and of a conversation."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from toolmason._core.define.context import ToolContext
from toolmason._core.toolbox.exchange import Usage
from toolmason._core.values.policy import Limits, check_store
from toolmason._explain import explain_arguments
from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.store import Store, Tables, Transaction
from toolmason._store.tables import BUDGETS
from toolmason.chat.run.spending import Spending
from toolmason.errors import ConfigError


class Budget(Protocol):
    """Budget that several runs share."""

    async def find_limit(self, context: ToolContext[Any] | None, conversation: str | None) -> str:
        """Return the limit that is used up, such as `limit of 1000 tokens for this user`, or an empty string.

        It is called before each request to a model. Raise ConfigError if the context lacks what the budget needs.
        """
        ...

    async def add(
        self, context: ToolContext[Any] | None, conversation: str | None, usage: Usage, cost: float | None
    ) -> None:
        """Count one request."""
        ...


class StoreBudget:
    """Budgets in a store, which several processes may share.

    `per_user` applies to each `user` (and `tenant`) of the context, `per_conversation` to each conversation. Of these
    limits, tokens and cost count. With `seconds`, they start again after each period of this length, such as
    86400 for each day (UTC).
    """

    @explain_arguments
    def __init__(
        self,
        store: Store,
        *,
        per_user: Limits | None = None,
        per_conversation: Limits | None = None,
        seconds: float | None = None,
    ) -> None:
        check_store(store)
        name = type(self).__name__
        if per_user is None and per_conversation is None:
            raise ConfigError(f"{name}(...) has no limits. Pass `per_user=Limits(...)` or `per_conversation=`.")
        if seconds is not None and not seconds > 0:
            raise ConfigError(f"{name}(seconds={seconds!r}): must be positive, or None for no period.")
        self.seconds = seconds
        self._limits = {"user": per_user, "conversation": per_conversation}
        self._tables = Tables(store, BUDGETS)

    @property
    def needs_price(self) -> bool:
        """True if one of the limits is a cost."""
        return any(limits is not None and limits.cost is not None for limits in self._limits.values())

    async def find_limit(self, context: ToolContext[Any] | None, conversation: str | None) -> str:
        """Return the limit that is used up, or an empty string.

        Raises:
            ConfigError: the context has no `user`, or the run has no conversation.
        """
        for kind, key in self._get_keys(context, conversation).items():
            spending = await self._tables.read(partial(self._load, kind=kind, key=key))
            if found := spending.find_own_limit(0):
                return f"{found} for this {kind}"
        return ""

    async def add(
        self, context: ToolContext[Any] | None, conversation: str | None, usage: Usage, cost: float | None
    ) -> None:
        """Count one request."""
        keys, period = self._get_keys(context, conversation), self._get_period()

        def insert(db: Transaction) -> None:
            for kind, key in keys.items():
                db.execute("DELETE FROM budgets WHERE kind=? AND key=? AND period<?", (kind, key, period))
                db.execute(
                    "INSERT INTO budgets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (kind, key, period) DO UPDATE SET "
                    "input=budgets.input+excluded.input, output=budgets.output+excluded.output, "
                    "cost=coalesce(budgets.cost+excluded.cost, budgets.cost, excluded.cost)",
                    (kind, key, period, usage.input_tokens, usage.output_tokens, cost),
                )

        await self._tables.write(repr(keys), insert)

    def used(
        self, *, user: Any = None, tenant: Any = None, conversation: str | None = None
    ) -> tuple[Usage, float | None]:
        """Return the tokens and the cost of a user, or of a conversation, in this period."""
        key = conversation if user is None else _make_user_key(tenant, user)
        kind = "conversation" if user is None else "user"
        spending = self._tables.query(lambda db: self._load(db, kind, key or ""))
        return spending.usage, spending.cost

    def close(self) -> None:
        """Close the budgets."""
        self._tables.close()

    def _load(self, db: Transaction, kind: str, key: str) -> Spending:
        row = db.execute(
            "SELECT input, output, cost FROM budgets WHERE kind=? AND key=? AND period=?",
            (kind, key, self._get_period()),
        ).fetchone()
        read, written, cost = row or (0, 0, None)
        limits = replace(self._limits[kind] or Limits(), steps=None)
        return Spending(limits, usage=Usage(read, written), cost=cost)

    def _get_period(self) -> int:
        return 0 if self.seconds is None else int(time.time() // self.seconds)

    def _get_keys(self, context: ToolContext[Any] | None, conversation: str | None) -> dict[str, str]:
        keys: dict[str, str] = {}
        if self._limits["user"] is not None:
            user = None if context is None else context.get("user")
            if user is None or context is None:
                raise ConfigError('This budget is per user. Send with `context={"user": ...}`.')
            keys["user"] = _make_user_key(context.get("tenant"), user)
        if self._limits["conversation"] is not None:
            if conversation is None:
                raise ConfigError("This budget is per conversation. Send with `conversation=`.")
            keys["conversation"] = conversation
        return keys


class SqliteBudget(StoreBudget):
    """Budgets in a SQLite file, which several processes may share. The options are those of `StoreBudget`."""

    @explain_arguments
    def __init__(
        self,
        path: str | Path,
        *,
        per_user: Limits | None = None,
        per_conversation: Limits | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__(SqliteStore(path), per_user=per_user, per_conversation=per_conversation, seconds=seconds)
        self.path = Path(path)


def _make_user_key(tenant: Any, user: Any) -> str:
    return repr((tenant, user))
