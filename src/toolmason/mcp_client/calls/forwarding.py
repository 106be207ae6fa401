"""A request that a client made of us → the same request to a server behind us, on that client's behalf.

Lives here: whose capabilities, questions, answers, log records and errors go through, in either era. A question goes to
the client whose request caused it, and to nobody where that cannot be known. Not here: which requests are passed on
(`connection`), or how a client is asked (`toolmason.mcp_server`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, INVALID_REQUEST, LOG_LEVEL_META_KEY, Request, RequestParams
from mcp_types.jsonrpc import HEADER_MISMATCH
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.define.mcp_client import UpstreamCaller
from toolmason._core.values.definition import canonicalize
from toolmason.errors import Abort

Progress = Callable[[float, float | None, str | None], Awaitable[None]]

MAX_ROUNDS: Final = 32
"""How often a server may ask within one request."""
MAX_CONCURRENT_QUESTIONS: Final = 8
"""How many questions of a connection are before the application at once; the others wait for their turn."""
EMPTY_ROUND_DELAY: Final = 0.1
"""How long we wait where a server asks nothing and only wants to be called again."""
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_FORWARDED_CAPABILITIES: Final = ("elicitation", "sampling", "roots", "experimental", "extensions")
HANDLED_CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""What a server is told that we can, of what the application answers itself."""
_CAPABILITY_BY_METHOD: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_RAW_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class ForwardedRequests:
    """The requests that are under way on one connection, and for whom."""

    def __init__(self, handled: frozenset[str] = frozenset()) -> None:
        self.handled = handled
        """What the application answers itself, by the names of the capabilities."""
        self.log_level: str | None = None
        """The least level that a server with sessions was told to log at."""
        self._active: dict[ForwardedRequest | None, int] = {}
        self._question_count = 0
        self.question_slots = asyncio.Semaphore(MAX_CONCURRENT_QUESTIONS)

    def admit(self) -> bool:
        """Take note of a question, and tell whether it may be asked: so many for each request that is under way."""
        self._question_count += 1
        return self._question_count <= MAX_ROUNDS * max(1, sum(self._active.values()))

    def track(self, caller: UpstreamCaller | None) -> RequestScope:
        """Take note of a request, for as long as the block lasts."""
        return RequestScope(self, None if caller is None else ForwardedRequest(caller, self.handled))

    def add(self, request: ForwardedRequest | None) -> None:
        """Take note of a request."""
        if not self._active:
            self._question_count = 0
        self._active[request] = self._active.get(request, 0) + 1

    def remove(self, request: ForwardedRequest | None) -> None:
        """Take note of its end."""
        self._active[request] -= 1
        self._question_count = max(0, self._question_count - MAX_ROUNDS)
        if not self._active[request]:
            del self._active[request]
        if request is not None:
            request.ended.set()

    @property
    def current(self) -> ForwardedRequest | None:
        """The request to which what has just come in belongs.

        Over HTTP the SDK tells by the stream it came on. On other transports only one that is alone can be told.
        """
        current = _CURRENT_REQUEST.get()
        if current is not None:
            return current
        return next(iter(self._active)) if len(self._active) == 1 else None

    def on_log(self, params: Any) -> None:
        """Take a log record of the server."""
        if (request := self.current) is not None:
            request.forward_log(params.model_dump(by_alias=True, mode="json", exclude_none=True))


class RequestScope:
    """A request that is under way; not made with `contextmanager`, which costs a call as much as the rest of this."""

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
        """Which request it is, whatever round."""
        self.aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._question_count = 0
        self._earlier_answers: dict[str, Any] | None = None

    def forward_log(self, record: Mapping[str, Any]) -> None:
        """Pass a log record on, where the client wants to hear of it."""
        min_level, level = self.caller.log_level, record.get("level")
        if min_level in LOG_LEVELS and level in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(min_level):
            self.caller.queue_notification("notifications/message", record)

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Pass on a question that a server asks in the midst of a call.

        A client of the stateless era is answered with it, which ends the call; the next one asks the same again, in
        the same order, and finds the answers.

        Raises:
            MCPError: there is no answer.
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
            raise MCPError(INVALID_REQUEST, str(abort)) from None
        if not isinstance(answer, Mapping):
            raise MCPError(INVALID_REQUEST, "the client gave no answer")
        return answer

    async def _abort(self, abort: Abort) -> None:
        if not self.aborted.done():
            self.aborted.set_exception(abort)
        # The server must not take our silence for a no and go on: it hears that the call is off, and then this.
        await self.ended.wait()

    async def run(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Wait for an answer, or for a question that ends the call."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.aborted), return_when=asyncio.FIRST_COMPLETED)
            if self.aborted.done():
                self.aborted.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=1.0)
            self.aborted.cancel()


_CURRENT_REQUEST: ContextVar[ForwardedRequest | None] = ContextVar("toolmason_passage", default=None)


class _Params(RequestParams):
    model_config = ConfigDict(extra="allow")


class _FixedCapabilitiesMeta(dict[str, Any]):
    """The `_meta` of a request whose capabilities are those of the client it is made for.

    The SDK writes its own into every request; a server that believed them would ask what nobody can answer.
    """

    @override
    def __setitem__(self, key: str, value: Any) -> None:
        if key != CLIENT_CAPABILITIES_META_KEY:
            super().__setitem__(key, value)


