"""Serve a toolbox as an ASGI application: guard, dispatcher, and the SDK once a request needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import to_json

from toolmason._core.arguments.bind import LargeArguments
from toolmason._core.arguments.bounds import extract_structure
from toolmason._core.call.approval import parse_key
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.policy import Inherit
from toolmason._http.caller import ANONYMOUS, Identity
from toolmason._http.guard import (
    LOOPBACK_HOSTS,
    MAX_BODY_BYTES,
    PARSE_ERROR,
    Bearer,
    ErrorResponse,
    Guard,
    HeaderPairs,
    Headers,
    Receive,
    Send,
    VerifyToken,
    check_size,
    make_guard,
    send_json,
    serve_other_type,
)
from toolmason._wire import LARGE_JSON_BYTES
from toolmason.errors import ConfigError
from toolmason.mcp_client.transport.framing import UnreadableMessage, find_id, parse_json, parse_large_json
from toolmason.mcp_server.client_requests import Origin, RunningCall
from toolmason.mcp_server.dispatch import EXCHANGE_KEY, Dispatcher, HttpExchange
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.http.session_table import SESSION_HEADER, SESSION_IDLE_SECONDS, SessionTable

if TYPE_CHECKING:
    from toolmason.mcp_server.http.sdk_transport import SdkTransport

_log = logging.getLogger("toolmason.mcp_server")

MAX_SESSIONS: Final = 1000
MAX_DIRECT_BYTES: Final = 64 * 1024
"""Maximum body of a request that is answered without ASGI. Those of all connections fit into the limits of `Guard`."""
MAX_ENVELOPE_PARTS: Final = 20_000
"""Brackets and colons of a large message outside of the arguments of a call: some milliseconds in the SDK."""


class McpApp:
    """A toolbox as an ASGI application. Mount it, or run it on its own."""

    def __init__(
        self, box: Toolbox, guard: Guard, path: str, key: bytes | None, max_sessions: int, *, replicas: bool = False
    ) -> None:
        self.path = "/" + path.strip("/")
        self.box, self.guard = box, guard
        redact = isinstance(get_state(box).policy.on_error, Inherit)
        private = guard.bearer is not None
        self.handlers = Handlers(box, private=private, key=key, redact=redact, replicated=replicas)
        self.sdk: SdkTransport | None = None
        """Carrier of sessions and streams; None until a request needs it."""
        self._max_sessions = max_sessions
        self.sessions = SessionTable(max_sessions, SESSION_IDLE_SECONDS)
        self.dispatcher = Dispatcher(self.handlers, self.sessions, guard.make_step_up if private else None)
        self._max_direct_bytes = min(MAX_DIRECT_BYTES, guard.max_body_bytes)
        self._well_known = "/.well-known/oauth-protected-resource"

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await serve_other_type(scope["type"], self.lifespan(), receive, send)
            return
        exchange: HttpExchange | None = scope.get(EXCHANGE_KEY) or await self._receive(scope, receive, send)
        if exchange is None:
            return
        exchange.scope, exchange.receive, exchange.send = scope, receive, send
        if isinstance(exchange.data, UnreadableMessage):
            reason = f"The body cannot be read: {exchange.data.reason}."
            await ErrorResponse(400, reason, code=PARSE_ERROR, id=exchange.data.id)(send)
            return
        await self.dispatcher.handle_post(exchange, self._forward)

    def admit(self, headers: Headers, header_pairs: HeaderPairs) -> HttpExchange | None:
        """Return a POST request to the endpoint that may be answered directly when its body has arrived.

        None if its headers are invalid or unusual, or if a function of the application has to check its token.
        """
        length = headers.get(b"content-length", b"")
        # A number of six digits or more is above the limit.
        if not 0 < len(length) < 6 or int(length) > self._max_direct_bytes or b"expect" in headers:  # noqa: PLR2004
            return None
        if self.guard.check_headers(headers, header_pairs) is not None:
            return None
        identity = ANONYMOUS if self.guard.bearer is None else self.guard.identify(headers)
        return HttpExchange(headers, header_pairs, identity) if isinstance(identity, Identity) else None

    async def _receive(self, scope: Any, receive: Receive, send: Send) -> HttpExchange | None:
        """Return a POST request with its body. Answer others, and those that are invalid, and return None."""
        header_pairs, path = scope["headers"], scope["path"].removeprefix(scope.get("root_path", ""))
        headers = dict(header_pairs)
        refusal = self.guard.check_headers(headers, header_pairs)
        if refusal is None and path != self.path and path.rstrip("/") != self.path.rstrip("/"):
            await self._handle_other_path(path, scope["method"], send)
            return None
        identity = refusal or (ANONYMOUS if self.guard.bearer is None else await self.guard.authenticate(headers))
        if not isinstance(identity, Identity):
            await identity(send)
            return None
        if scope["method"] != "POST":
            sdk = self.sdk or await self._load_sdk()
            await sdk.handle(scope, Origin(identity), receive, send)
            return None
        body = await self.guard.read_body(headers, receive, scope, identity)
        if isinstance(body, ErrorResponse):
            await body(send)
        if not isinstance(body, bytes):
            return None
        data = parse_json(body) if len(body) <= LARGE_JSON_BYTES else await asyncio.to_thread(_parse_large, body)
        exchange = HttpExchange(headers, header_pairs, identity, body, data)
        self.dispatcher.start(exchange)
        return exchange

    async def _forward(self, exchange: HttpExchange, running: RunningCall | None) -> None:
        """Let the SDK carry the answer to a POST request."""
        sdk = self.sdk or await self._load_sdk()
        session = self.sessions.get(exchange.headers.get(SESSION_HEADER, b""))
        body, arguments = exchange.body, None
        if isinstance(exchange.data, dict) and type(params := exchange.data.get("params")) is dict:
            found = params.get("arguments")
            arguments = found if type(found) is LargeArguments else None
        if arguments is not None:
            # The SDK would parse and copy them on the event loop, several times.
            body = sdk.server.write_without_arguments(exchange.data)
        receive = _replay_body(body, exchange.receive)
        origin = Origin(exchange.identity, session, running, arguments)
        try:
            await sdk.handle(exchange.scope, origin, receive, exchange.send)
        finally:
            if running is not None:
                running.abandon()

    async def _handle_other_path(self, path: str, method: str, send: Send) -> None:
        if self.guard.metadata_url is not None and path.startswith(self._well_known) and method == "GET":
            await send_json(send, 200, self.guard.encode_metadata())
            return
        await ErrorResponse(404, f"Not found. The endpoint is {self.path}.")(send)

    # --- lifecycle ---------------------------------------------------------------------------------

    async def _load_sdk(self) -> SdkTransport:
        # In a thread: loading it takes most of a second, and calls that are running have deadlines.
        module = await asyncio.to_thread(import_module, "toolmason.mcp_server.http.sdk_transport")
        if self.sdk is None:
            in_flight = self.dispatcher.in_flight
            self.sdk = module.SdkTransport(
                self.handlers, self.sessions, in_flight, self.guard.max_body_bytes, self._max_sessions
            )
        return cast("SdkTransport", self.sdk)

    def close_streams(self) -> None:
        """Close the streams of clients that only listen; calls continue."""
        if self.sdk is not None:
            self.sdk.close_streams()

    async def aclose(self) -> None:
        """Stop the application."""
        if self.sdk is not None:
            await self.sdk.aclose()
        await self.handlers.close()

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Start and stop with another application: `FastAPI(lifespan=app.lifespan)`."""
        del app
        async with self.box, self.handlers.reloader or nullcontext():
            self.handlers.subscriptions.open()
            try:
                yield
            finally:
                await self.aclose()


