"""Store conversations, and select the messages that the model sees.

A window never separates a call from its result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol

from toolmason._core.values.messages import Message
from toolmason._core.values.policy import check_store
from toolmason._explain import explain_arguments
from toolmason._store.sqlite_store import SqliteStore
from toolmason._store.store import Store, Tables, Transaction
from toolmason._store.tables import CONVERSATIONS
from toolmason.build.check.provider_limits import BYTES_PER_TOKEN
from toolmason.errors import ConfigError, ToolmasonError
from toolmason.providers.conversation import is_unavailable, repair

MAX_UNCOMPACTED_MESSAGES: Final = 1000
"""Messages of a conversation that `load_all` returns, and that `WindowMemory` holds for it."""
_LAST_ID: Final = 2**63 - 1


class Memory(Protocol):
    """Store of conversations. With `append_once`, as of `WindowMemory`, a run executed again adds no message twice.

    With `load_all` and `replace_once`, it keeps the summaries of a chat with `compact=`.
    """

    async def load(self, conversation: str) -> Sequence[Message]:
        """Return the messages of a conversation that the model should see, oldest first."""
        ...

    async def append(self, conversation: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation."""
        ...


class WindowMemory:
    """In-process memory that returns the last messages of each conversation."""

    @explain_arguments
    def __init__(self, messages: int = 20, *, tokens: int | None = None) -> None:
        if messages < 1 or (tokens is not None and tokens < 1):
            raise ConfigError(f"WindowMemory({messages!r}, tokens={tokens!r}): messages and tokens must be at least 1.")
        self.messages, self.tokens = messages, tokens
        self._conversations: dict[str, list[Message]] = {}
        self._appended_keys: dict[str, set[str]] = {}
        self._loaded_whole: set[str] = set()
        """Conversations that a chat compacts: messages outside the window are still needed."""

    async def load(self, conversation: str) -> Sequence[Message]:
        """Return the last messages, in whole turns."""
        return take_window(repair(self._conversations.get(conversation, ())), self.messages, self.tokens)

    async def append(self, conversation: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation."""
        stored = self._conversations.setdefault(conversation, [])
        stored.extend(messages)
        limit = MAX_UNCOMPACTED_MESSAGES if conversation in self._loaded_whole else self.messages
        if len(stored) > 2 * limit:
            # Messages that left the window are never returned again.
            stored[:] = take_window(stored, limit, None)

    async def append_once(self, conversation: str, key: str, messages: Sequence[Message]) -> None:
        """Append messages, unless this key was used before."""
        keys = self._appended_keys.setdefault(conversation, set())
        if key not in keys:
            keys.add(key)
            await self.append(conversation, messages)

    async def load_all(self, conversation: str) -> Sequence[Message]:
        """Return the messages since the last summary, and the summary, also those that are not in the window."""
        self._loaded_whole.add(conversation)
        return take_window(repair(self._conversations.get(conversation, ())), MAX_UNCOMPACTED_MESSAGES, None)

    async def replace_once(self, conversation: str, key: str, old: Sequence[Message], new: Message) -> None:
        """Replace messages by one at the start of the conversation, unless this key was used before."""
        keys = self._appended_keys.setdefault(conversation, set())
        stored = self._conversations.get(conversation, [])
        found = _find_messages([_dump(message) for message in stored], old)
        if found and key not in keys:
            keys.add(key)
            stored[:] = [new, *(message for index, message in enumerate(stored) if index not in found)]

    def forget(self, conversation: str) -> None:
        """Delete a conversation."""
        self._loaded_whole.discard(conversation)
        self._conversations.pop(conversation, None)
        self._appended_keys.pop(conversation, None)


class StoreMemory:
    """Memory in a store, which several processes may share."""

    @explain_arguments
    def __init__(self, store: Store, messages: int = 20, *, tokens: int | None = None) -> None:
        check_store(store)
        if messages < 1 or (tokens is not None and tokens < 1):
            raise ConfigError(
                f"{type(self).__name__}({store.name!r}, {messages!r}, tokens={tokens!r}): messages and tokens must be "
                "at least 1."
            )
        self.messages, self.tokens = messages, tokens
        self._tables = Tables(store, CONVERSATIONS)

    async def load(self, conversation: str) -> Sequence[Message]:
        """Return the last messages, in whole turns."""
        return await self._tables.read(lambda db: self._load_last(db, conversation, self.messages, self.tokens))

    async def load_all(self, conversation: str) -> Sequence[Message]:
        """Return the messages since the last summary, and the summary, also those that are not in the window."""
        return await self._tables.read(lambda db: self._load_last(db, conversation, MAX_UNCOMPACTED_MESSAGES, None))

    def _load_last(
        self, db: Transaction, conversation: str, max_messages: int, tokens: int | None
    ) -> Sequence[Message]:
        found: list[Message] = []
        for text in _read_newest_first(db, conversation, max_messages + 10):
            found.append(self._parse_message(text, conversation))
            # A conversation may be years long: stop reading one whole turn beyond the window.
            if len(found) > max_messages and found[-1].role == "user":
                found += self._find_summary(db, conversation)
                break
        return take_window(repair(found[::-1]), max_messages, tokens)

    def _find_summary(self, db: Transaction, conversation: str) -> list[Message]:
        """Return the summary of a conversation, which comes before all its other messages, or an empty list."""
        rows = db.execute("SELECT message FROM messages WHERE conversation=? ORDER BY id LIMIT 1", (conversation,))
        first = [self._parse_message(text, conversation) for (text,) in rows if '"summary"' in text]
        return [message for message in first if message.summary is not None]

    def _parse_message(self, text: str, conversation: str) -> Message:
        try:
            return Message.from_dict(json.loads(text))
        except (KeyError, TypeError, ValueError, AttributeError, ToolmasonError) as error:
            raise ConfigError(
                f"A message of conversation {conversation!r} in {self._tables.store.name!r} is damaged: "
                f"{type(error).__name__}: {error}. Fix the file, or delete the conversation with forget()."
            ) from error

    async def append(self, conversation: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation, all or none."""
        await self._tables.write(conversation, lambda db: _insert_messages(db, conversation, messages))

    async def append_once(self, conversation: str, key: str, messages: Sequence[Message]) -> None:
        """Append messages, unless this key was used before."""

        def insert(db: Transaction) -> None:
            if _add_key(db, conversation, key):
                _insert_messages(db, conversation, messages)

        await self._tables.write(conversation, insert)

    async def replace_once(self, conversation: str, key: str, old: Sequence[Message], new: Message) -> None:
        """Replace messages by one at the start of the conversation, unless this key was used before.

        The file keeps them in the table `compacted`.
        """

        def replace(db: Transaction) -> None:
            if not _add_key(db, conversation, key):
                return
            rows = db.execute("SELECT id, message FROM messages WHERE conversation=? ORDER BY id", (conversation,))
            stored = rows.fetchall()
            found = _find_messages([text for _, text in stored], old)
            if not found:
                return
            # Messages that stay, such as the question, may come before the first one that is replaced.
            start = stored[: found[0] + 1]
            texts = [_dump(new), *(text for _, text in start[:-1])]
            replaced = [(start[0][0], conversation, stored[index][1]) for index in found]
            db.executemany("INSERT INTO compacted VALUES (?, ?, ?)", replaced)
            db.executemany("DELETE FROM messages WHERE id=?", [(stored[index][0],) for index in found[1:]])
            changed = [(text, row_id) for (row_id, _), text in zip(start, texts, strict=True)]
            db.executemany("UPDATE messages SET message=? WHERE id=?", changed)

        await self._tables.write(conversation, replace)

    def forget(self, conversation: str) -> None:
        """Delete a conversation."""

        def delete(db: Transaction) -> None:
            db.execute("DELETE FROM messages WHERE conversation=?", (conversation,))
            db.execute("DELETE FROM kept WHERE conversation=?", (conversation,))
            db.execute("DELETE FROM compacted WHERE conversation=?", (conversation,))

        self._tables.transact(conversation, delete)

    def close(self) -> None:
        """Close the memory."""
        self._tables.close()


class SqliteMemory(StoreMemory):
    """Memory in a SQLite file, which several processes may share."""

    @explain_arguments
    def __init__(self, path: str | Path, messages: int = 20, *, tokens: int | None = None) -> None:
        super().__init__(SqliteStore(path), messages, tokens=tokens)
        self.path = Path(path)


def _read_newest_first(db: Transaction, conversation: str, page_size: int) -> Iterator[str]:
    """Yield messages as JSON. A client of PostgreSQL loads all rows of a statement, so each reads a page."""
    query = "SELECT id, message FROM messages WHERE conversation=? AND id<? ORDER BY id DESC LIMIT ?"
    before = _LAST_ID
    while page := db.execute(query, (conversation, before, page_size)).fetchall():
        yield from (text for _, text in page)
        before = page[-1][0]


def _add_key(db: Transaction, conversation: str, key: str) -> bool:
    """Record a key of a conversation. Return False if it is known."""
    return db.execute("INSERT INTO kept VALUES (?, ?) ON CONFLICT DO NOTHING", (conversation, key)).rowcount > 0


def _insert_messages(db: Transaction, conversation: str, messages: Sequence[Message]) -> None:
    rows = [(conversation, _dump(message)) for message in messages]
    db.executemany("INSERT INTO messages (conversation, message) VALUES (?, ?)", rows)


def _dump(message: Message) -> str:
    return json.dumps(message.to_dict())


def _find_messages(stored: Sequence[str], wanted: Sequence[Message]) -> list[int]:
    """Return the indexes of messages among those of a conversation. Others may have been added in between."""
    missing = Counter(map(_dump, wanted))
    found: list[int] = []
    for index, text in enumerate(stored):
        if missing[text] > 0:
            missing[text] -= 1
            found.append(index)
    return found


async def load_conversation(memory: Memory, conversation: str, *, whole: bool) -> Sequence[Message]:
    """Return the messages that a run starts with: all since the last summary if `whole`, or those of the window."""
    load_all: Any = getattr(memory, "load_all", None) if whole else None
    loaded: Sequence[Message] = await (load_all or memory.load)(conversation)
    return loaded


def apply_window(memory: Memory | None, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that are in the window of a memory; all of them if it has none."""
    count: Any = getattr(memory, "messages", None)
    return take_window(messages, count, getattr(memory, "tokens", None)) if isinstance(count, int) else messages


def split_new_messages(history: Sequence[Message], new: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the history, and the new messages without those it already contains (`reply.extended(...)` holds both).

    New results, with the conversation or alone, replace the placeholders for missing results at the end of the history.
    """
    known_history = [*history]
    while known_history and known_history[-1].role == "tool" and all(map(is_unavailable, known_history[-1].results)):
        known_history.pop()
    if known_history and known_history[-1].role == "assistant":
        open_calls = {call.id for call in known_history[-1].calls}
        if new and any(result.call_id in open_calls for result in new[0].results):
            return known_history, [*new]
        old_dicts = [message.to_dict() for message in known_history]
        new_dicts = [message.to_dict() for message in new]
        tails = [old_dicts]
        if known_history[0].summary is not None and not any(message.summary for message in new):
            # The caller has the messages that the summary replaced, also before the first one that stayed.
            tails = [old_dicts[1:], old_dicts[2:]]
        for tail, end in product(filter(None, tails), range(len(new_dicts), 0, -1)):
            overlap = min(len(tail), end)
            if new_dicts[end - overlap : end] == tail[-overlap:]:
                return known_history, [*new[end:]]
    return [*history], [*new]


def complete_last_turn(
    loaded: Sequence[Message], messages: Sequence[Message], new: Sequence[Message]
) -> Sequence[Message]:
    """Return what a memory shows, with what it leaves out of a run: the `new` messages of the user, the last calls."""
    shown = [*map(_dump, loaded)]
    said = [message for message in new if message.role == "user" and _dump(message) not in shown]
    if said:
        of_run = {*map(_dump, new)}
        place = next((index for index, text in enumerate(shown) if text in of_run), len(shown))
        loaded = [*loaded[:place], *said, *loaded[place:]]
    if len(messages) < 2 or not messages[-1].results:  # noqa: PLR2004 - calls and results
        return loaded
    last_ids = {result.call_id for result in messages[-1].results}
    if any(call.id in last_ids for message in loaded for call in message.calls):
        return loaded
    others = [message for message in loaded if last_ids.isdisjoint(result.call_id for result in message.results)]
    return repair([*others, *messages[-2:]])


def estimate_tokens(message: Message) -> int:
    """Return about how many tokens a message has."""
    return len(_dump(message)) // BYTES_PER_TOKEN


def take_window(messages: Sequence[Message], max_messages: int, tokens: int | None) -> list[Message]:
    """Return the last messages that fit, in whole turns that start with a user message, and always a summary."""
    turns: list[list[Message]] = []
    summaries = [message for message in messages if message.summary is not None]
    for message in messages:
        if message.summary is not None:
            continue
        # Keep answers with their question, and results with their calls.
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    selected: list[list[Message]] = []
    count = size = 0
    for turn in reversed(turns):
        count += len(turn)
        size += sum(map(estimate_tokens, turn))
        if selected and (count > max_messages or (tokens is not None and size > tokens)):
            break
        selected.append(turn)
    return [*summaries, *(message for turn in reversed(selected) for message in turn)]
