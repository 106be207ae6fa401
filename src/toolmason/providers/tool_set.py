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
from toolmason._core.values.provider_tools import AnyNativeTool
from toolmason.errors import LossyDefinition
from toolmason.providers.aliases import ToolNames
from toolmason.providers.conversation import check_conversation
from toolmason.providers.schema.losses import NarrowedSchema

_SPARE_MESSAGES: Final = 256
"""How many messages of the past are kept beside those of the last conversation."""


class EncodedMessages:
    """The messages that a model was sent, as they were sent."""

    def __init__(self) -> None:
        self._valid_prefix: tuple[tuple[Message, ...], frozenset[str]] = ((), frozenset())
        self._encoded: dict[int, tuple[Message, ToolNames, tuple[Any, ...]]] = {}

    @property
    def count(self) -> int:
        """How many messages are kept."""
        return len(self._encoded)

    def is_valid(self, messages: tuple[Message, ...]) -> bool:
        """Tell whether a conversation is in order; what was found so before is not looked at again."""
        checked, seen = self._valid_prefix
        # Equal tuples of the same objects are told by the objects alone.
        if messages[: len(checked)] != checked:
            checked, seen = (), frozenset()
        new = messages[len(checked) :]
        if check_conversation(new) or any(call.id in seen for message in new for call in message.calls):
            return False
        new_ids = {call.id for message in new for call in message.calls}
        self._valid_prefix = (messages, seen | new_ids if new_ids else seen)
        if len(self._encoded) > 2 * len(messages) + _SPARE_MESSAGES:
            current = {id(message) for message in messages}
            self._encoded = {key: cached for key, cached in self._encoded.items() if key in current}
        return True

    def encode(self, message: Message, names: ToolNames, make: Callable[[], Iterable[Any]]) -> Sequence[Any]:
        """Return how a message is written."""
        cached = self._encoded.get(id(message))
        # The message is kept with its form: as long as it lives, no other object has its identity.
        if cached is None or cached[1] is not names:
            cached = self._encoded[id(message)] = (message, names, tuple(make()))
        return cached[2]


SchemaFitter: TypeAlias = Callable[[Mapping[str, Any], Strict], NarrowedSchema]
_CACHE_SIZE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class ToolSet:
    """What is offered to a provider."""

    tools: tuple[tuple[ToolDefinition, NarrowedSchema], ...]
    names: ToolNames
    native: tuple[AnyNativeTool, ...] = ()
    strict: Strict = "auto"
    encoded_messages: EncodedMessages | None = None
    """Where the messages of earlier turns are kept as they were written."""

    def encode(self, message: Message, make: Callable[[], Iterable[Any]]) -> Sequence[Any]:
        """Return how a message is written: as it was before, or as it is made now."""
        return (
            tuple(make()) if self.encoded_messages is None else self.encoded_messages.encode(message, self.names, make)
        )

    def only(self, wanted: Sequence[str]) -> ToolSet:
        """Return an offer of these tools alone."""
        selected = tuple(pair for pair in self.tools if pair[0].name in wanted)
        return ToolSet(selected, self.names, self.native, self.strict, self.encoded_messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRules:
    """How one provider wants tools."""

    provider: str
    fit_schema: SchemaFitter
    name_pattern: str
    max_name_length: int


_tool_sets: OrderedDict[tuple[Any, ...], tuple[tuple[ToolDefinition, ...], ToolSet]] = OrderedDict()


def make_tool_set(
    definitions: tuple[ToolDefinition, ...],
    native: tuple[AnyNativeTool, ...],
    rules: ProviderRules,
    strict: Strict,
    *,
    lossy: bool,
) -> ToolSet:
    """Return the tools as a provider wants them.

    Raises:
        LossyDefinition: one would change its meaning, and `lossy` is not set.
    """
    key = (rules.provider, strict, lossy, *map(id, definitions))
    cached = _tool_sets.get(key)
    if cached is not None:
        return ToolSet(cached[1].tools, cached[1].names, native, strict)
    fitted = tuple((definition, rules.fit_schema(definition.input_schema, strict)) for definition in definitions)
    for definition, narrowed in fitted:
        breaking_losses = [loss for loss in narrowed.losses if loss.changes_meaning]
        if breaking_losses and not lossy:
            raise LossyDefinition(definition.name, rules.provider, breaking_losses)
    keys = {definition.name: narrowed.keys for definition, narrowed in fitted}
    names = ToolNames([d.name for d in definitions], rules.name_pattern, rules.max_name_length, keys)
    tool_set = ToolSet(fitted, names, native, strict)
    # The definitions are kept with it: as long as they live, no other object has their identity.
    _tool_sets[key] = (definitions, tool_set)
    while len(_tool_sets) > _CACHE_SIZE:
        _tool_sets.popitem(last=False)
    return tool_set
