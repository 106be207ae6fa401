"""Ask the client during a served call: the `ctx.client` of a tool.

A question is sent as a request (sessions), ends the call until it is repeated with the answer (stateless era), or
suspends the call (tasks).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

from toolmason._core.run.eager_task import EagerTask
from toolmason._core.values.mcp_client import Client, Elicit, Elicited, Question, Roots, Sample
from toolmason._http.caller import ANONYMOUS, Identity
from toolmason.errors import Abort, ConfigError, ToolError
from toolmason.mcp_client import specification as spec
from toolmason.mcp_client.specification import RpcError
from toolmason.mcp_server.http.session_table import Session

_log = logging.getLogger("toolmason.mcp_server")

Answers = Mapping[str, Mapping[str, Any]]
SendQuestions = Callable[[dict[str, dict[str, Any]]], Awaitable[Answers]]
"""Function that sends questions by key, and waits for the answers."""
Notification = tuple[str, Mapping[str, Any]]
"""Method and parameters of a notification to the client."""

ORIGIN_KEY: Final = "toolmason.origin"
"""Key of the ASGI scope that holds the `Origin` of a request."""
MAX_QUEUED_NOTIFICATIONS: Final = 1000
"""Maximum number of notifications queued for a slow client; the oldest are dropped first."""
_QUESTION_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "elicitation/create": ("ElicitRequest", "ElicitResult"),
    "sampling/createMessage": ("CreateMessageRequest", "CreateMessageResult"),
    "roots/list": ("ListRootsRequest", "ListRootsResult"),
}
"""Names of the SDK's types of a question and its answer."""


class NeedsInput(Abort):
    """The call needs answers to continue; it is repeated once they are available."""


class ContinuesAsTask(Abort):
    """The call continues as a task of an upstream server."""


class MissingCapability(Abort):
    """The client did not declare the capability that a question requires."""

    def __init__(self, capability: str) -> None:
        self.capability = capability
        super().__init__(
            f"The tool requires {capability!r}, which the client does not offer. Use another client or another tool."
        )


def make_capability_error(message: str, capabilities: Mapping[str, Any]) -> RpcError:
    """Return the error for a request that needs capabilities which the client did not declare."""
    return RpcError(spec.MISSING_CAPABILITY, message, {"requiredCapabilities": dict(capabilities)})


@dataclass(slots=True, eq=False, repr=False)
class ClientStream:
    """Stream of one request to its client. The SDK opens it; notifications and questions wait until it is open."""

    can_ask: bool
    """True in a session: the client can answer on another connection."""
    context: Any = None
    """The SDK's context of the request; None until the stream is open."""
    is_needed: bool = False
    """True if a notification or a question has asked for the stream."""
    on_needed: Callable[[], None] | None = None
    _opened: asyncio.Event | None = None

    def open(self, context: Any) -> None:
        """Open the stream."""
        self.context = context
        if self._opened is not None:
            self._opened.set()

    async def _get_context(self) -> Any:
        if self.context is None:
            self.is_needed = True
            if self._opened is None:
                self._opened = asyncio.Event()
            if self.on_needed is not None:
                self.on_needed()
            await self._opened.wait()
        return self.context

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        ctx = await self._get_context()
        if method == "notifications/progress":
            await ctx.session.report_progress(params["progress"], params.get("total"), params.get("message"))
            return
        import mcp_types  # noqa: PLC0415 - loaded already, with the context

        fields = mcp_types.LoggingMessageNotificationParams.model_validate(dict(params))
        notification = mcp_types.LoggingMessageNotification(params=fields)
        await ctx.session.send_notification(notification, related_request_id=ctx.request_id)

    async def ask(self, questions: dict[str, dict[str, Any]]) -> Answers:
        """Send questions one after the other, and return the answers."""
        ctx = await self._get_context()
        import mcp_types  # noqa: PLC0415 - loaded already, with the context
        from mcp.shared.message import ServerMessageMetadata  # noqa: PLC0415 - as above

        answers: dict[str, Any] = {}
        for key, request in questions.items():
            request_type, result_type = (getattr(mcp_types, name) for name in _QUESTION_TYPES[request["method"]])
            typed_request = request_type.model_validate(request, by_name=False)
            metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
            answer = await ctx.session.send_request(typed_request, result_type, metadata=metadata)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return answers

    async def close(self) -> None:
        """Close the stream while the call continues, if the client can reconnect for the result."""
        ctx = await self._get_context()
        if ctx.close_sse_stream is not None:
            await ctx.close_sse_stream()


