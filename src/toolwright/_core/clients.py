"""Whoever called a tool over MCP, as the tool sees it.

Lives here: what a tool may ask of its caller. Not here: how it is asked (`toolwright.serving`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Elicit:
    """A question for the user."""

    message: str
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer: an object with flat properties."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A question for the client's model: a text, or messages as MCP writes them."""

    messages: str | Sequence[Mapping[str, Any]]
    max_tokens: int = 1000
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Roots:
    """A question for the folders that the client works in."""


Question: TypeAlias = Elicit | Sample | Roots


@dataclass(frozen=True, slots=True)
class Elicited:
    """What the user answered. True when the user accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any]

    def __bool__(self) -> bool:
        return self.action == "accept"


class Client(Protocol):
    """Whoever called over MCP.

    In the stateless era of the protocol a question ends the call, and the answer starts it again from the top. So ask
    first, and act when you have the answers. `key` tells two questions of one call apart.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client says it can do: `elicitation`, `sampling`, `roots`."""
        ...

    async def elicit(self, message: str, schema: Any = None, *, key: str = "question") -> Elicited:
        """Ask the user. `schema` is a JSON Schema of flat properties, or a pydantic model."""
        ...

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        key: str = "sample",
    ) -> str:
        """Ask the client's model, and return its text."""
        ...

    async def roots(self, *, key: str = "roots") -> list[str]:
        """Return the addresses of the folders that the client works in."""
        ...

    async def ask(self, **questions: Question) -> dict[str, Any]:
        """Ask several things at once; the answers come under the same names."""
        ...

    async def hang_up(self) -> None:
        """Let go of the connection while a long call goes on; a client of a session comes back for the answer."""
        ...

    def heard(self, level: int, message: str) -> None:
        """Take a log record."""
        ...