def asgi_app(  # noqa: PLR0913 - one parameter for each option
    box: Toolbox,
    *,
    path: str = "/mcp",
    auth: VerifyToken | Bearer | None = None,
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS,
    allowed_origins: Sequence[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    max_sessions: int = MAX_SESSIONS,
    state_key: str | bytes | None = None,
    replicas: bool = False,
) -> McpApp:
    """Return an ASGI application that serves a toolbox over MCP: run it, or mount it in Starlette or FastAPI.

    Clients may use the host names in `allowed_hosts`, and web pages of the server's own origin and of
    `allowed_origins`; `["*"]` disables a check. `state_key` signs the state that clients carry between rounds; use the
    same in all processes of a deployment. With `replicas`, another process may answer the next request of a client:
    sessions, tasks and subscriptions are refused. Tool errors are redacted unless the toolbox sets `on_error=`.

    Raises:
        ConfigError: an option is invalid.
    """
    require_toolbox(box)
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"path={path!r} must be a string, such as '/mcp'.")
    check_size("max_sessions", max_sessions)
    if replicas and state_key is None:
        raise ConfigError(
            "replicas=True needs state_key=, the same in all replicas: one answers what another has asked. Make a key "
            "with secrets.token_hex(32). `toolmason serve` reads it from TOOLMASON_STATE_KEY."
        )
    rates = get_state(box).calls.state.rates
    guard = make_guard(allowed_hosts, allowed_origins, auth, max_body_bytes, rates)
    return McpApp(box, guard, path, parse_key("state_key", state_key), max_sessions, replicas=replicas)


def require_toolbox(box: Any) -> None:
    """Check that `box` is a Toolbox.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(box, Toolbox):
        raise ConfigError(f"serve({box!r}): pass a Toolbox, such as Toolbox(first_tool, second_tool).")


def _parse_large(body: bytes) -> Any:
    """Parse a large body. Its arguments are validated off the event loop, too."""
    data = parse_large_json(body)
    if isinstance(data, UnreadableMessage):
        return data
    rest = data
    params = data.get("params") if isinstance(data, dict) else None
    if isinstance(params, dict) and isinstance(params.get("arguments"), dict) and data.get("method") == "tools/call":
        params["arguments"] = LargeArguments(params["arguments"])
        rest = {**data, "params": {**params, "arguments": {}}}
    if len(extract_structure(to_json(rest))) > MAX_ENVELOPE_PARTS:
        reason = f"it has more than {MAX_ENVELOPE_PARTS:,} brackets and colons outside of the arguments of a call"
        return UnreadableMessage(reason, find_id(body))
    return data


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays a body that was already read, and then continues."""
    replayed = False

    async def replay() -> Any:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
