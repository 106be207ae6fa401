"""A toolbox → an ASGI application: the guard, the short way, and the SDK's session manager behind them.

Lives here: `asgi_app`, and what is started and stopped with it. Not here: checks (`guard`), the short way (`short`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from typing_extensions import TypedDict, Unpack

from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.errors import ConfigError
from toolmason.mcp_server.handlers import PRINCIPAL
from toolmason.mcp_server.http.fast_path import MODERN, Short
from toolmason.mcp_server.http.guard import BODY_BYTES, LOOPBACK, Bearer, Guard, Receive, Refusal, Send, Verify, answer
from toolmason.mcp_server.http.owner import NOBODY, Identity
from toolmason.mcp_server.http.replay import Sessions
from toolmason.mcp_server.http.session_quota import Peers
from toolmason.mcp_server.in_flight import TAKEN, Underway, called_off_by, id_of
from toolmason.mcp_server.sdk_server import ToolboxServer, server_of

try:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken
except ImportError as missing:
    raise ImportError("Serving needs the SDK: pip install 'toolmason[serve]'") from missing

_log = logging.getLogger("toolmason.serving")

SESSIONS: Final = 1000
IDLE_SECONDS: Final = 30 * 60.0


class AppWords(TypedDict, total=False):
    """What `asgi_app` and `serve` take for HTTP, beside the toolbox."""

    path: str
    """Where the endpoint is."""
    auth: Verify | Bearer | None
    """Checks bearer tokens."""
    allowed_hosts: Sequence[str]
    """Names under which the server is reached; `["*"]` turns the check off."""
    allowed_origins: Sequence[str]
    """Origins of pages that may call, beside the server's own; `["*"]` turns the check off."""
    max_body_bytes: int
    max_sessions: int
    fast: bool
    """Whether plain requests take the short way. It changes the speed, not the answers."""
    state_key: str | bytes | None
    """Signs what clients keep for us between two rounds; give all processes of a deployment the same."""


