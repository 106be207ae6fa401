"""Forward a client's request to an upstream server with the client's capabilities, answers and log level.

A question of the server goes to the client whose request caused it, and to no client if that is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import Request, RequestParams
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.values.definition import canonicalize
from toolmason._core.values.mcp_client import UpstreamCaller
from toolmason.errors import Abort
from toolmason.mcp_client import specification as spec

Progress = Callable[[float, float | None, str | None], Awaitable[None]]

MAX_ROUNDS: Final = 32
"""Maximum number of times a server may ask within one request."""
MAX_CONCURRENT_QUESTIONS: Final = 8
"""Maximum number of questions of a session that the application handles at once; others wait for a slot."""
EMPTY_ROUND_DELAY: Final = 0.1
"""Seconds to wait before the next round if a server requests another round without asking a question."""
_FORWARDED_CAPABILITIES: Final = ("elicitation", "sampling", "roots", "experimental", "extensions")
HANDLED_CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Capabilities advertised to servers for the requests that the application answers."""
RAW_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class ForwardedRequests:
    """Requests in progress on one session, and the clients they belong to."""

    def __init__(self, handled: frozenset[str] = frozenset()) -> None:
        self.handled = handled
        """Names of the capabilities that the application handles."""
        self.log_level: str | None = None
        """Lowest log level that was set on a server with sessions."""
        self._active: dict[ForwardedRequest | None, int] = {}
        """Number of scopes of each request in progress; None stands for requests of the application itself."""
        self._question_count = 0
        self.question_slots = asyncio.Semaphore(MAX_CONCURRENT_QUESTIONS)

    def admit(self) -> bool:
        """Count a question. Return True if it is within the limit for the requests in progress."""
        self._question_count += 1
        return self._question_count <= MAX_ROUNDS * max(1, sum(self._active.values()))

    def track(self, caller: UpstreamCaller | None) -> RequestScope:
        """Return a context manager that registers a request while its block runs."""
        return RequestScope(self, None if caller is None else ForwardedRequest(caller, self.handled))

    def add(self, request: ForwardedRequest | None) -> None:
        """Register a request."""
        if not self._active:
            self._question_count = 0
        self._active[request] = self._active.get(request, 0) + 1

    def remove(self, request: ForwardedRequest | None) -> None:
        """Unregister a request."""
        self._active[request] -= 1
        self._question_count = max(0, self._question_count - MAX_ROUNDS)
        if not self._active[request]:
            del self._active[request]
        if request is not None:
            request.ended.set()

    @property
    def current(self) -> ForwardedRequest | None:
        """Request that an incoming message belongs to, or None if that is unknown.

        Over HTTP the SDK knows it from the stream. On other transports it is known only if a single request is in
        progress.
        """
        current = _CURRENT_REQUEST.get()
        if current is not None:
            return current
        return next(iter(self._active)) if len(self._active) == 1 else None

    async def on_log(self, params: Any) -> None:
        """Forward a log record of the server."""
        if (request := self.current) is not None:
            request.forward_log(params.model_dump(by_alias=True, mode="json", exclude_none=True))


class RequestScope:
    """Scope of a request in progress. Not a `contextmanager`, which would double its cost."""

    __slots__ = ("_request", "_requests", "_token")

    def __init__(self, requests: ForwardedRequests, request: ForwardedRequest | None) -> None:
        self._requests, self._request = requests, request

    def __enter__(self) -> ForwardedRequest | None:
        self._requests.add(self._request)
        self._token = _CURRENT_REQUEST.set(self._request)
        return self._request

    def __exit__(self, *exception: object) -> None:
        _CURRENT_REQUEST.reset(self._token)
        self._requests.remove(self._request)


