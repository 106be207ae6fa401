"""Count what a run uses, together with the runs that it delegates to, and find the limit that it reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from toolmason._core.toolbox.exchange import Usage
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


@dataclass(slots=True, eq=False, repr=False)
class Spending:
    """Use of a run and of the runs that it delegates to. What they use counts for all runs above them as well."""

    limits: Limits
    price: Price | None = None
    parent: Spending | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    """Cost, or None if no price is known."""

    def add_turn(self, usage: Usage) -> None:
        """Count one model turn."""
        self.add(usage, None if self.price is None else self.price.compute(usage), 1)

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
