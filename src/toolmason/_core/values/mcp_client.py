"""Protocols for the MCP client of a served call: its questions, and requests that a gateway forwards upstream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from toolmason.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Elicit:
    """A question for the user."""

    message: str
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer: an object with flat properties."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A request to the client's model: a string, or messages in MCP's format."""

    messages: str | Sequence[Mapping[str, Any]]
    max_tokens: int = 1000
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Roots:
    """A request for the folders that the client works in."""


Question: TypeAlias = Elicit | Sample | Roots


@dataclass(frozen=True, slots=True)
class Elicited:
    """The user's answer. Truthy if the user accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any]

    def __bool__(self) -> bool:
        return self.action == "accept"


class Client(Protocol):
    """The MCP client that made the call.

    In the stateless version of the protocol a question ends the call, and the answer restarts it from the top. Ask
    first, and act once you have the answers. `key` distinguishes the questions of one call.
    """

    capabilities: Mapping[str, Any]
    """Capabilities that the client declares: `elicitation`, `sampling`, `roots`."""

    async def elicit(self, message: str, schema: Any = None, *, key: str = "question") -> Elicited:
        """Ask the user. `schema` is a JSON Schema of flat properties, or a pydantic model."""
        found: Elicited = (await self.ask(**{key: Elicit(message, _make_schema(schema))}))[key]
        return found

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        key: str = "sample",
    ) -> str:
        """Ask the client's model and return its text."""
        found: str = (await self.ask(**{key: Sample(messages, max_tokens, system)}))[key]
        return found

    async def roots(self, *, key: str = "roots") -> list[str]:
        """Return the URIs of the folders that the client works in."""
        found: list[str] = (await self.ask(**{key: Roots()}))[key]
        return found

    async def ask(self, **questions: Question) -> dict[str, Any]:
        """Ask several questions at once; the answers are returned under the same names."""
        ...

    async def release_connection(self) -> None:
        """Release the connection while a long call continues; a client with a session reconnects for the result."""
        ...

    def on_log(self, level: int, message: str) -> None:
        """Handle a log record."""
        ...


def _make_schema(source: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of an answer, from a schema or a pydantic model."""
    if source is None or isinstance(source, Mapping):
        return source
    make_json_schema = getattr(source, "model_json_schema", None)
    if make_json_schema is None:
        raise ConfigError(f"elicit(schema={source!r}): schema must be a JSON Schema or a pydantic model.")
    found: Mapping[str, Any] = make_json_schema()
    return found


class UpstreamCaller(Protocol):
    """A client whose requests are forwarded to an upstream server, in the wire format."""

    log_level: str | None
    """Minimum level of log records to send to the client."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declares."""
        ...

    def get_earlier_answers(self, request_key: str) -> tuple[dict[str, Any], str | None]:
        """Return the answers to a request from earlier rounds, and the state that its server expects back with them."""
        ...

    def get_started_task(self, request_key: str) -> Mapping[str, Any] | None:
        """Return the task that a request started in an earlier round, or None."""
        ...

    def defer(self, request_key: str, task: Mapping[str, Any]) -> None:
        """Continue a request that became a task in the background, if the client supports tasks.

        Raises:
            Abort: the task continues; the call ends.
        """
        ...

    async def forward(
        self, request_key: str, questions: Mapping[str, Mapping[str, Any]], state: str | None
    ) -> Mapping[str, Any]:
        """Forward a server's questions about a request to the client; `state` goes back to the server with the answers.

        Raises:
            Abort: the client cannot be asked, or the call has to end to get the answers.
        """
        ...

    def record_answer(self, method: str, name: str, answer: Mapping[str, Any]) -> None:
        """Record a response in its wire format."""
        ...

    def queue_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Forward a notification without blocking."""
        ...


def as_upstream_caller(caller: Any) -> UpstreamCaller | None:
    """Return the caller if requests can be forwarded for it; None if there is none, or it is in another process."""
    return caller if hasattr(type(caller), "forward") else None