class ForwardedRequest:
    """One request on behalf of a client."""

    def __init__(self, caller: UpstreamCaller, handled: frozenset[str] = frozenset()) -> None:
        self.caller, self.handled = caller, handled
        self.ended = asyncio.Event()
        self.request_key = ""
        """Key of the request, the same in every round."""
        self.aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets an exception if a question ends the call."""
        self._question_count = 0
        self._earlier_answers: dict[str, Any] | None = None

    def forward_log(self, record: Mapping[str, Any]) -> None:
        """Forward a log record if the client wants its level."""
        min_level = self.caller.log_level
        level = record.get("level")
        ranks = spec.LOG_LEVELS
        if min_level in ranks and level in ranks and ranks.index(level) >= ranks.index(min_level):
            self.caller.queue_notification("notifications/message", record)

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Forward a question that a server asks during a call.

        For a stateless-era client, the question ends the call. The client repeats the call, the server asks again in
        the same order, and the answers are found.

        Raises:
            MCPError: the question has no answer.
        """
        self._question_count += 1
        key = f"{method.partition('/')[0]}-{self._question_count}"
        if self._earlier_answers is None:
            self._earlier_answers, _ = self.caller.get_earlier_answers(self.request_key)
        if isinstance(earlier := self._earlier_answers.get(key), Mapping):
            return earlier
        question: dict[str, Any] = {"method": method} if params is None else {"method": method, "params": params}
        try:
            answer = (await self.caller.forward(self.request_key, {key: question}, None)).get(key)
        except Abort as abort:
            if not getattr(abort, "capability", None):
                await self._abort(abort)
            raise MCPError(spec.INVALID_REQUEST, str(abort)) from None
        if not isinstance(answer, Mapping):
            raise MCPError(spec.INVALID_REQUEST, "the client did not answer")
        return answer

    async def _abort(self, abort: Abort) -> None:
        if not self.aborted.done():
            self.aborted.set_exception(abort)
        # The server must not take silence for a refusal: the call is cancelled before the error is returned.
        await self.ended.wait()

    async def run(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Wait for a response, or for a question that ends the call."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.aborted), return_when=asyncio.FIRST_COMPLETED)
            if self.aborted.done():
                self.aborted.result()
            return await task
        finally:
            # The caller may have gone while the connection failed: then no other code reads the exception.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=1.0)
            self.aborted.cancel()


_CURRENT_REQUEST: ContextVar[ForwardedRequest | None] = ContextVar("toolmason_forwarded_request", default=None)


class RawParams(RequestParams):
    """Parameters of a request that is sent unchanged."""

    model_config = ConfigDict(extra="allow")


class _FixedCapabilitiesMeta(dict[str, Any]):
    """`_meta` that keeps the capabilities of the client the request is made for.

    The SDK writes its own capabilities into every request, and the server would ask questions that the client cannot
    answer.
    """

    @override
    def __setitem__(self, key: str, value: Any) -> None:
        if key != spec.CLIENT_CAPABILITIES_META_KEY:
            super().__setitem__(key, value)


class RawRequest(Request[RawParams, str]):
    """A request that is sent unchanged."""

    method: str
    params: RawParams

    @override
    def model_dump(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        data = super().model_dump(*args, **kwargs)
        meta = data["params"].get("_meta") or {}
        if spec.CLIENT_CAPABILITIES_META_KEY in meta:
            data["params"]["_meta"] = _FixedCapabilitiesMeta(meta)
        return data


async def forward(
    client: Any,
    forwarded: ForwardedRequest,
    request: tuple[str, Mapping[str, Any]],
    progress: Progress | None,
    in_flight: ForwardedRequests,
) -> dict[str, Any]:
    """Return the raw response to a request made on behalf of a client.

    Raises:
        Abort: the call has to end to get an answer, or no answer is possible.
        MCPError: the server rejected the request.
    """
    method, params = request
    caller = forwarded.caller
    meta = dict(params.get("_meta") or {})
    forwarded.request_key = request_key = make_request_key(method, params)
    if client.protocol_version < "2026":
        await _set_log_level(client, caller, in_flight)
        result = await forwarded.run(send_raw(client, method, {**params, "_meta": meta}, progress))
        caller.record_answer(method, _get_target_name(params), result)
        return result
    if (task := caller.get_started_task(request_key)) is not None:
        return dict(task)
    capabilities = {key: caller.capabilities[key] for key in _FORWARDED_CAPABILITIES if key in caller.capabilities}
    meta[spec.CLIENT_CAPABILITIES_META_KEY] = {
        **capabilities,
        **{key: HANDLED_CAPABILITIES[key] for key in forwarded.handled},
    }
    if caller.log_level is not None:
        meta[spec.LOG_LEVEL_META_KEY] = caller.log_level
    answers, state = caller.get_earlier_answers(request_key)
    for _ in range(MAX_ROUNDS):
        resume_fields = {"inputResponses": answers or None, "requestState": state}
        extra_params = {key: value for key, value in resume_fields.items() if value is not None}
        result = await send_raw(client, method, {**params, **extra_params, "_meta": meta}, progress)
        if result.get("resultType") != "input_required":
            caller.record_answer(method, _get_target_name(params), result)
            return result
        questions = result.get("inputRequests") or {}
        state = result.get("requestState")
        if questions:
            # Ask the client first: it may have to end the call, and the application would be asked again.
            client_questions, own_questions = split_by_handler(questions, forwarded.handled)
            earlier_answers = answers if state is None else {}
            client_answers = await caller.forward(request_key, client_questions, state) if client_questions else {}
            own_answers = await answer_with_handlers(client.session, own_questions)
            answers = {**earlier_answers, **client_answers, **own_answers}
        else:
            answers = {}
            await asyncio.sleep(EMPTY_ROUND_DELAY)
    raise MCPError(spec.INVALID_REQUEST, f"the server still requires input after {MAX_ROUNDS} rounds")


def split_by_handler(questions: Mapping[str, Any], handled: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the questions for the client, and those that the application answers."""
    for_client: dict[str, Any] = {}
    for_application: dict[str, Any] = {}
    for key, question in questions.items():
        method = question.get("method") if isinstance(question, Mapping) else None
        is_handled = spec.CAPABILITY_BY_METHOD.get(str(method), "") in handled
        (for_application if is_handled else for_client)[key] = question
    return for_client, for_application


async def answer_with_handlers(session: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the application's answers, by the keys of the questions.

    Raises:
        MCPError: a question has no answer.
    """
    from mcp.client.session import ClientRequestContext  # noqa: PLC0415 - only for servers that ask
    from mcp_types import ErrorData, InputRequest  # noqa: PLC0415 - as above

    adapter: TypeAdapter[Any] = TypeAdapter(InputRequest)
    answers: dict[str, Any] = {}
    for key, raw in questions.items():
        request_context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(request_context, adapter.validate_python(raw, by_name=False))
        if isinstance(answer, ErrorData):
            raise MCPError(answer.code, answer.message)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return answers


def make_request_key(method: str, params: Mapping[str, Any]) -> str:
    """Return a key that identifies a request in all of its rounds."""
    arguments = {key: value for key, value in params.items() if key != "_meta"}
    return hashlib.sha256(to_json([method, canonicalize(arguments)])).hexdigest()[:16]


def _get_target_name(params: Mapping[str, Any]) -> str:
    return str(params.get("name", params.get("uri", "")))


async def send_raw(
    client: Any, method: str, params: Mapping[str, Any], progress: Progress | None = None
) -> dict[str, Any]:
    """Send a request unchanged and return the raw response."""
    request = RawRequest(method=method, params=RawParams.model_validate(params))
    try:
        result: dict[str, Any] = await client.session.send_request(request, RAW_RESULT, progress_callback=progress)
    except MCPError as error:
        if error.code != spec.HEADER_MISMATCH or method != "tools/call":
            raise
        # A new session does not know yet which arguments are mirrored in headers; listing the tools loads that.
        await client.session.list_tools()
        result = await client.session.send_request(request, RAW_RESULT, progress_callback=progress)
    return result


async def _set_log_level(client: Any, caller: UpstreamCaller, in_flight: ForwardedRequests) -> None:
    """Lower the log level of a server with sessions if the client wants more detail."""
    capabilities = client.server_capabilities
    min_level = caller.log_level
    if min_level not in spec.LOG_LEVELS or capabilities is None or capabilities.logging is None:
        return
    if in_flight.log_level is None or spec.LOG_LEVELS.index(min_level) < spec.LOG_LEVELS.index(in_flight.log_level):
        in_flight.log_level = min_level
        with contextlib.suppress(MCPError):
            await send_raw(client, "logging/setLevel", {"level": min_level})