@dataclass(slots=True, eq=False, repr=False)
class RunningCall:
    """A call in a session that was started directly, and waits."""

    task: EagerTask
    stream: ClientStream

    async def finish(self, ctx: Any) -> dict[str, Any]:
        """Open the stream, and return the result of the call."""
        self.stream.open(ctx)
        result: dict[str, Any]
        result, error = await self.task
        if error is None:
            return result
        current = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and current is not None and not current.cancelling():
            raise RpcError(spec.REQUEST_CANCELLED, "Request cancelled")
        raise error

    def abandon(self) -> None:
        """Cancel the call if the SDK has refused the request."""
        if self.stream.context is None:
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts about a request that the SDK carries, which its transport passes through."""

    identity: Identity = field(default_factory=lambda: ANONYMOUS)
    session: Session | None = None
    running: RunningCall | None = None
    """The call, if it was started before the SDK got the request."""
    arguments: Mapping[str, Any] | None = None
    """The arguments of the call, if they are too large for the SDK."""


@dataclass(slots=True, eq=False, repr=False)
class ClientProxy(Client):
    """The client of one call, as the tool sees it: questions, notifications, and requests to upstream servers."""

    capabilities: Mapping[str, Any]
    answers: dict[str, Any] = field(default_factory=dict)
    """Raw answers from earlier rounds, by key."""
    send_questions: SendQuestions | None = None
    """Function that sends questions and waits; None if the call has to end to get answers."""
    send_notification: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    """Function that sends a notification; None if the client wants none."""
    log_level: str | None = None
    """Lowest log level that the client wants."""
    logger: str = ""
    close_stream: Callable[[], Awaitable[None]] | None = None
    """Function that closes the stream of this call, if the client can reconnect for the result."""
    pending_questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Questions that are not answered yet."""
    upstream_state: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Questions, answers and server state of each upstream request, by request key."""
    has_signed_state: bool = False
    """True if the answers came with a signed state."""
    upstream_reply: tuple[str, str, Mapping[str, Any]] | None = None
    """Method, target name and raw response of the last upstream request."""
    has_notified: bool = False
    """True if a notification was queued."""
    _outbox: deque[Notification] = field(default_factory=partial(deque, maxlen=MAX_QUEUED_NOTIFICATIONS))
    _sender_task: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __reduce__(self) -> tuple[Any, ...]:
        # A tool in another process cannot reach the client; the rest of its context works.
        return _UnreachableClient, ()

    def supports(self, capability: str, mode: str = "form") -> bool:
        """Return True if the client has a capability; for elicitation, in this mode."""
        offered = self.capabilities.get(capability)
        if capability != "elicitation" or not isinstance(offered, Mapping):
            return isinstance(offered, Mapping)
        # A client that names no mode supports forms.
        return mode in offered or (mode == "form" and "url" not in offered)

    # --- questions ---------------------------------------------------------------------------------

    async def release_connection(self) -> None:
        """Close the stream while the call continues."""
        await self.flush()
        if self.close_stream is not None:
            await self.close_stream()

    async def ask(self, **questions: Question) -> dict[str, Any]:
        """Ask several questions at once."""
        requests = {key: _make_request(question) for key, question in questions.items()}
        self._check_capabilities(requests)
        unanswered = {
            key: requests[key] for key, question in questions.items() if not self._has_valid_answer(key, question)
        }
        if unanswered and self.send_questions is None:
            self.pending_questions = unanswered
            raise NeedsInput("the call is waiting for input")
        if unanswered and self.send_questions is not None:
            self.answers.update(await self.send_questions(unanswered))
        return {key: _parse_answer(question, self.answers.get(key)) for key, question in questions.items()}

    def _check_capabilities(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        for request in requests.values():
            method, params = request.get("method"), request.get("params")
            capability = spec.CAPABILITY_BY_METHOD.get(str(method))
            mode = "url" if isinstance(params, Mapping) and params.get("mode") == "url" else "form"
            if capability is None or not self.supports(capability, mode):
                raise MissingCapability(capability or str(method))

    # --- upstream requests -------------------------------------------------------------------------

    def get_earlier_answers(self, request_key: str) -> tuple[dict[str, Any], str | None]:
        """Return the earlier answers to an upstream request, and the state that its server expects back."""
        state = self.upstream_state.get(request_key)
        if state is None:
            return ({} if self.has_signed_state else dict(self.answers)), None
        state["answers"].update({key: self.answers[key] for key in state["asked"] if key in self.answers})
        return dict(state["answers"]), state["state"]

    def get_started_task(self, request_key: str) -> Mapping[str, Any] | None:
        """Return the task that a request became in an earlier round, or None."""
        found: Mapping[str, Any] | None = self.upstream_state.get(request_key, {}).get("task")
        return found

    def defer(self, request_key: str, task: Mapping[str, Any]) -> None:
        """End the call and continue its upstream task in the background, if the client cannot be asked during the call.

        Raises:
            ContinuesAsTask: the call ends here.
        """
        if self.send_questions is None:
            self.upstream_state[request_key] = {"task": dict(task)}
            raise ContinuesAsTask("the call continues as a task")

    async def forward(self, request_key: str, questions: Mapping[str, Mapping[str, Any]], state: str | None) -> Answers:
        """Forward the questions of an upstream server unchanged."""
        if asyncio.get_running_loop() is not self._loop:
            future = asyncio.run_coroutine_threadsafe(self.forward(request_key, questions, state), self._loop)
            return await asyncio.wrap_future(future)
        requests = {key: dict(question) for key, question in questions.items()}
        self._check_capabilities(requests)
        if self.send_questions is None:
            # A server that sends no state needs all earlier answers again.
            earlier_answers = self.upstream_state.get(request_key, {}).get("answers", {}) if state is None else {}
            self.pending_questions = requests
            self.upstream_state[request_key] = {"state": state, "asked": list(requests), "answers": earlier_answers}
            raise NeedsInput("the call is waiting for input")
        return await self.send_questions(requests)

    def record_answer(self, method: str, name: str, answer: Mapping[str, Any]) -> None:
        """Record the raw response of an upstream server."""
        self.upstream_reply = (method, name, answer)

    def _has_valid_answer(self, key: str, question: Question) -> bool:
        """Return True if there is a valid answer; an invalid one is asked for again."""
        answer = self.answers.get(key)
        if not isinstance(answer, Mapping):
            return False
        if isinstance(question, Elicit):
            return answer.get("action") in ("decline", "cancel") or (
                answer.get("action") == "accept" and matches_schema(answer.get("content") or {}, question.schema)
            )
        return ("content" if isinstance(question, Sample) else "roots") in answer

    # --- notifications -----------------------------------------------------------------------------

    def on_log(self, level: int, message: str) -> None:
        """Send a log record to the client, from any thread."""
        level_name = get_level_name(level)
        if self.log_level is None or spec.LOG_LEVELS.index(level_name) < spec.LOG_LEVELS.index(self.log_level):
            return
        self.queue_notification("notifications/message", {"level": level_name, "logger": self.logger, "data": message})

    def queue_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification without waiting, from any thread."""
        if self.send_notification is None:
            return
        self._outbox.append((method, params))
        self.has_notified = True
        try:
            on_own_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_own_loop = False
        if on_own_loop:
            self._start_sender()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start_sender)

    def _start_sender(self) -> None:
        if self._sender_task is None or self._sender_task.done():
            self._sender_task = self._loop.create_task(self._send_queued())

    async def _send_queued(self) -> None:
        while self._outbox and self.send_notification is not None:
            try:
                await self.send_notification(*self._outbox.popleft())
            except Exception as error:  # noqa: BLE001 - an unresponsive client must not fail the call
                _log.debug("a notification was not delivered: %s", type(error).__name__)

    async def flush(self) -> None:
        """Wait until all queued notifications are sent, so that they precede the result."""
        if self._outbox:
            self._start_sender()
        if self._sender_task is not None:
            await self._sender_task


