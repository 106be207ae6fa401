"""Whoever called a tool over MCP, as the tool sees it.

Lives here: what a tool may ask of its caller, and what a server behind a gateway may have passed on to it.
Not here: how it is asked (`toolmason.mcp_server`).
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

    def on_log(self, level: int, message: str) -> None:
        """Take a log record."""
        ...


class UpstreamCaller(Protocol):
    """A caller for whom a request is passed on to a server behind us, in the words of the wire."""

    log_level: str | None
    """The least level of log records that the caller wants to hear of."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the caller says it can do."""
        ...

    def get_earlier_answers(self, request_key: str) -> tuple[dict[str, Any], str | None]:
        """Return what was answered to a request of ours in earlier rounds, and what its server wants back with it."""
        ...

    def get_started_task(self, request_key: str) -> Mapping[str, Any] | None:
        """Return the task that a request of ours became in an earlier round."""
        ...

    def defer(self, request_key: str, task: Mapping[str, Any]) -> None:
        """Have a request that became a task go on beside the call, where the caller can wait for a task.

        Raises:
            Abort: it goes on; the call ends.
        """
        ...

    async def forward(
        self, request_key: str, questions: Mapping[str, Mapping[str, Any]], state: str | None
    ) -> Mapping[str, Any]:
        """Have the caller answer what a server asks about a request; `state` is what it wants back with the answers.

        Raises:
            Abort: the caller cannot be asked, or the call has to end for the answers.
        """
        ...

    def record_answer(self, method: str, name: str, answer: Mapping[str, Any]) -> None:
        """Take note of an answer as the wire had it."""
        ...

    def queue_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on; never waits."""
        ...


def as_upstream_caller(caller: Any) -> UpstreamCaller | None:
    """Return the caller as one to pass on to; `None` where there is none, or it is in another process."""
    return caller if hasattr(type(caller), "forward") else None
