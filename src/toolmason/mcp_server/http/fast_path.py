"""Plain requests → their answers, without the machinery that only others need.

Lives here: calls and lists that are regular in every respect: parsed once, run, written once. Whatever is not
regular is left to the SDK, so that there is one set of answers to mistakes. Not here: checks of who may come in.
"""

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

from toolmason._core.call.long_results import keep_for, let_go
from toolmason._core.run.eager_task import Rest, first_step
from toolmason.errors import Abort, ApprovalRequired, ToolCallError, UnknownTool
from toolmason.mcp_client.transport.framing import repeats_a_key
from toolmason.mcp_server.call_tool import Inquiry, trace_in
from toolmason.mcp_server.client_requests import Caller
from toolmason.mcp_server.handlers import TTL_MS
from toolmason.mcp_server.http.guard import Headers, Receive, Send
from toolmason.mcp_server.http.owner import Identity
from toolmason.mcp_server.in_flight import CalledOff, Request, Underway
from toolmason.mcp_server.lists import Facts
from toolmason.mcp_server.sdk_server import ToolboxServer

MODERN: Final = LATEST_MODERN_VERSION.encode()
SESSION_VERSIONS: Final = frozenset({b"2025-06-18", b"2025-11-25"})
"""Versions of sessions whose results need no sieving."""
CHECK_SECONDS: Final = 60.0
"""How long a session is taken for alive without the SDK having seen a request of it."""
_JSON: Final = [(b"content-type", b"application/json")]
_NOTHING: Final[Mapping[str, Any]] = {}
_ROUNDS: Final = frozenset({"inputResponses", "requestState", "task"})
_SPECIAL: Final = frozenset({"progressToken", LOG_LEVEL_META_KEY})
_INFO: Final = frozenset({"name", "version", "title"})