class _UnreachableClient:
    """Client of a call, in a process that cannot reach it."""

    capabilities: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> NoReturn:
        raise ConfigError(
            f"ctx.client.{name} is not available in a tool that runs in another process. Use runs_on='loop'."
        )

    def on_log(self, level: int, message: str) -> None:
        """Ignore a log record."""


def _make_request(question: Question) -> dict[str, Any]:
    if isinstance(question, Elicit):
        schema = dict(question.schema or {"type": "object", "properties": {}})
        params: dict[str, Any] = {"mode": "form", "message": question.message, "requestedSchema": schema}
        return {"method": "elicitation/create", "params": params}
    if isinstance(question, Roots):
        return {"method": "roots/list"}
    messages = question.messages
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    params = {"messages": list(messages), "maxTokens": question.max_tokens}
    if question.system is not None:
        params["systemPrompt"] = question.system
    return {"method": "sampling/createMessage", "params": params}


def _parse_answer(question: Question, answer: Any) -> Any:
    if isinstance(question, Elicit):
        if not isinstance(answer, Mapping) or answer.get("action") not in ("accept", "decline", "cancel"):
            return Elicited("cancel", {})
        content = answer.get("content") or {}
        if answer["action"] == "accept" and not matches_schema(content, question.schema):
            raise ToolError("The user's answer does not match the requested schema.")
        return Elicited(answer["action"], dict(content) if answer["action"] == "accept" else {})
    if not isinstance(answer, Mapping):
        raise ToolError("The client did not answer.")
    if isinstance(question, Roots):
        return [str(root.get("uri", "")) for root in answer.get("roots", ()) if isinstance(root, Mapping)]
    content = answer.get("content")
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def matches_schema(content: Any, schema: Mapping[str, Any] | None) -> bool:
    """Return True if an answer matches the requested schema."""
    if schema is None:
        return isinstance(content, Mapping)
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes 40 ms, only for calls that ask

    return Draft202012Validator(dict(schema)).is_valid(content)


def get_level_name(level: int) -> str:
    """Return the MCP name of a Python log level: that of the next lower standard level."""
    names = ("debug", "info", "warning", "error", "critical")
    return names[min(max(level // 10, 1), len(names)) - 1]
