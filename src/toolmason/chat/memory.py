"""What was said before: conversations that are kept, and how much of one a model is shown.

Lives here: the protocol, a window in memory, a file that survives. A window never parts a call from its result.
Not here: who says what (`run`), or the file (`ledger`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from toolmason._core.values.messages import Message
from toolmason.chat.durable.sqlite_file import MEMORY, Ledger
from toolmason.errors import ConfigError
from toolmason.providers.conversation import is_lost, repair

BYTES_PER_TOKEN: Final = 4


class Memory(Protocol):
    """Keeps conversations."""

    async def load(self, conversation: str) -> Sequence[Message]:
        """Return what a model should be shown of a conversation, oldest first."""
        ...

    async def append(self, conversation: str, messages: Sequence[Message]) -> None:
        """Keep what was said."""
        ...


class KeyedMemory(Memory, Protocol):
    """Keeps conversations, and knows what it has kept already; a run that is driven again says nothing twice."""

    async def append_once(self, conversation: str, key: str, messages: Sequence[Message]) -> None:
        """Keep what was said, unless something was kept under this key before."""
        ...


class WindowMemory:
    """Keeps conversations in this process, and shows the last messages of each."""

    def __init__(self, messages: int = 20, *, tokens: int | None = None) -> None:
        if messages < 1 or (tokens is not None and tokens < 1):
            raise ConfigError(f"WindowMemory({messages!r}, tokens={tokens!r}): give 1 or more.")
        self.messages, self.tokens = messages, tokens
        self._kept: dict[str, list[Message]] = {}
        self._keys: dict[str, set[str]] = {}

    async def load(self, conversation: str) -> Sequence[Message]:
        """Return the last messages, whole turns only."""
        return windowed(repair(self._kept.get(conversation, ())), self.messages, self.tokens)

    async def append(self, conversation: str, messages: Sequence[Message]) -> None:
        """Keep what was said."""
        kept = self._kept.setdefault(conversation, [])
        kept.extend(messages)
        if len(kept) > 2 * self.messages:
            # What has left the window does not come back.
            kept[:] = windowed(kept, self.messages, None)

    async def append_once(self, conversation: str, key: str, messages: Sequence[Message]) -> None:
        """Keep what was said, unless something was kept under this key before."""
        keys = self._keys.setdefault(conversation, set())
        if key not in keys:
            keys.add(key)
            await self.append(conversation, messages)

    def forget(self, conversation: str) -> None:
        """Forget a conversation."""
        self._kept.pop(conversation, None)
        self._keys.pop(conversation, None)


class SqliteMemory:
    """Keeps conversations in a SQLite file; several processes may share it."""

    def __init__(self, path: str | Path, messages: int = 20, *, tokens: int | None = None) -> None:
        if messages < 1 or (tokens is not None and tokens < 1):
            raise ConfigError(f"SqliteMemory({str(path)!r}, {messages!r}, tokens={tokens!r}): give 1 or more.")
        self.path, self.messages, self.tokens = Path(path), messages, tokens
        self._ledger = Ledger(path, "conversations", MEMORY)

    async def load(self, conversation: str) -> Sequence[Message]:
        """Return the last messages, whole turns only."""
        return await self._ledger.read(lambda db: self._last(db, conversation))

    def _last(self, db: sqlite3.Connection, conversation: str) -> Sequence[Message]:
        rows = db.execute("SELECT message FROM messages WHERE conversation=? ORDER BY id DESC", (conversation,))
        found: list[Message] = []
        for (text,) in rows:
            found.append(self._read(text, conversation))
            # A conversation may be years long: beyond a whole turn more than the window shows, nothing is read.
            if len(found) > self.messages and found[-1].role == "user":
                break
        return windowed(repair(found[::-1]), self.messages, self.tokens)

    def _read(self, text: str, conversation: str) -> Message:
        try:
            return Message.from_dict(json.loads(text))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"A message of the conversation {conversation!r} in {str(self.path)!r} is damaged: "
                f"{type(error).__name__}: {error}. Correct the file, or forget the conversation."
            ) from error

    async def append(self, conversation: str, messages: Sequence[Message]) -> None:
        """Keep what was said; all of it or nothing."""
        await self._ledger.write(lambda db: _insert(db, conversation, messages))

    async def append_once(self, conversation: str, key: str, messages: Sequence[Message]) -> None:
        """Keep what was said, unless something was kept under this key before."""

        def insert(db: sqlite3.Connection) -> None:
            if db.execute("INSERT OR IGNORE INTO kept VALUES (?, ?)", (conversation, key)).rowcount:
                _insert(db, conversation, messages)

        await self._ledger.write(insert)

    def forget(self, conversation: str) -> None:
        """Forget a conversation."""
        with self._ledger.writing() as db:
            db.execute("DELETE FROM messages WHERE conversation=?", (conversation,))
            db.execute("DELETE FROM kept WHERE conversation=?", (conversation,))

    def close(self) -> None:
        """Close the file."""
        self._ledger.close()


def _insert(db: sqlite3.Connection, conversation: str, messages: Sequence[Message]) -> None:
    rows = [(conversation, json.dumps(message.to_dict())) for message in messages]
    db.executemany("INSERT INTO messages (conversation, message) VALUES (?, ?)", rows)


def unsaid(before: Sequence[Message], new: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return what was said before, and what of the new is not among it: `reply.extended(...)` is a whole conversation.

    Results that were not there yet when the conversation was loaded take the place of the notes that say so.
    """
    known = [*before]
    while known and known[-1].role == "tool" and all(map(is_lost, known[-1].results)):
        known.pop()
    if known and known[-1].role == "assistant":
        old, said = [message.to_dict() for message in known], [message.to_dict() for message in new]
        for place in range(len(said), 0, -1):
            shared = min(len(old), place)
            if said[place - shared : place] == old[-shared:]:
                return known, [*new[place:]]
    return [*before], [*new]


def windowed(messages: Sequence[Message], most: int, tokens: int | None) -> list[Message]:
    """Return the last messages that fit: whole turns, beginning with what a user said."""
    turns: list[list[Message]] = []
    for message in messages:
        # An answer stays with its question, and results with their calls.
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    kept: list[list[Message]] = []
    count = size = 0
    for turn in reversed(turns):
        count += len(turn)
        size += _tokens(turn)
        if kept and (count > most or (tokens is not None and size > tokens)):
            break
        kept.append(turn)
    return [message for turn in reversed(kept) for message in turn]


def _tokens(messages: Iterable[Message]) -> int:
    return sum(len(json.dumps(_plain(message))) for message in messages) // BYTES_PER_TOKEN


def _plain(message: Message) -> Any:
    return message.to_dict()
