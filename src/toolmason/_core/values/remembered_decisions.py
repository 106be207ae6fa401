"""Decisions about calls that hold for later calls as well, and the places that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from toolmason._value import Value

Remember: TypeAlias = Literal["tool", "arguments", "conversation"]
"""Later calls that a decision holds for: all of the tool, those with equal arguments, those in the conversation."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RememberedDecision(Value):
    """Decision that holds for later calls of one tool, for one user and tenant."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    id: str
    """ID to revoke it with. A later decision of the same scope replaces it."""
    verdict: Literal["allow", "deny"]
    scope: Remember
    tool: str
    digest: str
    """Digest of the tool's definition. A tool that has changed needs a new decision."""
    identity: str | None = None
    """The context's `tenant` and `user`, as JSON; None if it has neither."""
    arguments: Mapping[str, Any] | None = None
    """Arguments of the calls, if the scope is `arguments`."""
    conversation: str | None = None
    """Conversation of the calls, if the scope is `conversation`."""
    reason: str = ""
    """Reason of a denial, which the model sees."""
    approver: str = ""
    """Name of the function that decided; empty if the application did."""
    created: float = 0.0
    """Time of the decision, in seconds since the epoch."""
    signature: str = ""
    effects: tuple[str, ...] = ()
    """Effects that the tool declared. A tool that declares others needs a new decision."""

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain JSON data."""
        return {**asdict(self), "effects": list(self.effects)}


class DecisionStore(Protocol):
    """Place where remembered decisions are kept, as JSON data."""

    def load(self, tool: str | None) -> Iterable[Mapping[str, Any]]:
        """Return the decisions about a tool, or all.

        Raises:
            OSError: they cannot be read.
        """
        ...

    def save(self, decision: Mapping[str, Any]) -> None:
        """Keep a decision, in place of another one with its ID.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def remove(self, decision_id: str) -> bool:
        """Remove a decision. Return False if there is none.

        Raises:
            OSError: it cannot be removed.
        """
        ...


class MemoryDecisions:
    """Decisions that are kept until the process ends."""

    def __init__(self) -> None:
        self._by_id: dict[str, Mapping[str, Any]] = {}

    def load(self, tool: str | None) -> list[Mapping[str, Any]]:
        """Return the decisions about a tool, or all."""
        return [each for each in tuple(self._by_id.values()) if tool is None or each["tool"] == tool]

    def save(self, decision: Mapping[str, Any]) -> None:
        """Keep a decision, in place of another one with its ID."""
        self._by_id[decision["id"]] = decision

    def remove(self, decision_id: str) -> bool:
        """Remove a decision. Return False if there is none."""
        return self._by_id.pop(decision_id, None) is not None
