"""What of a conversation was looked at and written before, so that each message is looked at and written once.

Lives here: the memory of one model over the turns of its chats. What it gives is shared between requests: it is for
those who send a body, not for those who change one. Not here: how a message is written (each provider's module).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolmason._core.toolbox.definitions import Strict
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.provider_tools import Native
from toolmason.errors import LossyDefinition
from toolmason.providers.aliases import Names
from toolmason.providers.conversation import check_conversation
from toolmason.providers.schema.losses import Narrowed

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


Fit: TypeAlias = Callable[[Mapping[str, Any], Strict], Narrowed]
_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What is offered to a provider."""

    tools: tuple[tuple[ToolDefinition, Narrowed], ...]
    names: Names
    native: tuple[Native, ...] = ()
    strict: Strict = "auto"
    kept: Kept | None = None
    """Where the messages of earlier turns are kept as they were written."""

    def written(self, message: Message, make: Callable[[], Iterable[Any]]) -> Sequence[Any]:
        """Return how a message is written: as it was before, or as it is made now."""
        return tuple(make()) if self.kept is None else self.kept.items(message, self.names, make)

    def only(self, wanted: Sequence[str]) -> Offer:
        """Return an offer of these tools alone."""
        kept = tuple(pair for pair in self.tools if pair[0].name in wanted)
        return Offer(kept, self.names, self.native, self.strict, self.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How one provider wants tools."""

    provider: str
    fit: Fit
    rule: str
    longest: int


_offers: OrderedDict[tuple[Any, ...], tuple[tuple[ToolDefinition, ...], Offer]] = OrderedDict()


def offer_of(
    definitions: tuple[ToolDefinition, ...], native: tuple[Native, ...], terms: Terms, strict: Strict, *, lossy: bool
) -> Offer:
    """Return the tools as a provider wants them.

    Raises:
        LossyDefinition: one would change its meaning, and `lossy` is not set.
    """
    key = (terms.provider, strict, lossy, *map(id, definitions))
    known = _offers.get(key)
    if known is not None:
        return Offer(known[1].tools, known[1].names, native, strict)
    fitted = tuple((definition, terms.fit(definition.input_schema, strict)) for definition in definitions)
    for definition, narrowed in fitted:
        heavy = [loss for loss in narrowed.losses if loss.changes_meaning]
        if heavy and not lossy:
            raise LossyDefinition(definition.name, terms.provider, heavy)
    keys = {definition.name: narrowed.keys for definition, narrowed in fitted}
    names = Names([d.name for d in definitions], terms.rule, terms.longest, keys)
    offer = Offer(fitted, names, native, strict)
    # The definitions are kept with it: as long as they live, no other object has their identity.
    _offers[key] = (definitions, offer)
    while len(_offers) > _REMEMBERED:
        _offers.popitem(last=False)
    return offer
