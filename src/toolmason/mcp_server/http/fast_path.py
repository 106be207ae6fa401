"""Answer plain calls and lists without the SDK, and leave all other requests to the SDK."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic_core import from_json, to_json

from toolmason._core.call.long_results import reset_result_owner, set_result_owner
from toolmason._core.run.eager_task import Suspended, run_until_first_await
from toolmason.errors import Abort, ApprovalRequired, ToolCallError, UnknownTool
from toolmason.mcp_client.transport.framing import has_duplicate_key
from toolmason.mcp_server.call_tool import RequestInfo, get_trace_context
from toolmason.mcp_server.client_requests import ClientProxy
from toolmason.mcp_server.handlers import TTL_MS
from toolmason.mcp_server.http.guard import Headers, Receive, Send
from toolmason.mcp_server.http.owner import Identity
from toolmason.mcp_server.in_flight import InFlight, RequestCancelled, RequestKey
from toolmason.mcp_server.lists import ToolTraits
from toolmason.mcp_server.sdk_server import ToolboxServer

MODERN_VERSION: Final = LATEST_MODERN_VERSION.encode()
SESSION_VERSIONS: Final = frozenset({b"2025-06-18", b"2025-11-25"})
"""Session protocol versions whose results need no filtering."""
SESSION_TRUST_SECONDS: Final = 60.0
"""Seconds for which a session counts as alive after the SDK last handled a request of it."""
_JSON_HEADERS: Final = [(b"content-type", b"application/json")]
_EMPTY: Final[Mapping[str, Any]] = {}
_ROUND_PARAMS: Final = frozenset({"inputResponses", "requestState", "task"})
"""Parameters of a call that continues earlier rounds or runs as a task, which the SDK path handles."""
_SPECIAL_META_KEYS: Final = frozenset({"progressToken", LOG_LEVEL_META_KEY})
"""Keys of `_meta` that ask for notifications during a call, which the SDK path sends."""
_CLIENT_INFO_KEYS: Final = frozenset({"name", "version", "title"})


class FastPath:
    """Fast path for the plain requests of a server: `tools/list`, and `tools/call` without questions or progress."""

    def __init__(self, server: ToolboxServer, max_sessions: int, in_flight: InFlight | None = None) -> None:
        self.in_flight = InFlight() if in_flight is None else in_flight
        self.server = server
        self.call_handler = server.call_handler
        self.lists = server.call_handler.lists
        self.sessions: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Owner of each session, and when the SDK last saw it."""
        self._max_sessions = max_sessions
        self._accept_cache: dict[bytes, bool] = {}
        self._plain_tools: dict[str, bool] = {}
        self._lists_version = -1
        self._list_bodies: dict[bool, bytes] = {}
        self._server_meta = {SERVER_INFO_META_KEY: server.server_info_stamp}
        self._meta_suffix = b',"_meta":' + to_json(self._server_meta) + b"}}"

    async def try_handle(
        self, headers: Headers, body: bytes, principal: Identity, receive: Receive, send: Send
    ) -> bool:
        """Answer a plain request. Return False to leave it to the SDK, untouched."""
        version = headers.get(b"mcp-protocol-version")
        modern = version == MODERN_VERSION
        if not (modern or self._is_in_session(version, headers, principal)) or not self._accepts_json(headers):
            return False
        try:
            data = from_json(body, allow_inf_nan=False)
        except ValueError:
            return False
        # Before anything is added to the data: duplicate keys are found by counting.
        request = None if has_duplicate_key(body, data) else _validate_envelope(data)
        if request is None or (modern and not _matches_headers(headers, request)):
            return False
        if modern:
            return await self.handle(request, principal, modern, _HttpExchange(receive, send))
        request_key = (headers[b"mcp-session-id"], principal.owner, request["id"])
        with self.in_flight.claim(request_key) as is_free:
            return is_free and await self.handle(
                request, principal, modern, _SessionExchange(send, self.in_flight, request_key)
            )

    async def handle(self, request: Mapping[str, Any], principal: Identity, modern: bool, exchange: Any) -> bool:  # noqa: FBT001 - one of two eras
        """Answer a plain request of either era, over any transport. Return False to leave it to the SDK.

        `exchange` has the session ID, and methods to wait for a suspended call and to send the response.
        """
        method, params = request["method"], request["params"]
        if method == "tools/call":
            return await self._call(request, params, principal, modern, exchange)
        if method == "tools/list" and params.get("cursor") is None and params.keys() <= {"_meta", "cursor"}:
            is_plain = _SPECIAL_META_KEYS.isdisjoint(params.get("_meta") or _EMPTY)
            return is_plain and await self._send_list(request["id"], modern, exchange)
        return False

    # --- calls -------------------------------------------------------------------------------------

    async def _call(
        self,
        request: Any,
        params: Mapping[str, Any],
        principal: Identity,
        modern: bool,  # noqa: FBT001 - as above
        exchange: Any,
    ) -> bool:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not (arguments is None or isinstance(arguments, dict)):
            return False
        traits = self.lists.get_traits(name)
        if traits is None or traits.task is not None or traits.mirrors_headers or not _ROUND_PARAMS.isdisjoint(params):
            return False
        meta = params.get("_meta") or {}
        is_plain = self._is_plain(name)
        if not (is_plain or modern) or not _SPECIAL_META_KEYS.isdisjoint(meta):
            return False
        if is_plain:
            work = self._call_plain(name, arguments or {}, traits, principal, exchange.session)
        else:
            client = ClientProxy(meta.get(CLIENT_CAPABILITIES_META_KEY) or {}, logger=name)
            context = {**get_trace_context(meta), **principal}
            work = self.call_handler.call(
                params, RequestInfo(client, modern=True, principal=context, owner=principal.owner)
            )
        result: Any = None
        error: Exception | None = None
        try:
            result, suspended = run_until_first_await(work)
            if suspended is not None:
                result = await exchange.wait(suspended)
                if result is None:
                    return True  # the client disconnected
        except _UseSdk:
            return False
        except RequestCancelled:
            error = MCPError(REQUEST_CANCELLED, "Request cancelled")
        except Exception as raised:  # noqa: BLE001 - any error becomes a response
            error = raised
        await exchange.send(*self._encode_response(request, result, error, modern))
        return True

    async def _call_plain(
        self, name: str, arguments: Any, traits: ToolTraits, principal: Identity, session: str
    ) -> dict[str, Any]:
        scope = set_result_owner(principal.owner or session)
        try:
            result = await self.call_handler.box.call(name, arguments, context=principal or None)
        except (Abort, ToolCallError) as raised:
            return self.call_handler.make_raised_result(raised)
        finally:
            reset_result_owner(scope)
        # The call has not run, so the SDK path can start it again.
        if isinstance(result.error, ApprovalRequired | UnknownTool) and result.attempts == 0:
            raise _UseSdk
        return self.call_handler.encode(result, traits)

    def _is_plain(self, name: str) -> bool:
        """Return True if a tool needs only its arguments."""
        self._clear_outdated()
        is_plain = self._plain_tools.get(name)
        if is_plain is None:
            is_plain = self._plain_tools[name] = self.call_handler.box[name].load().plain_function is not None
        return is_plain

    def _encode_response(self, request: Any, result: Any, error: Any, modern: bool) -> tuple[int, bytes]:  # noqa: FBT001 - as above
        request_id = request["id"]
        if error is None:
            try:
                return 200, self._encode_result(request_id, result, modern)
            except ValueError:
                return 200, self._encode_result(
                    request_id, self.call_handler.make_unwritable_result(request["params"]["name"]), modern
                )
        if not isinstance(error, MCPError):
            error = MCPError(INTERNAL_ERROR, "Internal server error")
        error_body: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            error_body["data"] = error.data
        status = ERROR_CODE_HTTP_STATUS.get(error.code, 200) if modern else 200
        return status, to_json({"jsonrpc": "2.0", "id": request_id, "error": error_body})

    def _encode_result(self, request_id: Any, payload: Any, modern: bool) -> bytes:  # noqa: FBT001 - as above
        if not modern:
            return to_json({"jsonrpc": "2.0", "id": request_id, "result": payload})
        result = {"resultType": "complete", **payload, "_meta": {**self._server_meta, **payload.get("_meta", _EMPTY)}}
        return to_json({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _clear_outdated(self) -> None:
        """Clear the caches if the lists have changed."""
        if self._lists_version != self.lists.version:
            self._lists_version = self.lists.version
            self._plain_tools.clear()
            self._list_bodies.clear()

    # --- lists -------------------------------------------------------------------------------------

    async def _send_list(self, request_id: Any, modern: bool, exchange: Any) -> bool:  # noqa: FBT001 - as above
        await self.lists.refresh()
        if len(self.lists.tools) > self.lists.page_size:
            return False
        self._clear_outdated()
        body = self._list_bodies.get(modern)
        if body is None:
            body = self._list_bodies[modern] = self._encode_list(modern)
        await exchange.send(200, b'{"jsonrpc":"2.0","id":' + to_json(request_id) + body)
        return True

    def _encode_list(self, modern: bool) -> bytes:  # noqa: FBT001 - as above
        if not modern:
            return b',"result":' + to_json({"tools": self.lists.tools}) + b"}"
        hint = self.server.cache_hints["tools/list"]
        fields = {"resultType": "complete", "ttlMs": TTL_MS, "cacheScope": hint.scope, "tools": self.lists.tools}
        return b',"result":' + to_json(fields)[:-1] + self._meta_suffix

    # --- sessions ----------------------------------------------------------------------------------

    def _is_in_session(self, version: bytes | None, headers: Headers, principal: Identity) -> bool:
        if version not in SESSION_VERSIONS:
            return False
        session = self.sessions.get(headers.get(b"mcp-session-id", b""))
        return (
            session is not None
            and session[0] == principal.owner
            and time.monotonic() - session[1] < SESSION_TRUST_SECONDS
        )

    def track_sessions(self, scope: Any, principal: Identity, send: Send) -> Send:
        """Return a `send` that records the sessions that the SDK opens, serves and ends."""
        session_id = next((value for name, value in scope["headers"] if name == b"mcp-session-id"), b"")
        owner = principal.owner

        async def send_tracked(message: Any) -> None:
            if message["type"] == "http.response.start":
                # Trust only the session id in the SDK's response: the client's header may be made up.
                new_session_id = next((value for name, value in message["headers"] if name == b"mcp-session-id"), None)
                if scope["method"] == "DELETE" or message["status"] == 404:  # noqa: PLR2004 - the session has ended
                    self.sessions.pop(session_id, None)
                elif new_session_id is not None and message["status"] < 300:  # noqa: PLR2004 - success
                    self._remember_session(new_session_id, owner)
            await send(message)

        return send_tracked

    def _remember_session(self, session: bytes, owner: str) -> None:
        self.sessions[session] = (owner, time.monotonic())
        self.sessions.move_to_end(session)
        if len(self.sessions) > self._max_sessions:
            self.sessions.popitem(last=False)

    def _accepts_json(self, headers: Headers) -> bool:
        if headers.get(b"content-type", b"").partition(b";")[0].rstrip() != b"application/json":
            return False
        accept = headers.get(b"accept", b"")
        accepted = self._accept_cache.get(accept)
        if accepted is None:
            media_types = {media_type.partition(b";")[0].strip() for media_type in accept.split(b",")}
            accepted = media_types >= {b"application/json", b"text/event-stream"}
            if len(self._accept_cache) < 64:  # noqa: PLR2004 - keeps clients from growing it
                self._accept_cache[accept] = accepted
        return accepted


class _UseSdk(Exception):
    """The SDK must handle the call. No part of it has run."""


class _HttpExchange:
    """One HTTP exchange."""

    __slots__ = ("_receive", "_send")

    session = ""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send

    async def wait(self, suspended: Suspended) -> Any:
        """Wait for a call. Return None if the client disconnects, which cancels the call."""
        task = asyncio.current_task()
        disconnected = asyncio.ensure_future(self._receive())
        if task is not None:
            disconnected.add_done_callback(lambda found: None if found.cancelled() else task.cancel())
        try:
            return await suspended
        except asyncio.CancelledError:
            if task is not None and disconnected.done() and task.uncancel() == 0:
                return None
            raise
        finally:
            disconnected.cancel()

    async def send(self, status: int, body: bytes) -> None:
        """Send the response."""
        await _send_json(self._send, status, body)


class _SessionExchange:
    """One HTTP exchange in a session, in which a notification cancels a call and a disconnect does not."""

    __slots__ = ("_in_flight", "_request", "_send", "session")

    def __init__(self, send: Send, in_flight: InFlight, request: RequestKey) -> None:
        self._send, self._in_flight, self._request = send, in_flight, request
        self.session = request[0].decode("latin-1")

    async def wait(self, suspended: Suspended) -> Any:
        """Wait for a call until it finishes or is cancelled."""
        return await self._in_flight.wait(self._request, suspended)

    async def send(self, status: int, body: bytes) -> None:
        """Send the response."""
        await _send_json(self._send, status, body)


async def _send_json(send: Send, status: int, body: bytes) -> None:
    headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _validate_envelope(data: Any) -> dict[str, Any] | None:
    """Return a request if its envelope is valid, else None."""
    if not isinstance(data, dict) or data.get("jsonrpc") != "2.0" or not isinstance(data.get("method"), str):
        return None
    request_id = data.get("id")
    if (type(request_id) is not int and type(request_id) is not str) or "error" in data or "result" in data:
        return None
    params = data.get("params")
    if params is None:
        data["params"] = {}
    elif not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        return None
    return data


def _matches_headers(headers: Headers, request: Mapping[str, Any]) -> bool:
    """Return True if a stateless-era request has a valid envelope and matching headers."""
    method, params = request["method"], request["params"]
    if headers.get(b"mcp-method") != method.encode("utf-8", "replace") or not has_modern_envelope(params):
        return False
    if method != "tools/call":
        return True
    name = params.get("name")
    name_header = headers.get(b"mcp-name", b"")
    return (
        isinstance(name, str) and name.isascii() and name_header == name.encode() and not name_header.startswith(b"=?")
    )


def has_modern_envelope(params: Mapping[str, Any]) -> bool:
    """Return True if the parameters have a valid stateless-era envelope."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or meta.get(PROTOCOL_VERSION_META_KEY) != LATEST_MODERN_VERSION:
        return False
    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    info = meta.get(CLIENT_INFO_META_KEY, {"name": "", "version": ""})
    return (
        isinstance(capabilities, dict)
        and (not capabilities or all(map(_is_plain_capability, capabilities.items())))
        and isinstance(info, dict)
        and isinstance(info.get("name"), str)
        and isinstance(info.get("version"), str)
        and _CLIENT_INFO_KEYS.issuperset(info)
        and (info.get("title") is None or isinstance(info.get("title"), str))
    )


def _is_plain_capability(item: tuple[str, Any]) -> bool:
    """Return True if a capability is an object of objects, which needs no further check."""
    return isinstance(item[1], dict) and all(isinstance(value, dict) for value in item[1].values())
