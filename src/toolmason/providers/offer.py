"""The tools of a request → each with its schema, name and losses for one provider, worked out once.

Lives here: `Offer`, and a memory of the last ones, because every turn of a chat offers the same tools.
Not here: the wire form (each provider's module).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolmason._core.definition import ToolDefinition
from toolmason._core.exports import Strict
from toolmason._core.messages import Message
from toolmason._core.native import Native
from toolmason.errors import LossyDefinition
from toolmason.providers.kept import Kept
from toolmason.providers.names import Names
from toolmason.providers.report import Narrowed

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
