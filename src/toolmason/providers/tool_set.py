"""Adapt tools to a provider, and cache encoded tools and messages so that each is checked and encoded once.

Encoded values are shared between requests: callers may send a body but must not modify it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message, Role
from toolmason._core.values.provider_tools import AnyNativeTool, Strict
from toolmason._wire import pause_garbage_collection
from toolmason.errors import ConfigError, LossyDefinition
from toolmason.providers.aliases import ToolNames
from toolmason.providers.conversation import find_flaws
from toolmason.providers.schema.losses import NarrowedSchema
from toolmason.providers.schema.narrow import SharedParts

_SPARE_MESSAGES: Final = 256
"""Number of older messages kept in addition to those of the latest conversation."""


class EncodedMessage(NamedTuple):
    """Message in a provider's format."""

    role: Role
    items: Sequence[dict[str, Any]]


class RequestCache:
    """Tools and messages that were sent to a model, in encoded form."""

    def __init__(self) -> None:
        self.offer: tuple[tuple[Any, ...], ToolNames, dict[str, Any]] | None = None
        """Fields of the last request that offered its tools, with the values they depend on and the tools' names."""
        self._valid_prefix: tuple[tuple[Message, ...], set[str]] = ((), set())
        self._encoded: dict[int, tuple[Message, ToolNames, EncodedMessage]] = {}

    @property
    def count(self) -> int:
        """Number of cached messages."""
        return len(self._encoded)

    def is_valid(self, messages: tuple[Message, ...]) -> bool:
        """Return True if a conversation is valid. A prefix that was valid before is not checked again."""
        checked, known_ids = self._valid_prefix
        # Comparing tuples of identical objects is fast: Python compares identity before equality.
        if messages[: len(checked)] != checked:
            checked, known_ids = (), set()
        seen = known_ids.copy()
        if find_flaws(messages[len(checked) :], seen):
            return False
        self._valid_prefix = (messages, seen)
        return True

    def encode(
        self,
        messages: Sequence[Message],
        names: ToolNames,
        format_message: Callable[[Message], Sequence[dict[str, Any]]],
    ) -> list[EncodedMessage]:
        """Return messages in encoded form; each message is encoded once."""
        encoded: list[EncodedMessage] = []
        for message in messages:
            cached = self._encoded.get(id(message))
            # The entry holds the message, so its `id()` cannot be reused while the entry exists.
            if cached is None or cached[1] is not names:
                cached = (message, names, EncodedMessage(message.role, format_message(message)))
                self._encoded[id(message)] = cached
            encoded.append(cached[2])
        if len(self._encoded) > 2 * len(messages) + _SPARE_MESSAGES:
            current = {id(message) for message in messages}
            self._encoded = {key: cached for key, cached in self._encoded.items() if key in current}
        return encoded


SchemaFitter: TypeAlias = Callable[[Mapping[str, Any], Strict, SharedParts], NarrowedSchema]
_CACHE_SIZE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class ToolSet:
    """Tools offered to a provider."""

    tools: tuple[tuple[ToolDefinition, NarrowedSchema], ...]
    names: ToolNames
    native: tuple[AnyNativeTool, ...] = ()
    strict: Strict = "auto"

    def only(self, wanted: Sequence[str]) -> ToolSet:
        """Return a tool set with only these tools."""
        selected = tuple(pair for pair in self.tools if pair[0].name in wanted)
        return ToolSet(selected, self.names, self.native, self.strict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRules:
    """One provider's rules for tools."""

    provider: str
    fit_schema: SchemaFitter
    name_pattern: str
    max_name_length: int
    has_tools: bool = True
    """False if models can call no tools natively."""
    strict: Literal["mixed", "uniform", "never"] = "mixed"
    """`uniform` if strict and other tools must not be mixed, `never` if the API has no strict tools."""


_tool_sets: OrderedDict[tuple[Any, ...], tuple[tuple[ToolDefinition, ...], ToolSet]] = OrderedDict()


def make_tool_set(
    definitions: tuple[ToolDefinition, ...],
    native: tuple[AnyNativeTool, ...],
    rules: ProviderRules,
    strict: Strict,
    *,
    lossy: bool,
) -> ToolSet:
    """Return the tools adapted to a provider.

    Raises:
        LossyDefinition: a tool would change its meaning and `lossy` is not set.
        ConfigError: strict tools are requested, but the provider has none.
    """
    if rules.strict == "never":
        if strict is True:
            raise ConfigError(f"{rules.provider}: this server has no strict tools. Omit strict=True.")
        strict = False
    key = (rules.provider, rules.strict, strict, lossy, *map(id, definitions))
    cached = _tool_sets.get(key)
    if cached is not None:
        return ToolSet(cached[1].tools, cached[1].names, native, strict)
    with pause_garbage_collection():
        shared = SharedParts()
        fitted = tuple((tool, rules.fit_schema(tool.input_schema, strict, shared)) for tool in definitions)
    if rules.strict == "uniform" and len({narrowed.strict for _, narrowed in fitted}) > 1:
        return make_tool_set(definitions, native, rules, False, lossy=lossy)  # noqa: FBT003 - the option of definitions
    for definition, narrowed in fitted:
        breaking_losses = [loss for loss in narrowed.losses if loss.changes_meaning]
        if breaking_losses and not lossy:
            raise LossyDefinition(definition.name, rules.provider, breaking_losses)
    keys = {definition.name: narrowed.keys for definition, narrowed in fitted}
    names = ToolNames([d.name for d in definitions], rules.name_pattern, rules.max_name_length, keys)
    tool_set = ToolSet(fitted, names, native, strict)
    # The entry holds the definitions, so their `id()`s cannot be reused while the entry exists.
    _tool_sets[key] = (definitions, tool_set)
    while len(_tool_sets) > _CACHE_SIZE:
        _tool_sets.popitem(last=False)
    return tool_set
