"""Count what a run uses, together with the runs that it delegates to, and find the limit that it reaches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from toolmason._core.toolbox.exchange import ModelReply, Usage
from toolmason._core.values.policy import Limits
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError

_PER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a million tokens of a model, in the currency of your choice: `Price(input=2.5, output=10)`."""

    input: float
    output: float
    cached: float | None = None
    """Price of input tokens read from a cache; None for that of other input."""
    cache_write: float | None = None
    """Price of input tokens written to a cache; None for that of other input."""

    @explain_arguments
    def __post_init__(self) -> None:
        for name in self.__slots__:
            price = getattr(self, name)
            if price is not None and not price >= 0:
                raise ConfigError(f"Price({name}={price!r}): must be at least 0.")

    def compute(self, usage: Usage) -> float:
        """Return the cost of tokens."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        total = (usage.input_tokens - cached - written) * self.input + usage.output_tokens * self.output
        total += cached * (self.input if self.cached is None else self.cached)
        return (total + written * (self.input if self.cache_write is None else self.cache_write)) / _PER


Prices: TypeAlias = Price | Mapping[str, Price]
"""One price, or the prices of models by their names. A date or `-latest` after a name is ignored."""


_VERSION: Final = re.compile(r"[-@](?:latest|\d{4}-?\d{2}-?\d{2}|\d{3})$")
"""End of a name that says which version of the model it is, such as a date."""
PRICES_DATE: Final = "2026-11"
"""Month of the price lists that `PRICES` was written from. Prices change: pass your own if they matter."""
PRICES: Final[Mapping[str, Price]] = MappingProxyType(
    {
        "openai:gpt-5": Price(1.25, 10, cached=0.125),
        "openai:gpt-5-mini": Price(0.25, 2, cached=0.025),
        "openai:gpt-5-nano": Price(0.05, 0.4, cached=0.005),
        "openai:gpt-4.1": Price(2, 8, cached=0.5),
        "openai:gpt-4.1-mini": Price(0.4, 1.6, cached=0.1),
        "openai:gpt-4o": Price(2.5, 10, cached=1.25),
        "openai:gpt-4o-mini": Price(0.15, 0.6, cached=0.075),
        "anthropic:claude-opus-4-5": Price(5, 25, cached=0.5, cache_write=6.25),
        "anthropic:claude-sonnet-4-5": Price(3, 15, cached=0.3, cache_write=3.75),
        "anthropic:claude-haiku-4-5": Price(1, 5, cached=0.1, cache_write=1.25),
        "gemini:gemini-2.5-pro": Price(1.25, 10, cached=0.125),
        "gemini:gemini-2.5-flash": Price(0.3, 2.5, cached=0.03),
    }
)
"""Dollars for a million tokens, by the name of a model; for prompts of usual length."""


def find_price(prices: Prices, model: str) -> Price | None:
    """Return the price of a model, or None. `gpt-5.2` and `gpt-5-mini` are not versions of `gpt-5`."""
    if isinstance(prices, Price):
        return prices
    return prices.get(model) or prices.get(_VERSION.sub("", model))


def find_cost(prices: Prices, reply: ModelReply, model: str, notes: list[str]) -> float | None:
    """Return the cost of a reply, or None if its model has no price; a note then says so."""
    name = reply.model or model
    price = find_price(prices, name)
    if price is None and (note := f"{name} has no price; its tokens are not in the cost") not in notes:
        notes.append(note)
    return None if price is None else price.compute(reply.usage)


def require_price(prices: Prices | None, model: Any) -> None:
    """Raise ConfigError if a model, or one that it asks in its place, has no price, so that a limit would not hold."""
    for each in getattr(model, "models", (model,)):
        if prices is None or find_price(prices, each.name) is None:
            raise ConfigError(f"A limit of cost requires a price of {each.name}. Pass `price=` to `Chat`.")


@dataclass(slots=True, eq=False, repr=False)
class Spending:
    """Use of a run and of the runs that it delegates to. What they use counts for all runs above them as well."""

    limits: Limits
    prices: Prices | None = None
    parent: Spending | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    """Cost, or None if no price is known."""

    def add(self, usage: Usage, cost: float | None, steps: int) -> None:
        """Count model turns of this run, or of one that it delegated to."""
        spending: Spending | None = self
        while spending is not None:
            spending.steps += steps
            spending.usage += usage
            if cost is not None:
                spending.cost = cost if spending.cost is None else spending.cost + cost
            spending = spending.parent

    def find_limit(self, next_input: int = 0) -> str:
        """Return the limit that a further turn exceeds, of this run or of one above it, or an empty string.

        `next_input` is the number of input tokens that the turn has at least.
        """
        spending: Spending | None = self
        while spending is not None:
            if found := spending.find_own_limit(next_input):
                return found
            spending = spending.parent
        return ""

    def find_own_limit(self, next_input: int) -> str:
        """Return the limit of this run alone that a further turn exceeds, or an empty string."""
        limits, usage = self.limits, self.usage
        if limits.steps is not None and self.steps >= limits.steps:
            return f"limit of {limits.steps} steps"
        for limit, used, more, name in (
            (limits.tokens, usage.total_tokens, next_input, "limit of {} tokens"),
            (limits.input_tokens, usage.input_tokens, next_input, "limit of {} input tokens"),
            (limits.output_tokens, usage.output_tokens, 0, "limit of {} output tokens"),
            (limits.cost, self.cost or 0.0, 0, "cost limit of {}"),
        ):
            if limit is not None and (used >= limit or used + more > limit):
                return name.format(limit)
        return ""