class Short:
    """The short way into a server."""

    def __init__(self, server: ToolboxServer, sessions: int, underway: Underway | None = None) -> None:
        self.underway = Underway() if underway is None else underway
        self.server, self.engine, self.lists = server, server.engine, server.engine.lists
        self.sessions: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Session → whose it is, and when the SDK last saw it."""
        self._most = sessions
        self._accepts: dict[bytes, bool] = {}
        self._plain: dict[str, bool] = {}
        self._version = -1
        self._listed: dict[bool, bytes] = {}
        stamp = server.server_info_stamp
        self._stamp = {SERVER_INFO_META_KEY: stamp}
        self._tail = b',"_meta":' + to_json(self._stamp) + b"}}"

    async def answers(self, headers: Headers, body: bytes, principal: Identity, receive: Receive, send: Send) -> bool:
        """Answer a request that is regular; `False` leaves it to the SDK, untouched."""
        version = headers.get(b"mcp-protocol-version")
        modern = version == MODERN
        if not (modern or self._in_session(version, headers, principal)) or not self._speaks_json(headers):
            return False
        try:
            data = from_json(body, allow_inf_nan=False)
        except ValueError:
            return False
        # Before anything is added to what was read: the keys are counted.
        request = None if repeats_a_key(body, data) else _regular(data)
        if request is None or (modern and not _self_described(headers, request)):
            return False
        if modern:
            return await self.reply(request, principal, modern, _Http(receive, send))
        known = (headers[b"mcp-session-id"], principal.owner, request["id"])
        with self.underway.one(known) as is_free:
            return is_free and await self.reply(request, principal, modern, _InSession(send, self.underway, known))

    async def reply(self, request: Mapping[str, Any], principal: Identity, modern: bool, way: Any) -> bool:  # noqa: FBT001 - it is one of two eras
        """Answer a regular request of either era, over whatever carries it."""
        method, params = request["method"], request["params"]
        if method == "tools/call":
            return await self._call(request, params, principal, modern, way)
        if method == "tools/list" and params.get("cursor") is None and params.keys() <= {"_meta", "cursor"}:
            plain = _SPECIAL.isdisjoint(params.get("_meta") or _NOTHING)
            return plain and await self._list(request["id"], modern, way)
        return False

    # --- calls -------------------------------------------------------------------------------------

    async def _call(self, request: Any, params: Mapping[str, Any], principal: Identity, modern: bool, way: Any) -> bool:  # noqa: FBT001 - as above
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not (arguments is None or isinstance(arguments, dict)):
            return False
        facts = self.lists.facts_of(name)
        if facts is None or facts.task is not None or facts.headers or not _ROUNDS.isdisjoint(params):
            return False
        meta = params.get("_meta") or {}
        plain = self._is_plain(name)
        if not (plain or modern) or not _SPECIAL.isdisjoint(meta):
            return False
        if plain:
            work = self._simply(name, arguments or {}, facts, principal, way.session)
        else:
            caller = Caller(meta.get(CLIENT_CAPABILITIES_META_KEY) or {}, logger=name)
            known = {**trace_in(meta), **principal}
            work = self.engine.call(params, Inquiry(caller, modern=True, principal=known, who=principal.owner))
        found: Any = None
        error: Exception | None = None
        try:
            found, rest = first_step(work)
            if rest is not None:
                found = await way.waited(rest)
                if found is None:
                    return True  # the client has gone
        except _Irregular:
            return False
        except CalledOff:
            error = MCPError(REQUEST_CANCELLED, "Request cancelled")
        except Exception as raised:  # noqa: BLE001 - whatever it is, the request is answered
            error = raised
        await way.send(*self._written(request, found, error, modern))
        return True

    async def _simply(
        self, name: str, arguments: Any, facts: Facts, principal: Identity, session: str
    ) -> dict[str, Any]:
        kept = keep_for(principal.owner or session)
        try:
            result = await self.engine.box.call(name, arguments, context=principal or None)
        except (Abort, ToolCallError) as raised:
            return self.engine.stopped(raised)
        finally:
            let_go(kept)
        # What needs more than a call has not run: the long way begins anew.
        if isinstance(result.error, ApprovalRequired | UnknownTool) and result.attempts == 0:
            raise _Irregular
        return self.engine.shown(result, facts)

    def _is_plain(self, name: str) -> bool:
        """Tell whether a tool takes nothing of the call but its arguments."""
        if self._version != self.lists.version:
            self._version = self.lists.version
            self._plain.clear()
            self._listed.clear()
        known = self._plain.get(name)
        if known is None:
            known = self._plain[name] = self.engine.box[name].ready().direct is not None
        return known

    def _written(self, request: Any, found: Any, error: Any, modern: bool) -> tuple[int, bytes]:  # noqa: FBT001 - as above
        asked = request["id"]
        if error is None:
            try:
                return 200, self._result_bytes(asked, found, modern)
            except ValueError:
                return 200, self._result_bytes(asked, self.engine.unwritable(request["params"]["name"]), modern)
        if not isinstance(error, MCPError):
            error = MCPError(INTERNAL_ERROR, "Internal server error")
        told: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            told["data"] = error.data
        status = ERROR_CODE_HTTP_STATUS.get(error.code, 200) if modern else 200
        return status, to_json({"jsonrpc": "2.0", "id": asked, "error": told})

    def _result_bytes(self, asked: Any, found: Any, modern: bool) -> bytes:  # noqa: FBT001 - as above
        if not modern:
            return to_json({"jsonrpc": "2.0", "id": asked, "result": found})
        result = {"resultType": "complete", **found, "_meta": {**self._stamp, **found.get("_meta", _NOTHING)}}
        return to_json({"jsonrpc": "2.0", "id": asked, "result": result})

    # --- lists -------------------------------------------------------------------------------------

    async def _list(self, asked: Any, modern: bool, way: Any) -> bool:  # noqa: FBT001 - as above
        await self.lists.fresh()
        if len(self.lists.tools) > self.lists.page:
            return False
        if self._version != self.lists.version:
            self._version = self.lists.version
            self._plain.clear()
            self._listed.clear()
        written = self._listed.get(modern)
        if written is None:
            written = self._listed[modern] = self._list_bytes(modern)
        await way.send(200, b'{"jsonrpc":"2.0","id":' + to_json(asked) + written)
        return True

    def _list_bytes(self, modern: bool) -> bytes:  # noqa: FBT001 - as above
        if not modern:
            return b',"result":' + to_json({"tools": self.lists.tools}) + b"}"
        hint = self.server.cache_hints["tools/list"]
        facts = {"resultType": "complete", "ttlMs": TTL_MS, "cacheScope": hint.scope, "tools": self.lists.tools}
        return b',"result":' + to_json(facts)[:-1] + self._tail

    # --- sessions ----------------------------------------------------------------------------------

    def _in_session(self, version: bytes | None, headers: Headers, principal: Identity) -> bool:
        if version not in SESSION_VERSIONS:
            return False
        known = self.sessions.get(headers.get(b"mcp-session-id", b""))
        return known is not None and known[0] == principal.owner and time.monotonic() - known[1] < CHECK_SECONDS

    def watching(self, scope: Any, principal: Identity, send: Send) -> Send:
        """Return a `send` that takes note of the sessions that the SDK opens, serves and ends."""
        asked = next((value for name, value in scope["headers"] if name == b"mcp-session-id"), b"")
        who = principal.owner

        async def watch(message: Any) -> None:
            if message["type"] == "http.response.start":
                # What a client calls its session may be none: only what the SDK says of itself is one.
                given = next((value for name, value in message["headers"] if name == b"mcp-session-id"), None)
                if scope["method"] == "DELETE" or message["status"] == 404:  # noqa: PLR2004 - the session is no more
                    self.sessions.pop(asked, None)
                elif given is not None and message["status"] < 300:  # noqa: PLR2004 - it was served
                    self._saw(given, who)
            await send(message)

        return watch

    def _saw(self, session: bytes, who: str) -> None:
        self.sessions[session] = (who, time.monotonic())
        self.sessions.move_to_end(session)
        if len(self.sessions) > self._most:
            self.sessions.popitem(last=False)

    def _speaks_json(self, headers: Headers) -> bool:
        if headers.get(b"content-type", b"").partition(b";")[0].rstrip() != b"application/json":
            return False
        accept = headers.get(b"accept", b"")
        known = self._accepts.get(accept)
        if known is None:
            kinds = {kind.partition(b";")[0].strip() for kind in accept.split(b",")}
            known = kinds >= {b"application/json", b"text/event-stream"}
            if len(self._accepts) < 64:  # noqa: PLR2004 - a client cannot make it grow
                self._accepts[accept] = known
        return known


class _Irregular(Exception):
    """The call needs what the short way does not have; nothing of it has run."""


class _Http:
    """One exchange over HTTP."""

    __slots__ = ("_receive", "_send")

    session = ""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send

    async def waited(self, rest: Rest) -> Any:
        """Wait for a call; `None` where the client has gone, which calls it off."""
        me = asyncio.current_task()
        gone = asyncio.ensure_future(self._receive())
        if me is not None:
            gone.add_done_callback(lambda found: None if found.cancelled() else me.cancel())
        try:
            return await rest
        except asyncio.CancelledError:
            if me is not None and gone.done() and me.uncancel() == 0:
                return None
            raise
        finally:
            gone.cancel()

    async def send(self, status: int, body: bytes) -> None:
        """Write the answer."""
        await _answer(self._send, status, body)


class _InSession:
    """One exchange over HTTP, in a session: who hangs up there has not called anything off, and a message does."""

    __slots__ = ("_request", "_send", "_underway", "session")

    def __init__(self, send: Send, underway: Underway, request: Request) -> None:
        self._send, self._underway, self._request = send, underway, request
        self.session = request[0].decode("latin-1")

    async def waited(self, rest: Rest) -> Any:
        """Wait for a call, until it is called off."""
        return await self._underway.waited(self._request, rest)

    async def send(self, status: int, body: bytes) -> None:
        """Write the answer."""
        await _answer(self._send, status, body)


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [*_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _regular(data: Any) -> dict[str, Any] | None:
    """Return a request whose envelope is as it should be."""
    if not isinstance(data, dict) or data.get("jsonrpc") != "2.0" or not isinstance(data.get("method"), str):
        return None
    asked = data.get("id")
    if (type(asked) is not int and type(asked) is not str) or "error" in data or "result" in data:
        return None
    params = data.get("params")
    if params is None:
        data["params"] = {}
    elif not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        return None
    return data


def _self_described(headers: Headers, request: Mapping[str, Any]) -> bool:
    """Tell whether a request of the stateless era says of itself what it must, and its headers say the same."""
    method, params = request["method"], request["params"]
    if headers.get(b"mcp-method") != method.encode("utf-8", "replace") or not enveloped(params):
        return False
    if method != "tools/call":
        return True
    name = params.get("name")
    given = headers.get(b"mcp-name", b"")
    return isinstance(name, str) and name.isascii() and given == name.encode() and not given.startswith(b"=?")


def enveloped(params: Mapping[str, Any]) -> bool:
    """Tell whether the parameters carry the envelope of the stateless era, in every part as it should be."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or meta.get(PROTOCOL_VERSION_META_KEY) != LATEST_MODERN_VERSION:
        return False
    able, info = meta.get(CLIENT_CAPABILITIES_META_KEY), meta.get(CLIENT_INFO_META_KEY, {"name": "", "version": ""})
    return (
        isinstance(able, dict)
        and (not able or all(map(_is_able, able.items())))
        and isinstance(info, dict)
        and isinstance(info.get("name"), str)
        and isinstance(info.get("version"), str)
        and _INFO.issuperset(info)
        and (info.get("title") is None or isinstance(info.get("title"), str))
    )


def _is_able(said: tuple[str, Any]) -> bool:
    """Tell whether a capability is an object of objects, as all are that need no closer look."""
    return isinstance(said[1], dict) and all(isinstance(value, dict) for value in said[1].values())