class _ForwardedMessage(Request[_Params, str]):
    method: str
    params: _Params

    @override
    def model_dump(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        data = super().model_dump(*args, **kwargs)
        meta = data["params"].get("_meta") or {}
        if CLIENT_CAPABILITIES_META_KEY in meta:
            data["params"]["_meta"] = _FixedCapabilitiesMeta(meta)
        return data


async def forward(
    client: Any,
    forwarded: ForwardedRequest,
    request: tuple[str, Mapping[str, Any]],
    progress: Progress | None = None,
    in_flight: ForwardedRequests | None = None,
) -> dict[str, Any]:
    """Return the answer to a request that is made for somebody else, as the wire has it.

    Raises:
        Abort: it has to end for an answer, or nobody can give one.
        MCPError: the server refused it.
    """
    method, params = request
    caller, meta = forwarded.caller, dict(params.get("_meta") or {})
    forwarded.request_key = request_key = make_request_key(method, params)
    if client.protocol_version < "2026":
        await _set_log_level(client, caller, in_flight)
        result = await forwarded.run(send_raw(client, method, {**params, "_meta": meta}, progress))
        caller.record_answer(method, _get_target_name(params), result)
        return result
    if (task := caller.get_started_task(request_key)) is not None:
        return dict(task)
    capabilities = {key: caller.capabilities[key] for key in _FORWARDED_CAPABILITIES if key in caller.capabilities}
    meta[CLIENT_CAPABILITIES_META_KEY] = {
        **capabilities,
        **{key: HANDLED_CAPABILITIES[key] for key in forwarded.handled},
    }
    if caller.log_level is not None:
        meta[LOG_LEVEL_META_KEY] = caller.log_level
    answers, state = caller.get_earlier_answers(request_key)
    for _ in range(MAX_ROUNDS):
        resume_fields = {"inputResponses": answers or None, "requestState": state}
        extra_params = {key: value for key, value in resume_fields.items() if value is not None}
        result = await send_raw(client, method, {**params, **extra_params, "_meta": meta}, progress)
        if result.get("resultType") != "input_required":
            caller.record_answer(method, _get_target_name(params), result)
            return result
        questions, state = result.get("inputRequests") or {}, result.get("requestState")
        if questions:
            # The client first: it may have to end the call for its answers, and ours would be asked for again.
            client_questions, own_questions = split_by_handler(questions, forwarded.handled)
            client_answers = (
                dict(await caller.forward(request_key, client_questions, state)) if client_questions else {}
            )
            earlier_answers = answers if state is None else {}
            answers = {**earlier_answers, **client_answers, **await answer_with_handlers(client.session, own_questions)}
        else:
            answers = {}
            await asyncio.sleep(EMPTY_ROUND_DELAY)
    raise MCPError(INVALID_REQUEST, f"the server still asks after {MAX_ROUNDS} rounds")


def split_by_handler(questions: Mapping[str, Any], handled: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the questions for whoever called, and those that the application answers itself."""
    parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for key, question in questions.items():
        method = question.get("method") if isinstance(question, Mapping) else None
        parts[_CAPABILITY_BY_METHOD.get(str(method), "") in handled][key] = question
    return parts


async def answer_with_handlers(session: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the application answers, by the keys of the questions.

    Raises:
        MCPError: there is no answer.
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
    """Return what tells one request of a call from another, in every round of it."""
    arguments = {key: value for key, value in params.items() if key != "_meta"}
    return hashlib.sha256(to_json([method, canonicalize(arguments)])).hexdigest()[:16]


def _get_target_name(params: Mapping[str, Any]) -> str:
    return str(params.get("name", params.get("uri", "")))


async def send_raw(
    client: Any, method: str, params: Mapping[str, Any], progress: Progress | None = None
) -> dict[str, Any]:
    """Send a request as it is, and return the answer as it is."""
    request = _ForwardedMessage(method=method, params=_Params.model_validate(params))
    try:
        result: dict[str, Any] = await client.session.send_request(request, _RAW_RESULT, progress_callback=progress)
    except MCPError as error:
        if error.code != HEADER_MISMATCH or method != "tools/call":
            raise
        # A new connection does not know yet which arguments are mirrored in headers.
        await client.session.list_tools()
        result = await client.session.send_request(request, _RAW_RESULT, progress_callback=progress)
    return result


async def _set_log_level(client: Any, caller: UpstreamCaller, in_flight: ForwardedRequests | None) -> None:
    """Have a server with sessions log as much as the client wants to hear."""
    capabilities, min_level = client.server_capabilities, caller.log_level
    if in_flight is None or min_level not in LOG_LEVELS or capabilities is None or capabilities.logging is None:
        return
    if in_flight.log_level is None or LOG_LEVELS.index(min_level) < LOG_LEVELS.index(in_flight.log_level):
        in_flight.log_level = min_level
        params = _Params.model_validate({"level": min_level})
        with contextlib.suppress(MCPError):
            await client.session.send_request(_ForwardedMessage(method="logging/setLevel", params=params), _RAW_RESULT)
