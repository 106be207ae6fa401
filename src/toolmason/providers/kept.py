"""What of a conversation was looked at and written before, so that each message is looked at and written once.

Lives here: the memory of one model over the turns of its chats. What it gives is shared between requests: it is for
those who send a body, not for those who change one. Not here: how a message is written (each provider's module).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from toolmason._core.messages import Message
from toolmason.providers.conversation import check_conversation
from toolmason.providers.names import Names

_SPARE: Final = 256
"""How many messages of the past are kept beside those of the last conversation."""


class Kept:
    """The messages that a model was sent, as they were sent."""

    def __init__(self) -> None:
        self._right: tuple[tuple[Message, ...], frozenset[str]] = ((), frozenset())
        self._items: dict[int, tuple[Message, Names, tuple[Any, ...]]] = {}

    @property
    def count(self) -> int:
        """How many messages are kept."""
        return len(self._items)

    def right(self, messages: tuple[Message, ...]) -> bool:
        """Tell whether a conversation is in order; what was found so before is not looked at again."""
        before, seen = self._right
        # Equal tuples of the same objects are told by the objects alone.
        if messages[: len(before)] != before:
            before, seen = (), frozenset()
        new = messages[len(before) :]
        if check_conversation(new) or any(call.id in seen for message in new for call in message.calls):
            return False
        fresh = {call.id for message in new for call in message.calls}
        self._right = (messages, seen | fresh if fresh else seen)
        if len(self._items) > 2 * len(messages) + _SPARE:
            there = {id(message) for message in messages}
            self._items = {key: kept for key, kept in self._items.items() if key in there}
        return True

    def items(self, message: Message, names: Names, make: Callable[[], Iterable[Any]]) -> Sequence[Any]:
        """Return how a message is written."""
        kept = self._items.get(id(message))
        # The message is kept with its form: as long as it lives, no other object has its identity.
        if kept is None or kept[1] is not names:
            kept = self._items[id(message)] = (message, names, tuple(make()))
        return kept[2]
