"""Decide once per request who carries its answer, and answer `tools/call` and `tools/list` directly if possible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic_core import to_json

from toolmason._core.call.gates import find_missing_scopes
from toolmason._core.run import eager_task
from toolmason._core.run.eager_task import EagerTask, TaskOutcome
from toolmason._core.run.metrics import METER, METERS
from toolmason._core.run.tracing import LOADED_MODULES as MODULES
from toolmason._core.run.tracing import PROVIDER, TRACE_API
from toolmason._http.caller import Identity
from toolmason._http.guard import ErrorResponse, HeaderPairs, Headers, send_json
from toolmason.mcp_client import specification as spec
from toolmason.mcp_client.specification import RpcError
from toolmason.mcp_server.call_tool import ROUND_PARAMS, Request
from toolmason.mcp_server.client_requests import RunningCall
from toolmason.mcp_server.handlers import CAPABILITIES, Handlers, trace_handler
from toolmason.mcp_server.http.session_table import SESSION_HEADER, Session, SessionTable
from toolmason.mcp_server.lists import ToolTraits

DUPLICATE_ID_MESSAGE: Final = "A request with this id is in progress. Use a unique id for each request."
SESSION_TRUST_SECONDS: Final = 60.0
"""Seconds for which a session counts as alive after the SDK last handled a request of it."""
_MODERN_VERSION: Final = spec.MODERN_VERSION.encode()
_VERSION_HEADER: Final = b"mcp-protocol-version"
_EMPTY: Final[Mapping[str, Any]] = {}
_SDK_PARAMS: Final = ROUND_PARAMS | {"task"}
"""Parameters of a call that the SDK has to check."""
_LIST_PARAMS: Final = frozenset({"_meta", "cursor"})
_STREAM_META_KEYS: Final = frozenset({"progressToken", spec.LOG_LEVEL_META_KEY})
"""Keys of `_meta` that ask for notifications, which only a stream can carry."""
_CLIENT_INFO_KEYS: Final = frozenset({"name", "version", "title"})
_INITIALIZE_PARAMS: Final = frozenset({"protocolVersion", "capabilities", "clientInfo"})
_SESSION_CAPABILITIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
}
"""Capabilities of clients in sessions, with all their settings."""
_NO_CLIENT_INFO: Final = {"name": "", "version": ""}


class InFlight(dict[Hashable, "asyncio.Future[Any] | None"]):
    """Requests in progress by key: the task that can be cancelled, or None if the SDK carries the answer."""

    def cancel(self, key: Hashable) -> bool:
        """Cancel a call. Return False if the SDK has to cancel it, or if it is unknown."""
        task = self.get(key)
        return task is not None and task.cancel()


@dataclass(slots=True, eq=False, repr=False)
class HttpExchange:
    """One POST request whose headers have been checked. The ASGI fields are not used by direct answers."""

    headers: Headers
    header_pairs: HeaderPairs
    identity: Identity
    body: bytes = b""
    data: Any = None
    """The parsed body."""
    request: Any = None
    """The `Request`, if it is answered directly."""
    started: tuple[int, bytes] | EagerTask | RunningCall | ErrorResponse | None = None
    """Status and body of the response, or the call that it waits for; None if the SDK has to answer the request."""
    scope: Any = None
    receive: Any = None
    send: Any = None


EXCHANGE_KEY: Final = "toolmason.exchange"
"""Key of the ASGI scope that holds a request which the connection has checked and parsed."""
RequestKey: TypeAlias = tuple[bytes, str, int | str]
"""Session id, owner, and the request id chosen by the client."""
Forward: TypeAlias = Callable[[HttpExchange, RunningCall | None], Coroutine[Any, Any, None]]
"""Function that lets the SDK carry the answer to a request, or to a call that is running already."""

StepUp: TypeAlias = Callable[[str, Sequence[str], Identity, Any], ErrorResponse]
"""Function of a tool, the scopes that the caller lacks, the caller and the id of the request."""


class Dispatcher:
    """Dispatcher of the requests to one server."""

    def __init__(self, handlers: Handlers, sessions: SessionTable | None = None, step_up: StepUp | None = None) -> None:
        self.table = handlers.table
        self._step_up = step_up
        self.in_flight = InFlight()
        self.sessions = SessionTable(1, 0.0) if sessions is None else sessions
        self._call_handler = handlers.call_handler
        self._lists = handlers.lists
        self._log_levels = handlers.subscriptions.log_levels
        self._cache_hint = handlers.cache_hint
        self._media_types: dict[tuple[bytes, bytes], bool] = {}
        self._valid_envelope: Any = None
        self._list_bodies: dict[bool, tuple[Any, bytes]] = {}
        self._info = handlers.info
        self._server_meta = {spec.SERVER_INFO_META_KEY: handlers.info}
        meta = to_json(self._server_meta).replace(b"%", b"%%")
        self._frame = b'{"jsonrpc":"2.0","id":%b,"result":{"resultType":"complete",%b,"_meta":' + meta + b"}}"
        """Response to a call of the stateless era, without its id and its result."""

    # --- decisions ---------------------------------------------------------------------------------

    def accept(self, message: Any, identity: Identity, session: Session | None, session_id: str = "") -> Request | None:
        """Return a request that is answered directly, or None if the SDK carries its answer.

        `session` is None in the stateless era.
        """
        if not _is_valid(message):
            return None
        method, params = message["method"], message.get("params") or _EMPTY
        meta = params.get("_meta") or _EMPTY
        if session is None and meta != self._valid_envelope:
            if not has_modern_envelope(message):
                return None
            # Clients send the same one in every request.
            self._valid_envelope = meta
        traits = self._find_traits(params) if method == "tools/call" else None
        if traits is None and not _is_plain_request(method, params, modern=session is None):
            return None
        if not _STREAM_META_KEYS.isdisjoint(meta):
            return None
        if session is None:
            capabilities = meta[spec.CLIENT_CAPABILITIES_META_KEY]
            request = Request(method, params, message["id"], True, identity, capabilities, traits)  # noqa: FBT003 - keywords cost time
            request.is_direct = True
            return request
        request = Request(method, params, message["id"], False, identity, session.capabilities, traits)  # noqa: FBT003 - as above
        request.session_id, request.log_level = session_id, self._log_levels.get(session_id, "info")
        return request

    def _find_traits(self, params: Mapping[str, Any]) -> ToolTraits | None:
        """Return the traits of the tool of a call, or None if the SDK has to carry the answer."""
        name, arguments, lists = params.get("name"), params.get("arguments"), self._lists
        if not isinstance(name, str) or not (arguments is None or isinstance(arguments, dict)):
            return None
        traits = None if lists.stale else lists.traits.get(name)
        if traits is None or traits.plain is None:
            traits = lists.get_traits(name)
        if traits is None or traits.task is not None or traits.mirrors_headers or not _SDK_PARAMS.isdisjoint(params):
            return None
        return traits

    def accept_http(self, exchange: HttpExchange) -> Request | None:
        """Return a POST request that is answered directly, or None if the SDK carries its answer."""
        headers, identity, data = exchange.headers, exchange.identity, exchange.data
        # A repeated header may mean one thing to a proxy, and another to this server.
        if len(headers) != len(exchange.header_pairs):
            return None
        media_types = headers.get(b"content-type", b""), headers.get(b"accept", b"")
        if not (self._media_types.get(media_types) or self._accepts_json(*media_types)):
            return None
        version = headers.get(_VERSION_HEADER)
        if version == _MODERN_VERSION:
            request = self.accept(data, identity, None)
            return request if request is not None and _matches_headers(headers, request) else None
        session_id = headers.get(SESSION_HEADER, b"")
        session = self.sessions.get(session_id)
        if (
            session is None
            or session.version not in spec.SESSION_VERSIONS
            or session.owner != identity.owner
            or (version is not None and version != session.version.encode())
            or time.monotonic() - session.last_used >= SESSION_TRUST_SECONDS
        ):
            return None
        return self.accept(data, identity, session, session_id.decode("latin-1"))

    def _accepts_json(self, content_type: bytes, accept: bytes) -> bool:
        if content_type.partition(b";")[0].rstrip() != b"application/json":
            return False
        accepted = {media_type.partition(b";")[0].strip() for media_type in accept.split(b",")}
        if not accepted >= {b"application/json", b"text/event-stream"}:
            return False
        if len(self._media_types) < 64:  # noqa: PLR2004 - keeps clients from growing it
            self._media_types[content_type, accept] = True
        return True

    def open_session(self, message: Mapping[str, Any]) -> tuple[Session, bytes] | None:
        """Return the session that an `initialize` opens and the response, or None if the SDK has to check it."""
        params = message.get("params")
        if not _is_valid(message) or not isinstance(params, dict) or params.keys() != _INITIALIZE_PARAMS:
            return None
        version, capabilities = params["protocolVersion"], params["capabilities"]
        is_known = isinstance(version, str) and version in spec.SESSION_VERSIONS
        if not is_known or not isinstance(capabilities, dict) or not _is_plain_info(params["clientInfo"]):
            return None
        for name, settings in capabilities.items():
            known = _SESSION_CAPABILITIES.get(name)
            if known is None or not isinstance(settings, dict) or not settings.items() <= known.items():
                return None
        result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": self._info}
        response = to_json({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return Session(version=version, capabilities=capabilities), response

    def handle(self, request: Request) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that handles a request, in a span if the program traces."""
        handler = self.table[request.method]
        if getattr(MODULES.get(TRACE_API), PROVIDER, None) or getattr(MODULES.get(METERS), METER, None):
            return trace_handler(handler, request)
        return handler(request)

    # --- HTTP --------------------------------------------------------------------------------------

    def start(self, exchange: HttpExchange) -> None:
        """Start a request if it is answered directly: answer it, or run its call until it waits."""
        if self._step_up is not None and (refusal := self._find_refusal(exchange, self._step_up)) is not None:
            exchange.started = refusal
            return
        exchange.request = request = self.accept_http(exchange)
        if request is None:
            exchange.started = _find_version_mismatch(exchange)
            return
        if request.modern:
            task, result, error = eager_task.start(self.handle(request))
            exchange.started = self.encode(request, result, error) if task is None else task
            return
        key = exchange.headers[SESSION_HEADER], exchange.identity.owner, exchange.data["id"]
        if key in self.in_flight:
            return
        outcome = self.start_in_session(request)
        if isinstance(outcome, RunningCall):
            self.in_flight[key] = None
            exchange.started = outcome
        else:
            exchange.started = self.encode(request, *outcome)

    def _find_refusal(self, exchange: HttpExchange, step_up: StepUp) -> ErrorResponse | None:
        """Return the answer to a call whose caller lacks a scope, or None. The toolbox checks every call again."""
        data = exchange.data
        params = data.get("params") if isinstance(data, dict) and data.get("method") == "tools/call" else None
        name = params.get("name") if isinstance(params, dict) else None
        traits = self._lists.get_traits(name) if isinstance(name, str) else None
        if traits is None or not (missing := find_missing_scopes(traits.scopes, exchange.identity)):
            return None
        return step_up(str(name), missing, exchange.identity, get_request_id(data))

    def handle_post(self, exchange: HttpExchange, forward: Forward) -> Coroutine[Any, Any, None]:
        """Answer a request that ASGI carries, after `start`."""
        # Not `async def`: returning the coroutine saves a layer for each request.
        started = exchange.started
        if isinstance(started, tuple):
            return send_json(exchange.send, *started)
        if isinstance(started, ErrorResponse):
            return started(exchange.send)
        if isinstance(started, EagerTask):
            return self._answer_unless_disconnected(exchange, started)
        key = self._get_key(exchange)
        return forward(exchange, None) if key is None else self._answer_once(key, exchange, started, forward)

    async def _answer_once(
        self, key: RequestKey, exchange: HttpExchange, running: RunningCall | None, forward: Forward
    ) -> None:
        """Answer a request whose id must not be in use."""
        if running is None and key in self.in_flight:
            # The client could not distinguish two responses with one id, and the SDK loses the first.
            await ErrorResponse(400, DUPLICATE_ID_MESSAGE, id=key[2])(exchange.send)
            return
        self.in_flight[key] = None
        try:
            outcome: TaskOutcome | RunningCall | None = running
            if running is None and exchange.request:
                # Another request had its id when it arrived, and has ended since.
                outcome = self.start_in_session(exchange.request)
            if isinstance(outcome, RunningCall) and not outcome.stream.is_needed:
                outcome = await self.wait_in_session(outcome, key)
            if isinstance(outcome, tuple):
                await send_json(exchange.send, *self.encode(exchange.request, *outcome))
            else:
                await forward(exchange, outcome)
        finally:
            del self.in_flight[key]

    async def _answer_unless_disconnected(self, exchange: HttpExchange, call: EagerTask) -> None:
        """Answer a request when its call is done. If the client disconnects before, the call is cancelled."""
        disconnected = asyncio.ensure_future(exchange.receive())
        try:
            await asyncio.wait((call, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                await send_json(exchange.send, *self.encode(exchange.request, *call.result()))
        finally:
            disconnected.cancel()
            call.cancel()

    def _get_key(self, exchange: HttpExchange) -> RequestKey | None:
        """Return the key of a request, or None if its id need not be unique. A cancellation is carried out."""
        data = exchange.data
        session_id, owner = exchange.headers.get(SESSION_HEADER), exchange.identity.owner
        if session_id is None or exchange.headers.get(_VERSION_HEADER) == _MODERN_VERSION:
            return None
        request_id = get_request_id(data)
        if request_id is not None:
            return session_id, owner, request_id
        self.in_flight.cancel((session_id, owner, get_cancelled_id(data)))
        return None

    # --- sessions ----------------------------------------------------------------------------------

    def start_in_session(self, request: Request) -> TaskOutcome | RunningCall:
        """Start a request of a session. Return its outcome, or the running call if it waits.

        A call that may use the client needs the stream as soon as it waits, so that the client can resume it.
        """
        task, result, error = eager_task.start(self.handle(request))
        if task is None:
            return result, error
        stream: Any = request.open_stream()
        stream.is_needed = stream.is_needed or (request.traits is not None and not request.traits.plain)
        return RunningCall(task, stream)

    async def wait_in_session(self, running: RunningCall, key: Hashable) -> TaskOutcome | RunningCall:
        """Wait until a call is done, or needs the stream. A client can cancel it meanwhile."""
        task, needed = running.task, asyncio.Event()
        task.add_done_callback(lambda _: needed.set())
        running.stream.on_needed = needed.set
        self.in_flight[key] = task
        try:
            await needed.wait()
        except asyncio.CancelledError:
            task.cancel()
            raise
        self.in_flight[key] = None
        return task.result() if task.done() else running

    # --- responses ---------------------------------------------------------------------------------

    def encode(self, request: Request, result: Any, error: BaseException | None) -> tuple[int, bytes]:
        """Return the status and the body of the response to a request."""
        if error is not None:
            return self._encode_error(request, error)
        if request.method == "tools/list":
            return 200, self._encode_list(request, result)
        if request.method == "server/discover":
            result = {**self._cache_hint, **result}
        try:
            return 200, self._encode_result(request, result)
        except ValueError:
            unwritable = self._call_handler.make_unwritable_result(request.params["name"])
            return 200, self._encode_result(request, unwritable)

    def _encode_error(self, request: Request, error: BaseException) -> tuple[int, bytes]:
        if isinstance(error, asyncio.CancelledError):
            error = RpcError(spec.REQUEST_CANCELLED, "Request cancelled")
        elif not isinstance(error, RpcError):
            error = RpcError(spec.INTERNAL_ERROR, "Internal server error")
        error_body: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            error_body["data"] = error.data
        status = spec.HTTP_STATUS_BY_CODE.get(error.code, 200) if request.modern else 200
        return status, to_json({"jsonrpc": "2.0", "id": request.id, "error": error_body})

    def _encode_result(self, request: Request, result: Any) -> bytes:
        request_id = b"%d" % request.id if type(request.id) is int else to_json(request.id)
        if type(result) is bytes:
            return self._frame % (request_id, result)
        if not request.modern:
            return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, to_json(result))
        if "_meta" not in result and "resultType" not in result:
            return self._frame % (request_id, to_json(result)[1:-1])
        result = {"resultType": "complete", **result, "_meta": {**self._server_meta, **result.get("_meta", {})}}
        return to_json({"jsonrpc": "2.0", "id": request.id, "result": result})

    def _encode_list(self, request: Request, page: Mapping[str, Any]) -> bytes:
        known = self._list_bodies.get(request.modern)
        if known is None or known[0] is not page:
            result = page
            if request.modern:
                result = {"resultType": "complete", **self._cache_hint, **page, "_meta": self._server_meta}
            known = self._list_bodies[request.modern] = page, to_json({"result": result})[1:]
        return b'{"jsonrpc":"2.0","id":%b,%b' % (to_json(request.id), known[1])


def _find_version_mismatch(exchange: HttpExchange) -> ErrorResponse | None:
    """Return the answer to a stateless-era request whose header names another version or none; the SDK opens a session.

    Otherwise None.
    """
    headers, data = exchange.headers, exchange.data
    params = data.get("params") if isinstance(data, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(spec.PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    if version != spec.MODERN_VERSION or SESSION_HEADER in headers or headers.get(_VERSION_HEADER) == _MODERN_VERSION:
        return None
    message = f"The MCP-Protocol-Version header is not {version}, which the body names"
    return ErrorResponse(400, message, code=spec.HEADER_MISMATCH, id=get_request_id(data))


def _is_valid(message: Any) -> bool:
    """Return True if a message is a valid request."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return False
    request_id = message.get("id")
    if (type(request_id) is not int and type(request_id) is not str) or "error" in message or "result" in message:
        return False
    params = message.get("params")
    return params is None or (isinstance(params, dict) and isinstance(params.get("_meta", _EMPTY), dict))


def _is_plain_request(method: str, params: Mapping[str, Any], *, modern: bool) -> bool:
    """Return True for a valid `tools/list`, and for the requests without parameters."""
    if method == ("server/discover" if modern else "ping"):
        return params.keys() <= {"_meta"}
    if method != "tools/list" or not params.keys() <= _LIST_PARAMS:
        return False
    cursor = params.get("cursor")
    return cursor is None or isinstance(cursor, str)


def _matches_headers(headers: Headers, request: Request) -> bool:
    """Return True if the headers of the stateless era match the body."""
    if request.method != "tools/call":
        return headers.get(b"mcp-method") == request.method.encode()
    name_header = headers.get(b"mcp-name", b"")
    return (
        headers.get(b"mcp-method") == b"tools/call"
        and name_header == request.params["name"].encode("ascii", "replace")
        and b"?" not in name_header
    )


def has_modern_envelope(message: Mapping[str, Any]) -> bool:
    """Return True if the parameters of a request have a valid stateless-era envelope."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict) or meta.get(spec.PROTOCOL_VERSION_META_KEY) != spec.MODERN_VERSION:
        return False
    capabilities = meta.get(spec.CLIENT_CAPABILITIES_META_KEY)
    return (
        isinstance(capabilities, dict)
        and (not capabilities or all(map(_is_plain_capability, capabilities.items())))
        and _is_plain_info(meta.get(spec.CLIENT_INFO_META_KEY, _NO_CLIENT_INFO))
    )


def _is_plain_info(info: Any) -> bool:
    """Return True if the description of a client needs no further check."""
    return (
        isinstance(info, dict)
        and isinstance(info.get("name"), str)
        and isinstance(info.get("version"), str)
        and _CLIENT_INFO_KEYS.issuperset(info)
        and ("title" not in info or isinstance(info["title"], str | None))
    )


def _is_plain_capability(item: tuple[str, Any]) -> bool:
    """Return True if a capability is an object of objects, which needs no further check."""
    return isinstance(item[1], dict) and all(isinstance(value, dict) for value in item[1].values())


def get_request_id(data: Any) -> int | str | None:
    """Return the id of a message that expects a response, or None."""
    return _parse_id(data.get("id")) if isinstance(data, Mapping) and "method" in data else None


def get_cancelled_id(data: Any) -> int | str | None:
    """Return the id of the request that a message cancels, or None."""
    if not isinstance(data, Mapping) or data.get("method") != "notifications/cancelled":
        return None
    params = data.get("params")
    return _parse_id(params.get("requestId")) if isinstance(params, Mapping) else None


def _parse_id(value: Any) -> int | str | None:
    return value if type(value) is int or type(value) is str else None
