"""What a tool asks its caller → a question on the wire, and the answer.

Lives here: the `ctx.client` of a served call, in its three ways: by a request of ours (sessions), by ending the call
and starting it again with the answer (the stateless era), by parking it (tasks). Not here: who sends what (`calls`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from toolmason._core.define.mcp_client import Elicit, Elicited, Question, Roots, Sample
from toolmason.errors import Abort, ConfigError, ToolError

_log = logging.getLogger("toolmason.serving")

Answers = Mapping[str, Mapping[str, Any]]
Ask = Callable[[dict[str, dict[str, Any]]], Awaitable[Answers]]
"""Sends questions of the wire, by name, and waits for the answers."""
Told = tuple[str, Mapping[str, Any]]
"""What a client is told on the way: the method of a notification, and its parameters."""

WAITING: Final = 1000
"""How many notifications wait for a slow client; the oldest go first."""
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_NEEDS: Final[Mapping[type, str]] = {Elicit: "elicitation", Sample: "sampling", Roots: "roots"}
_METHODS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class NeedsInput(Abort):
    """The call cannot go on without answers; it starts again when they are there."""


class Deferred(Abort):
    """The call goes on as a task of a server behind us."""


class CannotAsk(Abort):
    """The client has not said that it can answer such a question."""

    def __init__(self, capability: str) -> None:
        self.capability = capability
        super().__init__(
            f"The tool needs {capability!r} and the client does not offer it. Use a client that does, or another tool."
        )


@dataclass(slots=True, eq=False, repr=False)
class Caller:
    """The client of one call."""

    capabilities: Mapping[str, Any]
    answers: dict[str, Any] = field(default_factory=dict)
    """What was answered in earlier rounds, as the wire has it."""
    send: Ask | None = None
    """Sends questions and waits; `None` where the call has to end for an answer."""
    tell: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    """Sends a notification; `None` where the client wants none."""
    log_level: str | None = None
    """The least level that the client wants to hear of."""
    logger: str = ""
    close: Callable[[], Awaitable[None]] | None = None
    """Lets go of the connection of this call, where the client can come back for the answer."""
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is asked and not answered."""
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each request to a server behind us: what it asked, what was answered, what it wants back with that."""
    bound: bool = False
    """Whether the answers came with a state of ours."""
    given: tuple[str, str, Mapping[str, Any]] | None = None
    """The last answer of a server behind us, as the wire had it: to which method, for what name."""
    dropped: int = 0
    _outbox: deque[Told] = field(default_factory=lambda: deque(maxlen=WAITING))
    _pump: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __reduce__(self) -> tuple[Any, ...]:
        # A tool in another process cannot ask; everything else of it works.
        return _Absent, ()

    def can(self, word: str, mode: str = "form") -> bool:
        """Tell whether the client offers something; of questions to its user, whether in this mode."""
        offer = self.capabilities.get(word)
        if word != "elicitation" or not isinstance(offer, Mapping):
            return isinstance(offer, Mapping)
        # Forms are what a client means that names no mode.
        return mode in offer or (mode == "form" and "url" not in offer)

    # --- questions ---------------------------------------------------------------------------------

    async def elicit(self, message: str, schema: Any = None, *, key: str = "question") -> Elicited:
        """Ask the user."""
        found: Elicited = (await self.ask(**{key: Elicit(message, schema_of(schema))}))[key]
        return found

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        key: str = "sample",
    ) -> str:
        """Ask the client's model."""
        found: str = (await self.ask(**{key: Sample(messages, max_tokens, system)}))[key]
        return found

    async def roots(self, *, key: str = "roots") -> list[str]:
        """Ask for the folders that the client works in."""
        found: list[str] = (await self.ask(**{key: Roots()}))[key]
        return found

    async def hang_up(self) -> None:
        """Let go of the connection while the call goes on."""
        await self.settled()
        if self.close is not None:
            await self.close()

    async def ask(self, **questions: Question) -> dict[str, Any]:
        """Ask several things at once."""
        for question in questions.values():
            if not self.can(_NEEDS[type(question)]):
                raise CannotAsk(_NEEDS[type(question)])
        asked = {key: _request_of(question) for key, question in questions.items()}
        missing = {key: asked[key] for key, question in questions.items() if not self._answered(key, question)}
        if missing and self.send is None:
            self.questions = missing
            raise NeedsInput("the call waits for input")
        if missing and self.send is not None:
            self.answers.update(await self.send(missing))
        return {key: _answer_to(question, self.answers.get(key)) for key, question in questions.items()}

    # --- for a server behind us --------------------------------------------------------------------

    def resumed(self, about: str) -> tuple[dict[str, Any], str | None]:
        """Return what was answered to a request in earlier rounds, and what its server wants back with it."""
        kept = self.kept.get(about)
        if kept is None:
            return ({} if self.bound else dict(self.answers)), None
        kept["answers"].update({key: self.answers[key] for key in kept["asked"] if key in self.answers})
        return dict(kept["answers"]), kept["state"]

    def begun(self, about: str) -> Mapping[str, Any] | None:
        """Return the task that a request became in an earlier round."""
        found: Mapping[str, Any] | None = self.kept.get(about, {}).get("task")
        return found

    def defer(self, about: str, task: Mapping[str, Any]) -> None:
        """Have a request that became a task go on beside the call, where the client has to end the call for it."""
        if self.send is None:
            self.kept[about] = {"task": dict(task)}
            raise Deferred("the call goes on as a task")

    async def forward(self, about: str, questions: Mapping[str, Mapping[str, Any]], state: str | None) -> Answers:
        """Ask what a server behind us asks, in its own words."""
        if asyncio.get_running_loop() is not self._loop:
            there = asyncio.run_coroutine_threadsafe(self.forward(about, questions, state), self._loop)
            return await asyncio.wrap_future(there)
        for question in questions.values():
            need = _METHODS.get(question.get("method", ""))
            if need is None or not self.can(need, _mode_of(question)):
                raise CannotAsk(need or str(question.get("method")))
        asked = {key: dict(question) for key, question in questions.items()}
        if self.send is None:
            # A server that gives no state has to be told everything again.
            before = self.kept.get(about, {}).get("answers", {}) if state is None else {}
            self.questions = asked
            self.kept[about] = {"state": state, "asked": list(asked), "answers": before}
            raise NeedsInput("the call waits for input")
        return await self.send(asked)

    def answered(self, method: str, name: str, answer: Mapping[str, Any]) -> None:
        """Take note of an answer as the wire had it."""
        self.given = (method, name, answer)

    def _answered(self, key: str, question: Question) -> bool:
        """Tell whether there is an answer that fits; one that does not is asked for again."""
        answer = self.answers.get(key)
        if not isinstance(answer, Mapping):
            return False
        if isinstance(question, Elicit):
            return answer.get("action") in ("decline", "cancel") or (
                answer.get("action") == "accept" and fits(answer.get("content") or {}, question.schema)
            )
        return ("content" if isinstance(question, Sample) else "roots") in answer

    # --- notifications -----------------------------------------------------------------------------

    def heard(self, level: int, message: str) -> None:
        """Take a log record, from any thread."""
        word = word_for(level)
        if self.log_level is None or LEVELS.index(word) < LEVELS.index(self.log_level):
            return
        self.put("notifications/message", {"level": word, "logger": self.logger, "data": message})

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification when the client can take it; never waits. From any thread."""
        if self.tell is None:
            return
        if len(self._outbox) == WAITING:
            self.dropped += 1
        self._outbox.append((method, params))
        try:
            running = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            running = False
        if running:
            self._start()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = self._loop.create_task(self._sending())

    async def _sending(self) -> None:
        while self._outbox and self.tell is not None:
            try:
                await self.tell(*self._outbox.popleft())
            except Exception as error:  # noqa: BLE001 - a client that does not listen must not fail the call
                _log.debug("a notification was not delivered: %s", type(error).__name__)

    async def settled(self) -> None:
        """Wait until what was said is sent: a result comes after what was told on the way to it."""
        if self._outbox:
            self._start()
        if self._pump is not None:
            await self._pump


class _Absent:
    """The client of a call, in a process that cannot reach it."""

    capabilities: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> NoReturn:
        raise ConfigError(f"ctx.client.{name}: a tool that runs in another process cannot ask. Use runs_on='loop'.")

    def heard(self, level: int, message: str) -> None:
        """Take a log record; it stays here."""


def _mode_of(question: Mapping[str, Any]) -> str:
    """Return how a server behind us wants its question asked."""
    params = question.get("params")
    return "url" if isinstance(params, Mapping) and params.get("mode") == "url" else "form"


def _request_of(question: Question) -> dict[str, Any]:
    if isinstance(question, Elicit):
        schema = dict(question.schema or {"type": "object", "properties": {}})
        params: dict[str, Any] = {"mode": "form", "message": question.message, "requestedSchema": schema}
        return {"method": "elicitation/create", "params": params}
    if isinstance(question, Roots):
        return {"method": "roots/list"}
    given = question.messages
    text = [{"role": "user", "content": {"type": "text", "text": given}}] if isinstance(given, str) else list(given)
    params = {"messages": text, "maxTokens": question.max_tokens}
    if question.system is not None:
        params["systemPrompt"] = question.system
    return {"method": "sampling/createMessage", "params": params}


def _answer_to(question: Question, answer: Any) -> Any:
    if isinstance(question, Elicit):
        if not isinstance(answer, Mapping) or answer.get("action") not in ("accept", "decline", "cancel"):
            return Elicited("cancel", {})
        content = answer.get("content") or {}
        if answer["action"] == "accept" and not fits(content, question.schema):
            raise ToolError("The user's answer does not have the form that was asked for.")
        return Elicited(answer["action"], dict(content) if answer["action"] == "accept" else {})
    if not isinstance(answer, Mapping):
        raise ToolError("The client gave no answer.")
    if isinstance(question, Roots):
        return [str(root.get("uri", "")) for root in answer.get("roots", ()) if isinstance(root, Mapping)]
    content = answer.get("content")
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def schema_of(given: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of an answer, from a schema or a pydantic model."""
    if given is None or isinstance(given, Mapping):
        return given
    made = getattr(given, "model_json_schema", None)
    if made is None:
        raise ConfigError(f"elicit(schema={given!r}): give a JSON Schema, or a pydantic model.")
    found: Mapping[str, Any] = made()
    return found


def fits(content: Any, schema: Mapping[str, Any] | None) -> bool:
    """Tell whether the user's answer has the form that was asked for."""
    if schema is None:
        return isinstance(content, Mapping)
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 40 ms, for calls that ask

    return Draft202012Validator(dict(schema)).is_valid(content)


def word_for(level: int) -> str:
    """Return MCP's word for a level of Python's logging."""
    steps = ((logging.CRITICAL, "critical"), (logging.ERROR, "error"), (logging.WARNING, "warning"))
    return next((word for least, word in steps if level >= least), "info" if level >= logging.INFO else "debug")