class McpApp:
    """A toolbox as an ASGI application. Mount it, or run it by itself."""

    def __init__(self, box: Toolbox, **words: Unpack[AppWords]) -> None:
        if unknown := words.keys() - AppWords.__annotations__.keys():
            there = ", ".join(sorted(AppWords.__annotations__))
            raise ConfigError(f"serve takes no {min(unknown)!r} for HTTP. There are: {there}.")
        _check(box, words)
        auth = words.get("auth")
        bearer = auth if auth is None or isinstance(auth, Bearer) else Bearer(auth)
        self.path = "/" + words.get("path", "/mcp").strip("/")
        self.box = box
        self.guard = Guard(
            frozenset(host.lower() for host in words.get("allowed_hosts", LOOPBACK)),
            frozenset(origin.lower().rstrip("/") for origin in words.get("allowed_origins", ())),
            bearer,
            words.get("max_body_bytes", BODY_BYTES),
        )
        self.server: ToolboxServer = server_of(
            box, private=bearer is not None, key=_key_from(words.get("state_key")), redact=box.on_error is None
        )
        self._most = words.get("max_sessions", SESSIONS)
        self.manager = self._new_manager()
        self.peers = Peers(max(1, self._most // 2), IDLE_SECONDS)
        self.underway = Underway()
        self.short = Short(self.server, self._most, self.underway) if words.get("fast", True) else None
        self._well_known = "/.well-known/oauth-protected-resource"
        self._stop: asyncio.Event | None = None
        self._ready: asyncio.Future[None] | None = None
        self._life: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Any, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        headers = dict(raw)
        refusal = self.guard.refuses(headers, raw)
        if refusal is not None:
            await refusal(send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path != self.path and path.rstrip("/") != self.path.rstrip("/"):
            await self._elsewhere(path, scope["method"], send)
            return
        principal = await self.guard.principal(headers) if self.guard.bearer is not None else NOBODY
        if isinstance(principal, Refusal):
            await principal(send)
            return
        if scope["method"] == "POST":
            body = await self.guard.body(headers, receive)
            if isinstance(body, Refusal):
                await body(send)
            if not isinstance(body, bytes):
                return
            if self.short is not None:
                regular = len(headers) == len(raw)
                if regular and await self.short.answers(headers, body, principal, receive, send):
                    return
            await self._posted(scope, principal, body, receive, send)
        else:
            await self._long(scope, principal, receive, send)

    async def _posted(self, scope: Any, principal: Identity, body: bytes, receive: Receive, send: Send) -> None:
        """Have the SDK answer a body, unless it has two meanings, or an id of its session that is taken."""
        data = self.guard.read(body)
        if isinstance(data, Refusal):
            await data(send)
            return
        receive = _again(body, receive)
        headers = dict(scope["headers"])
        session, asked = headers.get(b"mcp-session-id"), id_of(data)
        if session is None or headers.get(b"mcp-protocol-version") == MODERN:
            await self._long(scope, principal, receive, send)
            return
        if (unwanted := called_off_by(data)) is not None:
            self.underway.call_off((session, principal.owner, unwanted))
        if asked is None:
            await self._long(scope, principal, receive, send)
            return
        with self.underway.one((session, principal.owner, asked)) as is_free:
            if is_free:
                await self._long(scope, principal, receive, send)
            else:
                await Refusal(400, TAKEN, id=asked)(send)

    async def _long(self, scope: Any, principal: Identity, receive: Receive, send: Send) -> None:
        """Have the SDK answer."""
        await self.open()
        peer = self.peers.name_of(scope, principal)
        if scope["method"] == "POST" and not self.peers.may_enter(peer, scope["headers"]):
            await Refusal(503, "There are too many sessions of this client. End some, or try again later.")(send)
            return
        send = self.peers.watching(peer, scope, send)
        if principal:
            scope = {**scope, PRINCIPAL: principal}
            # The SDK binds a session to this, so that nobody else can use it.
            scope["user"] = AuthenticatedUser(AccessToken(token="-", client_id=principal.owner, scopes=[]))  # noqa: S106 - not one
        if self.short is not None:
            send = self.short.watching(scope, principal, send)
        await self.manager.handle_request(scope, receive, send)

    async def _elsewhere(self, path: str, method: str, send: Send) -> None:
        if self.guard.metadata_url is not None and path.startswith(self._well_known) and method == "GET":
            await answer(send, 200, self.guard.metadata())
            return
        await Refusal(404, f"There is nothing here. The endpoint is {self.path}.")(send)

    # --- life --------------------------------------------------------------------------------------

    def _new_manager(self) -> Sessions:
        """Return a manager of sessions; the SDK's runs once and never again."""
        return Sessions(
            self.server,
            retry_interval=1000,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=self.guard.body_bytes,
            max_sessions=self._most,
        )

    async def open(self) -> None:
        """Start what answers; once is enough. A mounted application is started by its first request.

        What was stopped, or was left behind with its event loop, is started anew, with no sessions.
        """
        life = self._life
        if life is not None and (life.done() or life.get_loop() is not asyncio.get_running_loop()):
            self._forget()
        if self._ready is None:
            self._stop, self._ready = asyncio.Event(), asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._stop, self._ready), name="toolmason-serving")
        await asyncio.shield(self._ready)

    async def _live(self, stop: asyncio.Event, ready: asyncio.Future[None]) -> None:
        try:
            async with self.manager.run():
                self.server.changes.open()
                ready.set_result(None)
                await stop.wait()
                self.server.listening.close()
                self.server.changes.close()
                await self.server.engine.tasks.close()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    def hang_up(self) -> None:
        """End the streams of clients that only listen, in good order; calls go on."""
        self.server.listening.close()
        self.manager.hang_up()

    async def aclose(self) -> None:
        """Stop what was started."""
        if self._stop is not None and self._life is not None:
            self._stop.set()
            await asyncio.wait((self._life,), timeout=5)
            self._forget()

    def _forget(self) -> None:
        """Be as new: what is left of a life must not be taken for the next one."""
        self._stop = self._ready = self._life = None
        self.manager, self.peers = self._new_manager(), Peers(max(1, self._most // 2), IDLE_SECONDS)
        self.server.changes.close()
        if self.short is not None:
            self.short.sessions.clear()

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Start and stop with another application: `FastAPI(lifespan=app.lifespan)`."""
        del app
        async with self.box:
            await self.open()
            try:
                yield
            finally:
                await self.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:  # noqa: BLE001 - the server that runs us prints it
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})


def asgi_app(box: Toolbox, **words: Unpack[AppWords]) -> McpApp:
    """Return an ASGI application that serves a toolbox over MCP: run it, or mount it in Starlette or FastAPI.

    It answers only requests to loopback names until `allowed_hosts` says more. Failures of tools are redacted unless
    the toolbox says otherwise with `on_error=`.

    Raises:
        ConfigError: an option that makes no sense.
    """
    return McpApp(box, **words)


def check_box(box: Any) -> None:
    """Refuse what is no toolbox.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(box, Toolbox):
        raise ConfigError(f"serve({box!r}): give a Toolbox, such as Toolbox(first_tool, second_tool).")


def _check(box: Any, words: AppWords) -> None:
    """Refuse options that make no sense, before anybody relies on them."""
    check_box(box)
    path: Any = words.get("path", "")
    if not isinstance(path, str):
        raise ConfigError(f"path={path!r}: give a text, such as '/mcp'.")
    names: dict[str, Any] = {name: words.get(name, ()) for name in ("allowed_hosts", "allowed_origins")}
    for name, given in names.items():
        # A text is a sequence of texts, too, and one with a star in it would let everybody in.
        if isinstance(given, str) or not all(isinstance(item, str) for item in given):
            raise ConfigError(f"{name}={given!r}: give a list of texts, such as ['tools.example.com'].")
    sizes: dict[str, Any] = {name: words.get(name, 1) for name in ("max_body_bytes", "max_sessions")}
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise ConfigError(f"{name}={size!r}: give a whole number above 0.")
    auth: Any = words.get("auth")
    if not (auth is None or isinstance(auth, Bearer) or callable(auth)):
        # Its value may be the token itself.
        raise ConfigError(
            f"auth= is of type {type(auth).__name__!r}. Give a function of a token: auth=token_is(secret)."
        )


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what follows."""
    given = False

    async def replay() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _key_from(given: str | bytes | None) -> bytes | None:
    if given is None:
        return None
    key = given.encode() if isinstance(given, str) else given
    if len(key) < 16:  # noqa: PLR2004 - 128 bits
        raise ConfigError(f"state_key has {len(key)} bytes. Give at least 16, from a secret store.")
    return key
